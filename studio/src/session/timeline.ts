// All steps of a session as columns of numbers, and moving through them. Nothing here renders or loads.
import type { Step, TimelineMarks } from '../api/types';
import { FAMILY_ORDER, familyOf, type StepFamily } from '../kinds';

export const FAILED = 1;
export const CHECKPOINT = 2;
export const ROLLED_BACK = 4;
export const ANNOTATED = 8;
/** A breakpoint was reached. Derived from the kind; not a flag of the API. */
export const STOPPED = 16;
const STOP_KIND = 'breakpoint-hit';

export interface Lane {
  branch: string | null;
  worker: string | null;
  steps: number;
  errors: number;
}

/** Columns that grow while a session is live. */
export class Timeline {
  length = 0;
  number: Float64Array;
  /** Microseconds since the session began. */
  at: Float64Array;
  kind: Uint16Array;
  /** Index into `FAMILY_ORDER`, for colours. */
  family: Uint8Array;
  tool: Uint32Array;
  lane: Uint16Array;
  duration: Float64Array;
  flags: Uint8Array;
  readonly kinds: string[];
  readonly tools: string[];
  readonly lanes: Lane[];
  /** Whether the lanes are on more than one branch. */
  readonly branched: boolean;
  readonly forks: { from: number; to: number }[];
  /** Messages between agents: from the lane of the step to another one. */
  readonly messages: TimelineMarks['messages'];
  readonly branches: TimelineMarks['branches'];
  readonly started: number;
  errors = 0;
  checkpoints = 0;
  /** Number of reasoning steps. */
  thoughts = 0;
  hasRolledBackSteps = false;

  constructor(readonly marks: TimelineMarks) {
    const size = Math.max(64, marks.number.length);
    this.number = new Float64Array(size);
    this.at = new Float64Array(size);
    this.kind = new Uint16Array(size);
    this.family = new Uint8Array(size);
    this.tool = new Uint32Array(size);
    this.lane = new Uint16Array(size);
    this.duration = new Float64Array(size);
    this.flags = new Uint8Array(size);
    this.kinds = [...marks.kinds];
    this.tools = [...marks.tools];
    this.lanes = marks.lanes.map((lane) => ({ branch: lane.branch ?? null, worker: lane.worker ?? null, steps: lane.steps, errors: lane.errors }));
    this.branched = new Set(this.lanes.map((lane) => lane.branch)).size > 1;
    this.forks = marks.forks;
    this.messages = marks.messages;
    this.branches = marks.branches;
    this.started = marks.summary.started_at ? Date.parse(marks.summary.started_at) * 1000 : 0;
    const reasoningKind = this.kinds.indexOf('reasoning');
    const stopKind = this.kinds.indexOf(STOP_KIND);
    const families = this.kinds.map((kind) => FAMILY_ORDER.indexOf(familyOf(kind)));
    let number = 0;
    let at = 0;
    for (let i = 0; i < marks.number.length; i++) {
      number += marks.number[i] ?? 0;
      at += marks.at_us[i] ?? 0;
      const kind = marks.kind[i] ?? 0;
      const flags = (marks.flags[i] ?? 0) | (kind === stopKind ? STOPPED : 0);
      this.number[i] = number;
      this.at[i] = at;
      this.kind[i] = kind;
      this.family[i] = families[kind] ?? 0;
      this.tool[i] = marks.tool[i] ?? 0;
      this.lane[i] = marks.lane[i] ?? 0;
      this.duration[i] = marks.duration_us[i] ?? 0;
      this.flags[i] = flags;
      if (flags & FAILED) this.errors++;
      if (flags & CHECKPOINT) this.checkpoints++;
      if (kind === reasoningKind) this.thoughts++;
      if (flags & ROLLED_BACK) this.hasRolledBackSteps = true;
    }
    this.length = marks.number.length;
  }

