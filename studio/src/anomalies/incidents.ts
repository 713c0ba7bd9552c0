// Anomalies of a session by step, for its timeline, list and details. Nothing here renders.
import type { Anomaly } from '../api/types';

export type Severity = 'low' | 'medium' | 'high';

const RANK: Record<string, number> = { low: 1, medium: 2, high: 3 };

export const severityRank = (severity: string): number => RANK[severity] ?? 0;

export const ANOMALY_NAMES: Record<string, string> = {
  loop: 'loop',
  'alternating-edits': 'edits back and forth',
  'growing-retries': 'growing retries',
  'error-burst': 'burst of errors',
  'no-progress': 'no progress',
  'undone-edits': 'undone edits',
  'slow-call': 'slow call',
  'costly-call': 'costly call',
  'context-growth': 'growing context',
};

export const anomalyName = (kind: string): string => ANOMALY_NAMES[kind] ?? kind.replaceAll('-', ' ');

/** The anomalies of one session, worst first where several share a step. */
export class Incidents {
  /** By the numbers of steps that are named. */
  private readonly byStep = new Map<number, Anomaly[]>();
  readonly items: Anomaly[];

  constructor(items: Anomaly[]) {
    this.items = [...items].sort((a, b) => severityRank(b.severity) - severityRank(a.severity) || firstStep(a) - firstStep(b));
    for (const item of this.items)
      for (const step of new Set([...item.steps, item.last])) {
        const list = this.byStep.get(step);
        if (list) list.push(item);
        else this.byStep.set(step, [item]);
      }
  }

  /** The anomalies that name a step. */
  at(step: number): Anomaly[] {
    return this.byStep.get(step) ?? [];
  }

  /** The nearest step in a direction at which an incident begins; undefined if there is none. */
  seek(from: number, direction: 1 | -1): number | undefined {
    const starts = this.items.map(firstStep).filter((step) => (direction > 0 ? step > from : step < from));
    if (starts.length === 0) return undefined;
    return direction > 0 ? Math.min(...starts) : Math.max(...starts);
  }
}

export const firstStep = (item: Anomaly): number => item.steps[0] ?? item.last;
export const NO_INCIDENTS = new Incidents([]);
