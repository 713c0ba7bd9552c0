// Failures and extremes: a server that goes away, hostile texts, very long sessions and files.
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { measureFrameRates, reportSteps, scrub, zoomAndPan } from './measure';
import { collectErrors, expect, OUT, test } from './project';

test('a session of a hundred thousand steps opens and scrolls smoothly', async ({ project, page }, info) => {
  test.setTimeout(300_000);
  const signIn = await project.serve();
  await reportSteps(project, 'long', 0, 100_000);
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  const id = items[0]?.id;
  await page.goto(signIn);
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  const startedAt = Date.now();
  await page.goto(`${project.url}/sessions/${id}`);
  await expect(page.locator('.position')).toHaveText('100,000 / 100,000');
  await expect(page.getByRole('option').filter({ hasText: 'step 99999 of many' })).toBeVisible();
  const openedMs = Date.now() - startedAt;
  await page.screenshot({ path: join(OUT, 'screens', 'hundred-thousand-1440.png') });

  // Frame rates while zooming, panning and scrubbing, measured in the page. Other processes take frames away, so the assertion is on
  // the processor time that the page itself needs for a frame.
  const moving = await measureFrameRates(page, zoomAndPan);
  const scrubbing = await measureFrameRates(page, scrub);
  const measured = `100,000 steps: opened in ${openedMs} ms; zooming and panning ${moving.text}; scrubbing ${scrubbing.text}`;
  info.annotations.push({ type: 'measured', description: measured });
  console.log(measured);
  expect(moving.possible).toBeGreaterThan(30);
  expect(scrubbing.possible).toBeGreaterThan(30);
  // The page still responds.
  await page.keyboard.press('Home');
  await expect(page.getByRole('option').filter({ hasText: 'step 0 of many' })).toBeVisible();
  await page.keyboard.press('e');
  await expect(page.getByRole('option').filter({ hasText: 'step 499 of many' })).toBeVisible();
});

test('no step is lost while the server restarts', async ({ project, page }) => {
  const signIn = await project.serve();
  await reportSteps(project, 'cut', 0, 10);
  const errors = collectErrors(page);
  await page.goto(signIn);
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  await page.goto(`${project.url}/sessions/${items[0]?.id}`);
  await expect(page.locator('.position')).toHaveText('10 / 10');
  const port = new URL(project.url).port;
  await project.killServer();
  await expect(page.getByText('reconnecting')).toBeVisible();
  await project.serve(`127.0.0.1:${port}`);
  expect(new URL(project.url).port).toBe(port);
  // These steps are reported before the page has reconnected.
  await reportSteps(project, 'cut', 10, 25);
  await expect(page.locator('.position')).toHaveText('25 / 25', { timeout: 30_000 });
  await expect(page.getByText('live', { exact: true })).toBeVisible();
  await reportSteps(project, 'cut', 25, 30);
  await expect(page.locator('.position')).toHaveText('30 / 30');
  expect(errors).toEqual([]);
});

test('what happened while the connection was lost is shown, even if no event had arrived before', async ({ project, page }) => {
  const signIn = await project.serve();
  await reportSteps(project, 'cut', 0, 10);
  await page.goto(signIn);
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  await expect(page.getByText('live', { exact: true })).toBeVisible();
  // The first stream of the page opens and ends without an event; the next one waits until more steps are reported.
  let opened = 0;
  let release = () => {};
  const reported = new Promise<void>((resolve) => (release = resolve));
  await page.route('**/api/v1/events*', async (route) => {
    if (opened++ === 0) return route.fulfill({ contentType: 'text/event-stream', body: '' });
    await reported;
    return route.continue();
  });
  await page.goto(`${project.url}/sessions/${items[0]?.id}`);
  await expect(page.locator('.position')).toHaveText('10 / 10');
  await expect(page.getByText('reconnecting')).toBeVisible();
  await reportSteps(project, 'cut', 10, 25);
  release();
  await expect(page.locator('.position')).toHaveText('25 / 25');
});

