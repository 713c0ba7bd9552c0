// Disk use against the budget, what goes next, and what the last pruning did.
import type { DiskBudgetFacts } from '../api/types';
import { formatBytes, formatCount, pluralize } from '../format';

export function DiskBudget({ budget }: { budget: DiskBudgetFacts | null }) {
  if (!budget) {
    return (
      <p className="dim">
        The store has no disk budget. “stepback settings disk.budget 5GB” sets one.
      </p>
    );
  }
  const { bytes, used, last } = budget;
  const over = used > bytes;
  return (
    <div className="budget">
      <meter min={0} max={bytes} high={budget.starts_at} optimum={0} value={Math.min(used, bytes)} aria-label={`${formatBytes(used)} of a budget of ${formatBytes(bytes)}`} />
      <p className={over ? 'bad' : 'dim'}>
        {formatBytes(used)} of {formatBytes(bytes)} ({Math.round((used / Math.max(bytes, 1)) * 100)} %)
        {over && ': the budget is too small for what is kept'}
      </p>
      <p className="dim">
        At {formatBytes(budget.starts_at)} the oldest of {pluralize(budget.removable, 'automatic checkpoint')} go
        {budget.next_at && `, the first from ${new Date(budget.next_at).toLocaleString()}`}; {formatCount(budget.kept)} stay.
      </p>
      {last && (
        <p className={last.failure ? 'bad' : 'dim'}>
          {last.failure
            ? `The last pruning failed: ${last.failure}`
            : `The last pruning removed ${pluralize(last.checkpoints, 'checkpoint')}: ${formatBytes(last.size_before)} became ${formatBytes(last.size_after)}.`}
        </p>
      )}
    </div>
  );
}
