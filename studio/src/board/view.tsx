// The reasoning board at a step: its items, what this step changed, and where each item came from.
import { memo, useDeferredValue, useMemo, useState } from 'react';
import { ApiError, get, useRequest } from '../api/client';
import type { Board, BoardItem, BoardSection, Page } from '../api/types';
import { formatCount, pluralize } from '../format';
import { showToast } from '../toasts';
import { Button, EmptyState, ErrorMessage, Loading } from '../ui';
import { ConfidenceChart } from './chart';
import { BeliefGraph } from './graph';
import { BoardLocation, ItemCard } from './item';

/** Items of each kind that are loaded at a time. */
const PAGE_SIZE = 100;
const CHANGES_SHOWN_AT_FIRST = 8;
const SECTIONS: { name: string; title: string }[] = [
  { name: 'hypotheses', title: 'Hypotheses' },
  { name: 'contradictions', title: 'Contradictions' },
  { name: 'beliefs', title: 'Beliefs' },
  { name: 'gaps', title: 'Gaps' },
  { name: 'verifications', title: 'Verifications' },
  { name: 'experiments', title: 'Experiments' },
  { name: 'notes', title: 'Notes' },
];

interface BoardViewProps {
  workspace: string;
  session: string;
  step: number;
  /** The number of thoughts in the session; the confidence history is reloaded when it changes. */
  thoughts: number;
  onStep: (number: number) => void;
}

export default memo(function BoardView({ workspace, session, step, thoughts, onStep }: BoardViewProps) {
  const [filterText, setFilterText] = useState('');
  const filter = useDeferredValue(filterText.trim());
  const base = `/sessions/${session}/mind`;
  const at = `#${step}`;
  const location = useMemo(() => ({ workspace, session }), [workspace, session]);
  const request = useRequest(`${base} ${at} ${filter}`, (signal) => get<Board>(base, { at, find: filter, limit: PAGE_SIZE }, signal));
  // The last board stays while the next one loads, so that stepping through time shows no blank page.
  const [lastBoard, setLastBoard] = useState<Board | undefined>();
  if (request.data && request.data !== lastBoard) setLastBoard(request.data);
  const board = request.data ?? (lastBoard?.session === session ? lastBoard : undefined);
  if (request.error && !request.data) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!board) return <Loading label="Loading the board" />;
  if (!board.step && !filter) {
    return (
      <section className="board" aria-label={`Reasoning at step ${step}`}>
        <EmptyState title="No reasoning recorded up to this step">
          <p>Agents record hypotheses, evidence, beliefs and open questions on a board, which survives the compaction of their context:</p>
          <pre>stepback board hypothesis propose "the cache is stale"</pre>
          {thoughts > 0 && <p>This session has {pluralize(thoughts, 'thought')} at later steps.</p>}
        </EmptyState>
      </section>
    );
  }
  const sectionNamed = (name: string) => board.parts.find((section) => section.name === name);
  const evidence = sectionNamed('evidence');
  const showItem = (id: string) => {
    const card = document.getElementById(`item-${id}`);
    card?.scrollIntoView({ block: 'center' });
    card?.focus({ preventScroll: true });
    if (!card) showToast(`${id} is not loaded; find it with the field above.`);
  };
  return (
    <BoardLocation value={location}>
    <section className={`board ${request.data ? '' : 'stale'}`} aria-label={`Reasoning at step ${step}`} tabIndex={-1}>
      <BoardChanges board={board} step={step} onStep={onStep} onItem={showItem} />
      <ConfidenceChart session={session} thoughts={thoughts} step={step} onStep={onStep} onItem={showItem} />
      {board.next.length > 0 && !filter && (
        <section>
          <h2>What to do next</h2>
          <ol className="next">
            {board.next.slice(0, 3).map((next) => (
              <li key={next.item + next.what}>
                <button type="button" className="link id" onClick={() => showItem(next.item)}>
                  {next.item}
                </button>
                {next.what} <span className="dim">because {next.why}</span>
              </li>
            ))}
          </ol>
        </section>
      )}
      <input type="search" aria-label="Find on the board" placeholder="Find on the board …" value={filterText} onChange={(event) => setFilterText(event.target.value)} />
      {filter && SECTIONS.every(({ name }) => !sectionNamed(name)?.total) && !evidence?.total && <p className="dim">No matches on the board.</p>}
      {SECTIONS.map(({ name, title }) => {
        const section = sectionNamed(name);
        // With a filter, matching evidence is a list of its own, below.
        if (!section?.total && name !== 'beliefs') return null;
        return (
          <section key={name} className={`part ${name}`}>
            {section && section.total > 0 && (
              <h2>
                {title} <span className="dim">{formatCount(section.total)}</span>
              </h2>
            )}
            {name === 'beliefs' && !filter && <BeliefGraph session={session} step={step} beliefs={section?.total ?? 0} onItem={showItem} />}
            {section && section.total > 0 && (
              <ItemList key={`${at} ${filter}`} base={base} at={at} filterText={filter} section={section} evidence={name === 'hypotheses' && !filter ? evidence : undefined} onStep={onStep} onItem={showItem} />
            )}
          </section>
        );
      })}
      {filter && evidence && evidence.total > 0 && (
        <section className="part">
          <h2>
            Evidence <span className="dim">{formatCount(evidence.total)}</span>
          </h2>
          <ItemList key={`${at} ${filter}`} base={base} at={at} filterText={filter} section={evidence} onStep={onStep} onItem={showItem} />
        </section>
      )}
    </section>
    </BoardLocation>
  );
});

