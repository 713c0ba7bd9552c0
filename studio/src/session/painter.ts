// Draws a timeline on a canvas. The work for a frame is bounded by what is visible: one pass over the visible steps keeps the
// most important one for each pixel, then runs of equal pixels become rectangles.
import { firstStep, type Incidents } from '../anomalies/incidents';
import { FAMILY_ORDER } from '../kinds';
import { ANNOTATED, CHECKPOINT, FAILED, ROLLED_BACK, STOPPED, type Timeline } from './timeline';

export interface TimelineColours {
  background: string;
  border: string;
  text: string;
  dim: string;
  accent: string;
  /** In the order of `FAMILY_ORDER`. */
  families: string[];
  error: string;
  /** Of anomalies. */
  severities: Record<string, string>;
}

export interface Viewport {
  /** The step at the left edge, as a fraction. */
  start: number;
  /** Pixels per step. */
  scale: number;
}

export const LANE_HEIGHT = 34;
const AXIS_HEIGHT = 22;
export const OVERVIEW_HEIGHT = 40;
const ROLLED_BACK_HEIGHT = 14;
const TOP = OVERVIEW_HEIGHT + AXIS_HEIGHT;

/** Which of several steps on one pixel is drawn: the highest number wins. */
const FAMILY_PRIORITY = FAMILY_ORDER.map((family) => ({ error: 9, checkpoint: 6, prompt: 5, travel: 7, control: 8, task: 3, thought: 4, tool: 2, model: 1, other: 0 })[family]);

export const timelineHeight = (timeline: Timeline): number =>
  TOP + timeline.lanes.length * (LANE_HEIGHT + (timeline.hasRolledBackSteps ? ROLLED_BACK_HEIGHT : 0)) + 6;

export const laneTop = (timeline: Timeline, lane: number): number =>
  TOP + lane * (LANE_HEIGHT + (timeline.hasRolledBackSteps ? ROLLED_BACK_HEIGHT : 0));

export function paintTimeline(
  context: CanvasRenderingContext2D,
  timeline: Timeline,
  view: Viewport,
  size: { width: number; height: number },
  selected: number,
  hovered: number,
  colours: TimelineColours,
  incidents: Incidents,
) {
  const { width, height } = size;
  context.clearRect(0, 0, width, height);
  const rowHeight = LANE_HEIGHT + (timeline.hasRolledBackSteps ? ROLLED_BACK_HEIGHT : 0);
  context.fillStyle = colours.border;
  for (let lane = 0; lane <= timeline.lanes.length; lane++) context.fillRect(0, TOP + lane * rowHeight - 0.5, width, 1);

  const first = Math.max(0, Math.floor(view.start));
  const last = Math.min(timeline.length - 1, Math.ceil(view.start + width / view.scale));
  paintAxis(context, timeline, view, width, first, last, colours);
  if (view.scale >= 3) paintBars(context, timeline, view, first, last, colours);
  else paintPixels(context, timeline, view, width, first, last, colours);
  paintForks(context, timeline, view, width, colours);
  paintMessages(context, timeline, view, width, colours);
  paintBranchNames(context, timeline, view, width, colours);
  paintIncidents(context, timeline, incidents, view, width, colours);

  const x = (selected - view.start + 0.5) * view.scale;
  if (hovered >= 0 && hovered !== selected) {
    context.fillStyle = colours.border;
    context.fillRect((hovered - view.start + 0.5) * view.scale - 0.5, OVERVIEW_HEIGHT, 1, height - OVERVIEW_HEIGHT);
  }
  if (x >= -8 && x <= width + 8) {
    context.fillStyle = colours.accent;
    context.fillRect(x - 1, OVERVIEW_HEIGHT, 2, height - OVERVIEW_HEIGHT);
    context.beginPath();
    context.moveTo(x - 6, OVERVIEW_HEIGHT);
    context.lineTo(x + 6, OVERVIEW_HEIGHT);
    context.lineTo(x, OVERVIEW_HEIGHT + 8);
    context.fill();
  }
}

