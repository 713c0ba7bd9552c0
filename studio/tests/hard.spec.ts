// What is not supposed to happen, and happens: a server that goes away, texts that attack, far too much of everything.
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { rates, report, scrub, zoomAndPan } from './measure';
import { complaints, expect, OUT, test } from './world';

test('a hundred thousand steps are opened and gone through smoothly', async ({ world, page }, info) => {
  test.setTimeout(300_000);
  const signIn = await world.serve();
  await report(world, 'long', 0, 100_000);
  const { items } = await world.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  const id = items[0]?.id;
  await page.goto(signIn);
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  const begun = Date.now();
  await page.goto(`${world.url}/sessions/${id}`);
  await expect(page.locator('.where')).toHaveText('100,000 / 100,000');
  await expect(page.getByRole('option').filter({ hasText: 'step 99999 of many' })).toBeVisible();
  const opened = Date.now() - begun;
  await page.screenshot({ path: join(OUT, 'screens', 'hundred-thousand-1440.png') });

  // Frames while somebody zooms and pans over all of it, and while somebody scrubs, counted in the page. What else runs on the machine
  // takes frames away; what decides is therefore the processor time that the page itself needs for a frame.
  const moving = await rates(page, zoomAndPan);
  const scrubbing = await rates(page, scrub);
  const measured = `100,000 steps: opened in ${opened} ms; zooming and panning ${moving.text}; scrubbing ${scrubbing.text}`;
  info.annotations.push({ type: 'measured', description: measured });
  console.log(measured);
  expect(moving.possible).toBeGreaterThan(30);
  expect(scrubbing.possible).toBeGreaterThan(30);
  // It is still alive, and goes where it is told.
  await page.keyboard.press('Home');
  await expect(page.getByRole('option').filter({ hasText: 'step 0 of many' })).toBeVisible();
  await page.keyboard.press('e');
  await expect(page.getByRole('option').filter({ hasText: 'step 499 of many' })).toBeVisible();
});

test('a server that goes away and comes back loses no step', async ({ world, page }) => {
  const signIn = await world.serve();
  await report(world, 'cut', 0, 10);
  const said = complaints(page);
  await page.goto(signIn);
  const { items } = await world.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  await page.goto(`${world.url}/sessions/${items[0]?.id}`);
  await expect(page.locator('.where')).toHaveText('10 / 10');
  const port = new URL(world.url).port;
  await world.kill();
  await expect(page.getByText('reconnecting')).toBeVisible();
  await world.serve(`127.0.0.1:${port}`);
  expect(new URL(world.url).port).toBe(port);
  // These are made before the page is back.
  await report(world, 'cut', 10, 25);
  await expect(page.locator('.where')).toHaveText('25 / 25', { timeout: 30_000 });
  await expect(page.getByText('live', { exact: true })).toBeVisible();
  await report(world, 'cut', 25, 30);
  await expect(page.locator('.where')).toHaveText('30 / 30');
  expect(said).toEqual([]);
});

test('nothing that anybody recorded runs as a script', async ({ world, page }) => {
  const evil = `"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload="window.hacked=1">\${alert(1)} javascript:alert(1)`;
  world.write('evil.html', evil);
  world.write('evil.svg', `<svg xmlns="http://www.w3.org/2000/svg"><script>window.hacked=1</script></svg>`);
  world.write('<img src=x onerror=window.hacked=1>.md', evil);
  world.run('checkpoint', 'create', 'evil', '-m', evil, '--tag', 'evil');
  const signIn = await world.serve();
  await world.api('/ingest', {
    workspace: `evil<script>window.hacked=1</script>`,
    agent: evil,
    events: [
      { session: 'x', kind: 'user-input', id: '1', summary: evil, input: { prompt: evil }, messages: [{ role: 'user', content: evil }] },
      { session: 'x', kind: 'tool-end', id: '2', tool: evil, worker: evil, summary: evil, input: { [evil]: evil }, output: evil, metadata: { evil } },
      { session: 'x', kind: 'error', id: '3', summary: evil, error: { name: evil, message: evil, stack: evil } },
    ],
  });
  await page.goto(signIn);
  const { items } = await world.api<{ items: { id: string; agent: string; workspace: string }[] }>('/sessions');
  const known = await world.api<{ items: { id: string; root: string }[] }>('/workspaces');
  const here = known.items.find((one) => one.root === world.root)?.id;
  const person = items.find((one) => one.agent === 'person' && one.workspace === here);
  const other = items.find((one) => one.agent !== 'person');
  const hacked = () => page.evaluate(() => (window as unknown as { hacked?: number }).hacked);
  const places = [
    '/sessions',
    `/sessions/${other?.id}?step=1`,
    `/sessions/${other?.id}?step=2`,
    `/sessions/${other?.id}?step=3`,
    `/sessions/${other?.id}?step=3&view=state`,
    `/sessions/${person?.id}?step=1&view=state`,
    `/checkpoints?workspace=${person?.workspace}`,
    '/search?q=onerror',
    '/dashboard',
    `/diff?a=${encodeURIComponent('<script>window.hacked=1</script>')}&workspace=${person?.workspace}`,
    `/sessions/${encodeURIComponent('<img src=x onerror=window.hacked=1>')}`,
  ];
  for (const place of places) {
    await page.goto(world.url + place);
    await expect(page.locator('#main *').first()).toBeVisible();
    await expect(page.locator('.loading')).toHaveCount(0);
    expect(await hacked(), place).toBeUndefined();
    expect(await page.locator('#main script, #main img[src="x"], #main svg[onload]').count(), place).toBe(0);
  }
  await page.goto(`${world.url}/sessions/${other?.id}?step=2`);
  await expect(page.getByRole('article')).toContainText('<script>window.hacked=1</script>');
  await page.goto(`${world.url}/sessions/${person?.id}?step=1&view=state`);
  for (const name of [/evil\.html/, /evil\.svg/]) {
    await page.getByRole('button', { name }).click();
    await expect(page.locator('.code')).toContainText('window.hacked=1');
    expect(await hacked()).toBeUndefined();
  }
});

