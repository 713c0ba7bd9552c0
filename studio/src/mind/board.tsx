// What an agent thought by a step: everything on its board, what this step changed on it, and where each thing came from.
import { memo, useDeferredValue, useState } from 'react';
import { get, Problem, useAsk } from '../api/client';
import type { Mind, MindItem, MindPart, Page } from '../api/types';
import { count, plural } from '../format';
import { Button, Empty, Loading, say, Trouble } from '../ui';
import { ConfidenceChart } from './chart';
import { BeliefGraph } from './graph';
import { ItemCard } from './item';

/** Items of each kind that are asked for at a time. */
const AT_ONCE = 100;
const CHANGES_SHOWN = 8;
const PARTS: { name: string; title: string }[] = [
  { name: 'hypotheses', title: 'Hypotheses' },
  { name: 'contradictions', title: 'Contradictions' },
  { name: 'beliefs', title: 'Beliefs' },
  { name: 'gaps', title: 'Gaps' },
  { name: 'verifications', title: 'Verifications' },
  { name: 'experiments', title: 'Experiments' },
  { name: 'notes', title: 'Notes' },
];

interface Props {
  session: string;
  step: number;
  /** How many thoughts the session has: another number, another history. */
  thoughts: number;
  onStep: (number: number) => void;
}

export default memo(function MindView({ session, step, thoughts, onStep }: Props) {
  const [find, setFind] = useState('');
  const wanted = useDeferredValue(find.trim());
  const base = `/sessions/${session}/mind`;
  const at = `#${step}`;
  const asked = useAsk(`${base} ${at} ${wanted}`, (signal) => get<Mind>(base, { at, find: wanted, limit: AT_ONCE }, signal));
  // While the next board is on its way the last one stays: who steps through time sees what changes, not a blank page.
  const [kept, setKept] = useState<Mind | undefined>();
  if (asked.value && asked.value !== kept) setKept(asked.value);
  const mind = asked.value ?? (kept?.session === session ? kept : undefined);
  if (asked.problem && !asked.value) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!mind) return <Loading what="The board" />;
  if (!mind.step && !wanted) {
    return (
      <section className="mind" aria-label={`What was thought by step ${step}`}>
        <Empty title="Nothing had been thought by this step">
          <p>An agent puts hypotheses, evidence, beliefs and open questions on a board of its own, and finds them there after its context was compacted:</p>
          <pre>stepback hypothesis propose "the cache is stale"</pre>
          {thoughts > 0 && <p>This session has {plural(thoughts, 'thought')} later on.</p>}
        </Empty>
      </section>
    );
  }
  const part = (name: string) => mind.parts.find((one) => one.name === name);
  const evidence = part('evidence');
  const show = (id: string) => {
    const card = document.getElementById(`item-${id}`);
    card?.scrollIntoView({ block: 'center' });
    card?.focus({ preventScroll: true });
    if (!card) say(`${id} is not among those shown; look for it above.`);
  };
  return (
    <section className={`mind ${asked.value ? '' : 'stale'}`} aria-label={`What was thought by step ${step}`} tabIndex={-1}>
      <Changes mind={mind} step={step} onStep={onStep} onItem={show} />
      <ConfidenceChart session={session} thoughts={thoughts} step={step} onStep={onStep} onItem={show} />
      {mind.next.length > 0 && !wanted && (
        <section>
          <h2>What to do next</h2>
          <ol className="next">
            {mind.next.slice(0, 3).map((next) => (
              <li key={next.item + next.what}>
                <button type="button" className="link id" onClick={() => show(next.item)}>
                  {next.item}
                </button>
                {next.what} <span className="dim">because {next.why}</span>
              </li>
            ))}
          </ol>
        </section>
      )}
      <input type="search" aria-label="Find on the board" placeholder="Find on the board …" value={find} onChange={(event) => setFind(event.target.value)} />
      {wanted && PARTS.every(({ name }) => !part(name)?.total) && !evidence?.total && <p className="dim">Nothing on the board says so.</p>}
      {PARTS.map(({ name, title }) => {
        const its = part(name);
        // While something is looked for, evidence that fits is a list of its own.
        if (!its?.total && name !== 'beliefs') return null;
        return (
          <section key={name} className={`part ${name}`}>
            {its && its.total > 0 && (
              <h2>
                {title} <span className="dim">{count(its.total)}</span>
              </h2>
            )}
            {name === 'beliefs' && !wanted && <BeliefGraph session={session} step={step} beliefs={its?.total ?? 0} onItem={show} />}
            {its && its.total > 0 && (
              <Items key={`${at} ${wanted}`} base={base} at={at} find={wanted} part={its} evidence={name === 'hypotheses' && !wanted ? evidence : undefined} onStep={onStep} onItem={show} />
            )}
          </section>
        );
      })}
      {wanted && evidence && evidence.total > 0 && (
        <section className="part">
          <h2>
            Evidence <span className="dim">{count(evidence.total)}</span>
          </h2>
          <Items key={`${at} ${wanted}`} base={base} at={at} find={wanted} part={evidence} onStep={onStep} onItem={show} />
        </section>
      )}
    </section>
  );
});