/** One bar per step, a diamond for checkpoints, and a line below failed steps. */
function paintBars(context: CanvasRenderingContext2D, timeline: Timeline, view: Viewport, first: number, last: number, colours: TimelineColours) {
  const gap = view.scale > 8 ? 2 : view.scale > 4 ? 1 : 0;
  const bar = Math.max(1, view.scale - gap);
  for (let i = first; i <= last; i++) {
    const flags = timeline.flags[i] ?? 0;
    const isRolledBack = (flags & ROLLED_BACK) !== 0;
    const x = (i - view.start) * view.scale + gap / 2;
    const top = laneTop(timeline, timeline.lane[i] ?? 0);
    const colour = flags & FAILED ? colours.error : (colours.families[timeline.family[i] ?? 0] ?? colours.dim);
    context.globalAlpha = isRolledBack ? 0.35 : 1;
    context.fillStyle = colour;
    const y = isRolledBack ? top + LANE_HEIGHT : top + 12;
    const height = isRolledBack ? ROLLED_BACK_HEIGHT - 4 : LANE_HEIGHT - 18;
    if (bar >= 6) {
      context.beginPath();
      context.roundRect(x, y, bar, height, Math.min(3, bar / 3));
      context.fill();
    } else context.fillRect(x, y, bar, height);
    if (flags & CHECKPOINT && !isRolledBack) paintDiamond(context, x + bar / 2, top + 6, 4, colours.families[FAMILY_ORDER.indexOf('checkpoint')] ?? colours.accent, (flags & ANNOTATED) !== 0);
    if (flags & STOPPED) paintStopSign(context, x + bar / 2, top + 6, colours.families[FAMILY_ORDER.indexOf('control')] ?? colours.accent);
    if (flags & FAILED && !isRolledBack) {
      context.fillStyle = colours.error;
      context.fillRect(x, top + LANE_HEIGHT - 4, bar, 3);
    }
  }
  context.globalAlpha = 1;
}