test('recorded content never runs as a script', async ({ project, page }) => {
  const hostileText = `"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload="window.hacked=1">\${alert(1)} javascript:alert(1)`;
  project.write('evil.html', hostileText);
  project.write('evil.svg', `<svg xmlns="http://www.w3.org/2000/svg"><script>window.hacked=1</script></svg>`);
  project.write('<img src=x onerror=window.hacked=1>.md', hostileText);
  project.run('checkpoint', 'create', 'evil', '-m', hostileText, '--tag', 'evil');
  const signIn = await project.serve();
  await project.api('/ingest', {
    workspace: `evil<script>window.hacked=1</script>`,
    agent: hostileText,
    events: [
      { session: 'x', kind: 'user-input', id: '1', summary: hostileText, input: { prompt: hostileText }, messages: [{ role: 'user', content: hostileText }] },
      { session: 'x', kind: 'tool-end', id: '2', tool: hostileText, worker: hostileText, summary: hostileText, input: { [hostileText]: hostileText }, output: hostileText, metadata: { evil: hostileText } },
      { session: 'x', kind: 'error', id: '3', summary: hostileText, error: { name: hostileText, message: hostileText, stack: hostileText } },
    ],
  });
  await page.goto(signIn);
  const { items } = await project.api<{ items: { id: string; agent: string; workspace: string }[] }>('/sessions');
  const workspaces = await project.api<{ items: { id: string; root: string }[] }>('/workspaces');
  const workspaceId = workspaces.items.find((item) => item.root === project.root)?.id;
  const people = await project.api<{ items: { id: string; workspace: string }[] }>('/sessions?agent=person');
  const personSession = people.items.find((item) => item.workspace === workspaceId);
  const agentSession = items[0];
  const readHacked = () => page.evaluate(() => (window as unknown as { readHacked?: number }).readHacked);
  const paths = [
    '/sessions',
    `/sessions/${agentSession?.id}?step=1`,
    `/sessions/${agentSession?.id}?step=2`,
    `/sessions/${agentSession?.id}?step=3`,
    `/sessions/${agentSession?.id}?step=3&view=state`,
    `/sessions/${personSession?.id}?step=1&view=state`,
    `/checkpoints?workspace=${personSession?.workspace}`,
    '/search?q=onerror',
    '/dashboard',
    `/diff?a=${encodeURIComponent('<script>window.hacked=1</script>')}&workspace=${personSession?.workspace}`,
    `/sessions/${encodeURIComponent('<img src=x onerror=window.hacked=1>')}`,
  ];
  for (const path of paths) {
    await page.goto(project.url + path);
    await expect(page.locator('#main *').first()).toBeVisible();
    await expect(page.locator('.loading')).toHaveCount(0);
    expect(await readHacked(), path).toBeUndefined();
    expect(await page.locator('#main script, #main img[src="x"], #main svg[onload]').count(), path).toBe(0);
  }
  await page.goto(`${project.url}/sessions/${agentSession?.id}?step=2`);
  await expect(page.getByRole('article')).toContainText('<script>window.hacked=1</script>');
  await page.goto(`${project.url}/sessions/${personSession?.id}?step=1&view=state`);
  for (const name of [/evil\.html/, /evil\.svg/]) {
    await page.getByRole('button', { name }).click();
    await expect(page.locator('.code')).toContainText('window.hacked=1');
    expect(await readHacked()).toBeUndefined();
  }
});

test('a browser that is not signed in shows how to sign in', async ({ project, browser }) => {
  const signIn = await project.serve();
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${project.url}/sessions`);
  await expect(page.getByRole('heading', { name: 'This browser is not signed in' })).toBeVisible();
  expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
  await context.addCookies([{ name: 'stepback', value: '0'.repeat(64), url: project.url }]);
  await page.goto(`${project.url}/live`);
  await expect(page.getByRole('heading', { name: 'This browser is not signed in' })).toBeVisible();
  await page.goto(signIn);
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  expect(page.url()).not.toContain('page=');
  // Another tab and a reload stay signed in; the cookie without the page's key is not enough, nor the key without the cookie.
  const tab = await context.newPage();
  await tab.goto(`${project.url}/live`);
  await expect(tab.getByRole('heading', { name: 'Live' })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  const request = (headers: Record<string, string>) =>
    page.evaluate(async (sent) => (await fetch('/api/v1/workspaces', { headers: sent })).status, headers);
  expect(await request({})).toBe(401);
  const key = await page.evaluate(() => window.localStorage.getItem('stepback.page-key') ?? '');
  expect(await request({ 'x-stepback-page': key })).toBe(200);
  const cookies = (await context.cookies()).filter((cookie) => cookie.name.startsWith('stepback'));
  expect(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite])).toEqual([[true, 'Strict']]);
  const secondVisit = await page.goto(signIn);
  expect(secondVisit?.status()).toBe(403);
});

test('an output of 50 MB and a diff of 100,000 lines stay usable', async ({ project, page }) => {
  test.setTimeout(180_000);
  const lines = (text: string) => Array.from({ length: 100_000 }, (_, i) => `line ${i} ${text}`).join('\n');
  project.write('long.txt', lines('before'));
  project.write('small.txt', 'a\n');
  project.run('checkpoint', 'create', 'before');
  project.write('long.txt', lines('after'));
  project.write('small.txt', 'b\n');
  project.run('checkpoint', 'create', 'after');
  await page.goto(await project.serve());
  await page.goto(`${project.url}/diff?a=before&b=after`);
  await expect(page.getByText('+100,001')).toBeVisible({ timeout: 60_000 });
  // A file with that many changed lines starts collapsed, so that the next one is visible.
  await expect(page.locator('.diff-line.add, .diff-line.del').filter({ hasText: 'b' }).first()).toBeVisible();
  await page.locator('.diff-file .disclosure').first().click();
  await expect(page.locator('.diff-pair').first()).toBeVisible();
  expect(await page.locator('.diff-pair').count()).toBeLessThan(200);
  await page.locator('.diff').evaluate((element) => element.scrollTo({ top: element.scrollHeight / 2 }));
  await expect(page.getByText(/line 4\d{4} after|line 5\d{4} after/).first()).toBeVisible();
  await page.getByRole('button', { name: 'Unified' }).click();
  await expect(page.locator('.diff-line').first()).toBeVisible();

  await reportSteps(project, 'large', 0, 4);
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  await page.route('**/api/v1/sessions/*/steps/3', async (route) => {
    const response = await route.fetch();
    const step = (await response.json()) as Record<string, unknown>;
    await route.fulfill({ json: { ...step, output: 'x'.repeat(50_000_000) } });
  });
  await page.goto(`${project.url}/sessions/${items[0]?.id}?step=3`);
  await expect(page.getByText(/of 50 MB shown/)).toBeVisible({ timeout: 30_000 });
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.keyboard.press('h');
  await expect(page.locator('.position b')).toHaveText('2');
});

test('an unknown session is reported', async ({ project, page }) => {
  await page.goto(await project.serve());
  await page.goto(`${project.url}/sessions/0123456789abcdef0123456789abcdef`);
  await expect(page.getByRole('heading', { name: 'Session not found' })).toBeVisible();
  await page.goto(`${project.url}/sessions/0123/what-if`);
  await expect(page.getByRole('alert')).toBeVisible();
});