/** What this step changed on the board; if nothing, the step of the last change. */
function BoardChanges({ board, step, onStep, onItem }: { board: Board; step: number; onStep: (number: number) => void; onItem: (id: string) => void }) {
  const [showAll, setShowAll] = useState(false);
  const shown = showAll ? board.changes : board.changes.slice(0, CHANGES_SHOWN_AT_FIRST);
  if (board.changed === 0) {
    return (
      <p className="since dim">
        Unchanged since{' '}
        <button type="button" className="link" onClick={() => onStep(board.step?.number ?? step)}>
          #{board.step?.number}
        </button>
        {board.step?.summary}
      </p>
    );
  }
  return (
    <section className="changes" aria-label="What this step changed">
      <h2>This step</h2>
      <ul>
        {shown.map((change) => (
          <li key={change.item} className={`is-${change.change}`}>
            <span className="sign" aria-hidden="true">
              {change.change === 'added' ? '+' : change.change === 'removed' ? '−' : '~'}
            </span>
            <button type="button" className="link" onClick={() => onItem(change.item)} disabled={change.change === 'removed'}>
              {change.sentence}
            </button>
          </li>
        ))}
      </ul>
      {board.changed > shown.length && (
        <p className="dim">
          … and {formatCount(board.changed - shown.length)} more{' '}
          {board.changes.length > shown.length && (
            <Button small onClick={() => setShowAll(true)}>
              Show {formatCount(board.changes.length)}
            </Button>
          )}
        </p>
      )}
    </section>
  );
}

interface ItemListProps {
  base: string;
  at: string;
  filterText: string;
  section: BoardSection;
  /** Evidence, shown below the hypothesis it is about. */
  evidence?: BoardSection | undefined;
  onStep: (number: number) => void;
  onItem: (id: string) => void;
}

/** Items of one kind; more are loaded a page at a time. */
function ItemList({ base, at, filterText, section, evidence, onStep, onItem }: ItemListProps) {
  const [extra, setExtra] = useState<{ items: BoardItem[]; next: string | null | undefined }>({ items: [], next: section.next_cursor });
  const [loading, setLoading] = useState(false);
  const loadMore = async () => {
    setLoading(true);
    try {
      const page = await get<Page<BoardItem>>(`${base}/${section.name}`, { at, find: filterText, limit: PAGE_SIZE, after: extra.next });
      setExtra({ items: [...extra.items, ...page.items], next: page.next_cursor });
    } catch (error) {
      showToast(ApiError.from(error).detail, true);
    } finally {
      setLoading(false);
    }
  };
  const items = extra.items.length ? [...section.items, ...extra.items] : section.items;
  return (
    <>
      <ul className="items">
        {items.map((item) => (
          <ItemCard key={item.id} item={item} onStep={onStep} onItem={onItem}>
            {evidence && <EvidenceList base={base} at={at} hypothesis={item.id} firstPage={evidence} onStep={onStep} onItem={onItem} />}
          </ItemCard>
        ))}
      </ul>
      {extra.next && (
        <p className="more">
          <span className="dim">
            {formatCount(items.length)} of {formatCount(section.total)} shown{' '}
          </span>
          <Button small disabled={loading} onClick={() => void loadMore()}>
            Show more
          </Button>
        </p>
      )}
    </>
  );
}

/** The evidence about one hypothesis. On a large board, only the newest is loaded at first. */
function EvidenceList({ base, at, hypothesis, firstPage, onStep, onItem }: Omit<ItemListProps, 'section' | 'filterText' | 'evidence'> & { hypothesis: string; firstPage: BoardSection }) {
  const [allItems, setAllItems] = useState<BoardItem[] | null>(null);
  const isAbout = (item: BoardItem) => item.links.some((link) => link.to === hypothesis && link.how === 'for');
  const items = allItems ?? firstPage.items.filter(isAbout);
  const loadAll = async () => {
    try {
      const page = await get<Page<BoardItem>>(`${base}/evidence`, { at, about: hypothesis, limit: 1000 });
      setAllItems(page.items);
      if (page.next_cursor) showToast('Only the newest 1,000 are shown.');
    } catch (error) {
      showToast(ApiError.from(error).detail, true);
    }
  };
  const isPartial = !allItems && firstPage.total > firstPage.items.length;
  if (items.length === 0 && !isPartial) return null;
  return (
    <>
      <ul className="items evidence" aria-label={`Evidence about ${hypothesis}`}>
        {items.map((item) => (
          <ItemCard key={item.id} item={item} onStep={onStep} onItem={onItem} />
        ))}
      </ul>
      {isPartial && (
        <Button small variant="ghost" onClick={() => void loadAll()}>
          All evidence about {hypothesis}
        </Button>
      )}
    </>
  );
}