test('who is not signed in learns how to be', async ({ world, browser }) => {
  const signIn = await world.serve();
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${world.url}/sessions`);
  await expect(page.getByRole('heading', { name: 'This browser is not signed in' })).toBeVisible();
  expect((await new AxeBuilder({ page }).analyze()).violations).toEqual([]);
  await context.addCookies([{ name: 'stepback', value: '0'.repeat(64), url: world.url }]);
  await page.goto(`${world.url}/live`);
  await expect(page.getByRole('heading', { name: 'This browser is not signed in' })).toBeVisible();
  await page.goto(signIn);
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  const again = await page.goto(signIn);
  expect(again?.status()).toBe(403);
});

test('an output of 50 MB and a diff of 100,000 lines stay usable', async ({ world, page }) => {
  test.setTimeout(180_000);
  const lines = (text: string) => Array.from({ length: 100_000 }, (_, i) => `line ${i} ${text}`).join('\n');
  world.write('long.txt', lines('before'));
  world.write('small.txt', 'a\n');
  world.run('checkpoint', 'create', 'before');
  world.write('long.txt', lines('after'));
  world.write('small.txt', 'b\n');
  world.run('checkpoint', 'create', 'after');
  await page.goto(await world.serve());
  await page.goto(`${world.url}/diff?a=before&b=after`);
  await expect(page.getByText('+100,001')).toBeVisible({ timeout: 60_000 });
  // A file with that many changed lines begins folded, and the next one can be seen at once.
  await expect(page.locator('.diff-line.add, .diff-line.del').filter({ hasText: 'b' }).first()).toBeVisible();
  await page.locator('.diff-file .twist').first().click();
  await expect(page.locator('.diff-pair').first()).toBeVisible();
  expect(await page.locator('.diff-pair').count()).toBeLessThan(200);
  await page.locator('.diff').evaluate((element) => element.scrollTo({ top: element.scrollHeight / 2 }));
  await expect(page.getByText(/line 4\d{4} after|line 5\d{4} after/).first()).toBeVisible();
  await page.getByRole('button', { name: 'Unified' }).click();
  await expect(page.locator('.diff-line').first()).toBeVisible();

  await report(world, 'large', 0, 4);
  const { items } = await world.api<{ items: { id: string }[] }>('/sessions?agent=buyer');
  await page.route('**/api/v1/sessions/*/steps/3', async (route) => {
    const answer = await route.fetch();
    const step = (await answer.json()) as Record<string, unknown>;
    await route.fulfill({ json: { ...step, output: 'x'.repeat(50_000_000) } });
  });
  await page.goto(`${world.url}/sessions/${items[0]?.id}?step=3`);
  await expect(page.getByText(/of 50 MB shown/)).toBeVisible({ timeout: 30_000 });
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.keyboard.press('h');
  await expect(page.locator('.where b')).toHaveText('2');
});

test('a session that is not there says so', async ({ world, page }) => {
  await page.goto(await world.serve());
  await page.goto(`${world.url}/sessions/0123456789abcdef0123456789abcdef`);
  await expect(page.getByRole('heading', { name: 'This session is not in the store' })).toBeVisible();
  await page.goto(`${world.url}/sessions/0123/what-if`);
  await expect(page.getByRole('alert')).toBeVisible();
});
