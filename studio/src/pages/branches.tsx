// The branches of a workspace: where each one started, which is current, and results of reruns.
import { useMemo, useState } from 'react';
import { ApiError, get, send, useRequest } from '../api/client';
import { useLiveEvents, useThrottledCallback } from '../api/events';
import type { Branch, Page, Session } from '../api/types';
import { BranchGraph } from '../branch-graph';
import { BranchDialog } from '../dialogs';
import { formatCount, pluralize, shortId } from '../format';
import { useKeyBindings } from '../keyboard';
import { RewindDialog } from '../rewind';
import { Link } from '../route';
import { showToast } from '../toasts';
import { Button, EmptyState, ErrorMessage, Loading, RelativeTime, StatusBadge } from '../ui';
import { useSelectedWorkspace, WorkspacePicker } from '../workspaces';

interface RerunInfo {
  session?: string | null;
  of?: string | null;
  original?: string | null;
  set?: string[];
  changes?: string[];
  reason?: string | null;
}

export default function BranchesPage() {
  const { selected, workspaces, error: workspaceError } = useSelectedWorkspace();
  const workspace = selected?.id;
  const request = useRequest(workspace ? `branches ${workspace}` : null, (signal) => get<Page<Branch>>(`/workspaces/${workspace}/branches`, {}, signal));
  const sessions = useRequest(workspace ? `sessions ${workspace}` : null, (signal) => get<Page<Session>>('/sessions', { workspace, limit: 20 }, signal));
  const reloadSoon = useThrottledCallback(request.reload, 300);
  useLiveEvents(reloadSoon);
  const [openDialog, setOpenDialog] = useState<{ type: 'create' } | { type: 'switch'; branch: Branch } | null>(null);
  useKeyBindings({ b: () => setOpenDialog({ type: 'create' }) });
  const [comparedNames, setComparedNames] = useState<string[]>([]);
  const branches = useMemo(() => request.data?.items ?? [], [request.data]);
  const present = branches.find((branch) => branch.present);
  const deleteBranch = async (branch: Branch) => {
    try {
      await send('DELETE', `/workspaces/${workspace}/branches/${encodeURIComponent(branch.name)}`);
      showToast(`Deleted branch ${branch.name}; its steps stay, and “stepback undo” restores it.`);
      reloadSoon();
    } catch (error) {
      showToast(ApiError.from(error).detail, true);
    }
  };
  const interruptRerun = async (branch: Branch) => {
    try {
      await send('POST', `/workspaces/${workspace}/branches/${encodeURIComponent(branch.name)}/interrupt`);
      showToast(`Stopping ${branch.name}.`);
    } catch (error) {
      showToast(ApiError.from(error).detail, true);
    }
  };
  const toggleCompared = (name: string) => setComparedNames((old) => (old.includes(name) ? old.filter((other) => other !== name) : [...old, name].slice(-2)));
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Branches</h1>
          <p className="dim">Named lines of steps: alternatives, reruns and saved states.</p>
        </div>
        <div className="actions">
          {comparedNames.length === 2 && workspace && (
            <Link className="button primary" href={`/compare?a=${encodeURIComponent(comparedNames[0] ?? '')}&b=${encodeURIComponent(comparedNames[1] ?? '')}&workspace=${workspace}`}>
              Compare {comparedNames[0]} and {comparedNames[1]}
            </Link>
          )}
          <Button disabled={!workspace} onClick={() => setOpenDialog({ type: 'create' })}>Create a branch</Button>
        </div>
      </header>
      <div className="filters">
        <WorkspacePicker selected={selected} workspaces={workspaces} />
      </div>
      {(workspaceError ?? request.error) && <ErrorMessage error={(workspaceError ?? request.error) as ApiError} onRetry={request.reload} />}
      {!request.data && !request.error && workspace && <Loading label="Loading branches" />}
      {request.data && branches.length === 0 && (
        <EmptyState title="No branches yet">
          <p>A branch can start at any step: open a session, select a step and press <kbd>b</kbd>. Each “what if” rerun is also a branch.</p>
        </EmptyState>
      )}
      {branches.length > 0 && (
        <div className="graph-and-cards">
          <BranchGraph branches={branches} />
          <ul className="cards" aria-label="Branches">
            {branches.map((branch) => {
              const rerun = branch.rerun as RerunInfo | null | undefined;
              const original = rerun?.of ?? rerun?.original;
              return (
                <li key={branch.name} className={branch.present ? 'card present' : 'card'}>
                  <div className="card-title">
                    <label className="check">
                      <input type="checkbox" checked={comparedNames.includes(branch.name)} onChange={() => toggleCompared(branch.name)} aria-label={`Compare ${branch.name}`} />
                    </label>
                    <b>{branch.name}</b>
                    {branch.from && (
                      <span className="dim">
                        left {branch.from.branch} at #{branch.from.number}
                        {branch.own > 0 && `, ${pluralize(branch.own, 'checkpoint')} since`}
                      </span>
                    )}
                    {branch.present && <span className="status active">current</span>}
                    {(branch.rerun != null || branch.status !== 'active') && <StatusBadge status={branch.status} />}
                    {branch.tip && (
                      <span className="summary">
                        <Link href={`/sessions/${branch.tip.session}?step=${branch.tip.number}`}>#{branch.tip.number}</Link> {branch.tip.summary}
                      </span>
                    )}
                  </div>
                  {(rerun?.set ?? rerun?.changes)?.length ? <p className="note">{(rerun?.set ?? rerun?.changes ?? []).join('\n')}</p> : null}
                  {rerun?.reason && <p className="dim">{rerun.reason}</p>}
                  <div className="foot">
                    <span className="dim">{branch.tip && <RelativeTime timestamp={branch.tip.at} />}</span>
                    <span className="gap" />
                    {(branch.status === 'running' || branch.status === 'pending') && <Button small onClick={() => void interruptRerun(branch)}>Stop</Button>}
                    {rerun?.session && <Link className="button small ghost" href={`/sessions/${rerun.session}`}>Session</Link>}
                    {rerun?.session && original && (
                      <Link className="button small ghost" href={`/compare?a=session:${original}&b=session:${rerun.session}`}>Compare with the original</Link>
                    )}
                    {present && !branch.present && branch.tip && present.tip && (
                      <Link className="button small ghost" href={`/diff?a=${present.tip.id}&b=${branch.tip.id}&workspace=${workspace}`}>Diff to {present.name}</Link>
                    )}
                    {!branch.present && branch.tip && (
                      <>
                        <Button small variant="ghost" aria-label={`Delete ${branch.name}`} onClick={() => void deleteBranch(branch)}>Delete</Button>
                        <Button small aria-label={`Switch to ${branch.name}`} onClick={() => setOpenDialog({ type: 'switch', branch })}>Switch</Button>
                      </>
                    )}
                  </div>
                </li>
              );
            })}
          </ul>
        </div>
      )}
      {sessions.data && sessions.data.items.some((session) => session.agent !== 'person') && (
        <section className="operations">
          <h2>What if …</h2>
          <p className="dim">Run a recorded session again with one change. No model is called, and your files do not change.</p>
          <ul className="plain">
            {sessions.data.items.filter((session) => session.agent !== 'person').slice(0, 8).map((session) => (
              <li key={session.id}>
                <Link href={`/sessions/${session.id}/what-if`}>{session.title ?? shortId(session.id)}</Link> <span className="dim">{session.agent} · {formatCount(session.iterations)} turns</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {openDialog?.type === 'create' && workspace && <BranchDialog workspace={workspace} from="" onClose={() => setOpenDialog(null)} onDone={reloadSoon} />}
      {openDialog?.type === 'switch' && workspace && <RewindDialog workspace={workspace} branch={openDialog.branch.name} name={openDialog.branch.name} onClose={() => setOpenDialog(null)} onDone={reloadSoon} />}
    </div>
  );
}
