// Two runs side by side: common steps, where they diverge, and their results.
import { type FormEvent, useState } from 'react';
import { get, useRequest } from '../api/client';
import type { PathChange } from '../api/types';
import { formatCost, formatCount, formatDuration, pluralize } from '../format';
import { glyphOf } from '../kinds';
import { Link, setQuery, useRoute } from '../route';
import { Button, EmptyState, ErrorMessage, Loading } from '../ui';
import { useSelectedWorkspace, WorkspacePicker } from '../workspaces';

interface RunSummary {
  name: string;
  steps: number;
  failed: number;
  iterations: number;
  tool_calls: number;
  model_calls: number;
  duration_us: number;
  cost_usd: number | null;
  tokens: Record<string, number>;
  tools: Record<string, number>;
  last_words: string | null;
  messages: number;
}
interface StepCell {
  id: string;
  number: number;
  kind: string;
  summary: string;
  tool: string | null;
  failed: boolean;
}
interface AlignedRow {
  a: StepCell | null;
  b: StepCell | null;
  differs: string[];
}
interface ComparisonResult {
  a: RunSummary;
  b: RunSummary;
  counts: { same: number; differ: number; only_a: number; only_b: number };
  conversation: { a: number; b: number; shared: number } | null;
  files: PathChange[] | null;
  first_difference: { row: number; a: number | null; b: number | null } | null;
  items: AlignedRow[];
}

const MAX_ROWS = 400;

