// Draws a timeline on a canvas. Work for a frame is bounded by what can be seen: one pass over the visible steps that keeps
// the most telling one for every pixel, then rectangles for runs of equal pixels.
import { ORDER } from '../kinds';
import { ANNOTATED, FAILED, KEPT, ROLLED_BACK, STOPPED, type Timeline } from './model';

export interface Colours {
  ground: string;
  line: string;
  text: string;
  dim: string;
  accent: string;
  /** By the order of families. */
  families: string[];
  error: string;
}

export interface Window {
  /** The step at the left edge, as a fraction. */
  start: number;
  /** Pixels for a step. */
  scale: number;
}

export const LANE = 34;
export const AXIS = 22;
export const OVERVIEW = 40;
const LEFT_BEHIND = 14;
const TOP = OVERVIEW + AXIS;

/** Which of two that share a pixel is seen: errors before checkpoints before prompts before the rest. */
const WEIGHT = ORDER.map((family) => ({ error: 9, checkpoint: 6, prompt: 5, travel: 7, control: 8, task: 3, thought: 4, tool: 2, model: 1, other: 0 })[family]);

export const heightOf = (timeline: Timeline): number =>
  TOP + timeline.lanes.length * (LANE + (timeline.hasLeftBehind ? LEFT_BEHIND : 0)) + 6;

export const laneTop = (timeline: Timeline, lane: number): number =>
  TOP + lane * (LANE + (timeline.hasLeftBehind ? LEFT_BEHIND : 0));

export function paint(
  context: CanvasRenderingContext2D,
  timeline: Timeline,
  view: Window,
  size: { width: number; height: number },
  selected: number,
  hovered: number,
  colours: Colours,
) {
  const { width, height } = size;
  context.clearRect(0, 0, width, height);
  const rowHeight = LANE + (timeline.hasLeftBehind ? LEFT_BEHIND : 0);
  context.fillStyle = colours.line;
  for (let lane = 0; lane <= timeline.lanes.length; lane++) context.fillRect(0, TOP + lane * rowHeight - 0.5, width, 1);

  const first = Math.max(0, Math.floor(view.start));
  const last = Math.min(timeline.length - 1, Math.ceil(view.start + width / view.scale));
  axis(context, timeline, view, width, first, last, colours);
  if (view.scale >= 3) large(context, timeline, view, first, last, colours);
  else small(context, timeline, view, width, first, last, colours);
  forks(context, timeline, view, width, colours);
  tips(context, timeline, view, width, colours);

  const x = (selected - view.start + 0.5) * view.scale;
  if (hovered >= 0 && hovered !== selected) {
    context.fillStyle = colours.line;
    context.fillRect((hovered - view.start + 0.5) * view.scale - 0.5, OVERVIEW, 1, height - OVERVIEW);
  }
  if (x >= -8 && x <= width + 8) {
    context.fillStyle = colours.accent;
    context.fillRect(x - 1, OVERVIEW, 2, height - OVERVIEW);
    context.beginPath();
    context.moveTo(x - 6, OVERVIEW);
    context.lineTo(x + 6, OVERVIEW);
    context.lineTo(x, OVERVIEW + 8);
    context.fill();
  }
}

/** Single steps as bars; what was kept has a diamond, what went wrong a mark on top. */
function large(context: CanvasRenderingContext2D, timeline: Timeline, view: Window, first: number, last: number, colours: Colours) {
  const gap = view.scale > 8 ? 2 : view.scale > 4 ? 1 : 0;
  const bar = Math.max(1, view.scale - gap);
  for (let i = first; i <= last; i++) {
    const flags = timeline.flags[i] ?? 0;
    const behind = (flags & ROLLED_BACK) !== 0;
    const x = (i - view.start) * view.scale + gap / 2;
    const top = laneTop(timeline, timeline.lane[i] ?? 0);
    const colour = flags & FAILED ? colours.error : (colours.families[timeline.look[i] ?? 0] ?? colours.dim);
    context.globalAlpha = behind ? 0.35 : 1;
    context.fillStyle = colour;
    const y = behind ? top + LANE : top + 12;
    const tall = behind ? LEFT_BEHIND - 4 : LANE - 18;
    if (bar >= 6) {
      context.beginPath();
      context.roundRect(x, y, bar, tall, Math.min(3, bar / 3));
      context.fill();
    } else context.fillRect(x, y, bar, tall);
    if (flags & KEPT && !behind) diamond(context, x + bar / 2, top + 6, 4, colours.families[ORDER.indexOf('checkpoint')] ?? colours.accent, (flags & ANNOTATED) !== 0);
    if (flags & STOPPED) stopSign(context, x + bar / 2, top + 6, colours.families[ORDER.indexOf('control')] ?? colours.accent);
    if (flags & FAILED && !behind) {
      context.fillStyle = colours.error;
      context.fillRect(x, top + LANE - 4, bar, 3);
    }
  }
  context.globalAlpha = 1;
}

