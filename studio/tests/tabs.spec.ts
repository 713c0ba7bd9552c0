// Many tabs at once: one stream of live events between them, handed on when a tab is closed or hidden.
import type { Page } from '@playwright/test';
import { collectErrors, expect, test } from './project';
import { reportSteps } from './measure';

const TABS = 20;

/** Says to the page that it is hidden, as a browser does with a tab in the background. */
async function setHidden(page: Page, hidden: boolean) {
  await page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => (value ? 'hidden' : 'visible') });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
}

test('twenty tabs share one stream, and none waits for a connection', async ({ project, page, context }) => {
  test.setTimeout(240_000);
  const signIn = await project.serve();
  await reportSteps(project, 'shared', 0, 10);
  const open = new Map<Page, number>();
  const follow = (tab: Page) => {
    const isStream = (url: string) => new URL(url).pathname === '/api/v1/events';
    tab.on('request', (request) => isStream(request.url()) && open.set(tab, (open.get(tab) ?? 0) + 1));
    const end = (request: { url: () => string }) => isStream(request.url()) && open.set(tab, (open.get(tab) ?? 0) - 1);
    tab.on('requestfailed', end);
    tab.on('requestfinished', end);
  };
  const streams = () => [...open.values()].reduce((sum, count) => sum + count, 0);
  const holder = () => tabs.find((tab) => (open.get(tab) ?? 0) > 0);
  follow(page);
  await page.goto(signIn);
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  const tabs = [page];
  while (tabs.length < TABS) {
    const tab = await context.newPage();
    follow(tab);
    tabs.push(tab);
  }
  const errors = tabs.flatMap((tab) => collectErrors(tab));
  await Promise.all(tabs.map((tab) => tab.goto(`${project.url}/sessions/${items[0]?.id}`)));
  // Every tab has loaded its data, which it could not if streams took all connections.
  for (const tab of tabs) {
    await expect(tab.locator('.position')).toHaveText('10 / 10');
    await expect(tab.getByText('live', { exact: true })).toBeVisible();
  }
  await expect.poll(streams).toBe(1);
  await reportSteps(project, 'shared', 10, 20);
  for (const tab of tabs) await expect(tab.locator('.position')).toHaveText('20 / 20');

  // The tab with the stream is closed: another one takes over, and nothing is lost in between.
  const first = holder();
  if (!first) throw new Error('no tab has the stream');
  open.delete(first);
  tabs.splice(tabs.indexOf(first), 1);
  await first.close();
  await reportSteps(project, 'shared', 20, 30);
  for (const tab of tabs) await expect(tab.locator('.position')).toHaveText('30 / 30');
  await expect.poll(streams).toBe(1);

  // It is hidden: the same, and the hidden tab still follows what the others read.
  const second = holder();
  if (!second) throw new Error('no tab has the stream');
  await setHidden(second, true);
  await expect.poll(() => open.get(second)).toBe(0);
  await reportSteps(project, 'shared', 30, 40);
  for (const tab of tabs) await expect(tab.locator('.position')).toHaveText('40 / 40');
  await expect.poll(streams).toBe(1);

  // All are hidden: no stream at all. One comes back: it catches up.
  for (const tab of tabs) await setHidden(tab, true);
  await expect.poll(streams).toBe(0);
  await reportSteps(project, 'shared', 40, 50);
  await setHidden(second, false);
  await expect(second.locator('.position')).toHaveText('50 / 50');
  await expect.poll(streams).toBe(1);
  expect(errors).toEqual([]);
});
