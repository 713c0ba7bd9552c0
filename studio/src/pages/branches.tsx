// Branches of a workspace: where they grew from, which one we stand on, and what reruns came to.
import { useMemo, useState } from 'react';
import { change, get, Problem, useAsk } from '../api/client';
import { useNews, useSoon } from '../api/events';
import type { Branch, Page, Session } from '../api/types';
import { BranchDialog } from '../dialogs';
import { count, plural, short } from '../format';
import { RewindDialog } from '../rewind';
import { Link } from '../route';
import { Ago, Button, Empty, Loading, say, Status, Trouble, useKeys } from '../ui';
import { useWorkspace, WorkspacePicker } from '../workspaces';

interface Rerun {
  session?: string | null;
  of?: string | null;
  original?: string | null;
  set?: string[];
  changes?: string[];
  reason?: string | null;
}

export default function BranchesPage() {
  const { chosen, all, problem } = useWorkspace();
  const workspace = chosen?.id;
  const asked = useAsk(workspace ? `branches ${workspace}` : null, (signal) => get<Page<Branch>>(`/workspaces/${workspace}/branches`, {}, signal));
  const sessions = useAsk(workspace ? `sessions ${workspace}` : null, (signal) => get<Page<Session>>('/sessions', { workspace, limit: 20 }, signal));
  const again = useSoon(asked.again, 300);
  useNews(again);
  const [open, setOpen] = useState<{ what: 'create' } | { what: 'switch'; branch: Branch } | null>(null);
  useKeys({ b: () => setOpen({ what: 'create' }) });
  const [sides, setSides] = useState<string[]>([]);
  const branches = useMemo(() => asked.value?.items ?? [], [asked.value]);
  const present = branches.find((branch) => branch.present);
  const forget = async (branch: Branch) => {
    try {
      await change('DELETE', `/workspaces/${workspace}/branches/${encodeURIComponent(branch.name)}`);
      say(`${branch.name} is forgotten; its steps stay, and “stepback undo” brings it back.`);
      again();
    } catch (error) {
      say(Problem.of(error).detail, true);
    }
  };
  const end = async (branch: Branch) => {
    try {
      await change('POST', `/workspaces/${workspace}/branches/${encodeURIComponent(branch.name)}/interrupt`);
      say(`${branch.name} is told to end.`);
    } catch (error) {
      say(Problem.of(error).detail, true);
    }
  };
  const toggle = (name: string) => setSides((old) => (old.includes(name) ? old.filter((one) => one !== name) : [...old, name].slice(-2)));
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Branches</h1>
          <p className="dim">Lines of steps with a name: other ways it went, or could have gone.</p>
        </div>
        <div className="actions">
          {sides.length === 2 && workspace && (
            <Link className="button primary" href={`/compare?a=${encodeURIComponent(sides[0] ?? '')}&b=${encodeURIComponent(sides[1] ?? '')}&workspace=${workspace}`}>
              Compare {sides[0]} and {sides[1]}
            </Link>
          )}
          <Button disabled={!workspace} onClick={() => setOpen({ what: 'create' })}>Create a branch</Button>
        </div>
      </header>
      <div className="filters">
        <WorkspacePicker chosen={chosen} all={all} />
      </div>
      {(problem ?? asked.problem) && <Trouble problem={(problem ?? asked.problem) as Problem} again={asked.again} />}
      {!asked.value && !asked.problem && workspace && <Loading what="Branches" />}
      {asked.value && branches.length === 0 && (
        <Empty title="No branch yet">
          <p>A branch begins at any step: open a session, choose a step and press <kbd>b</kbd>. Or ask “what if” of a recorded session, and what comes of it is a branch.</p>
        </Empty>
      )}
      {branches.length > 0 && (
        <div className="graph-and-cards">
          <BranchGraph branches={branches} />
          <ul className="cards" aria-label="Branches">
            {branches.map((branch) => {
              const rerun = branch.rerun as Rerun | null | undefined;
              const original = rerun?.of ?? rerun?.original;
              return (
                <li key={branch.name} className={branch.present ? 'card present' : 'card'}>
                  <div className="what">
                    <label className="check">
                      <input type="checkbox" checked={sides.includes(branch.name)} onChange={() => toggle(branch.name)} aria-label={`Compare ${branch.name}`} />
                    </label>
                    <b>{branch.name}</b>
                    {branch.from && (
                      <span className="dim">
                        left {branch.from.branch} at #{branch.from.number}
                        {branch.own > 0 && `, ${plural(branch.own, 'checkpoint')} since`}
                      </span>
                    )}
                    {branch.present && <span className="status active">you are here</span>}
                    {branch.rerun != null && <Status status={branch.status} />}
                    {branch.tip && (
                      <span className="summary">
                        <Link href={`/sessions/${branch.tip.session}?step=${branch.tip.number}`}>#{branch.tip.number}</Link> {branch.tip.summary}
                      </span>
                    )}
                  </div>
                  {(rerun?.set ?? rerun?.changes)?.length ? <p className="note">{(rerun?.set ?? rerun?.changes ?? []).join('\n')}</p> : null}
                  {rerun?.reason && <p className="dim">{rerun.reason}</p>}
                  <div className="foot">
                    <span className="dim">{branch.tip && <Ago at={branch.tip.at} />}</span>
                    <span className="gap" />
                    {(branch.status === 'running' || branch.status === 'pending') && <Button small onClick={() => void end(branch)}>End it</Button>}
                    {rerun?.session && <Link className="button small ghost" href={`/sessions/${rerun.session}`}>Its session</Link>}
                    {rerun?.session && original && (
                      <Link className="button small ghost" href={`/compare?a=session:${original}&b=session:${rerun.session}`}>Compare with the original</Link>
                    )}
                    {present && !branch.present && branch.tip && present.tip && (
                      <Link className="button small ghost" href={`/diff?a=${present.tip.id}&b=${branch.tip.id}&workspace=${workspace}`}>Diff to {present.name}</Link>
                    )}
                    {!branch.present && branch.tip && (
                      <>
                        <Button small look="ghost" aria-label={`Forget ${branch.name}`} onClick={() => void forget(branch)}>Forget</Button>
                        <Button small aria-label={`Switch to ${branch.name}`} onClick={() => setOpen({ what: 'switch', branch })}>Switch</Button>
                      </>
                    )}
                  </div>
                </li>
              );
            })}
          </ul>
        </div>
      )}
      {sessions.value && sessions.value.items.some((one) => one.agent !== 'person') && (
        <section className="operations">
          <h2>What if …</h2>
          <p className="dim">Do a recorded session again with one thing changed. No model is asked, and your files are not touched.</p>
          <ul className="plain">
            {sessions.value.items.filter((one) => one.agent !== 'person').slice(0, 8).map((one) => (
              <li key={one.id}>
                <Link href={`/sessions/${one.id}/what-if`}>{one.title ?? short(one.id)}</Link> <span className="dim">{one.agent} · {count(one.iterations)} turns</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {open?.what === 'create' && workspace && <BranchDialog workspace={workspace} from="" onClose={() => setOpen(null)} onDone={again} />}
      {open?.what === 'switch' && workspace && <RewindDialog workspace={workspace} branch={open.branch.name} name={open.branch.name} onClose={() => setOpen(null)} onDone={again} />}
    </div>
  );
}

const STEP_Y = 44;
const LEFT = 18;
const WIDE = 330;

/**
 * Branches as lines along the numbers of steps: each begins at the step at which it left another one. Numbers where nothing begins
 * or ends are drawn close together, so that a branch of three steps in a workspace of ten thousand can be seen.
 */
function BranchGraph({ branches }: { branches: Branch[] }) {
  const known = branches.filter((branch) => branch.tip);
  // A branch stands below the one it left.
  const rows: Branch[] = [];
  const put = (from: string | undefined) => {
    for (const branch of known.filter((one) => one.from?.branch === from && !rows.includes(one))) {
      rows.push(branch);
      put(branch.name);
    }
  };
  put(undefined);
  rows.push(...known.filter((branch) => !rows.includes(branch)));
  const stops = [...new Set(rows.flatMap((branch) => [branch.first ?? branch.tip?.number ?? 0, branch.from?.number ?? branch.first ?? 1, branch.tip?.number ?? 0]))].sort((a, b) => a - b);
  const x = (number: number) => {
    const at = stops.findIndex((stop) => stop >= number);
    return LEFT + (stops.length > 1 ? (Math.max(0, at) / (stops.length - 1)) * WIDE : WIDE);
  };
  const y = (name: string) => rows.findIndex((branch) => branch.name === name) * STEP_Y + 24;
  const words = rows.map((branch) => `${branch.name}${branch.from ? ` left ${branch.from.branch} at #${branch.from.number} and` : ''} stands at #${branch.tip?.number}`);
  return (
    <svg className="branch-graph" viewBox={`0 0 460 ${rows.length * STEP_Y + 10}`} role="img" aria-label={words.join(', ')}>
      {rows.map((branch) => {
        const own = y(branch.name);
        const end = x(branch.tip?.number ?? 0);
        const from = branch.from;
        const start = from ? x(from.number) : x(branch.first ?? 1);
        const line = from ? `M${start} ${y(from.branch)} V${own - 10} Q${start} ${own} ${start + 10} ${own} H${Math.max(end, start + 10)}` : `M${start} ${own} H${end}`;
        return (
          <g key={branch.name} className={branch.present ? 'present' : ''}>
            <path d={line} />
            {from && <circle className="leaves" cx={start} cy={y(from.branch)} r={3.5} />}
            {from && (
              <text className="number" x={start + 5} y={y(from.branch) + 14}>
                #{from.number}
              </text>
            )}
            <circle cx={from ? Math.max(end, start + 10) : end} cy={own} r={branch.present ? 6 : 4.5} />
            <text x={Math.max(end, start + 10) + 10} y={own + 4}>
              {branch.name}
            </text>
          </g>
        );
      })}
    </svg>
  );
}
