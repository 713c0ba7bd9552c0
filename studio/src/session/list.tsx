// The steps as text. Only what can be seen is in the page, and only that is asked for.
import { memo, useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { get } from '../api/client';
import type { Page, Step } from '../api/types';
import { glyph } from '../kinds';
import { span } from '../format';
import { FAILED, KEPT, ROLLED_BACK, type Timeline } from './model';

const ROW = 30;
const BLOCK = 200;

/** Steps by number, asked for in blocks. */
export class Steps {
  private readonly known = new Map<number, Step>();
  private readonly asked = new Set<number>();
  constructor(
    private readonly session: string,
    private readonly arrived: () => void,
  ) {}

  get(number: number): Step | undefined {
    return this.known.get(number);
  }

  put(step: Step) {
    this.known.set(step.number, step);
  }

  /** Forgets what may have changed: labels, notes, tags. */
  clear() {
    this.known.clear();
    this.asked.clear();
    this.arrived();
  }

  /** Asks for what is looked at first, while it is still being found out how many there are: steps around a number, or the newest. */
  begin(number: number) {
    const which = number ? { oldest_first: true, above: Math.max(0, number - BLOCK / 2) } : {};
    get<Page<Step>>(`/sessions/${this.session}/steps`, { ...which, limit: BLOCK })
      .then((page) => {
        for (const step of page.items) this.known.set(step.number, step);
        this.arrived();
      })
      // Whatever is seen and missing is asked for again.
      .catch(() => {});
  }

  want(timeline: Timeline, first: number, last: number) {
    for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block++) {
      const from = timeline.number[block * BLOCK];
      if (from === undefined || this.asked.has(block)) continue;
      const end = Math.min(timeline.length, (block + 1) * BLOCK);
      let missing = false;
      for (let i = block * BLOCK; i < end && !missing; i++) missing = !this.known.has(timeline.number[i] ?? 0);
      if (!missing) continue;
      this.asked.add(block);
      get<Page<Step>>(`/sessions/${this.session}/steps`, { oldest_first: true, above: from - 1, limit: BLOCK })
        .then((page) => {
          for (const step of page.items) this.known.set(step.number, step);
          // The last block grows.
          if (end === timeline.length && page.items.length < BLOCK) this.asked.delete(block);
          this.arrived();
        })
        .catch(() => this.asked.delete(block));
    }
  }
}

export const StepList = memo(function StepList({
  timeline,
  version,
  steps,
  selected,
  onSelect,
}: {
  timeline: Timeline;
  version: number;
  steps: Steps;
  selected: number;
  onSelect: (index: number) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 600 });
  const shownFor = useRef(-1);
  // What is selected is in sight. The place is worked out here, before anything is drawn: asking the browser for it after each
  // change would make it lay out the page twice for every step.
  let top = scroll.top;
  if (shownFor.current !== selected) {
    const wanted = selected * ROW;
    if (wanted < top || wanted + ROW > top + scroll.height) {
      const most = Math.max(0, timeline.length * ROW - scroll.height);
      top = Math.max(0, Math.min(most, wanted - Math.floor(scroll.height / 2) + ROW));
    }
  }
  const first = Math.max(0, Math.floor(top / ROW) - 6);
  const last = Math.min(timeline.length - 1, Math.ceil((top + scroll.height) / ROW) + 6);

  // Who runs through the steps is not asked for on the way; what is seen when they rest is.
  useEffect(() => {
    const timer = setTimeout(() => steps.want(timeline, first, last), 40);
    return () => clearTimeout(timer);
  }, [steps, timeline, version, first, last]);
  const become = useCallback(
    (next: { top: number; height: number }) =>
      setScroll((old) => (Math.abs(old.top - next.top) < 1 && old.height === next.height ? old : next)),
    [],
  );
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => become({ top: element.scrollTop, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, [become]);
  useLayoutEffect(() => {
    shownFor.current = selected;
    if (top !== scroll.top && box.current) {
      box.current.scrollTop = top;
      become({ top, height: scroll.height });
    }
  });

  const rows = [];
  for (let i = first; i <= last; i++) {
    const number = timeline.number[i] ?? 0;
    const step = steps.get(number);
    const kind = timeline.kindAt(i);
    const classes = [
      'row',
      timeline.familyAt(i),
      i === selected ? 'at' : '',
      timeline.has(i, ROLLED_BACK) ? 'behind' : '',
      timeline.has(i, FAILED) ? 'failed' : '',
    ];
    const duration = timeline.duration[i] ?? 0;
    rows.push(
      <div
        key={i - first}
        id={`step-${number}`}
        role="option"
        aria-selected={i === selected}
        className={classes.join(' ')}
        style={{ top: i * ROW }}
        onClick={() => onSelect(i)}
      >
        <span className="number">{number}</span>
        <span className="glyph" aria-hidden="true">
          {glyph(kind)}
        </span>
        <span className="summary">
          <span className="kind">{kind}</span> {step?.label && <b className="label">{step.label} </b>}
          {step ? step.summary : ''}
        </span>
        {timeline.has(i, KEPT) && (
          <span className="kept" title="checkpoint: it has files of its own">
            ◆
          </span>
        )}
        {duration > 0 && <span className="took">{span(duration)}</span>}
      </div>,
    );
  }
  return (
    <div
      className="steps"
      ref={box}
      role="listbox"
      aria-label="Steps"
      tabIndex={0}
      aria-activedescendant={selected >= first && selected <= last ? `step-${timeline.number[selected]}` : undefined}
      onScroll={(event) => become({ top: event.currentTarget.scrollTop, height: scroll.height })}
    >
      <div className="tall" role="presentation" style={{ height: timeline.length * ROW }}>
        {rows}
      </div>
    </div>
  );
});
