// Money and tokens as text, and the links from numbers to the steps behind them. Nothing here renders.
import type { CostSum, StepLink } from '../api/types';

/** What the numbers of a dashboard are about. */
export interface Scope {
  since: string;
  workspace: string;
  reruns: boolean;
}

export const totalTokens = (sum: CostSum): number => sum.input + sum.cache_read + sum.cache_write + sum.output;

/** Money, with what is not known about it: an unknown price is never nothing. */
export function formatMoney(sum: CostSum): string {
  const isPartial = sum.unpriced_calls > 0 || sum.uncounted_calls > 0;
  if (sum.cost_usd === 0) return isPartial ? 'unknown' : totalTokens(sum) > 0 ? '$0.00' : '–';
  const amount = sum.cost_usd < 0.01 ? '< $0.01' : `$${sum.cost_usd.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return isPartial ? `at least ${amount}` : amount;
}

/** The page with the steps behind a row. */
export function stepsHref(link: StepLink, more: Record<string, string> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...link, ...more })) if (value) query.set(name, value);
  return `/steps?${query.toString()}`;
}
