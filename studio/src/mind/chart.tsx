// How sure the agent was of its hypotheses over time. A click goes to the thought that is there.
import { memo, type MouseEvent, useMemo, useState } from 'react';
import { get, useAsk } from '../api/client';
import type { Confidence } from '../api/types';
import { plural } from '../format';

const WIDTH = 640;
const HEIGHT = 150;
const LEFT = 26;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
/** So many hypotheses have a colour of their own; a legend with more helps nobody. */
const COLOURS = 8;

type Line = Confidence['lines'][number];

export const ConfidenceChart = memo(function ConfidenceChart({
  session,
  thoughts,
  step,
  onStep,
  onItem,
}: {
  session: string;
  thoughts: number;
  step: number;
  onStep: (number: number) => void;
  onItem: (id: string) => void;
}) {
  const asked = useAsk(`confidence ${session} ${thoughts}`, (signal) => get<Confidence>(`/sessions/${session}/mind/confidence`, {}, signal));
  const [kept, setKept] = useState<Confidence | undefined>();
  if (asked.value && asked.value !== kept) setKept(asked.value);
  const history = asked.value ?? (kept?.session === session ? kept : undefined);
  const [over, setOver] = useState<string | null>(null);
  const paths = useMemo(() => new Map((history?.lines ?? []).map((line) => [line.hypothesis, path(line, history?.number.length ?? 0)])), [history]);
  if (!history || history.lines.length === 0 || history.number.length < 2) return null;
  const last = history.number.length - 1;
  const now = momentOf(history, step);
  const x = (moment: number) => place(moment, history.number.length);
  const pick = (event: MouseEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    const moment = Math.round(((at - LEFT) / (WIDTH - LEFT - RIGHT)) * last);
    const number = history.number[Math.max(0, Math.min(last, moment))];
    if (number !== undefined) onStep(number);
  };
  const coloured = history.lines.slice(0, COLOURS);
  const label = coloured.map((line) => `${line.hypothesis} ${said(line, now)}`).join(', ');
  return (
    <figure className="confidence">
      <figcaption>
        How sure, over time <span className="dim">{plural(history.thoughts, 'thought')}{history.every > 1 ? `, every ${history.every} drawn` : ''}</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Confidence of hypotheses over ${plural(history.thoughts, 'thought')}. At this step: ${label}`} onClick={pick}>
        {[0, 0.5, 1].map((level) => (
          <g key={level} className="grid">
            <line x1={LEFT} x2={WIDTH - RIGHT} y1={y(level)} y2={y(level)} />
            <text x={LEFT - 5} y={y(level) + 3.5} textAnchor="end">
              {level}
            </text>
          </g>
        ))}
        {[...history.lines].reverse().map((line) => {
          const colour = history.lines.indexOf(line);
          return (
            <path key={line.hypothesis} className={`course ${colour < COLOURS ? `c${colour}` : 'rest'} ${over === line.hypothesis ? 'over' : over ? 'under' : ''}`} d={paths.get(line.hypothesis)}>
              <title>{`${line.hypothesis}: ${line.text}`}</title>
            </path>
          );
        })}
        {now >= 0 && <line className="cursor" x1={x(now)} x2={x(now)} y1={TOP} y2={HEIGHT - BOTTOM} />}
        {now >= 0 &&
          coloured.map((line, colour) => {
            const value = valueAt(line, now);
            return value == null ? null : <circle key={line.hypothesis} className={`c${colour}`} cx={x(now)} cy={y(value)} r={3.2} />;
          })}
        <text className="axis" x={LEFT} y={HEIGHT - 5}>
          #{history.number[0]}
        </text>
        <text className="axis" x={WIDTH - RIGHT} y={HEIGHT - 5} textAnchor="end">
          #{history.number[last]}
        </text>
      </svg>
      <ul className="keys">
        {coloured.map((line, colour) => (
          <li key={line.hypothesis}>
            <button type="button" onClick={() => onItem(line.hypothesis)} onMouseEnter={() => setOver(line.hypothesis)} onMouseLeave={() => setOver(null)} onFocus={() => setOver(line.hypothesis)} onBlur={() => setOver(null)} title={line.text}>
              <i className={`c${colour}`} aria-hidden="true" />
              <b>{line.hypothesis}</b> {said(line, now)}
            </button>
          </li>
        ))}
        {history.lines.length + history.left_out > COLOURS && <li className="dim">and {history.lines.length + history.left_out - COLOURS} more</li>}
      </ul>
    </figure>
  );
});

const y = (value: number) => TOP + (1 - value) * (HEIGHT - TOP - BOTTOM);
const place = (moment: number, moments: number) => LEFT + (moment / Math.max(1, moments - 1)) * (WIDTH - LEFT - RIGHT);

/** The last moment that is not after a step; -1 before the first. */
function momentOf(history: Confidence, step: number): number {
  let low = 0;
  let high = history.number.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((history.number[middle] ?? 0) <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The place of the entry that holds at a moment; -1 before the first. */
function entryAt(line: Line, moment: number): number {
  let found = -1;
  for (let i = 0; i < line.at.length && (line.at[i] ?? 0) <= moment; i++) found = i;
  return found;
}

const valueAt = (line: Line, moment: number): number | null => line.confidence[entryAt(line, moment)] ?? null;

function said(line: Line, moment: number): string {
  const value = valueAt(line, moment);
  if (value == null) return 'not there';
  const status = line.status[entryAt(line, moment)];
  return `${value.toFixed(2)}${status && status !== 'active' ? ` ${status}` : ''}`;
}

/** Steps: a confidence holds until the next thought that moves it. */
function path(line: Line, moments: number): string {
  let d = '';
  let open = false;
  for (let i = 0; i < line.at.length; i++) {
    const value = line.confidence[i];
    const from = place(line.at[i] ?? 0, moments);
    const to = place(line.at[i + 1] ?? moments - 1, moments);
    if (value == null) {
      open = false;
      continue;
    }
    d += open ? `V${y(value).toFixed(1)}` : `M${from.toFixed(1)} ${y(value).toFixed(1)}`;
    d += `H${to.toFixed(1)}`;
    open = true;
  }
  return d;
}