function paintDiamond(context: CanvasRenderingContext2D, x: number, y: number, size: number, colour: string, filled: boolean) {
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

/** An octagon where a breakpoint stopped the agent. */
function paintStopSign(context: CanvasRenderingContext2D, x: number, y: number, colour: string) {
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

/** Many steps per pixel: the most important one is drawn. */
function paintPixels(context: CanvasRenderingContext2D, timeline: Timeline, view: Viewport, width: number, first: number, last: number, colours: TimelineColours) {
  const columns = Math.ceil(width) + 1;
  const rows = timeline.lanes.length * 2;
  const needed = columns * rows * 2;
  if (pixels.length < needed) pixels = new Uint8Array(needed);
  pixels.fill(0, 0, needed);
  const marksOffset = columns * rows;
  const { lane, family: families, flags } = timeline;
  for (let i = first; i <= last; i++) {
    const flag = flags[i] ?? 0;
    const x = ((i - view.start) * view.scale) | 0;
    if (x < 0 || x >= columns) continue;
    const row = (lane[i] ?? 0) * 2 + (flag & ROLLED_BACK ? 1 : 0);
    const pixel = row * columns + x;
    const family = families[i] ?? 0;
    const shownFamily = pixels[pixel] ?? 0;
    if (shownFamily === 0 || (FAMILY_PRIORITY[family] ?? 0) > (FAMILY_PRIORITY[shownFamily - 1] ?? 0)) pixels[pixel] = family + 1;
    pixels[marksOffset + pixel] = (pixels[marksOffset + pixel] ?? 0) | (flag & (FAILED | CHECKPOINT | STOPPED));
  }
  const barWidth = Math.max(1, view.scale);
  for (let row = 0; row < rows; row++) {
    const isRolledBack = row % 2 === 1;
    const top = laneTop(timeline, row >> 1);
    const y = isRolledBack ? top + LANE_HEIGHT : top + 12;
    const height = isRolledBack ? ROLLED_BACK_HEIGHT - 4 : LANE_HEIGHT - 18;
    context.globalAlpha = isRolledBack ? 0.35 : 1;
    let run = 0;
    for (let x = 0; x <= columns; x++) {
      const current = x < columns ? (pixels[row * columns + x] ?? 0) : 0;
      const previous = x > 0 ? (pixels[row * columns + x - 1] ?? 0) : 0;
      if (current === previous) continue;
      if (previous) {
        context.fillStyle = colours.families[previous - 1] ?? colours.dim;
        context.fillRect(run, y, x - run - 1 + barWidth, height);
      }
      run = x;
    }
    if (isRolledBack) continue;
    for (let x = 0; x < columns; x++) {
      const marks = pixels[marksOffset + row * columns + x] ?? 0;
      if (marks & FAILED) {
        context.fillStyle = colours.error;
        context.fillRect(x, top + 9, Math.max(1.5, barWidth), LANE_HEIGHT - 10);
      }
      if (marks & CHECKPOINT) {
        context.fillStyle = colours.families[FAMILY_ORDER.indexOf('checkpoint')] ?? colours.accent;
        context.fillRect(x, top + 4, Math.max(1.5, barWidth), 4);
      }
      if (marks & STOPPED) paintStopSign(context, x + barWidth / 2, top + 6, colours.families[FAMILY_ORDER.indexOf('control')] ?? colours.accent);
    }
  }
  context.globalAlpha = 1;
}

function paintAxis(context: CanvasRenderingContext2D, timeline: Timeline, view: Viewport, width: number, first: number, last: number, colours: TimelineColours) {
  if (timeline.length === 0) return;
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
  const isShort = (timeline.at[timeline.length - 1] ?? 0) < 60_000_000;
  const interval = steps.find((step) => step * view.scale >= 90) ?? 100000;
  context.font = '11px ui-sans-serif, system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (let i = Math.ceil(first / interval) * interval; i <= last; i += interval) {
    const x = (i - view.start) * view.scale;
    if (x < 0 || x > width) continue;
    context.fillStyle = colours.border;
    context.fillRect(x, OVERVIEW_HEIGHT + AXIS_HEIGHT - 6, 1, 6);
    context.fillStyle = colours.dim;
    context.fillText(`#${timeline.number[i]}  ${formatElapsed(timeline.at[i] ?? 0, isShort)}`, x + 4, OVERVIEW_HEIGHT + AXIS_HEIGHT / 2);
  }
}

function formatElapsed(us: number, isShort: boolean): string {
  if (isShort) return `${(us / 1_000_000).toFixed(2)} s`;
  const seconds = Math.floor(us / 1_000_000);
  const pad = (value: number) => String(value).padStart(2, '0');
  const hours = Math.floor(seconds / 3600);
  return `${hours ? `${hours}:` : ''}${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}`;
}

/** Where a session continued from another step: a line between the two lanes, or an arc within one lane. */
function paintForks(context: CanvasRenderingContext2D, timeline: Timeline, view: Viewport, width: number, colours: TimelineColours) {
  const colour = colours.families[FAMILY_ORDER.indexOf('travel')] ?? colours.accent;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.5;
  for (const fork of timeline.forks.slice(-500)) {
    const from = timeline.indexOf(fork.from);
    const to = timeline.indexOf(fork.to);
    const a = (from - view.start + 0.5) * view.scale;
    const b = (to - view.start + 0.5) * view.scale;
    if (Math.max(a, b) < 0 || Math.min(a, b) > width) continue;
    const start = laneTop(timeline, timeline.lane[from] ?? 0) + LANE_HEIGHT - 5;
    const end = laneTop(timeline, timeline.lane[to] ?? 0) + (start > laneTop(timeline, timeline.lane[to] ?? 0) + LANE_HEIGHT ? LANE_HEIGHT - 5 : 12);
    context.beginPath();
    context.moveTo(a, start);
    if (timeline.lane[from] === timeline.lane[to]) context.quadraticCurveTo((a + b) / 2, start + 18, b, start);
    else {
      // Down from the fork point, then along its own lane, so that lines of several branches stay apart.
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

/** A message between agents: an arrow from the lane of its sender to that of its receiver. */
function paintMessages(context: CanvasRenderingContext2D, timeline: Timeline, view: Viewport, width: number, colours: TimelineColours) {
  const colour = colours.families[FAMILY_ORDER.indexOf('task')] ?? colours.accent;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.5;
  for (const message of timeline.messages) {
    const i = timeline.indexOf(message.number);
    const x = (i - view.start + 0.5) * view.scale;
    if (x < 0 || x > width) continue;
    const from = timeline.lane[i] ?? 0;
    const direction = Math.sign(message.to - from);
    const middle = LANE_HEIGHT / 2 + 3;
    const start = laneTop(timeline, from) + middle;
    const end = laneTop(timeline, message.to) + middle - direction * 8;
    context.beginPath();
    context.moveTo(x, start);
    context.lineTo(x, end);
    context.stroke();
    context.beginPath();
    context.moveTo(x - 4, end - direction * 6);
    context.lineTo(x + 4, end - direction * 6);
    context.lineTo(x, end);
    context.fill();
  }
}

/** A warning sign where an incident begins, and a line up to its end, on the lower edge of the axis. */
function paintIncidents(context: CanvasRenderingContext2D, timeline: Timeline, incidents: Incidents, view: Viewport, width: number, colours: TimelineColours) {
  // The worst are painted last, above the others.
  for (let at = incidents.items.length - 1; at >= 0; at--) {
    const item = incidents.items[at];
    if (!item) continue;
    const a = (timeline.indexOf(firstStep(item)) - view.start + 0.5) * view.scale;
    const b = (timeline.indexOf(item.last) - view.start + 0.5) * view.scale;
    if (b < -8 || a > width + 8) continue;
    context.fillStyle = colours.severities[item.severity] ?? colours.error;
    context.fillRect(Math.max(0, a), TOP - 3, Math.max(1.5, Math.min(width, b) - Math.max(0, a)), 3);
    context.beginPath();
    context.moveTo(a, TOP - 11);
    context.lineTo(a + 6, TOP);
    context.lineTo(a - 6, TOP);
    context.closePath();
    context.fill();
  }
}

/** Names of branches at their tips. */
function paintBranchNames(context: CanvasRenderingContext2D, timeline: Timeline, view: Viewport, width: number, colours: TimelineColours) {
  context.font = '600 11px ui-sans-serif, system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (const branch of timeline.branches) {
    const i = timeline.indexOf(branch.number);
    if (timeline.number[i] !== branch.number) continue;
    const x = (i - view.start + 0.5) * view.scale;
    if (x < 0 || x > width) continue;
    const y = laneTop(timeline, timeline.lane[i] ?? 0) + 6;
    const text = branch.name;
    const labelWidth = context.measureText(text).width + 10;
    const left = Math.min(x + 6, width - labelWidth - 2);
    context.fillStyle = branch.present ? colours.accent : colours.border;
    context.beginPath();
    context.roundRect(left, y - 7, labelWidth, 14, 7);
    context.fill();
    context.fillStyle = branch.present ? colours.background : colours.text;
    context.fillText(text, left + 5, y + 0.5);
  }
}

/** The whole session as a strip: durations, errors, checkpoints and breakpoints. Drawn once for each change. */
export function paintOverview(context: CanvasRenderingContext2D, timeline: Timeline, width: number, colours: TimelineColours, incidents: Incidents) {
  context.clearRect(0, 0, width, OVERVIEW_HEIGHT);
  if (timeline.length === 0) return;
  const columns = Math.max(1, Math.min(Math.ceil(width), timeline.length));
  const columnWidth = width / columns;
  const time = new Float64Array(columns);
  const errors = new Uint8Array(columns);
  const checkpoints = new Uint8Array(columns);
  const stops = new Uint8Array(columns);
  for (let i = 0; i < timeline.length; i++) {
    const x = Math.min(columns - 1, Math.floor((i * columns) / timeline.length));
    time[x] = (time[x] ?? 0) + Math.max(0, (timeline.at[i] ?? 0) - (timeline.at[i - 1] ?? 0));
    const flags = timeline.flags[i] ?? 0;
    if (flags & FAILED) errors[x] = 1;
    if (flags & CHECKPOINT) checkpoints[x] = 1;
    if (flags & STOPPED) stops[x] = 1;
  }
  // The height is the logarithm of the duration, since a build takes a thousand times as long as reading a file.
  const maxLogTime = Math.log1p(time.reduce((max, value) => Math.max(max, value), 1));
  const gap = columnWidth > 4 ? 1 : 0;
  for (let x = 0; x < columns; x++) {
    const height = 3 + (Math.log1p(time[x] ?? 0) / maxLogTime) * (OVERVIEW_HEIGHT - 18);
    context.fillStyle = errors[x] ? colours.error : colours.border;
    context.fillRect(x * columnWidth, OVERVIEW_HEIGHT - 7 - height, Math.max(1, columnWidth - gap), height);
    if (checkpoints[x]) {
      context.fillStyle = colours.families[FAMILY_ORDER.indexOf('checkpoint')] ?? colours.accent;
      context.fillRect(x * columnWidth, OVERVIEW_HEIGHT - 5, Math.max(1.5, columnWidth - gap), 3);
    }
    if (stops[x]) {
      context.fillStyle = colours.families[FAMILY_ORDER.indexOf('control')] ?? colours.accent;
      context.fillRect(x * columnWidth, 2, Math.max(2, columnWidth - gap), 4);
    }
  }
  for (let at = incidents.items.length - 1; at >= 0; at--) {
    const item = incidents.items[at];
    if (!item) continue;
    const from = (timeline.indexOf(firstStep(item)) / timeline.length) * width;
    const to = ((timeline.indexOf(item.last) + 1) / timeline.length) * width;
    context.fillStyle = colours.severities[item.severity] ?? colours.error;
    context.fillRect(from, 0, Math.max(3, to - from), 3);
  }
}
