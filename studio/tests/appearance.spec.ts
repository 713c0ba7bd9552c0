// Every page at two widths in both themes: screenshots, layout and accessibility.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { addSampleBoard } from './board-data';
import { collectErrors, expect, OUT, test } from './project';

const SIZES = [
  { name: '1440', width: 1440, height: 900 },
  { name: '390', width: 390, height: 844 },
];

for (const theme of ['light', 'dark'] as const)
  for (const size of SIZES)
    test(`every page, ${theme}, ${size.name} wide`, async ({ project, page }) => {
      test.setTimeout(300_000);
      project.demo();
      project.run('checkpoint', 'create', 'good', '-m', 'All tests pass.', '--tag', 'release');
      project.run('breakpoint', 'add', 'tool', 'bash', '--condition', 'rm ');
      const signIn = await project.serve();
      const sessions = await project.api<{ items: { id: string; title: string; workspace: string }[] }>('/sessions');
      const first = sessions.items.find((item) => item.title === 'refactor the auth module');
      if (!first) throw new Error('no session of the demo');
      project.write('kept.txt', 'mine\n');
      addSampleBoard(project, first.id);
      const steps = await project.api<{ items: { number: number; kind: string; checkpoint: boolean }[] }>(`/sessions/${first.id}/steps?limit=1000`);
      const checkpointStep = steps.items.find((item) => item.checkpoint && item.kind === 'tool-end')?.number ?? 1;
      const modelStep = steps.items.find((item) => item.kind === 'model-start')?.number ?? 1;
      const workspace = first.workspace;
      const pages: [string, string, RegExp | string][] = [
        ['sessions', '/sessions', 'refactor the auth module'],
        ['session', `/sessions/${first.id}?step=${checkpointStep}`, 'Changed files'],
        ['session-model', `/sessions/${first.id}?step=${modelStep}`, 'Full request'],
        ['session-state', `/sessions/${first.id}?step=${checkpointStep}&view=state`, 'auth.sh'],
        ['session-mind', `/sessions/${first.id}?view=mind`, 'Confidence over time'],
        ['checkpoints', `/checkpoints?workspace=${workspace}`, 'All tests pass.'],
        ['diff', `/diff?a=%231&b=branch:main&workspace=${workspace}`, 'clock.sh'],
        ['branches', `/branches?workspace=${workspace}`, 'plan-a'],
        ['compare', `/compare?a=plan-a&b=main&workspace=${workspace}`, 'Step by step'],
        ['what-if', `/sessions/${first.id}/what-if?step=${checkpointStep}`, 'Start rerun'],
        ['live', `/live?workspace=${workspace}`, 'Add breakpoint'],
        ['search', '/search?q=tests', 'found'],
        ['why', `/why?workspace=${workspace}&target=%23${checkpointStep}`, 'Searched:'],
        ['time', `/sessions/${first.id}/time`, 'Waterfall'],
        ['steps', '/steps?kind=tool-end&order=longest', 'kind: tool-end'],
        ['dashboard', '/dashboard', 'Slowest tools'],
      ];
      mkdirSync(join(OUT, 'screens'), { recursive: true });
      const problems = collectErrors(page);
      await page.goto(signIn);
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
      for (const [name, path, text] of pages) {
        await page.goto(project.url + path);
        await expect(page.getByText(text).first()).toBeVisible();
        await expect(page.locator('.loading')).toHaveCount(0);
        await page.screenshot({ path: join(OUT, 'screens', `${name}-${size.name}-${theme}.png`) });
        if (name === 'session-mind') {
          // The whole board, which is taller than the viewport.
          await page.setViewportSize({ ...size, height: size.width > 1000 ? 2400 : 4200 });
          await page.screenshot({ path: join(OUT, 'screens', `board-${size.name}-${theme}.png`) });
          await page.setViewportSize(size);
        }
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        if (overflow > 0) problems.push(`${name}: ${overflow} px too wide`);
        const axe = await new AxeBuilder({ page }).analyze();
        for (const violation of axe.violations) {
          const where = violation.nodes.slice(0, 3).map((node) => `${node.target.join(' ')} (${node.any[0]?.message ?? node.failureSummary ?? ''})`);
          problems.push(`${name}: ${violation.id}: ${where.join('; ')}`);
        }
      }
      expect(problems).toEqual([]);
    });

test('dialogs and empty pages are accessible', async ({ project, page }) => {
  const signIn = await project.serve();
  await page.goto(signIn);
  await expect(page.getByText('Nothing recorded yet')).toBeVisible();
  await page.screenshot({ path: join(OUT, 'screens', 'empty-1440.png') });
  const check = async (pageName: string) => {
    const axe = await new AxeBuilder({ page }).analyze();
    expect(axe.violations.map((item) => `${pageName}: ${item.id} ${item.nodes[0]?.target.join(' ')}`)).toEqual([]);
  };
  await check('empty');
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keyboard shortcuts' })).toBeVisible();
  await check('keys');
  await page.screenshot({ path: join(OUT, 'screens', 'keys-1440.png') });
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  for (const name of ['Checkpoints', 'Branches', 'Live', 'Search', 'Dashboard']) {
    await page.getByRole('link', { name }).click();
    await expect(page.getByRole('heading').first()).toBeVisible();
    await check(name);
  }
});
