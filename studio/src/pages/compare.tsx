// Two runs side by side: what they have in common, where they part, what each did, and how they end.
import { type FormEvent, useState } from 'react';
import { get, useAsk } from '../api/client';
import type { Change } from '../api/types';
import { count, money, plural, span } from '../format';
import { glyph } from '../kinds';
import { Link, set, useRoute } from '../route';
import { Button, Empty, Loading, Trouble } from '../ui';
import { useWorkspace, WorkspacePicker } from '../workspaces';

interface Side {
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
interface Cell {
  id: string;
  number: number;
  kind: string;
  summary: string;
  tool: string | null;
  failed: boolean;
}
interface Row {
  a: Cell | null;
  b: Cell | null;
  differs: string[];
}
interface Compared {
  a: Side;
  b: Side;
  counts: { same: number; differ: number; only_a: number; only_b: number };
  conversation: { a: number; b: number; shared: number } | null;
  files: Change[] | null;
  first_difference: { row: number; a: number | null; b: number | null } | null;
  items: Row[];
}

const MOST = 400;

export default function ComparePage() {
  const { words } = useRoute();
  const { chosen, all } = useWorkspace();
  const a = words.get('a') ?? '';
  const b = words.get('b') ?? '';
  const sessions = a.startsWith('session:') && b.startsWith('session:');
  const asked = useAsk(a && b && (sessions || chosen) ? `${a} ${b} ${chosen?.id}` : null, (signal) =>
    get<Compared>('/compare', { a, b, workspace: sessions ? undefined : chosen?.id }, signal),
  );
  const [whole, setWhole] = useState(false);
  const found = asked.value;
  const parts = found?.first_difference?.row ?? found?.items.length ?? 0;
  const from = whole ? 0 : Math.max(0, parts - 3);
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Compare</h1>
          <p className="dim">Steps in line, and outcome, cost and time beside each other.</p>
        </div>
        <Sides a={a} b={b} />
      </header>
      <div className="filters">
        <WorkspacePicker chosen={chosen} all={all} />
      </div>
      {(!a || !b) && (
        <Empty title="Which two?">
          <p>Branches, sessions (<code>session:ID</code>) or points. The page of branches has boxes to choose two.</p>
          <Link className="button" href="/branches">Branches</Link>
        </Empty>
      )}
      {asked.problem && <Trouble problem={asked.problem} again={asked.again} />}
      {a && b && !found && !asked.problem && <Loading what="Comparing" />}
      {found && (
        <>
          <table className="rows compare-sides">
            <caption className="hidden-text">Both in numbers</caption>
            <thead>
              <tr>
                <th scope="col">
                  <span className="hidden-text">What</span>
                </th>
                <th scope="col">A · {found.a.name}</th>
                <th scope="col">B · {found.b.name}</th>
              </tr>
            </thead>
            <tbody>
              <Number name="Steps" a={found.a.steps} b={found.b.steps} />
              <Number name="Tool calls" a={found.a.tool_calls} b={found.b.tool_calls} />
              <Number name="Model calls" a={found.a.model_calls} b={found.b.model_calls} />
              <Number name="Failed steps" a={found.a.failed} b={found.b.failed} less />
              <Number name="Time" a={found.a.duration_us} b={found.b.duration_us} show={span} less />
              <Number name="Tokens" a={total(found.a)} b={total(found.b)} less />
              <Number name="Cost" a={found.a.cost_usd ?? 0} b={found.b.cost_usd ?? 0} show={money} less />
              <tr>
                <th scope="row">Last words</th>
                <td>{found.a.last_words ?? '–'}</td>
                <td>{found.b.last_words ?? '–'}</td>
              </tr>
            </tbody>
          </table>
          <p className="facts">
            <span>{plural(found.counts.same, 'step')} the same</span>
            <span>{count(found.counts.differ)} differ</span>
            <span>{count(found.counts.only_a)} only in A</span>
            <span>{count(found.counts.only_b)} only in B</span>
            {found.conversation && <span>{plural(found.conversation.shared, 'message')} in common</span>}
          </p>
          {found.files && (
            <section>
              <h2>{found.files.length ? `They end with ${plural(found.files.length, 'file')} that differ${found.files.length === 1 ? 's' : ''}` : 'They end with the same files'}</h2>
              <ul className="plain">
                {found.files.slice(0, 50).map((file) => (
                  <li key={file.path}>
                    <span className={`change ${file.kind}`}>{file.kind}</span> <code>{file.path}</code>
                  </li>
                ))}
              </ul>
              {!sessions && found.files.length > 0 && chosen && (
                <Link className="button small" href={`/diff?a=${encodeURIComponent(point(a))}&b=${encodeURIComponent(point(b))}&workspace=${chosen.id}`}>Show the lines</Link>
              )}
            </section>
          )}
          <section>
            <h2>Step by step</h2>
            {from > 0 && (
              <Button small onClick={() => setWhole(true)}>
                Show {plural(from, 'step')} they have in common
              </Button>
            )}
            <div className="aligned-scroll" tabIndex={0} role="region" aria-label="Steps in line">
              <table className="aligned">
                <thead>
                  <tr>
                    <th scope="col">A</th>
                    <th scope="col">B</th>
                  </tr>
                </thead>
                <tbody>
                  {found.items.slice(from, from + MOST).map((row, index) => (
                    <tr key={from + index} className={from + index === parts ? 'parts' : row.differs.length ? 'differs' : ''}>
                      <CellView cell={row.a} other={row.b} />
                      <CellView cell={row.b} other={row.a} />
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            {found.items.length > from + MOST && <p className="dim">… and {count(found.items.length - from - MOST)} more</p>}
          </section>
        </>
      )}
    </div>
  );
}

const point = (text: string) => (/^[#@]|:/.test(text) ? text : `branch:${text}`);
const total = (side: Side) => Object.values(side.tokens).reduce((sum, value) => sum + value, 0);

function Number({ name, a, b, show = count, less }: { name: string; a: number; b: number; show?: (value: number) => string; less?: boolean }) {
  const better = less && a !== b ? (a < b ? 'a' : 'b') : '';
  return (
    <tr>
      <th scope="row">{name}</th>
      <td className={better === 'a' ? 'good' : ''}>{show(a)}</td>
      <td className={better === 'b' ? 'good' : ''}>{show(b)}</td>
    </tr>
  );
}

function CellView({ cell, other }: { cell: Cell | null; other: Cell | null }) {
  if (!cell) return <td className="none" />;
  return (
    <td className={`${cell.failed ? 'failed' : ''} ${other ? '' : 'only'}`}>
      <span className="dim">#{cell.number}</span> <span aria-hidden="true">{glyph(cell.kind)}</span> {cell.summary}
    </td>
  );
}

function Sides({ a, b }: { a: string; b: string }) {
  const [left, setLeft] = useState(a);
  const [right, setRight] = useState(b);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    set({ a: left, b: right }, false);
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
