// The confidence of each hypothesis over the session. A click selects the thought at that place.
import { memo, type MouseEvent, useMemo, useState } from 'react';
import { get, useRequest } from '../api/client';
import type { ConfidenceHistory } from '../api/types';
import { pluralize } from '../format';

const WIDTH = 640;
const HEIGHT = 150;
const LEFT = 26;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
/** Hypotheses with a colour of their own; a longer legend is not readable. */
const COLOURED_LINES = 8;

type ConfidenceLine = ConfidenceHistory['lines'][number];

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
  const request = useRequest(`confidence ${session} ${thoughts}`, (signal) => get<ConfidenceHistory>(`/sessions/${session}/mind/confidence`, {}, signal));
  const [lastHistory, setLastHistory] = useState<ConfidenceHistory | undefined>();
  if (request.data && request.data !== lastHistory) setLastHistory(request.data);
  const history = request.data ?? (lastHistory?.session === session ? lastHistory : undefined);
  const [highlighted, setHighlighted] = useState<string | null>(null);
  const paths = useMemo(() => new Map((history?.lines ?? []).map((line) => [line.hypothesis, linePath(line, history?.number.length ?? 0)])), [history]);
  if (!history || history.lines.length === 0 || history.number.length < 2) return null;
  const last = history.number.length - 1;
  const currentIndex = indexOfStep(history, step);
  const x = (index: number) => xOf(index, history.number.length);
  const selectAt = (event: MouseEvent<SVGSVGElement>) => {
    const bounds = event.currentTarget.getBoundingClientRect();
    const svgX = ((event.clientX - bounds.left) / bounds.width) * WIDTH;
    const index = Math.round(((svgX - LEFT) / (WIDTH - LEFT - RIGHT)) * last);
    const number = history.number[Math.max(0, Math.min(last, index))];
    if (number !== undefined) onStep(number);
  };
  const coloured = history.lines.slice(0, COLOURED_LINES);
  const label = coloured.map((line) => `${line.hypothesis} ${formatEntry(line, currentIndex)}`).join(', ');
  return (
    <figure className="confidence">
      <figcaption>
        Confidence over time <span className="dim">{pluralize(history.thoughts, 'thought')}{history.every > 1 ? `, 1 in ${history.every} shown` : ''}</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Confidence of hypotheses over ${pluralize(history.thoughts, 'thought')}. At this step: ${label}`} onClick={selectAt}>
        {[0, 0.5, 1].map((level) => (
          <g key={level} className="grid">
            <line x1={LEFT} x2={WIDTH - RIGHT} y1={yOf(level)} y2={yOf(level)} />
            <text x={LEFT - 5} y={yOf(level) + 3.5} textAnchor="end">
              {level}
            </text>
          </g>
        ))}
        {[...history.lines].reverse().map((line) => {
          const colour = history.lines.indexOf(line);
          return (
            <path key={line.hypothesis} className={`confidence-line ${colour < COLOURED_LINES ? `c${colour}` : 'rest'} ${highlighted === line.hypothesis ? 'highlighted' : highlighted ? 'faded' : ''}`} d={paths.get(line.hypothesis)}>
              <title>{`${line.hypothesis}: ${line.text}`}</title>
            </path>
          );
        })}
        {currentIndex >= 0 && <line className="cursor" x1={x(currentIndex)} x2={x(currentIndex)} y1={TOP} y2={HEIGHT - BOTTOM} />}
        {currentIndex >= 0 &&
          coloured.map((line, colour) => {
            const value = valueAt(line, currentIndex);
            return value == null ? null : <circle key={line.hypothesis} className={`c${colour}`} cx={x(currentIndex)} cy={yOf(value)} r={3.2} />;
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
            <button type="button" onClick={() => onItem(line.hypothesis)} onMouseEnter={() => setHighlighted(line.hypothesis)} onMouseLeave={() => setHighlighted(null)} onFocus={() => setHighlighted(line.hypothesis)} onBlur={() => setHighlighted(null)} title={line.text}>
              <i className={`c${colour}`} aria-hidden="true" />
              <b>{line.hypothesis}</b> {formatEntry(line, currentIndex)}
            </button>
          </li>
        ))}
        {history.lines.length + history.left_out > COLOURED_LINES && <li className="dim">and {history.lines.length + history.left_out - COLOURED_LINES} more</li>}
      </ul>
    </figure>
  );
});

const yOf = (value: number) => TOP + (1 - value) * (HEIGHT - TOP - BOTTOM);
const xOf = (index: number, count: number) => LEFT + (index / Math.max(1, count - 1)) * (WIDTH - LEFT - RIGHT);

/** The index of the last thought at or before a step; -1 before the first. */
function indexOfStep(history: ConfidenceHistory, step: number): number {
  let low = 0;
  let high = history.number.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((history.number[middle] ?? 0) <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The entry that is in effect at a thought; -1 before the first. */
function entryIndexAt(line: ConfidenceLine, index: number): number {
  let entry = -1;
  for (let i = 0; i < line.at.length && (line.at[i] ?? 0) <= index; i++) entry = i;
  return entry;
}

const valueAt = (line: ConfidenceLine, index: number): number | null => line.confidence[entryIndexAt(line, index)] ?? null;

function formatEntry(line: ConfidenceLine, index: number): string {
  const value = valueAt(line, index);
  if (value == null) return 'not proposed';
  const status = line.status[entryIndexAt(line, index)];
  return `${value.toFixed(2)}${status && status !== 'active' ? ` ${status}` : ''}`;
}

/** A stepped line: a confidence holds until the next thought that changes it. */
function linePath(line: ConfidenceLine, count: number): string {
  let d = '';
  let isDrawing = false;
  for (let i = 0; i < line.at.length; i++) {
    const value = line.confidence[i];
    const from = xOf(line.at[i] ?? 0, count);
    const to = xOf(line.at[i + 1] ?? count - 1, count);
    if (value == null) {
      isDrawing = false;
      continue;
    }
    d += isDrawing ? `V${yOf(value).toFixed(1)}` : `M${from.toFixed(1)} ${yOf(value).toFixed(1)}`;
    d += `H${to.toFixed(1)}`;
    isDrawing = true;
  }
  return d;
}
