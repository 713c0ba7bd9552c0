// The files that a step changed, below its details.
import { get, useRequest } from '../api/client';
import type { Diff } from '../api/types';
import { pluralize } from '../format';
import { Link } from '../route';
import { ErrorMessage, Loading } from '../ui';
import { DiffView } from './view';

export default function StepChanges({ before, after }: { before: string; after: string }) {
  const request = useRequest(`${before} ${after}`, (signal) => get<Diff>(`/checkpoints/${before}/diff/${after}`, { text: true, limit: 200 }, signal));
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!request.data) return <Loading label="Loading changes" />;
  const { items, next_cursor } = request.data;
  if (items.length === 0) return <p className="dim">No visible files changed; only git’s own files or metadata did.</p>;
  return (
    <>
      <p className="dim">
        {pluralize(items.length, 'file')}
        {next_cursor ? ' and more' : ''} · <Link href={`/diff?a=${before}&b=${after}`}>Open in the diff viewer</Link>
      </p>
      <DiffView files={items} split={false} ignoreSpace={false} inline />
    </>
  );
}