/** What this step did to the board; if nothing, since when it is as it is. */
function Changes({ mind, step, onStep, onItem }: { mind: Mind; step: number; onStep: (number: number) => void; onItem: (id: string) => void }) {
  const [all, setAll] = useState(false);
  const shown = all ? mind.changes : mind.changes.slice(0, CHANGES_SHOWN);
  if (mind.changed === 0) {
    return (
      <p className="since dim">
        As it was left at{' '}
        <button type="button" className="link" onClick={() => onStep(mind.step?.number ?? step)}>
          #{mind.step?.number}
        </button>
        {mind.step?.summary}
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
      {mind.changed > shown.length && (
        <p className="dim">
          … and {count(mind.changed - shown.length)} more{' '}
          {mind.changes.length > shown.length && (
            <Button small onClick={() => setAll(true)}>
              Show {count(mind.changes.length)}
            </Button>
          )}
        </p>
      )}
    </section>
  );
}

interface ItemsProps {
  base: string;
  at: string;
  find: string;
  part: MindPart;
  /** What is shown below each item it is about. */
  evidence?: MindPart | undefined;
  onStep: (number: number) => void;
  onItem: (id: string) => void;
}

/** Items of one kind; more of them on demand, a page at a time. */
function Items({ base, at, find, part, evidence, onStep, onItem }: ItemsProps) {
  const [more, setMore] = useState<{ items: MindItem[]; next: string | null | undefined }>({ items: [], next: part.next_cursor });
  const [asking, setAsking] = useState(false);
  const ask = async () => {
    setAsking(true);
    try {
      const page = await get<Page<MindItem>>(`${base}/${part.name}`, { at, find, limit: AT_ONCE, after: more.next });
      setMore({ items: [...more.items, ...page.items], next: page.next_cursor });
    } catch (error) {
      say(Problem.of(error).detail, true);
    } finally {
      setAsking(false);
    }
  };
  const items = more.items.length ? [...part.items, ...more.items] : part.items;
  return (
    <>
      <ul className="items">
        {items.map((item) => (
          <ItemCard key={item.id} item={item} onStep={onStep} onItem={onItem}>
            {evidence && <EvidenceOf base={base} at={at} hypothesis={item.id} known={evidence} onStep={onStep} onItem={onItem} />}
          </ItemCard>
        ))}
      </ul>
      {more.next && (
        <p className="more">
          <span className="dim">
            {count(items.length)} of {count(part.total)} shown{' '}
          </span>
          <Button small disabled={asking} onClick={() => void ask()}>
            Show more
          </Button>
        </p>
      )}
    </>
  );
}

/** The evidence about one hypothesis. Of a large board only the newest is known at first. */
function EvidenceOf({ base, at, hypothesis, known, onStep, onItem }: Omit<ItemsProps, 'part' | 'find' | 'evidence'> & { hypothesis: string; known: MindPart }) {
  const [all, setAll] = useState<MindItem[] | null>(null);
  const about = (item: MindItem) => item.links.some((link) => link.to === hypothesis && link.how === 'for');
  const items = all ?? known.items.filter(about);
  const ask = async () => {
    try {
      const page = await get<Page<MindItem>>(`${base}/evidence`, { at, about: hypothesis, limit: 1000 });
      setAll(page.items);
      if (page.next_cursor) say('Only the newest 1,000 are shown.');
    } catch (error) {
      say(Problem.of(error).detail, true);
    }
  };
  const partial = !all && known.total > known.items.length;
  if (items.length === 0 && !partial) return null;
  return (
    <>
      <ul className="items evidence" aria-label={`Evidence about ${hypothesis}`}>
        {items.map((item) => (
          <ItemCard key={item.id} item={item} onStep={onStep} onItem={onItem} />
        ))}
      </ul>
      {partial && (
        <Button small look="ghost" onClick={() => void ask()}>
          All evidence about {hypothesis}
        </Button>
      )}
    </>
  );
}
