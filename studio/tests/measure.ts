// Sessions of any length, and frame rates of a page.
import type { Page } from '@playwright/test';
import type { TestProject } from './project';

/** Reports steps of a session, as an agent on another machine does. */
export async function reportSteps(project: TestProject, session: string, from: number, to: number, extra: (i: number) => Record<string, unknown> = () => ({})) {
  for (let at = from; at < to; at += 10_000) {
    const events = [];
    for (let i = at; i < Math.min(to, at + 10_000); i++) {
      const turn = i % 8;
      const kind = turn === 0 ? 'user-input' : turn < 3 ? (turn === 1 ? 'model-start' : 'model-end') : turn % 2 ? 'tool-start' : 'tool-end';
      events.push({
        session,
        kind,
        id: `e${i}`,
        at: new Date(Date.UTC(2026, 0, 1) + i * 250).toISOString(),
        call: `c${Math.floor(i / 2)}`,
        tool: kind.startsWith('tool') ? ['Bash', 'Edit', 'Read'][i % 3] : 'model-1',
        summary: `step ${i} of many`,
        worker: i % 40 > 30 ? `worker-${i % 3}` : undefined,
        duration_us: (i % 97) * 1000,
        ...(i % 500 === 499 ? { error: 'it broke' } : {}),
        ...extra(i),
      });
    }
    await project.api('/ingest', { workspace: 'elsewhere', agent: 'buyer', events });
  }
}

/** Frames per second: as seen, and as many as the page's own processor time allows. */
export async function measureFrameRates(page: Page, work: () => Promise<number>): Promise<{ seen: number; possible: number; text: string }> {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const readTaskSeconds = async () => {
    const { metrics } = await cdp.send('Performance.getMetrics');
    return metrics.find((metric) => metric.name === 'TaskDuration')?.value ?? 0;
  };
  const before = await readTaskSeconds();
  const seen = await page.evaluate(work);
  const possible = FRAMES / (await readTaskSeconds() - before);
  await cdp.detach();
  return { seen, possible, text: `${seen.toFixed(0)} frames/s, its own work allows ${possible.toFixed(0)}` };
}

const FRAMES = 60;

/** Runs in the page while zooming and panning: frames per second, by the median of sixty frames. */
export async function zoomAndPan(): Promise<number> {
  const canvas = document.querySelector('canvas');
  if (!canvas) throw new Error('no timeline');
  const box = canvas.getBoundingClientRect();
  const times: number[] = [];
  let last = performance.now();
  for (let turn = 0; turn < 60; turn++) {
    const deltaY = Math.floor(turn / 15) % 2 === 0 ? -60 : 60;
    const at = { clientX: box.left + 300 + (turn % 50), clientY: box.top + 80, bubbles: true, cancelable: true };
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaY, ...at }));
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaX: 30, ...at }));
    await new Promise((done) => requestAnimationFrame(done));
    times.push(performance.now() - last);
    last = performance.now();
  }
  times.sort((a, b) => a - b);
  return 1000 / (times[30] ?? 1000);
}

/** Runs in the page while scrubbing, where each move selects another step. */
export async function scrub(): Promise<number> {
  const canvas = document.querySelector('canvas');
  if (!canvas) throw new Error('no timeline');
  const box = canvas.getBoundingClientRect();
  // A synthetic pointer cannot be captured.
  canvas.setPointerCapture = () => undefined;
  const send = (type: string, x: number) =>
    canvas.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: box.top + 12, pointerId: 1, button: 0, bubbles: true }));
  send('pointerdown', box.left + 10);
  const times: number[] = [];
  let last = performance.now();
  for (let turn = 0; turn < 60; turn++) {
    send('pointermove', box.left + 10 + (turn * (box.width - 20)) / 60);
    await new Promise((done) => requestAnimationFrame(done));
    times.push(performance.now() - last);
    last = performance.now();
  }
  send('pointerup', box.left + box.width / 2);
  times.sort((a, b) => a - b);
  return 1000 / (times[30] ?? 1000);
}
