// States that were kept: find one, say something about it, compare it, go back to it.
import { useState } from 'react';
import { change, get, Problem, useAsk } from '../api/client';
import { useNews, useSoon } from '../api/events';
import type { Operation, Page, Step } from '../api/types';
import { AnnotateDialog, BranchDialog, CheckpointDialog } from '../dialogs';
import { RewindDialog } from '../rewind';
import { Link, set, useRoute } from '../route';
import { Ago, Button, Empty, Loading, say, Trouble, useKeys } from '../ui';
import { useWorkspace, WorkspacePicker } from '../workspaces';

const PAGE = 100;

type Open = { what: 'create' } | { what: 'rewind' | 'annotate' | 'branch'; step: Step } | null;

export default function CheckpointsPage() {
  const { words } = useRoute();
  const { chosen, all, problem } = useWorkspace();
  const find = words.get('find') ?? '';
  const tag = words.get('tag') ?? '';
  const trigger = words.get('trigger') ?? '';
  const [most, setMost] = useState(PAGE);
  const [open, setOpen] = useState<Open>(null);
  const [marked, setMarked] = useState<Step | null>(null);
  const workspace = chosen?.id;
  const asked = useAsk(workspace ? `${workspace} ${find} ${tag} ${trigger} ${most}` : null, async (signal) => {
    const items: Step[] = [];
    let after: string | null | undefined;
    do {
      const page: Page<Step> = await get(`/workspaces/${workspace}/checkpoints`, { find, tag, trigger, limit: PAGE, after }, signal);
      items.push(...page.items);
      after = page.next_cursor;
    } while (after && items.length < most);
    return { items, more: Boolean(after) };
  });
  const operations = useAsk(workspace ? `operations ${workspace}` : null, (signal) =>
    get<Page<Operation>>(`/workspaces/${workspace}/operations`, { limit: 8 }, signal),
  );
  const again = useSoon(() => {
    asked.again();
    operations.again();
  }, 300);
  useNews(again);
  useKeys({ c: () => setOpen({ what: 'create' }) });
  const remove = async (step: Step) => {
    try {
      await change('DELETE', `/checkpoints/${step.id}`);
      say(`#${step.number} is hidden; “stepback undo” brings it back.`);
      again();
    } catch (error) {
      say(Problem.of(error).detail, true);
    }
  };
  const isRemote = chosen?.root.startsWith('remote:') ?? false;

  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Checkpoints</h1>
          <p className="dim">Every state that was kept. Agents make them by themselves whenever files change.</p>
        </div>
        <div className="actions">
          <Button look="primary" disabled={!workspace || isRemote} onClick={() => setOpen({ what: 'create' })}>
            Create a checkpoint
          </Button>
        </div>
      </header>
      <form className="filters" role="search" aria-label="Filter checkpoints" onSubmit={(event) => event.preventDefault()}>
        <WorkspacePicker chosen={chosen} all={all} />
        <input type="search" aria-label="Find in labels, notes and summaries" placeholder="Find in names, notes, summaries …" value={find} onChange={(event) => set({ find: event.target.value })} />
        <input aria-label="Tag" placeholder="tag" value={tag} onChange={(event) => set({ tag: event.target.value })} />
        <select aria-label="Made by" value={trigger} onChange={(event) => set({ trigger: event.target.value })}>
          <option value="">made by anything</option>
          <option value="manual">by hand</option>
          <option value="automatic">automatically</option>
        </select>
      </form>
      {(problem ?? asked.problem) && <Trouble problem={(problem ?? asked.problem) as Problem} again={asked.again} />}
      {all?.length === 0 && (
        <Empty title="No workspace yet">
          <p>In a directory of yours:</p>
          <pre>stepback checkpoint create --label start</pre>
        </Empty>
      )}
      {workspace && asked.loading && !asked.value && <Loading what="Checkpoints" />}
      {asked.value?.items.length === 0 && (
        <Empty title={find || tag || trigger ? 'No checkpoint fits' : 'Nothing is kept yet'}>
          {!isRemote && <p>A checkpoint keeps every file as it is now, in a few milliseconds.</p>}
        </Empty>
      )}
      {marked && (
        <p className="banner">
          Comparing with #{marked.number}: choose another one. <Button small onClick={() => setMarked(null)}>Never mind</Button>
        </p>
      )}
      {asked.value && asked.value.items.length > 0 && (
        <ul className="cards" aria-label="Checkpoints">
          {asked.value.items.map((step) => (
            <li key={step.id} className="card">
              <div className="what">
                <span className={step.trigger === 'manual' ? 'kept manual' : 'kept'} aria-hidden="true">◆</span>
                <Link href={`/sessions/${step.session}?step=${step.number}`}>#{step.number}</Link>
                {step.label && <b className="label">{step.label}</b>}
                <span className="summary">{step.summary}</span>
                {step.tags.map((one) => (
                  <button type="button" key={one} className="tag" onClick={() => set({ tag: one })}>
                    {one}
                  </button>
                ))}
              </div>
              {step.note && <p className="note">{step.note}</p>}
              <div className="foot">
                <span className="dim">
                  <Ago at={step.at} /> · {step.trigger === 'manual' ? 'by hand' : step.trigger}
                </span>
                <span className="gap" />
                {marked && marked.id !== step.id ? (
                  <Link className="button small primary" href={marked.number < step.number ? `/diff?a=${marked.id}&b=${step.id}&workspace=${workspace}` : `/diff?a=${step.id}&b=${marked.id}&workspace=${workspace}`}>
                    Compare with this
                  </Link>
                ) : (
                  <Button small look="ghost" onClick={() => setMarked(step)}>Compare …</Button>
                )}
                {step.parent && <Link className="button small ghost" href={`/diff?a=${step.parent}&b=${step.id}&workspace=${workspace}`}>Changes</Link>}
                {!isRemote && <Link className="button small ghost" href={`/diff?a=${step.id}&workspace=${workspace}`}>Diff to now</Link>}
                <Button small look="ghost" aria-label={`Annotate #${step.number}`} onClick={() => setOpen({ what: 'annotate', step })}>Annotate</Button>
                <Button small look="ghost" aria-label={`Branch from #${step.number}`} onClick={() => setOpen({ what: 'branch', step })}>Branch</Button>
                <Button small look="ghost" aria-label={`Delete #${step.number}`} onClick={() => void remove(step)}>Delete</Button>
                {!isRemote && <Button small aria-label={`Rewind to #${step.number}`} onClick={() => setOpen({ what: 'rewind', step })}>Rewind</Button>}
              </div>
            </li>
          ))}
        </ul>
      )}
      {asked.value?.more && (
        <p className="more">
          <Button onClick={() => setMost(most + PAGE)}>Show older ones</Button>
        </p>
      )}
      {operations.value && operations.value.items.length > 0 && (
        <section className="operations">
          <h2>What stepback did</h2>
          <ul className="plain">
            {operations.value.items.map((operation) => (
              <li key={operation.id} className={operation.undone ? 'behind' : ''}>
                <span className="dim"><Ago at={operation.at} /></span> {operation.summary} {operation.undone && <span className="status">undone</span>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {open?.what === 'create' && workspace && <CheckpointDialog workspace={workspace} onClose={() => setOpen(null)} onDone={again} />}
      {open?.what === 'annotate' && <AnnotateDialog step={open.step} onClose={() => setOpen(null)} onDone={again} />}
      {open?.what === 'branch' && workspace && <BranchDialog workspace={workspace} from={`#${open.step.number}`} onClose={() => setOpen(null)} onDone={again} />}
      {open?.what === 'rewind' && workspace && (
        <RewindDialog workspace={workspace} point={`#${open.step.number}`} name={`#${open.step.number}${open.step.label ? ` “${open.step.label}”` : ''}`} onClose={() => setOpen(null)} onDone={again} />
      )}
    </div>
  );
}