export default function ComparePage() {
  const { query } = useRoute();
  const { selected, workspaces } = useSelectedWorkspace();
  const a = query.get('a') ?? '';
  const b = query.get('b') ?? '';
  const comparesSessions = a.startsWith('session:') && b.startsWith('session:');
  const request = useRequest(a && b && (comparesSessions || selected) ? `${a} ${b} ${selected?.id}` : null, (signal) =>
    get<ComparisonResult>('/compare', { a, b, workspace: comparesSessions ? undefined : selected?.id }, signal),
  );
  const [showAll, setShowAll] = useState(false);
  const comparison = request.data;
  const divergenceRow = comparison?.first_difference?.row ?? comparison?.items.length ?? 0;
  const firstRow = showAll ? 0 : Math.max(0, divergenceRow - 3);
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Compare</h1>
          <p className="dim">Aligned steps, results, cost and time of two runs.</p>
        </div>
        <CompareForm a={a} b={b} />
      </header>
      <div className="filters">
        <WorkspacePicker selected={selected} workspaces={workspaces} />
      </div>
      {(!a || !b) && (
        <EmptyState title="Select two runs">
          <p>Branches, sessions (<code>session:ID</code>) or points. You can also select two on the branches page.</p>
          <Link className="button" href="/branches">Branches</Link>
        </EmptyState>
      )}
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {a && b && !comparison && !request.error && <Loading label="Comparing" />}
      {comparison && (
        <>
          <table className="rows compare-sides">
            <caption className="visually-hidden">Totals of both runs</caption>
            <thead>
              <tr>
                <th scope="col">
                  <span className="visually-hidden">Measure</span>
                </th>
                <th scope="col">A · {comparison.a.name}</th>
                <th scope="col">B · {comparison.b.name}</th>
              </tr>
            </thead>
            <tbody>
              <NumberRow name="Steps" a={comparison.a.steps} b={comparison.b.steps} />
              <NumberRow name="Tool calls" a={comparison.a.tool_calls} b={comparison.b.tool_calls} />
              <NumberRow name="Model calls" a={comparison.a.model_calls} b={comparison.b.model_calls} />
              <NumberRow name="Failed steps" a={comparison.a.failed} b={comparison.b.failed} lowerIsBetter />
              <NumberRow name="Time" a={comparison.a.duration_us} b={comparison.b.duration_us} format={formatDuration} lowerIsBetter />
              <NumberRow name="Tokens" a={totalTokens(comparison.a)} b={totalTokens(comparison.b)} lowerIsBetter />
              <NumberRow name="Cost" a={comparison.a.cost_usd ?? 0} b={comparison.b.cost_usd ?? 0} format={formatCost} lowerIsBetter />
              <tr>
                <th scope="row">Last message</th>
                <td>{comparison.a.last_words ?? '–'}</td>
                <td>{comparison.b.last_words ?? '–'}</td>
              </tr>
            </tbody>
          </table>
          <p className="facts">
            <span>{pluralize(comparison.counts.same, 'identical step')}</span>
            <span>{formatCount(comparison.counts.differ)} differ</span>
            <span>{formatCount(comparison.counts.only_a)} only in A</span>
            <span>{formatCount(comparison.counts.only_b)} only in B</span>
            {comparison.conversation && <span>{pluralize(comparison.conversation.shared, 'message')} in common</span>}
          </p>
          {comparison.files && (
            <section>
              <h2>{comparison.files.length ? `${pluralize(comparison.files.length, 'file')} differ${comparison.files.length === 1 ? 's' : ''} at the end` : 'No files differ at the end'}</h2>
              <ul className="plain">
                {comparison.files.slice(0, 50).map((file) => (
                  <li key={file.path}>
                    <span className={`change ${file.kind}`}>{file.kind}</span> <code>{file.path}</code>
                  </li>
                ))}
              </ul>
              {!comparesSessions && comparison.files.length > 0 && selected && (
                <Link className="button small" href={`/diff?a=${encodeURIComponent(toPoint(a))}&b=${encodeURIComponent(toPoint(b))}&workspace=${selected.id}`}>Show diff</Link>
              )}
            </section>
          )}
          <section>
            <h2>Step by step</h2>
            {firstRow > 0 && (
              <Button small onClick={() => setShowAll(true)}>
                Show {pluralize(firstRow, 'common step')}
              </Button>
            )}
            <div className="aligned-scroll" tabIndex={0} role="region" aria-label="Aligned steps">
              <table className="aligned">
                <thead>
                  <tr>
                    <th scope="col">A</th>
                    <th scope="col">B</th>
                  </tr>
                </thead>
                <tbody>
                  {comparison.items.slice(firstRow, firstRow + MAX_ROWS).map((row, index) => (
                    <tr key={firstRow + index} className={firstRow + index === divergenceRow ? 'diverged' : row.differs.length ? 'differs' : ''}>
                      <StepCellView cell={row.a} other={row.b} />
                      <StepCellView cell={row.b} other={row.a} />
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            {comparison.items.length > firstRow + MAX_ROWS && <p className="dim">… and {formatCount(comparison.items.length - firstRow - MAX_ROWS)} more</p>}
          </section>
        </>
      )}
    </div>
  );
}

const toPoint = (text: string) => (/^[#@]|:/.test(text) ? text : `branch:${text}`);
const totalTokens = (side: RunSummary) => Object.values(side.tokens).reduce((sum, value) => sum + value, 0);

function NumberRow({ name, a, b, format = formatCount, lowerIsBetter }: { name: string; a: number; b: number; format?: (value: number) => string; lowerIsBetter?: boolean }) {
  const better = lowerIsBetter && a !== b ? (a < b ? 'a' : 'b') : '';
  return (
    <tr>
      <th scope="row">{name}</th>
      <td className={better === 'a' ? 'good' : ''}>{format(a)}</td>
      <td className={better === 'b' ? 'good' : ''}>{format(b)}</td>
    </tr>
  );
}

function StepCellView({ cell, other }: { cell: StepCell | null; other: StepCell | null }) {
  if (!cell) return <td className="none" />;
  return (
    <td className={`${cell.failed ? 'failed' : ''} ${other ? '' : 'only'}`}>
      <span className="dim">#{cell.number}</span> <span aria-hidden="true">{glyphOf(cell.kind)}</span> {cell.summary}
    </td>
  );
}

function CompareForm({ a, b }: { a: string; b: string }) {
  const [left, setLeft] = useState(a);
  const [right, setRight] = useState(b);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setQuery({ a: left, b: right }, false);
  };
  return (
    <form className="sides" onSubmit={submit}>
      <input aria-label="A" value={left} onChange={(event) => setLeft(event.target.value)} placeholder="plan-a" />
      <span aria-hidden="true">⇄</span>
      <input aria-label="B" value={right} onChange={(event) => setRight(event.target.value)} placeholder="main" />
      <Button type="submit">Compare</Button>
    </form>
  );
}
