// Draws a waterfall and the composition of the context on canvases that share a time axis. Nothing here knows React.
import type { ContextSample, Profile, ProfileSpan } from '../api/types';
import { formatDuration } from '../format';
import { CATEGORY_COLOURS, isWaiting, PART_COLOURS, PART_ORDER } from './categories';

export interface TimeView {
  /** Microseconds since the start of the session, at the left edge. */
  start: number;
  /** Microseconds for each pixel. */
  scale: number;
}

export interface Palette {
  text: string;
  dim: string;
  line: string;
  strong: string;
  panel: string;
  accent: string;
  error: string;
  of: (property: string) => string;
}

export const ROW_HEIGHT = 18;
const LANE_GAP = 20;
export const AXIS_HEIGHT = 22;
export const CONTEXT_HEIGHT = 120;
const FONT = '11px ui-sans-serif, system-ui, sans-serif';

export function readPalette(element: HTMLElement): Palette {
  const style = getComputedStyle(element);
  const of = (property: string) => style.getPropertyValue(property).trim();
  return { text: of('--text'), dim: of('--dim'), line: of('--line'), strong: of('--line-strong'), panel: of('--panel'), accent: of('--accent'), error: of('--kind-error'), of };
}

export interface LaneLayout {
  /** The top of each lane, with its heading. */
  tops: number[];
  height: number;
}

export function layoutLanes(profile: Profile): LaneLayout {
  const rows = profile.lanes.map(() => 1);
  for (const span of profile.spans) rows[span.lane] = Math.max(rows[span.lane] ?? 1, span.row + 1);
  const tops: number[] = [];
  let top = AXIS_HEIGHT;
  for (const count of rows) {
    tops.push(top);
    top += LANE_GAP + count * ROW_HEIGHT + 6;
  }
  return { tops, height: top + 4 };
}

export const spanTop = (layout: LaneLayout, span: ProfileSpan): number => (layout.tops[span.lane] ?? AXIS_HEIGHT) + LANE_GAP + span.row * ROW_HEIGHT;

const TICKS = [1, 2, 5];

/** The distance of ticks that leaves room for their labels. */
function tickInterval(scale: number): number {
  const wanted = scale * 90;
  // From a minute on, in the steps of a clock.
  for (const seconds of [60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400]) if (wanted > 30e6 && wanted <= seconds * 1e6) return seconds * 1e6;
  let unit = 1;
  for (;;) {
    for (const tick of TICKS) if (tick * unit >= wanted) return tick * unit;
    unit *= 10;
  }
}

export function paintAxis(context: CanvasRenderingContext2D, view: TimeView, width: number, height: number, palette: Palette) {
  const interval = tickInterval(view.scale);
  context.font = FONT;
  context.textBaseline = 'middle';
  for (let tick = Math.ceil(view.start / interval) * interval; (tick - view.start) / view.scale < width; tick += interval) {
    const x = Math.round((tick - view.start) / view.scale);
    context.fillStyle = palette.line;
    context.fillRect(x, 0, 1, height);
    context.fillStyle = palette.dim;
    context.fillText(tick === 0 ? '0' : formatDuration(tick), x + 4, AXIS_HEIGHT / 2);
  }
}

export function paintWaterfall(
  context: CanvasRenderingContext2D,
  profile: Profile,
  layout: LaneLayout,
  view: TimeView,
  width: number,
  selected: ProfileSpan | null,
  palette: Palette,
) {
  context.clearRect(0, 0, width, layout.height);
  paintAxis(context, view, width, layout.height, palette);
  context.textBaseline = 'middle';
  profile.lanes.forEach((lane, index) => {
    const top = layout.tops[index] ?? 0;
    context.fillStyle = palette.strong;
    context.fillRect(0, top, width, 1);
    context.font = `600 ${FONT}`;
    context.fillStyle = palette.dim;
    context.fillText(lane.worker ?? profile.agent, 6, top + LANE_GAP / 2 + 1);
  });
  context.font = FONT;
  for (const span of profile.spans) {
    const x = (span.start_us - view.start) / view.scale;
    const barWidth = Math.max(1.5, span.us / view.scale);
    if (x > width || x + barWidth < 0) continue;
    const left = Math.max(-4, x);
    const right = Math.min(width + 4, x + barWidth);
    const y = spanTop(layout, span) + 1;
    const height = ROW_HEIGHT - 4;
    const colour = palette.of(CATEGORY_COLOURS[span.category] ?? '--kind-other');
    context.beginPath();
    context.roundRect(left, y, right - left, height, Math.min(3, (right - left) / 3));
    if (isWaiting(span.category)) {
      context.globalAlpha = 0.18;
      context.fillStyle = colour;
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = colour;
      context.lineWidth = 1;
      context.setLineDash([3, 3]);
      context.stroke();
      context.setLineDash([]);
    } else {
      context.fillStyle = colour;
      context.fill();
    }
    if (span.failed) {
      context.fillStyle = palette.error;
      context.fillRect(left, y, 3, height);
    }
    if (span.critical) {
      context.fillStyle = palette.text;
      context.fillRect(left, y + height, right - left, 2);
    }
    if (span === selected) {
      context.strokeStyle = palette.accent;
      context.lineWidth = 2;
      context.strokeRect(left - 1, y - 1, right - left + 2, height + 2);
    }
    const name = [span.name ?? span.category, span.subject].filter(Boolean).join(' ');
    if (right - left > 34) {
      context.save();
      context.beginPath();
      context.rect(left, y, right - left - 4, height);
      context.clip();
      context.fillStyle = isWaiting(span.category) ? palette.text : palette.panel;
      context.fillText(name, Math.max(left, 0) + 5, y + height / 2 + 0.5);
      context.restore();
    }
  }
}