  /** Adds a new step; false if it is already there. */
  add(step: Step): boolean {
    if (this.length && step.number <= (this.number[this.length - 1] ?? 0)) return false;
    if (this.length === this.number.length) this.grow();
    const i = this.length++;
    this.number[i] = step.number;
    this.at[i] = Math.max(this.at[i - 1] ?? 0, Date.parse(step.at) * 1000 - this.started);
    this.kind[i] = internIndex(this.kinds, step.kind);
    this.family[i] = FAMILY_ORDER.indexOf(familyOf(step.kind));
    this.tool[i] = step.tool ? internIndex(this.tools, step.tool) + 1 : 0;
    const worker = step.worker ?? null;
    const branch = this.branches.find((candidate) => candidate.present)?.name ?? this.lanes[0]?.branch ?? null;
    let lane = this.lanes.findIndex((candidate) => candidate.worker === worker && candidate.branch === branch);
    if (lane < 0) lane = this.lanes.push({ branch, worker, steps: 0, errors: 0 }) - 1;
    const failed = step.failed || familyOf(step.kind) === 'error';
    const laneTotals = this.lanes[lane];
    if (laneTotals) {
      laneTotals.steps++;
      if (failed) laneTotals.errors++;
    }
    this.lane[i] = lane;
    this.duration[i] = step.duration_us ?? 0;
    this.flags[i] = (failed ? FAILED : 0) | (step.checkpoint ? CHECKPOINT : 0) | (step.kind === STOP_KIND ? STOPPED : 0);
    if (failed) this.errors++;
    if (step.checkpoint) this.checkpoints++;
    if (step.kind === 'reasoning') this.thoughts++;
    return true;
  }

  private grow() {
    const size = this.number.length * 2;
    const copyInto = <T extends Float64Array | Uint16Array | Uint8Array | Uint32Array>(old: T, next: T): T => {
      next.set(old);
      return next;
    };
    this.number = copyInto(this.number, new Float64Array(size));
    this.at = copyInto(this.at, new Float64Array(size));
    this.kind = copyInto(this.kind, new Uint16Array(size));
    this.family = copyInto(this.family, new Uint8Array(size));
    this.tool = copyInto(this.tool, new Uint32Array(size));
    this.lane = copyInto(this.lane, new Uint16Array(size));
    this.duration = copyInto(this.duration, new Float64Array(size));
    this.flags = copyInto(this.flags, new Uint8Array(size));
  }

  kindAt(i: number): string {
    return this.kinds[this.kind[i] ?? 0] ?? '';
  }

  familyAt(i: number): StepFamily {
    return FAMILY_ORDER[this.family[i] ?? 0] ?? 'other';
  }

  has(i: number, flag: number): boolean {
    return ((this.flags[i] ?? 0) & flag) !== 0;
  }

  /** The index of the step with this number, or of the last one before it. */
  indexOf(number: number): number {
    let low = 0;
    let high = this.length - 1;
    let index = 0;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if ((this.number[middle] ?? 0) <= number) {
        index = middle;
        low = middle + 1;
      } else high = middle - 1;
    }
    return index;
  }

  /** The nearest matching step in a direction; -1 if there is none. */
  seek(from: number, direction: 1 | -1, matches: (i: number) => boolean): number {
    for (let i = from + direction; i >= 0 && i < this.length; i += direction) if (matches(i)) return i;
    return -1;
  }

  /**
   * What led to a step: the last model response to the same agent or worker, on any branch, and the last prompt. `partner` is the
   * other end of a call. All are indexes, -1 if not found.
   */
  findCauses(i: number): { model: number; prompt: number; partner: number } {
    const workerAt = (j: number) => this.lanes[this.lane[j] ?? 0]?.worker ?? null;
    const worker = workerAt(i);
    const kind = this.kindAt(i);
    const isSameWorker = (j: number) => workerAt(j) === worker;
    const model = kind.startsWith('tool') ? this.seek(i, -1, (j) => isSameWorker(j) && this.kindAt(j) === 'model-end') : -1;
    const prompt = kind === 'user-input' ? -1 : this.seek(i, -1, (j) => this.kindAt(j) === 'user-input');
    const partners: Record<string, [string, 1 | -1]> = {
      'tool-start': ['tool-end', 1],
      'tool-end': ['tool-start', -1],
      'model-start': ['model-end', 1],
      'model-end': ['model-start', -1],
    };
    const [name, direction] = partners[kind] ?? ['', 1 as const];
    const partner = name ? this.seek(i, direction, (j) => isSameWorker(j) && this.kindAt(j) === name && this.tool[j] === this.tool[i]) : -1;
    return { model, prompt, partner };
  }
}

function internIndex(names: string[], name: string): number {
  const index = names.indexOf(name);
  return index >= 0 ? index : names.push(name) - 1;
}
