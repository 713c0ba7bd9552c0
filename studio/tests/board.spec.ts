// The reasoning board at a step.
import AxeBuilder from '@axe-core/playwright';
import { layoutGraph, NODE_SIZE } from '../src/board/layout';
import { addSampleBoard, runThought } from './board-data';
import { collectErrors, expect, test, type TestProject } from './project';

async function createSession(project: TestProject): Promise<string> {
  project.write('kept.txt', 'mine\n');
  project.runAgent('find the bug', [{ text: 'A look.', calls: [{ tool: 'bash', input: { command: 'cat kept.txt' } }] }, { text: 'Done.' }]);
  const { items } = JSON.parse(project.run('sessions', '--json')) as { items: { id: string; title: string | null }[] };
  const session = items.find((item) => item.title === 'find the bug');
  if (!session) throw new Error('no session');
  return session.id;
}

test('the board shows what a step changed, and links each item to its origin', async ({ project, page }) => {
  const id = await createSession(project);
  addSampleBoard(project, id);
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  const steps = await project.api<{ items: { number: number; kind: string; summary: string }[] }>(`/sessions/${id}/steps?limit=1000&oldest_first=true`);
  const numberOf = (text: string) => steps.items.find((item) => item.kind === 'reasoning' && item.summary.includes(text))?.number ?? 0;
  const added = numberOf('E1');

  // Before the first thought, the page explains what a board is for.
  await page.goto(`${project.url}/sessions/${id}?step=1&view=mind`);
  await expect(page.getByText('No reasoning recorded up to this step')).toBeVisible();

  // Evidence changes its hypothesis: both are marked.
  await page.goto(`${project.url}/sessions/${id}?step=${added}&view=mind`);
  const board = page.getByRole('region', { name: `Reasoning at step ${added}` });
  await expect(board.getByRole('region', { name: 'What this step changed' })).toContainText('H1 rose from 0.5 to 0.82 after E1');
  const first = page.locator('#item-H1');
  await expect(first).toContainText('the cache is stale after a deploy');
  await expect(first).toHaveClass(/is-changed/);
  await expect(page.locator('#item-E1')).toHaveClass(/is-added/);
  await expect(page.locator('#item-H2')).not.toHaveClass(/is-changed/);
  await expect(page.locator('#item-B1')).toHaveCount(0);

  // A link leads from an item to its step, and the tab marks that step as a change.
  await first.getByRole('button', { name: /^from #/ }).first().click();
  await expect(board.or(page.getByRole('region', { name: /Reasoning at step/ }))).toContainText('H1 was proposed');
  await expect(page.getByRole('tab', { name: /Reasoning/ })).toContainText('changed in this step');

  // At the last step: all sections, the graph of dependencies, and the chart of confidence.
  await page.goto(`${project.url}/sessions/${id}?view=mind`);
  for (const title of ['Hypotheses', 'Contradictions', 'Beliefs', 'Gaps', 'Verifications', 'Notes']) await expect(page.getByRole('heading', { name: title })).toBeVisible();
  const graph = page.locator('.belief-graph');
  await expect(graph.locator('.node')).toHaveCount(6);
  await expect(graph.locator('.edge.derived-from')).toHaveCount(1);
  await expect(graph.locator('.edge.contradicts')).toHaveCount(1);
  await graph.getByRole('button', { name: /^B4/ }).press('Enter');
  await expect(page.locator('#item-B4')).toBeFocused();
  const chart = page.locator('.confidence svg');
  await expect(chart).toHaveAttribute('aria-label', /H1 0\.9\d, H3 0\.8\d, H2 0\.0\d rejected/);
  await expect(chart.locator('path.confidence-line')).toHaveCount(3);
  await chart.click({ position: { x: 28, y: 60 } });
  await expect(page).toHaveURL(new RegExp(`step=${numberOf('H1')}`));
  await expect(chart).toHaveAttribute('aria-label', /H1 0\.50, H3 not proposed, H2 not proposed/);

  // The filter.
  await page.goto(`${project.url}/sessions/${id}?view=mind`);
  await page.getByRole('searchbox', { name: 'Find on the board' }).fill('monotonic');
  await expect(page.locator('#item-E2')).toBeVisible();
  await expect(page.locator('.item')).toHaveCount(1);
  await page.getByRole('searchbox', { name: 'Find on the board' }).fill('nothing like it');
  await expect(page.getByText('No matches on the board.')).toBeVisible();
  expect(errors).toEqual([]);
});

test('thoughts appear live, and hostile ones are shown as text', async ({ project, page }) => {
  const id = await createSession(project);
  const errors = collectErrors(page);
  await page.goto(await project.serve());
  await page.goto(`${project.url}/sessions/${id}?view=mind`);
  await expect(page.getByText('No reasoning recorded up to this step')).toBeVisible();
  const hostile = '<img src=x onerror="window.hit=1"><script>window.hit=1</script> javascript:alert(1) ${window.hit=1}';
  runThought(project, id, 'hypothesis', 'propose', hostile);
  await expect(page.locator('#item-H1')).toContainText('onerror=');
  runThought(project, id, 'belief', 'add', hostile, '--kind', 'assumption');
  runThought(project, id, 'belief', 'add', hostile, '--kind', 'inference', '--hypothesis', 'H1');
  runThought(project, id, 'belief', 'depend', 'B2', 'B1', '--because', hostile);
  await expect(page.locator('.belief-graph .node')).toHaveCount(3);
  await expect(page.getByRole('region', { name: 'What this step changed' })).toContainText('B2');
  expect(await page.evaluate(() => (window as { hit?: number }).hit)).toBe(undefined);
  expect(errors).toEqual([]);
});

test('a large board is loaded in pages', async ({ project, page }) => {
  const id = await createSession(project);
  for (let i = 0; i < 104; i++) runThought(project, id, 'note', 'add', `note number ${i}`);
  runThought(project, id, 'belief', 'add', 'the first of many', '--kind', 'observation');
  for (let i = 1; i < 56; i++) {
    runThought(project, id, 'belief', 'add', `belief number ${i}`, '--kind', 'inference');
    runThought(project, id, 'belief', 'depend', `B${i + 1}`, `B${Math.ceil(i / 2)}`);
  }
  await page.goto(await project.serve());
  await page.goto(`${project.url}/sessions/${id}?view=mind`);
  const notes = page.locator('.part.notes');
  await expect(notes.locator('.item')).toHaveCount(100);
  await notes.getByRole('button', { name: 'Show more' }).click();
  await expect(notes.locator('.item')).toHaveCount(104);
  await expect(notes.getByRole('button', { name: 'Show more' })).toHaveCount(0);
  // The graph draws the newest nodes, or those around one.
  const graph = page.locator('.belief-graph');
  await expect(graph).toContainText('8 not drawn');
  await expect(graph.locator('.node')).toHaveCount(48);
  await graph.getByRole('button', { name: /^B50,/ }).click();
  await expect(graph).toContainText('around B50');
  await expect(graph.locator('.node.selected')).toHaveCount(1);
  const axe = await new AxeBuilder({ page }).analyze();
  expect(axe.violations.map((item) => `${item.id} ${item.nodes[0]?.target.join(' ')} ${item.nodes[0]?.any[0]?.message ?? ''}`)).toEqual([]);
});

test('nodes of a graph never overlap, and dependencies are on the left', () => {
  const ids = Array.from({ length: 60 }, (_, i) => `B${i}`);
  const rests = ids.flatMap((id, i): [string, string][] => (i < 5 ? [] : [[id, `B${(i * 7) % i}`], [id, `B${(i * 3) % i}`]]));
  const { boxes, width, height } = layoutGraph(ids, rests, [['B1', 'B59']]);
  expect(boxes.size).toBe(60);
  const all = [...boxes.values()];
  for (const [from, to] of rests) expect(boxes.get(from)?.x).toBeGreaterThan(boxes.get(to)?.x ?? Infinity);
  for (const a of all) {
    expect(a.x >= 0 && a.y >= 0 && a.x + NODE_SIZE.width <= width && a.y + NODE_SIZE.height <= height).toBe(true);
    for (const b of all) if (a !== b) expect(Math.abs(a.x - b.x) >= NODE_SIZE.width || Math.abs(a.y - b.y) >= NODE_SIZE.height).toBe(true);
  }
  // A cycle, which is not valid, and an empty graph do not fail.
  expect(layoutGraph(['a', 'b'], [['a', 'b'], ['b', 'a'], ['a', 'a'], ['a', 'gone']]).boxes.size).toBe(2);
  expect(layoutGraph([], []).height).toBe(0);
});