/** The span at a place; a short one is found within a few pixels. */
export function spanAt(profile: Profile, layout: LaneLayout, view: TimeView, x: number, y: number): ProfileSpan | null {
  let best: ProfileSpan | null = null;
  let distance = 4;
  for (const span of profile.spans) {
    const top = spanTop(layout, span);
    if (y < top || y >= top + ROW_HEIGHT) continue;
    const left = (span.start_us - view.start) / view.scale;
    const right = left + Math.max(1.5, span.us / view.scale);
    const away = x < left ? left - x : x > right ? x - right : 0;
    if (away < distance || (away === 0 && best === null)) {
      best = span;
      distance = away;
    }
  }
  return best;
}

/** The samples of an agent, with where each ends: at the next one. */
export function samplesOf(profile: Profile, lane: number): { sample: ContextSample; end: number }[] {
  const samples = profile.context.filter((sample) => sample.lane === lane);
  return samples.map((sample, index) => ({ sample, end: samples[index + 1]?.at_us ?? profile.wall_us }));
}

/** Whether sizes are known by parts; otherwise only tokens are. */
export const hasParts = (profile: Profile, lane: number): boolean => profile.context.some((sample) => sample.lane === lane && sample.parts.length > 0);

export const sampleSize = (sample: ContextSample, byParts: boolean): number =>
  byParts ? sample.parts.reduce((sum, part) => sum + part.bytes, 0) : (sample.tokens ?? 0);

export function paintContext(context: CanvasRenderingContext2D, profile: Profile, lane: number, view: TimeView, width: number, palette: Palette) {
  context.clearRect(0, 0, width, CONTEXT_HEIGHT);
  const samples = samplesOf(profile, lane);
  const byParts = hasParts(profile, lane);
  const max = samples.reduce((size, { sample }) => Math.max(size, sampleSize(sample, byParts)), 1);
  const room = CONTEXT_HEIGHT - 10;
  for (const { sample, end } of samples) {
    const x = (sample.at_us - view.start) / view.scale;
    const right = Math.max(x + 1.5, (end - view.start) / view.scale);
    if (x > width || right < 0) continue;
    const left = Math.max(0, x);
    let y = CONTEXT_HEIGHT;
    const bar = (size: number, colour: string, alpha = 1) => {
      const height = (size / max) * room;
      y -= height;
      context.globalAlpha = alpha;
      context.fillStyle = colour;
      context.fillRect(left, y, Math.min(width, right) - left, height);
      context.globalAlpha = 1;
    };
    // What is only inferred is paler.
    const alpha = sample.basis === 'inferred' ? 0.5 : 0.9;
    if (byParts) {
      for (const kind of PART_ORDER) {
        const size = sample.parts.reduce((sum, part) => sum + (part.kind === kind ? part.bytes : 0), 0);
        if (size > 0) bar(size, palette.of(PART_COLOURS[kind] ?? '--kind-other'), alpha);
      }
    } else {
      bar(sample.cached ?? 0, palette.of('--kind-tool'), alpha);
      bar(Math.max(0, (sample.tokens ?? 0) - (sample.cached ?? 0)), palette.of('--kind-model'), alpha);
    }
    if (sample.compacted) {
      context.strokeStyle = palette.error;
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, CONTEXT_HEIGHT);
      context.stroke();
      context.setLineDash([]);
    }
  }
}
