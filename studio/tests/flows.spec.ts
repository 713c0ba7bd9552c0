// The main workflows: watch and inspect a session, rewind, stop an agent, rerun with a change, search.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { crc32, deflateSync } from 'node:zlib';
import { collectErrors, expect, test, type TestProject, type Turn } from './project';

const write = (path: string, content: string) => ({ tool: 'write', input: { path, content } });
const bash = (command: string) => ({ tool: 'bash', input: { command } });

const SAMPLE_TURNS: Turn[] = [
  { text: 'First a file.', calls: [write('a.txt', 'one\n')] },
  { text: 'Then it changes.', calls: [write('a.txt', 'two\n'), write('b.txt', 'new\n')] },
  { text: 'A look.', calls: [bash('cat a.txt && exit 3')] },
  { text: 'Done.' },
];

async function findSession(project: TestProject, title: string) {
  const { items } = await project.api<{ items: { id: string; title: string; workspace: string }[] }>('/sessions');
  const session = items.find((item) => item.title === title);
  if (!session) throw new Error(`no session “${title}”`);
  return session;
}

test('a session is shown live', async ({ project, page }) => {
  project.write('kept.txt', 'mine\n');
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  await expect(page.getByText('Nothing recorded yet')).toBeVisible();
  const slowTurns = SAMPLE_TURNS.map((turn) => ({ ...turn, thinks_ms: 400 }));
  const exitCode = project.startAgent('make some files', slowTurns);
  await page.getByRole('link', { name: 'make some files' }).click();
  await expect(page.getByRole('heading', { name: 'make some files' })).toBeVisible();
  // Steps appear without a reload.
  await expect(page.getByRole('option').filter({ hasText: 'write: a.txt' }).first()).toBeVisible();
  expect(await exitCode).toBe(0);
  await expect(page.getByRole('option').filter({ hasText: 'session ended' })).toBeVisible();
  const { id } = await findSession(project, 'make some files');
  const marks = await project.api<{ number: number[] }>(`/sessions/${id}/marks`);
  await expect(page.locator('.position')).toHaveText(`${marks.number.length} / ${marks.number.length}`);
  await expect(page.getByText('ended').first()).toBeVisible();
  expect(errors).toEqual([]);
});

