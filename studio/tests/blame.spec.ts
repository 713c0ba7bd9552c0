// The gutter that says where each line of a file comes from.
import AxeBuilder from '@axe-core/playwright';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { collectErrors, expect, OUT, test, type TestProject } from './project';

const write = (path: string, content: string) => ({ tool: 'write', input: { path, content } });

async function findSession(project: TestProject, title: string) {
  const { items } = await project.api<{ items: { id: string; title: string; workspace: string }[] }>('/sessions');
  const session = items.find((item) => item.title === title);
  if (!session) throw new Error(`no session “${title}”`);
  return session;
}

async function lastStep(project: TestProject, session: string): Promise<number> {
  const { items } = await project.api<{ items: { number: number }[] }>(`/sessions/${session}/steps?limit=1`);
  return items[0]?.number ?? 0;
}

test('every line names its author, and leads to the step that wrote it', async ({ project, page }) => {
  project.write('old.py', 'first = 1\nsecond = 2\n');
  project.write('logo.png', Buffer.from([137, 80, 78, 71, 0, 1, 2]));
  project.write('data.bin', Buffer.from([0, 1, 2, 3]));
  project.run('checkpoint', 'create', 'start');
  project.runAgent('add the third <b>value</b>', [{ text: 'I add it.', calls: [write('old.py', 'first = 1\nsecond = 2\nthird = 3\n')] }, { text: 'Done.' }]);
  project.write('old.py', 'first = 1\nsecond = 2\nthird = 3\nfourth = 4\n');
  project.run('checkpoint', 'create', 'mine');
  project.runAgent('add the fifth value', [{ text: 'I add it.', calls: [write('old.py', 'first = 1\nsecond = 2\nthird = 3\nfourth = 4\nfifth = 5\n')] }, { text: 'Done.' }]);
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  const second = await findSession(project, 'add the fifth value');
  const first = await findSession(project, 'add the third <b>value</b>');
  await page.goto(`${project.url}/sessions/${second.id}?step=${await lastStep(project, second.id)}&view=state`);
  await page.getByRole('button', { name: /^old\.py/ }).click();
  await expect(page.getByRole('region', { name: 'old.py' })).toContainText('fifth = 5');
  await expect(page.locator('.origin')).toHaveCount(0);
  const toggle = page.getByRole('button', { name: 'Blame' });
  await toggle.click();
  await expect(toggle).toHaveAttribute('aria-pressed', 'true');

  // Four authors: older than the recording, an agent, the user, another agent.
  const entries = page.locator('button.origin');
  await expect(entries).toHaveCount(4);
  await expect(entries.nth(0)).toHaveText(/older/);
  await expect(entries.nth(0)).toHaveAccessibleName(/Lines 1 to 2: older than the recording/);
  await expect(entries.nth(1)).toHaveText(/builtin write#\d+|write#\d+/);
  await expect(entries.nth(2)).toHaveText(/you/);
  await expect(entries.nth(3)).toHaveText(/write#\d+/);
  const colour = (index: number) => entries.nth(index).evaluate((element) => getComputedStyle(element).borderLeftColor);
  expect(new Set([await colour(0), await colour(1), await colour(2), await colour(3)]).size).toBe(4);

  // Hovering shows the prompt as text.
  await entries.nth(1).hover();
  const card = page.getByRole('group', { name: 'Origin of line 3' });
  await expect(card).toContainText('add the third <b>value</b>');
  await expect(card).toContainText('recorded');
  await expect(card.locator('time')).toHaveText(/ago|now/);
  mkdirSync(join(OUT, 'screens'), { recursive: true });
  await page.screenshot({ path: join(OUT, 'screens', 'blame-1440-light.png') });
  expect((await new AxeBuilder({ page }).analyze()).violations.map((item) => `${item.id} ${item.nodes[0]?.target.join(' ')}`)).toEqual([]);

  // Keys: one tab stop, arrows from author to author, Escape closes, Enter goes to the step.
  await page.mouse.move(5, 5);
  await expect(page.locator('.origin-card')).toHaveCount(0);
  await page.getByRole('region', { name: 'old.py' }).focus();
  await page.keyboard.press('Tab');
  await expect(entries.nth(0)).toBeFocused();
  await page.keyboard.press('Home');
  await expect(entries.nth(0)).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await expect(entries.nth(2)).toBeFocused();
  await expect(page.getByRole('group', { name: 'Origin of line 4' })).toContainText('you, or a program that reports nothing');
  await page.keyboard.press('Escape');
  await expect(page.locator('.origin-card')).toHaveCount(0);
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(new RegExp(`/sessions/${first.id}\\?step=\\d+`));
  await expect(page.getByRole('heading', { name: 'add the third <b>value</b>' })).toBeVisible();
  await expect(page.getByRole('article')).toContainText('old.py');

  // The user's own change leads to its checkpoint, although blame knows no session of it.
  await page.goto(`${project.url}/sessions/${second.id}?step=${await lastStep(project, second.id)}&view=state`);
  await page.getByRole('button', { name: /^old\.py/ }).click();
  // The setting is kept.
  await entries.nth(2).click();
  await expect(page.getByRole('article')).toContainText('mine');

  // Files without lines say why.
  await page.goto(`${project.url}/sessions/${second.id}?step=${await lastStep(project, second.id)}&view=state`);
  await page.getByRole('button', { name: /^data\.bin/ }).click();
  await expect(page.getByText('It has no lines whose origin could be shown.')).toBeVisible();
  await page.getByRole('button', { name: /^logo\.png/ }).click();
  await expect(page.getByText('An image has no lines whose origin could be shown.')).toBeVisible();
  expect(errors).toEqual([]);

  // On a phone, a card is in view and its links are reachable.
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('button', { name: /^old\.py/ }).click();
  await entries.nth(1).focus();
  await expect(page.locator('.origin-card').getByRole('link', { name: /^Step #/ })).toBeVisible();
  await page.locator('.origin-card').scrollIntoViewIfNeeded();
  await page.screenshot({ path: join(OUT, 'screens', 'blame-390-light.png') });
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  expect(overflow).toBe(0);
});

test('a server that cannot blame a file says why, and the file stays readable', async ({ project, page }) => {
  project.runAgent('write it', [{ text: 'I write.', calls: [write('a.txt', 'one\ntwo\n')] }, { text: 'Done.' }]);
  await page.goto(await project.serve());
  const { id } = await findSession(project, 'write it');
  await page.route('**/blame?*', (route) => route.fulfill({ status: 422, contentType: 'application/problem+json', json: { title: 'unusable', detail: 'the file is larger than 32 MiB', hints: ['look at a part of it'] } }));
  await page.goto(`${project.url}/sessions/${id}?step=${await lastStep(project, id)}&view=state`);
  await page.getByRole('button', { name: /^a\.txt/ }).click();
  await page.getByRole('button', { name: 'Blame' }).click();
  await expect(page.getByRole('alert')).toContainText('the file is larger than 32 MiB');
  await expect(page.getByRole('alert')).toContainText('look at a part of it');
  await expect(page.getByRole('region', { name: 'a.txt' })).toContainText('two');
});

test('five thousand lines stay smooth', async ({ project, page }, info) => {
  const text = (mark: string) => Array.from({ length: 5000 }, (_, i) => `value_${i} = ${i % 7 === 0 ? mark : i}`).join('\n') + '\n';
  project.write('long.py', text('"old"'));
  project.run('checkpoint', 'create', 'start');
  project.runAgent('change every seventh', [{ text: 'I do.', calls: [write('long.py', text('"new"'))] }, { text: 'Done.' }]);
  await page.goto(await project.serve());
  const { id } = await findSession(project, 'change every seventh');
  await page.goto(`${project.url}/sessions/${id}?step=${await lastStep(project, id)}&view=state`);
  await page.getByRole('button', { name: /^long\.py/ }).click();
  await page.getByRole('button', { name: 'Blame' }).click();
  await expect(page.locator('button.origin').first()).toBeVisible();
  expect(await page.locator('.origin').count()).toBeLessThan(200);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const taskSeconds = async () => (await cdp.send('Performance.getMetrics')).metrics.find((metric) => metric.name === 'TaskDuration')?.value ?? 0;
  const before = await taskSeconds();
  await page.locator('.code').evaluate(async (element) => {
    for (let frame = 0; frame < 60; frame++) {
      element.scrollTop = (frame / 59) * (element.scrollHeight - element.clientHeight);
      await new Promise((done) => requestAnimationFrame(done));
    }
  });
  const possible = 60 / (await taskSeconds() - before);
  info.annotations.push({ type: 'measured', description: `blame of 5,000 lines: scrolling allows ${possible.toFixed(0)} frames/s` });
  console.log(`blame of 5,000 lines: scrolling allows ${possible.toFixed(0)} frames/s`);
  expect(possible).toBeGreaterThan(30);
  await expect(page.getByText('value_4999 = 4999')).toBeVisible();
  // Every run is reachable with the keyboard, also from the end to the start.
  await page.locator('button.origin').last().focus();
  await page.keyboard.press('Home');
  await expect(page.getByText('value_0 = "new"')).toBeVisible();
  await expect(page.locator('button.origin').first()).toBeFocused();
});
