// Where the time of a session went: what is drawn, and that it leads to the steps.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { collectErrors, expect, OUT, test, type TestProject } from './project';

const START = Date.UTC(2026, 0, 5, 9);
const SECOND = 1_000_000;

interface Reported {
  kind: string;
  /** Seconds since the start. */
  at: number;
  [field: string]: unknown;
}

async function report(project: TestProject, session: string, events: Reported[]): Promise<string> {
  for (let first = 0; first < events.length; first += 5000)
    await project.api('/ingest', {
      workspace: 'elsewhere',
      agent: 'buyer',
      events: events.slice(first, first + 5000).map((event, index) => ({ session, id: `e${first + index}`, ...event, at: new Date(START + event.at * 1000).toISOString() })),
    });
  const { items } = await project.api<{ items: { id: string; agent_session: string }[] }>('/sessions?agent=buyer');
  return items.find((item) => item.agent_session === session)?.id ?? '';
}

const call = (id: string, tool: string, from: number, seconds: number, more: Record<string, unknown> = {}): Reported[] => [
  { kind: 'tool-start', at: from, call: id, tool, summary: `${tool} ${id}`, ...(more.worker ? { worker: more.worker } : {}) },
  { kind: 'tool-end', at: from + seconds, call: id, tool, summary: `${tool} ${id}`, duration_us: seconds * SECOND, ...more },
];
const model = (id: string, from: number, seconds: number): Reported[] => [
  { kind: 'model-start', at: from, call: id, tool: 'model-1', summary: 'asks the model' },
  { kind: 'model-end', at: from + seconds, call: id, tool: 'model-1', summary: 'answers', duration_us: seconds * SECOND },
];
const inOrder = (events: Reported[]) => [...events].sort((a, b) => a.at - b.at);

test('the waterfall shows parallel calls apart, and every number leads to its steps', async ({ project, page }) => {
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  const id = await report(project, 'shopping', inOrder([
    { kind: 'user-input', at: 0, summary: 'buy apples' },
    ...model('m1', 0, 4),
    ...call('a', 'Fetch', 4, 6),
    ...call('b', 'Fetch', 4, 3),
    ...call('c', '<b>Weigh</b>', 4, 2, { error: 'the scale is broken' }),
    ...model('m2', 10, 5),
    ...call('d', 'Count', 6, 3, { worker: 'helper' }),
    { kind: 'user-input', at: 40, summary: 'and pears' },
    ...model('m3', 40, 2),
  ]));
  await page.goto(`${project.url}/sessions/${id}`);
  await page.getByRole('link', { name: 'Time', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Waterfall' })).toBeVisible();
  await expect(page.getByText('42 s in all')).toBeVisible();
  // The categories add up to the whole.
  const profile = await project.api<{ wall_us: number; categories: { category: string; us: number }[]; spans: { name: string; row: number; lane: number; start_us: number; us: number; step: number }[] }>(`/sessions/${id}/profile`);
  expect(profile.categories.reduce((sum, item) => sum + item.us, 0)).toBe(profile.wall_us);
  await expect(page.getByRole('region', { name: 'Time by category' }).getByText('idle')).toBeVisible();
  // Calls at the same time have rows of their own.
  const parallel = profile.spans.filter((span) => span.start_us === 4 * SECOND && span.lane === 0);
  expect(new Set(parallel.map((span) => span.row)).size).toBe(3);

  mkdirSync(join(OUT, 'screens'), { recursive: true });
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
    await page.screenshot({ path: join(OUT, 'screens', `time-1440-${theme}.png`) });
    expect((await new AxeBuilder({ page }).analyze()).violations.map((item) => `${item.id} ${item.nodes[0]?.target.join(' ')}`)).toEqual([]);
  }

  // Pointing at a call says what it is; a click goes to its step.
  const canvas = page.locator('.waterfall-box canvas').first();
  const place = async (span: (typeof profile.spans)[number]) => {
    const box = await canvas.boundingBox();
    if (!box) throw new Error('nothing is drawn');
    // The whole session fits into the width but for a margin; the axis and the name of the lane are above the rows.
    const x = 4 + ((span.start_us + span.us / 2) / profile.wall_us) * (box.width - 12);
    return { x, y: 22 + 20 + span.row * 18 + 9 };
  };
  const failed = profile.spans.find((span) => span.name === '<b>Weigh</b>');
  if (!failed) throw new Error('the failed call has no span');
  await canvas.hover({ position: await place(failed) });
  await expect(page.locator('.waterfall-tooltip')).toContainText('<b>Weigh</b>');
  await expect(page.locator('.waterfall-tooltip')).toContainText('2.0 s tools');
  await canvas.click({ position: await place(failed) });
  await expect(page).toHaveURL(new RegExp(`/sessions/${id}\\?step=${failed.step}$`));
  await page.goBack();

  // The tables have the same as text, and lead to the calls.
  const tools = page.getByRole('group', { name: 'Tools' });
  await expect(tools.getByRole('row').filter({ hasText: 'Fetch' })).toContainText('9.0 s');
  await tools.getByRole('row').filter({ hasText: 'Weigh' }).getByRole('link', { name: '1', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Steps' })).toBeVisible();
  await expect(page.getByRole('list', { name: 'Steps' }).getByRole('listitem')).toHaveCount(1);
  await page.getByRole('link', { name: /<b>Weigh<\/b> c/ }).click();
  await expect(page).toHaveURL(new RegExp(`/sessions/${id}\\?step=${failed.step}$`));

  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(`${project.url}/sessions/${id}/time`);
  await expect(page.getByRole('heading', { name: 'Waterfall' })).toBeVisible();
  await page.screenshot({ path: join(OUT, 'screens', 'time-390-dark.png') });
  expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);
  expect(errors).toEqual([]);
});

test('a part of a long session is loaded in full when it is zoomed into', async ({ project, page }) => {
  await page.goto(await project.serve());
  const events: Reported[] = [{ kind: 'user-input', at: 0, summary: 'count' }];
  for (let i = 0; i < 4000; i++) events.push(...call(`c${i}`, 'Count', 1 + i * 2, 1 + (i % 10) / 20));
  const id = await report(project, 'long', events);
  await page.goto(`${project.url}/sessions/${id}/time`);
  await expect(page.getByText(/of [\d,]+ spans are not drawn: the shortest ones/)).toBeVisible();
  const asked = page.waitForRequest((request) => /profile\?from_us=\d+&until_us=\d+/.test(request.url()));
  await page.getByRole('group', { name: /^Calls over time/ }).focus();
  for (let turn = 0; turn < 9; turn++) await page.keyboard.press('+');
  await asked;
  await expect(page.getByText(/are not drawn/)).toHaveCount(0);
  await page.keyboard.press('0');
  await expect(page.getByText(/are not drawn/)).toBeVisible();
});

test('a session without durations says so', async ({ project, page }) => {
  await page.goto(await project.serve());
  const id = await report(project, 'empty', [{ kind: 'user-input', at: 0, summary: 'nothing' }]);
  await page.goto(`${project.url}/sessions/${id}/time`);
  await expect(page.getByRole('heading', { level: 1 })).toContainText('Where the time went');
  await expect(page.getByText('No time was recorded').or(page.getByRole('heading', { name: 'Waterfall' }))).toBeVisible();
  await page.goto(`${project.url}/sessions/0123456789abcdef0123456789abcdef/time`);
  await expect(page.getByRole('alert')).toBeVisible();
});
