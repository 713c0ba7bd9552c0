// All sessions at a glance, from recorded sessions, with every number leading to its steps.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { collectErrors, expect, OUT, test, type TestProject } from './project';

const HOSTILE = '<b>Weigh</b>';

/** Two sessions of two agents in two workspaces: tools of different speed, failures, a model with a price and one without. */
async function reportSessions(project: TestProject) {
  const start = Date.now() - 3_600_000;
  for (const [agent, workspace, model] of [
    ['buyer', 'shop', 'claude-opus-4-5'],
    ['cook', 'kitchen', 'home-made-model'],
  ] as const) {
    const events: Record<string, unknown>[] = [{ session: agent, kind: 'user-input', id: 'p', at: new Date(start).toISOString(), summary: 'begin' }];
    let at = start;
    for (let i = 0; i < 20; i++) {
      const tool = ['Fetch', 'Count', HOSTILE][i % 3] ?? '';
      const ms = { Fetch: 4000, Count: 50, [HOSTILE]: 900 }[tool] ?? 0;
      events.push({ session: agent, kind: 'tool-start', id: `${i}s`, call: `c${i}`, tool, at: new Date(at).toISOString(), summary: `${tool} ${i}`, input: { i } });
      at += ms;
      events.push({ session: agent, kind: 'tool-end', id: `${i}e`, call: `c${i}`, tool, at: new Date(at).toISOString(), summary: `${tool} ${i}`, duration_us: ms * 1000, output: `result ${i}`, ...(tool === HOSTILE && i > 10 ? { error: 'the scale is broken' } : {}) });
      at += 1000;
      events.push({ session: agent, kind: 'model-end', id: `${i}m`, call: `m${i}`, tool: model, at: new Date(at).toISOString(), summary: 'answers', duration_us: 700_000, metadata: { model, usage: { input: 1000, output: 200, cache_read: 5000, cache_write: 0 }, ...(model.startsWith('claude') ? { cost_usd: 0.05 } : {}) } });
    }
    await project.api('/ingest', { workspace, agent, events });
  }
}

test('cost, speed and failures are added up and lead to their steps', async ({ project, page }) => {
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  await reportSessions(project);
  await page.goto(`${project.url}/dashboard`);
  const tile = (name: string) => page.locator('.tiles > div').filter({ has: page.getByText(name, { exact: true }) }).locator('dd');
  await expect(tile('Sessions')).toHaveText('2');
  await expect(tile('Tool calls')).toHaveText('40');
  // A model without a price is not free.
  await expect(tile('Cost')).toHaveText('at least $1.00');
  const cost = page.getByRole('group', { name: 'Cost by model' });
  await expect(cost.getByRole('row').filter({ hasText: 'claude-opus-4-5' })).toContainText('$1.00');
  await expect(cost.getByRole('row').filter({ hasText: 'home-made-model' })).toContainText('unknown');
  await expect(page.getByRole('region', { name: 'Cost' })).toContainText(/20 (model )?calls/);
  mkdirSync(join(OUT, 'screens'), { recursive: true });
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
    await expect(page.locator('.loading')).toHaveCount(0);
    await page.screenshot({ path: join(OUT, 'screens', `dashboard-numbers-1440-${theme}.png`), fullPage: true });
    expect((await new AxeBuilder({ page }).analyze()).violations.map((item) => `${item.id} ${item.nodes[0]?.target.join(' ')}`)).toEqual([]);
  }

  // Other groups, with the keyboard; every row is a link to what it counts.
  await page.getByRole('tab', { name: 'Model', exact: true }).focus();
  await page.keyboard.press('ArrowRight');
  await expect(page.getByRole('group', { name: 'Cost by tool' }).getByRole('row').filter({ hasText: 'Fetch' })).toBeVisible();
  await expect(page.getByText(/^Inferred: /)).toBeVisible();
  await page.getByRole('tab', { name: 'Agent' }).click();
  await page.getByRole('group', { name: 'Cost by agent' }).getByRole('link', { name: 'cook' }).click();
  await expect(page.getByRole('button', { name: 'Remove agent cook' })).toBeVisible();
  await page.goBack();

  // Slow tools by p95, the slowest first; failures lead to the failed calls.
  const slow = page.getByRole('group', { name: 'Slowest tools' });
  await expect(slow.getByRole('row').nth(1)).toContainText('Fetch');
  await expect(slow.getByRole('row').nth(1)).toContainText('4.0 s');
  await expect(slow.getByRole('row').nth(2)).toContainText(HOSTILE);
  const failures = page.getByRole('region', { name: 'Error rates' });
  await expect(failures.getByRole('listitem')).toHaveCount(1);
  await expect(failures).toContainText('6 of 12');
  await failures.getByRole('link', { name: HOSTILE }).click();
  await expect(page.getByRole('list', { name: 'Steps' }).getByRole('listitem')).toHaveCount(6);
  await expect(page.getByRole('list', { name: 'Steps' }).getByText('failed', { exact: true })).toHaveCount(6);
  await page.goBack();

  // One workspace, kept in the address.
  await page.getByLabel('Workspace').selectOption({ label: 'remote:kitchen' });
  await expect(tile('Sessions')).toHaveText('1');
  await expect(tile('Cost')).toHaveText('unknown');
  await page.reload();
  await expect(tile('Sessions')).toHaveText('1');
  await page.getByLabel('Period').selectOption('all');
  await expect(page.getByText('Everything recorded, without reruns.')).toBeVisible();
  await page.getByLabel('Reruns').check();
  await expect(page.getByText('Everything recorded, with reruns.')).toBeVisible();

  await page.setViewportSize({ width: 390, height: 844 });
  await page.screenshot({ path: join(OUT, 'screens', 'dashboard-numbers-390-dark.png'), fullPage: true });
  expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);
  expect(errors).toEqual([]);
});
