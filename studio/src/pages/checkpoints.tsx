// The checkpoints of a workspace: find, annotate, compare, rewind.
import { useState } from 'react';
import { ApiError, get, getPages, send, useRequest } from '../api/client';
import { useLiveEvents, useThrottledCallback } from '../api/events';
import type { Operation, Page, Step } from '../api/types';
import { AnnotateDialog, BranchDialog, CheckpointDialog } from '../dialogs';
import { useKeyBindings } from '../keyboard';
import { RewindDialog } from '../rewind';
import { Link, setQuery, useRoute } from '../route';
import { showToast } from '../toasts';
import { Button, EmptyState, ErrorMessage, Loading, RelativeTime } from '../ui';
import { useSelectedWorkspace, WorkspacePicker } from '../workspaces';

const PAGE_SIZE = 100;

type OpenDialog = { type: 'create' } | { type: 'rewind' | 'annotate' | 'branch'; step: Step } | null;

export default function CheckpointsPage() {
  const { query } = useRoute();
  const { selected, workspaces, error: workspaceError } = useSelectedWorkspace();
  const find = query.get('find') ?? '';
  const tag = query.get('tag') ?? '';
  const trigger = query.get('trigger') ?? '';
  const [limit, setLimit] = useState(PAGE_SIZE);
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const [compareBase, setCompareBase] = useState<Step | null>(null);
  const workspace = selected?.id;
  const request = useRequest(workspace ? `${workspace} ${find} ${tag} ${trigger} ${limit}` : null, (signal) =>
    getPages<Page<Step>>(`/workspaces/${workspace}/checkpoints`, { find, tag, trigger }, PAGE_SIZE, limit, signal),
  );
  const operations = useRequest(workspace ? `operations ${workspace}` : null, (signal) =>
    get<Page<Operation>>(`/workspaces/${workspace}/operations`, { limit: 8 }, signal),
  );
  const reloadSoon = useThrottledCallback(() => {
    request.reload();
    operations.reload();
  }, 300);
  useLiveEvents(reloadSoon);
  useKeyBindings({ c: () => setOpenDialog({ type: 'create' }) });
  const deleteCheckpoint = async (step: Step) => {
    try {
      await send('DELETE', `/checkpoints/${step.id}`);
      showToast(`Deleted #${step.number}; “stepback undo” restores it.`);
      reloadSoon();
    } catch (error) {
      showToast(ApiError.from(error).detail, true);
    }
  };
  const isRemote = selected?.root.startsWith('remote:') ?? false;

  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Checkpoints</h1>
          <p className="dim">Saved states. They are created automatically when an agent changes files.</p>
        </div>
        <div className="actions">
          <Button variant="primary" disabled={!workspace || isRemote} onClick={() => setOpenDialog({ type: 'create' })}>
            Create a checkpoint
          </Button>
        </div>
      </header>
      <form className="filters" role="search" aria-label="Filter checkpoints" onSubmit={(event) => event.preventDefault()}>
        <WorkspacePicker selected={selected} workspaces={workspaces} />
        <input type="search" aria-label="Find in labels, notes and summaries" placeholder="Find in labels, notes, summaries …" value={find} onChange={(event) => setQuery({ find: event.target.value })} />
        <input aria-label="Tag" placeholder="tag" value={tag} onChange={(event) => setQuery({ tag: event.target.value })} />
        <select aria-label="Created" value={trigger} onChange={(event) => setQuery({ trigger: event.target.value })}>
          <option value="">any origin</option>
          <option value="manual">manual</option>
          <option value="automatic">automatic</option>
        </select>
      </form>
      {(workspaceError ?? request.error) && <ErrorMessage error={(workspaceError ?? request.error) as ApiError} onRetry={request.reload} />}
      {workspaces?.length === 0 && (
        <EmptyState title="No workspace yet">
          <p>In your project directory, run:</p>
          <pre>stepback checkpoint create --label start</pre>
        </EmptyState>
      )}
      {workspace && request.loading && !request.data && <Loading label="Loading checkpoints" />}
      {request.data?.items.length === 0 && (
        <EmptyState title={find || tag || trigger ? 'No matching checkpoints' : 'No checkpoints yet'}>
          {!isRemote && <p>A checkpoint saves every file as it is now, in a few milliseconds.</p>}
        </EmptyState>
      )}
      {compareBase && (
        <p className="banner">
          Comparing with #{compareBase.number}: select another checkpoint. <Button small onClick={() => setCompareBase(null)}>Cancel</Button>
        </p>
      )}
      {request.data && request.data.items.length > 0 && (
        <ul className="cards" aria-label="Checkpoints">
          {request.data.items.map((step) => (
            <li key={step.id} className="card">
              <div className="card-title">
                <span className={step.trigger === 'manual' ? 'checkpoint-mark manual' : 'checkpoint-mark'} aria-hidden="true">◆</span>
                <Link href={`/sessions/${step.session}?step=${step.number}`}>#{step.number}</Link>
                {step.label && <b className="label">{step.label}</b>}
                <span className="summary">{step.summary}</span>
                {step.tags.map((tag) => (
                  <button type="button" key={tag} className="tag" onClick={() => setQuery({ tag })}>
                    {tag}
                  </button>
                ))}
              </div>
              {step.note && <p className="note">{step.note}</p>}
              <div className="foot">
                <span className="dim">
                  <RelativeTime timestamp={step.at} /> · {step.trigger === 'manual' ? 'manual' : step.trigger}
                </span>
                <span className="gap" />
                {compareBase && compareBase.id !== step.id ? (
                  <Link className="button small primary" href={compareBase.number < step.number ? `/diff?a=${compareBase.id}&b=${step.id}&workspace=${workspace}` : `/diff?a=${step.id}&b=${compareBase.id}&workspace=${workspace}`}>
                    Compare with this
                  </Link>
                ) : (
                  <Button small variant="ghost" onClick={() => setCompareBase(step)}>Compare …</Button>
                )}
                {step.parent && <Link className="button small ghost" href={`/diff?a=${step.parent}&b=${step.id}&workspace=${workspace}`}>Changes</Link>}
                {!isRemote && <Link className="button small ghost" href={`/diff?a=${step.id}&workspace=${workspace}`}>Diff to now</Link>}
                <Button small variant="ghost" aria-label={`Annotate #${step.number}`} onClick={() => setOpenDialog({ type: 'annotate', step })}>Annotate</Button>
                <Button small variant="ghost" aria-label={`Branch from #${step.number}`} onClick={() => setOpenDialog({ type: 'branch', step })}>Branch</Button>
                <Button small variant="ghost" aria-label={`Delete #${step.number}`} onClick={() => void deleteCheckpoint(step)}>Delete</Button>
                {!isRemote && <Button small aria-label={`Rewind to #${step.number}`} onClick={() => setOpenDialog({ type: 'rewind', step })}>Rewind</Button>}
              </div>
            </li>
          ))}
        </ul>
      )}
      {request.data?.next_cursor && (
        <p className="more">
          <Button onClick={() => setLimit(limit + PAGE_SIZE)}>Show older checkpoints</Button>
        </p>
      )}
      {operations.data && operations.data.items.length > 0 && (
        <section className="operations">
          <h2>Operations</h2>
          <ul className="plain">
            {operations.data.items.map((operation) => (
              <li key={operation.id} className={operation.undone ? 'inactive' : ''}>
                <span className="dim"><RelativeTime timestamp={operation.at} /></span> {operation.summary} {operation.undone && <span className="status">undone</span>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {openDialog?.type === 'create' && workspace && <CheckpointDialog workspace={workspace} onClose={() => setOpenDialog(null)} onDone={reloadSoon} />}
      {openDialog?.type === 'annotate' && <AnnotateDialog step={openDialog.step} onClose={() => setOpenDialog(null)} onDone={reloadSoon} />}
      {openDialog?.type === 'branch' && workspace && <BranchDialog workspace={workspace} from={`#${openDialog.step.number}`} onClose={() => setOpenDialog(null)} onDone={reloadSoon} />}
      {openDialog?.type === 'rewind' && workspace && (
        <RewindDialog workspace={workspace} point={`#${openDialog.step.number}`} name={`#${openDialog.step.number}${openDialog.step.label ? ` “${openDialog.step.label}”` : ''}`} onClose={() => setOpenDialog(null)} onDone={reloadSoon} />
      )}
    </div>
  );
}
