// What one step changed, inside of its page.
import { get, useAsk } from '../api/client';
import type { Diff } from '../api/types';
import { plural } from '../format';
import { Link } from '../route';
import { Loading, Trouble } from '../ui';
import { DiffView } from './view';

export default function StepChanges({ before, after }: { before: string; after: string }) {
  const asked = useAsk(`${before} ${after}`, (signal) => get<Diff>(`/checkpoints/${before}/diff/${after}`, { text: true, limit: 200 }, signal));
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!asked.value) return <Loading what="What changed" />;
  const { items, next_cursor } = asked.value;
  if (items.length === 0) return <p className="dim">No file that is shown here; git’s own files, or what is around them.</p>;
  return (
    <>
      <p className="dim">
        {plural(items.length, 'file')}
        {next_cursor ? ' and more' : ''} · <Link href={`/diff?a=${before}&b=${after}`}>Open in the diff viewer</Link>
      </p>
      <DiffView files={items} split={false} ignoreSpace={false} grows />
    </>
  );
}
