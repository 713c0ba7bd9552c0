// Sharing a session: a link and files, with the keyboard alone.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { collectErrors, expect, OUT, test } from './project';

const write = (path: string, content: string) => ({ tool: 'write', input: { path, content } });

test('a session is shared as a link and as files', async ({ project, page, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  project.runAgent('write the poem', [{ text: 'I write.', calls: [write('poem.txt', 'roses are red\n')] }, { text: 'Done.' }]);
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  const { items } = await project.api<{ items: { id: string }[] }>('/sessions');
  const id = items[0]?.id ?? '';
  await page.goto(`${project.url}/sessions/${id}?step=3`);
  await expect(page.getByRole('article', { name: 'Step 3' })).toBeVisible();
  await page.keyboard.press('s');
  const dialog = page.getByRole('dialog', { name: 'Share this session' });
  await expect(dialog.getByText(`${project.url}/sessions/${id}?step=3`)).toBeVisible();
  await dialog.getByRole('button', { name: 'Copy' }).press('Enter');
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(`${project.url}/sessions/${id}?step=3`);
  expect((await new AxeBuilder({ page }).analyze()).violations.map((item) => item.id)).toEqual([]);
  await page.screenshot({ path: join(OUT, 'screens', 'share-1440-light.png') });

  const save = async (name: string) => {
    const [file] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: `Download ${name}`, exact: true }).press('Enter')]);
    await expect(dialog.getByText(/Saved, /)).toBeVisible();
    return { name: file.suggestedFilename(), text: readFileSync(await file.path(), 'utf8') };
  };
  const lines = await save('Lines of JSON');
  expect(lines.name).toBe(`${id.slice(0, 8)}.jsonl`);
  const steps = lines.text.trim().split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(JSON.stringify(steps)).toContain('roses are red');
  expect((await save('Bundle')).name).toBe(`${id.slice(0, 8)}.bundle`);

  // A file that cannot be made is reported, and the dialog stays usable.
  await page.route('**/export?*', (route) => route.fulfill({ status: 410, contentType: 'application/problem+json', json: { title: 'gone', detail: 'its steps were pruned' } }));
  await dialog.getByRole('button', { name: 'Download Bundle' }).click();
  await expect(dialog.getByRole('alert')).toContainText('its steps were pruned');
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  expect(errors.filter((error) => !error.includes('410'))).toEqual([]);

  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('button', { name: 'Share' }).click();
  await page.screenshot({ path: join(OUT, 'screens', 'share-390-light.png') });
  expect(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);
});