function diamond(context: CanvasRenderingContext2D, x: number, y: number, size: number, colour: string, filled: boolean) {
  context.beginPath();
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.closePath();
  if (filled) {
    context.fillStyle = colour;
    context.fill();
  } else {
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.stroke();
  }
}

/** Where a breakpoint held: the eight sides of a stop sign. */
function stopSign(context: CanvasRenderingContext2D, x: number, y: number, colour: string) {
  context.beginPath();
  for (let corner = 0; corner < 8; corner++) {
    const angle = (corner + 0.5) * (Math.PI / 4);
    context.lineTo(x + 5 * Math.cos(angle), y + 5 * Math.sin(angle));
  }
  context.closePath();
  context.fillStyle = colour;
  context.fill();
}

let pixels = new Uint8Array(0);

/** Many steps for a pixel: the most telling one is seen. */
function small(context: CanvasRenderingContext2D, timeline: Timeline, view: Window, width: number, first: number, last: number, colours: Colours) {
  const columns = Math.ceil(width) + 1;
  const rows = timeline.lanes.length * 2;
  const needed = columns * rows * 2;
  if (pixels.length < needed) pixels = new Uint8Array(needed);
  pixels.fill(0, 0, needed);
  const marksAt = columns * rows;
  const { lane, look, flags } = timeline;
  for (let i = first; i <= last; i++) {
    const flag = flags[i] ?? 0;
    const x = ((i - view.start) * view.scale) | 0;
    if (x < 0 || x >= columns) continue;
    const row = (lane[i] ?? 0) * 2 + (flag & ROLLED_BACK ? 1 : 0);
    const place = row * columns + x;
    const its = look[i] ?? 0;
    const seen = pixels[place] ?? 0;
    if (seen === 0 || (WEIGHT[its] ?? 0) > (WEIGHT[seen - 1] ?? 0)) pixels[place] = its + 1;
    pixels[marksAt + place] = (pixels[marksAt + place] ?? 0) | (flag & (FAILED | KEPT | STOPPED));
  }
  const wide = Math.max(1, view.scale);
  for (let row = 0; row < rows; row++) {
    const behind = row % 2 === 1;
    const top = laneTop(timeline, row >> 1);
    const y = behind ? top + LANE : top + 12;
    const tall = behind ? LEFT_BEHIND - 4 : LANE - 18;
    context.globalAlpha = behind ? 0.35 : 1;
    let run = 0;
    for (let x = 0; x <= columns; x++) {
      const now = x < columns ? (pixels[row * columns + x] ?? 0) : 0;
      const then = x > 0 ? (pixels[row * columns + x - 1] ?? 0) : 0;
      if (now === then) continue;
      if (then) {
        context.fillStyle = colours.families[then - 1] ?? colours.dim;
        context.fillRect(run, y, x - run - 1 + wide, tall);
      }
      run = x;
    }
    if (behind) continue;
    for (let x = 0; x < columns; x++) {
      const mark = pixels[marksAt + row * columns + x] ?? 0;
      if (mark & FAILED) {
        context.fillStyle = colours.error;
        context.fillRect(x, top + 9, Math.max(1.5, wide), LANE - 10);
      }
      if (mark & KEPT) {
        context.fillStyle = colours.families[ORDER.indexOf('checkpoint')] ?? colours.accent;
        context.fillRect(x, top + 4, Math.max(1.5, wide), 4);
      }
      if (mark & STOPPED) stopSign(context, x + wide / 2, top + 6, colours.families[ORDER.indexOf('control')] ?? colours.accent);
    }
  }
  context.globalAlpha = 1;
}

function axis(context: CanvasRenderingContext2D, timeline: Timeline, view: Window, width: number, first: number, last: number, colours: Colours) {
  if (timeline.length === 0) return;
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
  const isShort = (timeline.at[timeline.length - 1] ?? 0) < 60_000_000;
  const every = steps.find((step) => step * view.scale >= 90) ?? 100000;
  context.font = '11px ui-sans-serif, system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (let i = Math.ceil(first / every) * every; i <= last; i += every) {
    const x = (i - view.start) * view.scale;
    if (x < 0 || x > width) continue;
    context.fillStyle = colours.line;
    context.fillRect(x, OVERVIEW + AXIS - 6, 1, 6);
    context.fillStyle = colours.dim;
    context.fillText(`#${timeline.number[i]}  ${clock(timeline.at[i] ?? 0, isShort)}`, x + 4, OVERVIEW + AXIS / 2);
  }
}

