// The steps as text. Only visible rows are rendered and loaded.
import { memo, useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { get } from '../api/client';
import type { Page, Step } from '../api/types';
import { anomalyName, type Incidents } from '../anomalies/incidents';
import { glyphOf } from '../kinds';
import { formatDuration } from '../format';
import { CHECKPOINT, FAILED, ROLLED_BACK, type Timeline } from './timeline';

const ROW_HEIGHT = 30;
const BLOCK_SIZE = 200;

/** Steps by number, loaded in blocks. */
export class StepCache {
  private readonly steps = new Map<number, Step>();
  private readonly requestedBlocks = new Set<number>();
  constructor(
    private readonly session: string,
    private readonly onChange: () => void,
  ) {}

  get(number: number): Step | undefined {
    return this.steps.get(number);
  }

  put(step: Step) {
    this.steps.set(step.number, step);
  }

  /** Drops all steps, because labels, notes and tags may have changed. */
  clear() {
    this.steps.clear();
    this.requestedBlocks.clear();
    this.onChange();
  }

  /** Loads the steps around a number, or the newest, before the timeline is known. */
  preload(number: number) {
    const range = number ? { oldest_first: true, above: Math.max(0, number - BLOCK_SIZE / 2) } : {};
    get<Page<Step>>(`/sessions/${this.session}/steps`, { ...range, limit: BLOCK_SIZE })
      .then((page) => {
        for (const step of page.items) this.steps.set(step.number, step);
        this.onChange();
      })
      // Visible steps that are missing are loaded later.
      .catch(() => {});
  }

  load(timeline: Timeline, first: number, last: number) {
    for (let block = Math.floor(first / BLOCK_SIZE); block <= Math.floor(last / BLOCK_SIZE); block++) {
      const from = timeline.number[block * BLOCK_SIZE];
      if (from === undefined || this.requestedBlocks.has(block)) continue;
      const end = Math.min(timeline.length, (block + 1) * BLOCK_SIZE);
      let missing = false;
      for (let i = block * BLOCK_SIZE; i < end && !missing; i++) missing = !this.steps.has(timeline.number[i] ?? 0);
      if (!missing) continue;
      this.requestedBlocks.add(block);
      get<Page<Step>>(`/sessions/${this.session}/steps`, { oldest_first: true, above: from - 1, limit: BLOCK_SIZE })
        .then((page) => {
          for (const step of page.items) this.steps.set(step.number, step);
          // The last block grows.
          if (end === timeline.length && page.items.length < BLOCK_SIZE) this.requestedBlocks.delete(block);
          this.onChange();
        })
        .catch(() => this.requestedBlocks.delete(block));
    }
  }
}

export const StepList = memo(function StepList({
  timeline,
  incidents,
  version,
  steps,
  selected,
  onSelect,
}: {
  timeline: Timeline;
  incidents: Incidents;
  version: number;
  steps: StepCache;
  selected: number;
  onSelect: (index: number) => void;
}) {
  const container = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 600 });
  const scrolledTo = useRef(-1);
  // Keep the selected step visible. The position is computed before rendering: measuring it afterwards would lay out the page
  // twice for every step.
  let top = scroll.top;
  if (scrolledTo.current !== selected) {
    const selectedTop = selected * ROW_HEIGHT;
    if (selectedTop < top || selectedTop + ROW_HEIGHT > top + scroll.height) {
      const maxTop = Math.max(0, timeline.length * ROW_HEIGHT - scroll.height);
      top = Math.max(0, Math.min(maxTop, selectedTop - Math.floor(scroll.height / 2) + ROW_HEIGHT));
    }
  }
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - 6);
  const last = Math.min(timeline.length - 1, Math.ceil((top + scroll.height) / ROW_HEIGHT) + 6);

  // While the user moves fast, nothing is loaded; visible steps are loaded when they stop.
  useEffect(() => {
    const timer = setTimeout(() => steps.load(timeline, first, last), 40);
    return () => clearTimeout(timer);
  }, [steps, timeline, version, first, last]);
  const updateScroll = useCallback(
    (next: { top: number; height: number }) =>
      setScroll((old) => (Math.abs(old.top - next.top) < 1 && old.height === next.height ? old : next)),
    [],
  );
  useLayoutEffect(() => {
    const element = container.current;
    if (!element) return;
    const observer = new ResizeObserver(() => updateScroll({ top: element.scrollTop, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, [updateScroll]);
  useLayoutEffect(() => {
    scrolledTo.current = selected;
    if (top !== scroll.top && container.current) {
      container.current.scrollTop = top;
      updateScroll({ top, height: scroll.height });
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
      i === selected ? 'selected' : '',
      timeline.has(i, ROLLED_BACK) ? 'inactive' : '',
      timeline.has(i, FAILED) ? 'failed' : '',
    ];
    const duration = timeline.duration[i] ?? 0;
    const unusual = incidents.at(number);
    rows.push(
      <div
        key={i - first}
        id={`step-${number}`}
        role="option"
        aria-selected={i === selected}
        className={classes.join(' ')}
        style={{ top: i * ROW_HEIGHT }}
        onClick={() => onSelect(i)}
      >
        <span className="number">{number}</span>
        <span className="glyph" aria-hidden="true">
          {glyphOf(kind)}
        </span>
        <span className="summary">
          <span className="kind">{kind}</span> {step?.label && <b className="label">{step.label} </b>}
          {step ? step.summary : ''}
        </span>
        {unusual[0] && (
          <span className={`anomaly-mark severity-${unusual[0].severity}`} title={unusual.map((item) => item.evidence).join('\n')}>
            ⚠<span className="visually-hidden"> {unusual.map((item) => anomalyName(item.kind)).join(', ')}</span>
          </span>
        )}
        {timeline.has(i, CHECKPOINT) && (
          <span className="checkpoint-mark" title="checkpoint">
            ◆
          </span>
        )}
        {duration > 0 && <span className="duration">{formatDuration(duration)}</span>}
      </div>,
    );
  }
  return (
    <div
      className="steps"
      ref={container}
      role="listbox"
      aria-label="Steps"
      tabIndex={0}
      aria-activedescendant={selected >= first && selected <= last ? `step-${timeline.number[selected]}` : undefined}
      onScroll={(event) => updateScroll({ top: event.currentTarget.scrollTop, height: scroll.height })}
    >
      <div className="spacer" role="presentation" style={{ height: timeline.length * ROW_HEIGHT }}>
        {rows}
      </div>
    </div>
  );
});
