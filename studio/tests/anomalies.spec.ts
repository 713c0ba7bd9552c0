// What is unusual in a session, marked where it happened.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { collectErrors, expect, OUT, test, type TestProject } from './project';

const START = Date.UTC(2026, 0, 5, 9);

/** A session that calls the same command again and again with the same result, between other work. */
async function reportLoop(project: TestProject, hostile: string): Promise<string> {
  const events: Record<string, unknown>[] = [{ session: 'stuck', kind: 'user-input', id: 'p', at: new Date(START).toISOString(), summary: 'fix the test' }];
  const add = (id: string, seconds: number, tool: string, input: unknown, output: unknown) => {
    const at = START + seconds * 1000;
    events.push({ session: 'stuck', kind: 'tool-start', id: `${id}s`, call: id, tool, at: new Date(at).toISOString(), summary: `${tool} ${id}`, input });
    events.push({ session: 'stuck', kind: 'tool-end', id: `${id}e`, call: id, tool, at: new Date(at + 500).toISOString(), summary: `${tool} ${id}`, input, output, duration_us: 500_000 });
  };
  for (let i = 0; i < 6; i++) add(`r${i}`, 1 + i, 'Read', { path: `src/${i}.rs` }, `content ${i}`);
  for (let i = 0; i < 24; i++) add(`t${i}`, 20 + i * 2, 'Bash', { command: `cargo test ${hostile}` }, `1 failed ${hostile}`);
  for (let i = 0; i < 6; i++) add(`w${i}`, 90 + i, 'Read', { path: `tests/${i}.rs` }, `other content ${i}`);
  await project.api('/ingest', { workspace: 'elsewhere', agent: 'buyer', events });
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  return items[0]?.id ?? '';
}

test('a loop is marked in the timeline and the list, and explained at its steps', async ({ project, page }) => {
  const hostile = '<img src=x onerror="window.hacked=1">';
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  const id = await reportLoop(project, hostile);
  const { items } = await project.api<{ items: { kind: string; steps: number[]; last: number; evidence: string; severity: string }[] }>(`/anomalies?session=${id}`);
  const loop = items.find((item) => item.kind === 'loop');
  if (!loop) throw new Error(`the server found no loop: ${JSON.stringify(items)}`);
  await page.goto(`${project.url}/sessions/${id}?step=1`);
  const count = page.getByRole('button', { name: /anomal/ });
  await expect(count).toContainText(String(items.length));
  await count.click();
  await expect(page.locator('.position b')).toHaveText(String(Math.min(...items.map((item) => item.steps[0] ?? item.last))));
  // The keyboard goes to each of them.
  await page.goto(`${project.url}/sessions/${id}?step=1`);
  await expect(page.getByRole('article', { name: 'Step 1' })).toBeVisible();
  await expect(count).toBeVisible();
  for (let turn = 0; turn < items.length + 1; turn++) {
    const title = page.getByRole('region', { name: 'Anomalies' });
    await page.keyboard.press('a');
    await expect(title).toBeVisible();
    if (await title.getByText('loop', { exact: true }).count()) break;
  }
  const section = page.getByRole('region', { name: 'Anomalies' });
  await expect(section).toContainText(loop.evidence);
  await expect(section).toContainText('inferred: ');
  await expect(section).toContainText('unusual from');
  await expect(page.getByRole('listbox', { name: 'Steps' }).getByRole('option', { selected: true })).toContainText('loop');
  await expect(page.getByRole('img', { name: /anomalies are marked: \d+/ })).toBeVisible();
  mkdirSync(join(OUT, 'screens'), { recursive: true });
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
    await page.screenshot({ path: join(OUT, 'screens', `anomalies-1440-${theme}.png`) });
    expect((await new AxeBuilder({ page }).analyze()).violations.map((item) => `${item.id} ${item.nodes[0]?.target.join(' ')}`)).toEqual([]);
  }
  // Its steps are links.
  await section.getByRole('link', { name: `last #${loop.last}` }).first().click();
  await expect(page.getByRole('article', { name: `Step ${loop.last}` })).toBeVisible();
  expect(await page.evaluate(() => (window as unknown as { hacked?: number }).hacked)).toBeUndefined();
  expect(errors).toEqual([]);
});
