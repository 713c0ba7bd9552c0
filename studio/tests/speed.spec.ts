// The benchmark. Only `cargo xtask bench studio` runs it, with an optimised program on an idle machine.
import { writeFileSync } from 'node:fs';
import { measureFrameRates, reportSteps, scrub, zoomAndPan } from './measure';
import { expect, test } from './project';

const RESULT = process.env.STEPBACK_STUDIO_BENCH;
const RUNS = Number(process.env.STEPBACK_STUDIO_BENCH_RUNS ?? 10);
const STEPS = Number(process.env.STEPBACK_STUDIO_BENCH_STEPS ?? 100_000);

test('time to open, frame rates', async ({ project, page }) => {
  test.skip(!RESULT, 'runs only as a benchmark');
  test.setTimeout(900_000);
  const signIn = await project.serve();
  await reportSteps(project, 'long', 0, STEPS);
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  const id = items[0]?.id;
  await page.goto(signIn);
  await expect(page.getByRole('row').nth(1)).toBeVisible();

  // The compressed size of all scripts of a first visit.
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Network.enable');
  await cdp.send('Network.setCacheDisabled', { cacheDisabled: true });
  const kinds = new Map<string, string>();
  let scripts = 0;
  cdp.on('Network.responseReceived', (event) => void kinds.set(event.requestId, event.type));
  cdp.on('Network.loadingFinished', (event) => {
    if (kinds.get(event.requestId) === 'Script') scripts += event.encodedDataLength;
  });
  const timed = async (path: string, done: () => Promise<void>): Promise<number> => {
    await page.goto('about:blank');
    const startedAt = performance.now();
    await page.goto(project.url + path, { waitUntil: 'commit' });
    await done();
    return performance.now() - startedAt;
  };
  const ready = [];
  for (let run = 0; run < RUNS; run++) {
    scripts = 0;
    ready.push(await timed('/sessions', () => page.getByRole('row').nth(1).waitFor()));
  }
  await page.waitForLoadState('networkidle').catch(() => {});
  const script_bytes = scripts;
  await cdp.detach();

  const open = [];
  const last = page.getByRole('option').filter({ hasText: `step ${STEPS - 1} of many` });
  for (let run = 0; run < RUNS; run++) open.push(await timed(`/sessions/${id}`, () => last.waitFor()));
  const requests = await page.evaluate(() =>
    (performance.getEntriesByType('resource') as PerformanceResourceTiming[])
      .filter((entry) => entry.name.includes('/api/'))
      .map((entry) => ({ path: entry.name.replace(/.*\/api\/v1/, ''), from_ms: Math.round(entry.startTime), to_ms: Math.round(entry.responseEnd), bytes: entry.encodedBodySize })),
  );
  const moving = await measureFrameRates(page, zoomAndPan);
  const scrubbing = await measureFrameRates(page, scrub);
  writeFileSync(RESULT ?? '', JSON.stringify({ steps: STEPS, ready_ms: ready, open_ms: open, script_bytes, requests, moving, scrubbing }));
});