function clock(us: number, isShort: boolean): string {
  if (isShort) return `${(us / 1_000_000).toFixed(2)} s`;
  const seconds = Math.floor(us / 1_000_000);
  const two = (value: number) => String(value).padStart(2, '0');
  const hours = Math.floor(seconds / 3600);
  return `${hours ? `${hours}:` : ''}${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}

/** Where the line goes on from elsewhere: from the lane of the step it grew from to its own, or an arc where both are one. */
function forks(context: CanvasRenderingContext2D, timeline: Timeline, view: Window, width: number, colours: Colours) {
  const colour = colours.families[ORDER.indexOf('travel')] ?? colours.accent;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.5;
  for (const fork of timeline.forks.slice(-500)) {
    const from = timeline.indexOf(fork.from);
    const to = timeline.indexOf(fork.to);
    const a = (from - view.start + 0.5) * view.scale;
    const b = (to - view.start + 0.5) * view.scale;
    if (Math.max(a, b) < 0 || Math.min(a, b) > width) continue;
    const start = laneTop(timeline, timeline.lane[from] ?? 0) + LANE - 5;
    const end = laneTop(timeline, timeline.lane[to] ?? 0) + (start > laneTop(timeline, timeline.lane[to] ?? 0) + LANE ? LANE - 5 : 12);
    context.beginPath();
    context.moveTo(a, start);
    if (timeline.lane[from] === timeline.lane[to]) context.quadraticCurveTo((a + b) / 2, start + 18, b, start);
    else {
      // Down beside the step it left, then along its own lane: lines of several branches stay apart.
      const bend = Math.min(18, Math.abs(b - a) / 2) * Math.sign(b - a || 1);
      context.bezierCurveTo(a, end, a, end, a + bend, end);
      context.lineTo(b, end);
    }
    context.stroke();
    context.beginPath();
    context.arc(a, start, 2.5, 0, 2 * Math.PI);
    context.fill();
  }
}

/** Names of branches where they stand. */
function tips(context: CanvasRenderingContext2D, timeline: Timeline, view: Window, width: number, colours: Colours) {
  context.font = '600 11px ui-sans-serif, system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (const branch of timeline.branches) {
    const i = timeline.indexOf(branch.number);
    if (timeline.number[i] !== branch.number) continue;
    const x = (i - view.start + 0.5) * view.scale;
    if (x < 0 || x > width) continue;
    const y = laneTop(timeline, timeline.lane[i] ?? 0) + 6;
    const text = branch.name;
    const wide = context.measureText(text).width + 10;
    const left = Math.min(x + 6, width - wide - 2);
    context.fillStyle = branch.present ? colours.accent : colours.line;
    context.beginPath();
    context.roundRect(left, y - 7, wide, 14, 7);
    context.fill();
    context.fillStyle = branch.present ? colours.ground : colours.text;
    context.fillText(text, left + 5, y + 0.5);
  }
}

/** All of the session in a strip: how fast it went, and where errors and checkpoints are. Drawn once for each change. */
export function paintOverview(context: CanvasRenderingContext2D, timeline: Timeline, width: number, colours: Colours) {
  context.clearRect(0, 0, width, OVERVIEW);
  if (timeline.length === 0) return;
  const columns = Math.max(1, Math.min(Math.ceil(width), timeline.length));
  const wide = width / columns;
  const time = new Float64Array(columns);
  const errors = new Uint8Array(columns);
  const kept = new Uint8Array(columns);
  const stops = new Uint8Array(columns);
  for (let i = 0; i < timeline.length; i++) {
    const x = Math.min(columns - 1, Math.floor((i * columns) / timeline.length));
    time[x] = (time[x] ?? 0) + Math.max(0, (timeline.at[i] ?? 0) - (timeline.at[i - 1] ?? 0));
    const flags = timeline.flags[i] ?? 0;
    if (flags & FAILED) errors[x] = 1;
    if (flags & KEPT) kept[x] = 1;
    if (flags & STOPPED) stops[x] = 1;
  }
  // What took long stands high; by its logarithm, since a build takes a thousand times as long as reading a file.
  const tallest = Math.log1p(time.reduce((most, value) => Math.max(most, value), 1));
  const gap = wide > 4 ? 1 : 0;
  for (let x = 0; x < columns; x++) {
    const tall = 3 + (Math.log1p(time[x] ?? 0) / tallest) * (OVERVIEW - 18);
    context.fillStyle = errors[x] ? colours.error : colours.line;
    context.fillRect(x * wide, OVERVIEW - 7 - tall, Math.max(1, wide - gap), tall);
    if (kept[x]) {
      context.fillStyle = colours.families[ORDER.indexOf('checkpoint')] ?? colours.accent;
      context.fillRect(x * wide, OVERVIEW - 5, Math.max(1.5, wide - gap), 3);
    }
    if (stops[x]) {
      context.fillStyle = colours.families[ORDER.indexOf('control')] ?? colours.accent;
      context.fillRect(x * wide, 2, Math.max(2, wide - gap), 4);
    }
  }
}