test('scrub, inspect, create a checkpoint, rewind and undo', async ({ project, page }) => {
  project.write('kept.txt', 'mine\n');
  project.runAgent('make some files', SAMPLE_TURNS);
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  await page.getByRole('link', { name: 'make some files' }).click();
  const position = page.locator('.position b');
  await expect(position).not.toHaveText('1');

  // Scrubbing above the timeline, and keys.
  const canvas = page.locator('canvas');
  const box = await canvas.boundingBox();
  if (!box) throw new Error('no timeline');
  await page.mouse.move(box.x + box.width - 5, box.y + 15);
  await page.mouse.down();
  await page.mouse.move(box.x + 2, box.y + 15, { steps: 8 });
  await page.mouse.up();
  await expect(position).toHaveText('1');
  await page.keyboard.press('l');
  await expect(position).toHaveText('2');
  await page.keyboard.press('e');
  await expect(page.getByRole('article')).toContainText('cat a.txt && exit 3');
  await page.keyboard.press('[');
  await expect(page.getByRole('article')).toContainText('write: b.txt');
  await expect(page.getByText('Changed files')).toBeVisible();

  // The state at that step has the first version of the file, which is no longer on disk.
  const id = new URL(page.url()).pathname.split('/').pop();
  const steps = await project.api<{ items: { summary: string }[] }>(`/sessions/${id}/steps?oldest_first=true&limit=1000`);
  await page.keyboard.press('Home');
  await expect(position).toHaveText('1');
  for (let at = 1; !steps.items[at - 1]?.summary.includes('write: a.txt'); at = Number(await position.innerText())) {
    await page.keyboard.press(']');
    await expect(position).not.toHaveText(String(at));
  }
  await expect(page.getByRole('article')).toContainText('write: a.txt');
  await page.getByRole('tab', { name: 'State at this step' }).click();
  await page.getByRole('button', { name: /a\.txt/ }).click();
  await expect(page.getByRole('region', { name: 'a.txt' })).toContainText('one');
  expect(project.read('a.txt')).toBe('two\n');
  await page.getByRole('tab', { name: /Conversation/ }).click();
  await expect(page.locator('.messages')).toContainText('make some files');

  // Create a checkpoint of the current files.
  await page.keyboard.press('c');
  const create = page.getByRole('dialog', { name: 'Create a checkpoint' });
  await create.getByLabel('Name').fill('before-the-rewind');
  await create.getByLabel('Note').fill('Both files are there.');
  await create.getByRole('button', { name: 'Create' }).click();
  await expect(page.getByText(/Created checkpoint #\d+/)).toBeVisible();

  // Rewind to the step that had only the first version.
  await page.getByRole('button', { name: /^Rewind to #/ }).click();
  const dialog = page.getByRole('dialog', { name: /Rewind to/ });
  await expect(dialog.getByText('2 paths')).toBeVisible();
  await expect(dialog.getByRole('listitem').filter({ hasText: 'b.txt' })).toContainText('delete');
  await expect(dialog.getByRole('button', { name: 'Rewind', exact: true })).toBeDisabled();
  expect(project.read('b.txt')).toBe('new\n');
  await dialog.getByLabel(/I reviewed all 2 changes/).check();
  await dialog.getByRole('button', { name: 'Rewind', exact: true }).click();
  await expect(dialog.getByRole('button', { name: 'Undo' })).toBeVisible();
  expect(project.read('a.txt')).toBe('one\n');
  expect(project.read('b.txt')).toBe(null);
  expect(project.read('kept.txt')).toBe('mine\n');
  await dialog.getByRole('button', { name: 'Undo' }).click();
  await expect(dialog.getByText('Undone')).toBeVisible();
  expect(project.read('a.txt')).toBe('two\n');
  expect(project.read('b.txt')).toBe('new\n');
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  expect(errors).toEqual([]);
});

test('an outdated plan is not applied, and the current one is shown', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  await page.goto(await project.serve());
  await page.getByRole('link', { name: 'Checkpoints' }).click();
  await page.getByLabel(/^Rewind to #/).last().click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('The whole workspace').check();
  await expect(dialog.getByText(/will change/)).toBeVisible();
  project.write('a.txt', 'changed meanwhile\n');
  const confirmation = dialog.getByLabel(/I reviewed all/);
  if (await confirmation.count()) await confirmation.check();
  await dialog.getByRole('button', { name: 'Rewind', exact: true }).click();
  await expect(dialog.getByText('Files changed after this plan was made.')).toBeVisible();
  expect(project.read('a.txt')).toBe('changed meanwhile\n');
});

test('checkpoints can be annotated, tagged and found', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  await page.goto(await project.serve());
  await page.getByRole('link', { name: 'Checkpoints' }).click();
  await page.getByLabel(/^Annotate #/).first().click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('golden');
  await dialog.getByLabel('Note').fill('the one to keep');
  await dialog.getByLabel('Tags').fill('good shipped');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('the one to keep')).toBeVisible();
  await page.getByRole('button', { name: 'shipped' }).click();
  await expect(page.getByRole('list', { name: 'Checkpoints' }).getByRole('listitem')).toHaveCount(1);
  await page.goto(`${project.url}/checkpoints?find=nothing-like-it`);
  await expect(page.getByText('No matching checkpoints')).toBeVisible();
});

test('a conversation continues from an earlier step, alone and with the files', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  await page.goto(await project.serve());
  const { id } = await findSession(project, 'make some files');
  const steps = await project.api<{ items: { number: number; kind: string; summary: string }[] }>(`/sessions/${id}/steps?limit=1000&oldest_first=true`);
  const first = steps.items.find((item) => item.kind === 'tool-end' && item.summary.includes('a.txt'))?.number;
  await page.goto(`${project.url}/sessions/${id}?step=${first}`);
  await page.getByRole('button', { name: `Rewind to #${first}` }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('radio', { name: /Conversation/ }).check();
  await expect(dialog.getByRole('region', { name: 'Conversation' })).toContainText(`would continue from #${first}`);
  await expect(dialog.getByRole('list', { name: 'Planned changes' })).toHaveCount(0);
  await dialog.getByRole('button', { name: 'Continue conversation' }).click();
  await expect(dialog.getByText('The conversation can continue from there.')).toBeVisible();
  const command = await dialog.locator('.command pre').innerText();
  expect(command).toContain('agent --session');
  expect(project.read('a.txt')).toBe('two\n');
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  // The new session names the one it was forked from.
  const sessions = await project.api<{ items: { id: string; forked_from: string | null }[] }>('/sessions');
  expect(sessions.items.some((item) => item.forked_from === id)).toBe(true);

  await page.getByRole('button', { name: `Rewind to #${first}` }).click();
  await dialog.getByRole('radio', { name: /Both/ }).check();
  await expect(dialog.getByRole('list', { name: 'Planned changes' })).toContainText('b.txt');
  await dialog.getByLabel(/I reviewed all/).check();
  await dialog.getByRole('button', { name: 'Rewind', exact: true }).click();
  await expect(dialog.locator('.command pre')).toContainText('agent --session');
  expect(project.read('a.txt')).toBe('one\n');
  expect(project.read('b.txt')).toBe(null);
  await dialog.getByRole('button', { name: 'Undo' }).click();
  await expect(dialog.getByText('Undone')).toBeVisible();
  expect(project.read('a.txt')).toBe('two\n');
});

test('an agent stops at a breakpoint, continues with a changed input, and another call is denied', async ({ project, page }) => {
  project.write('kept.txt', 'mine\n');
  project.run('checkpoint', 'create', 'start');
  await page.goto(await project.serve());
  await page.getByRole('link', { name: 'Live' }).click();
  await page.getByPlaceholder('Bash').fill('bash');
  await page.getByRole('button', { name: 'Add breakpoint' }).click();
  await expect(page.getByText('tool bash')).toBeVisible();
  const exitCode = project.startAgent('run something', [
    { text: 'I run it.', calls: [bash('echo from-the-model > out.txt')] },
    { text: 'And clean up.', calls: [bash('rm kept.txt')] },
    { text: 'Done.' },
  ]);
  const card = page.getByRole('article', { name: /is waiting/ });
  await expect(card).toContainText('wants to run');
  await expect(page.getByRole('link', { name: /Live/ })).toContainText('1');
  const input = card.getByLabel('Input');
  await expect(input).toHaveValue(/from-the-model/);
  await input.fill('{"command": ');
  await card.getByRole('button', { name: 'Continue with this input' }).click();
  await expect(card.getByRole('alert')).toContainText('not valid JSON');
  await input.fill('{"command": "echo from-the-person > out.txt"}');
  await card.getByRole('button', { name: 'Continue with this input' }).click();
  await expect(card.getByLabel('Input')).toHaveValue(/rm kept/);
  await card.getByLabel('Reason').fill('it is needed');
  await card.getByRole('button', { name: 'Deny' }).click();
  expect(await exitCode).toBe(0);
  await expect(page.getByText('No agent is stopped')).toBeVisible();
  expect(project.read('out.txt')).toBe('from-the-person\n');
  expect(project.read('kept.txt')).toBe('mine\n');
});

test('a stop causes a notification on any page, and an injected message reaches the agent', async ({ project, page }) => {
  project.run('checkpoint', 'create', 'start');
  project.run('breakpoint', 'add', 'tool', 'bash');
  // Record notifications instead of showing them.
  await page.addInitScript(() => {
    const shown: string[] = [];
    class FakeNotification extends EventTarget {
      static permission = 'granted';
      onclick: (() => void) | null = null;
      constructor(title: string, options: { body: string }) {
        super();
        shown.push(`${title} | ${options.body}`);
        Object.assign(window, { click: () => this.onclick?.() });
      }
    }
    Object.assign(window, { Notification: FakeNotification, shown });
  });
  await page.goto(await project.serve());
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible();
  const exitCode = project.startAgent('run something', [{ text: 'I run it.', calls: [bash('true')] }, { text: 'Once more.', calls: [bash('true')] }, { text: 'Done.' }]);
  await expect.poll(() => page.evaluate(() => (window as unknown as { shown: string[] }).shown)).toEqual([expect.stringMatching(/^stepback is waiting: bash \| .*tool bash/)]);
  await page.evaluate(() => (window as unknown as { click: () => void }).click());
  const card = page.getByRole('article', { name: /is waiting/ });
  await expect(card).toBeVisible();
  await expect(page).toHaveURL(/\/live/);
  await card.getByLabel('Message').fill('prefer the quiet way');
  await card.getByRole('button', { name: 'Inject' }).click();
  await expect(page.getByText('The agent receives the message with its next call.')).toBeVisible();
  await card.getByRole('button', { name: 'Step', exact: true }).click();
  await expect(page.getByText(/stops at its next call/)).toBeVisible();
  // The second stop causes another notification.
  await expect.poll(() => page.evaluate(() => (window as unknown as { shown: string[] }).shown.length)).toBe(2);
  await card.getByRole('button', { name: 'Continue', exact: true }).click();
  expect(await exitCode).toBe(0);
  const { id } = await findSession(project, 'run something');
  const steps = await project.api<{ items: { number: number; kind: string }[] }>(`/sessions/${id}/steps?limit=1`);
  const conversation = await project.api<{ items: { text: string }[] }>(`/sessions/${id}/steps/${steps.items[0]?.number}/state/conversation`);
  expect(conversation.items.some((item) => item.text.includes('prefer the quiet way'))).toBe(true);
  // The list has the step at which the agent stopped.
  await page.goto(`${project.url}/sessions/${id}`);
  await expect(page.getByRole('option').filter({ hasText: 'breakpoint-hit' }).first()).toBeVisible();
});

/** A PNG image of one colour. */
function png(width: number, height: number, colour: [number, number, number]): Buffer {
  const chunk = (name: string, data: Buffer) => {
    const body = Buffer.concat([Buffer.from(name), data]);
    const head = Buffer.alloc(4);
    head.writeUInt32BE(data.length);
    const tail = Buffer.alloc(4);
    tail.writeUInt32BE(crc32(body));
    return Buffer.concat([head, body, tail]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.concat([Buffer.from([0]), ...Array.from({ length: width }, () => Buffer.from(colour))]);
  const data = deflateSync(Buffer.concat(Array.from({ length: height }, () => row)));
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk('IHDR', header), chunk('IDAT', data), chunk('IEND', Buffer.alloc(0))]);
}

test('images are shown before and after, and a broken one is reported', async ({ project, page }) => {
  project.write('logo.png', png(40, 30, [200, 20, 20]));
  project.write('broken.png', Buffer.from([0, 1, 2, 3]));
  project.run('checkpoint', 'create', 'red');
  project.write('logo.png', png(60, 20, [20, 20, 200]));
  project.write('broken.png', Buffer.from([0, 3, 2, 1]));
  project.write('new.png', png(8, 8, [0, 128, 0]));
  project.run('checkpoint', 'create', 'blue');
  await page.goto(await project.serve());
  const { items } = await project.api<{ items: { id: string }[] }>('/workspaces');
  await page.goto(`${project.url}/diff?a=red&b=blue&workspace=${items[0]?.id}`);
  const pictures = page.getByRole('img', { name: 'logo.png' });
  await expect(pictures).toHaveCount(2);
  await expect(page.getByText('40 × 30')).toBeVisible();
  await expect(page.getByText('60 × 20')).toBeVisible();
  await expect(page.getByRole('img', { name: 'new.png' })).toHaveCount(1);
  await expect(page.getByText(/cannot be displayed/).first()).toBeVisible();
});

test('what if: a session is rerun with one change and compared', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  await page.goto(await project.serve());
  const { id } = await findSession(project, 'make some files');
  const steps = await project.api<{ items: { number: number; kind: string; tool: string }[] }>(`/sessions/${id}/steps?limit=1000`);
  const bashStep = steps.items.find((item) => item.kind === 'tool-end' && item.tool === 'bash')?.number;
  await page.goto(`${project.url}/sessions/${id}/what-if?step=${bashStep}`);
  const to = page.getByRole('textbox', { name: 'New value', exact: true });
  await expect(to).toHaveValue(/two/);
  await to.fill('everything is fine');
  await page.getByRole('button', { name: 'Start rerun' }).click();
  await expect(page.locator('div.running')).toContainText('diverged', { timeout: 60_000 });
  await page.getByRole('link', { name: 'Compare with the original' }).click();
  await expect(page.getByRole('heading', { name: 'Step by step' })).toBeVisible();
  await expect(page.getByText(/identical steps/)).toBeVisible();
  expect(project.read('b.txt')).toBe('new\n');
});

test('search finds words in all sessions and highlights them', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  project.runAgent('look for the zebra', [{ text: 'A zebra lives in the äther.', calls: [bash('echo zebra')] }, { text: 'Done.' }]);
  await page.goto(await project.serve());
  await page.keyboard.press('/');
  await page.getByRole('searchbox', { name: 'Search terms' }).fill('zebra');
  await page.keyboard.press('Enter');
  await expect(page.getByText(/\d+ found/)).toBeVisible();
  await expect(page.locator('mark').first()).toHaveText(/zebra/i);
  await page.getByRole('list', { name: 'Search results' }).getByRole('link').first().click();
  await expect(page.getByRole('heading', { name: 'look for the zebra' })).toBeVisible();
});

test('branches are created, compared, switched to and deleted', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  project.run('branch', 'create', 'plan-a');
  await page.goto(await project.serve());
  await page.getByRole('link', { name: 'make some files' }).click();
  const position = page.locator('.position b');
  await expect(position).not.toHaveText('1');
  await page.keyboard.press('Home');
  await expect(position).toHaveText('1');
  await page.getByRole('button', { name: 'Branch' }).click();
  const dialog = page.getByRole('dialog', { name: 'Create a branch' });
  await dialog.getByLabel('Name').fill('from-the-start');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('link', { name: 'Branches' }).click();
  await expect(page.getByText('from-the-start').first()).toBeVisible();
  await page.getByLabel('Compare from-the-start').check();
  await page.getByLabel('Compare main').check();
  await page.getByRole('link', { name: /^Compare from-the-start and main|^Compare main and/ }).click();
  await expect(page.getByText(/2 files differ at the end/)).toBeVisible();
  await page.goBack();
  await page.getByLabel('Switch to from-the-start').click();
  const plan = page.getByRole('dialog', { name: /Switch to/ });
  await plan.getByLabel(/I reviewed all/).check();
  await plan.getByRole('button', { name: 'Switch', exact: true }).click();
  await expect(plan.getByRole('button', { name: 'Undo' })).toBeVisible();
  expect(project.read('a.txt')).toBe(null);
  await plan.getByRole('button', { name: 'Undo' }).click();
  await expect(plan.getByText('Undone')).toBeVisible();
  expect(project.read('a.txt')).toBe('two\n');
  await plan.getByRole('button', { name: 'Close' }).last().click();
  await page.getByLabel('Delete plan-a').click();
  await expect(page.getByLabel('Delete plan-a')).toHaveCount(0);
});

test('a missing project directory is reported', async ({ project, page }) => {
  project.runAgent('make some files', SAMPLE_TURNS);
  await page.goto(await project.serve());
  rmSync(join(project.dir, 'project'), { recursive: true });
  await page.getByRole('link', { name: 'Checkpoints' }).click();
  await page.getByLabel(/^Rewind to #/).first().click();
  await expect(page.getByRole('dialog')).toBeVisible();
  await expect(page.getByRole('dialog').getByRole('alert').or(page.getByRole('dialog').getByText(/will change/))).toBeVisible();
});
