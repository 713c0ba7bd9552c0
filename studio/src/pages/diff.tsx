// The diff between two points, branches or checkpoints, or between one and the current files.
import { type FormEvent, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { apiUrl, get, getBytes, useRequest } from '../api/client';
import type { ChangedFile, Diff, Step } from '../api/types';
import { ImagePreview } from '../diff/image-preview';
import { countChanges } from '../diff/parse';
import { type DiffHandle, DiffView } from '../diff/view';
import { baseName, formatCount, pluralize } from '../format';
import { useKeyBindings } from '../keyboard';
import { setQuery, useRoute } from '../route';
import { Button, EmptyState, ErrorMessage, Loading } from '../ui';
import { useSelectedWorkspace, WorkspacePicker } from '../workspaces';

const PAGE_SIZE = 200;
const MIN_SPLIT_WIDTH = 900;

/** A step by its id, or by a point of a workspace. */
async function resolvePoint(text: string, workspace: string | undefined, signal: AbortSignal): Promise<Step> {
  if (/^[0-9a-f]{32}$/.test(text)) return get<Step>(`/checkpoints/${text}`, {}, signal);
  return get<Step>(`/workspaces/${workspace}/points/${encodeURIComponent(text)}`, {}, signal);
}

export default function DiffPage() {
  const { query } = useRoute();
  const { selected, workspaces, error: workspaceError } = useSelectedWorkspace();
  const a = query.get('a') ?? '';
  const b = query.get('b') ?? '';
  const [split, setSplit] = useState(window.innerWidth >= MIN_SPLIT_WIDTH && query.get('view') !== 'unified');
  const [ignoreSpace, setIgnoreSpace] = useState(false);
  const [pages, setPages] = useState(1);
  const [currentFile, setCurrentFile] = useState('');
  const view = useRef<DiffHandle>(null);

  const request = useRequest(a && (selected || (a.length === 32 && b.length === 32)) ? `${selected?.id} ${a} ${b} ${pages}` : null, async (signal) => {
    const from = await resolvePoint(a, selected?.id, signal);
    const to = b ? await resolvePoint(b, selected?.id, signal) : null;
    const path = to ? `/checkpoints/${from.id}/diff/${to.id}` : `/checkpoints/${from.id}/diff`;
    const items: ChangedFile[] = [];
    let cursor: string | null | undefined;
    for (let pageIndex = 0; pageIndex < pages; pageIndex++) {
      const page: Diff = await get(path, { text: true, limit: PAGE_SIZE, after: cursor }, signal);
      items.push(...page.items);
      cursor = page.next_cursor;
      if (!cursor) break;
    }
    return { from, to, items, more: Boolean(cursor) };
  });
  const diff = request.data;
  const totals = useMemo(() => {
    const files = diff?.items.map((file) => ({ file, ...countChanges(file.text) })) ?? [];
    return { files, added: files.reduce((sum, file) => sum + file.added, 0), removed: files.reduce((sum, file) => sum + file.removed, 0) };
  }, [diff]);
  const renderImage = useCallback((file: ChangedFile) => (diff ? <ImageComparison file={file} from={diff.from} to={diff.to} /> : null), [diff]);
  useKeyBindings({
    n: () => view.current?.nextChange(1),
    N: () => view.current?.nextChange(-1),
    ']': () => view.current?.nextFile(1),
    '[': () => view.current?.nextFile(-1),
    s: () => setSplit((old) => !old),
  });
  useEffect(() => setPages(1), [a, b]);

  return (
    <div className="page full">
      <header className="head">
        <div>
          <h1>Diff</h1>
          {diff && (
            <p className="facts dim">
              <span>
                #{diff.from.number} → {diff.to ? `#${diff.to.number}` : 'now'}
              </span>
              <span>{pluralize(diff.items.length, 'file')}{diff.more ? ' and more' : ''}</span>
              <span className="added">+{formatCount(totals.added)}</span>
              <span className="removed">−{formatCount(totals.removed)}</span>
            </p>
          )}
        </div>
        <CompareForm a={a} b={b} />
      </header>
      <WorkspacePicker selected={selected} workspaces={workspaces} />
      {workspaceError && <ErrorMessage error={workspaceError} />}
      {!a && (
        <EmptyState title="Select two points">
          <p>Enter two points: a step (<code>#12</code>), a label, a branch (<code>branch:plan-a</code>), <code>@-1</code>, <code>15 minutes ago</code>. Without the second, the first is compared with the current files.</p>
        </EmptyState>
      )}
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {a && request.loading && !diff && !request.error && <Loading label="Comparing" />}
      {diff && diff.items.length === 0 && <EmptyState title="No differences">
        <p>Both points have the same files.</p>
      </EmptyState>}
      {diff && diff.items.length > 0 && (
        <>
          <div className="player" role="toolbar" aria-label="Diff">
            <Button small variant={split ? 'plain' : 'primary'} aria-pressed={!split} onClick={() => setSplit(false)}>Unified</Button>
            <Button small variant={split ? 'primary' : 'plain'} aria-pressed={split} onClick={() => setSplit(true)}>Side by side</Button>
            <label className="check">
              <input type="checkbox" checked={ignoreSpace} onChange={() => setIgnoreSpace(!ignoreSpace)} /> Ignore white space
            </label>
            <span className="gap" />
            <Button small onClick={() => view.current?.nextFile(-1)}>‹ file</Button>
            <Button small onClick={() => view.current?.nextFile(1)}>file ›</Button>
            <Button small onClick={() => view.current?.nextChange(-1)}>‹ change</Button>
            <Button small onClick={() => view.current?.nextChange(1)}>change ›</Button>
          </div>
          <div className="diff-page">
            <nav className="diff-files" aria-label="Changed files">
              <ul>
                {totals.files.map(({ file, added, removed }) => (
                  <li key={file.path}>
                    <button type="button" className={file.path === currentFile ? 'selected' : ''} onClick={() => view.current?.scrollToFile(file.path)} title={file.path}>
                      <span className={`change ${file.kind}`} aria-label={file.kind}>{file.kind[0]?.toUpperCase()}</span>
                      <span className="name">
                        {baseName(file.path)} <span className="dim">{file.path.split('/').slice(0, -1).join('/')}</span>
                      </span>
                      {added > 0 && <span className="added">+{added}</span>}
                      {removed > 0 && <span className="removed">−{removed}</span>}
                    </button>
                  </li>
                ))}
              </ul>
              {diff.more && <Button small onClick={() => setPages(pages + 5)}>Show more files</Button>}
            </nav>
            <DiffView handle={view} files={diff.items} split={split} ignoreSpace={ignoreSpace} renderImage={renderImage} onFile={setCurrentFile} />
          </div>
        </>
      )}
    </div>
  );
}

function CompareForm({ a, b }: { a: string; b: string }) {
  const [from, setFrom] = useState(a);
  const [to, setTo] = useState(b);
  useEffect(() => {
    setFrom(a);
    setTo(b);
  }, [a, b]);
  const shorten = (text: string) => (/^[0-9a-f]{32}$/.test(text) ? text.slice(0, 8) : text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setQuery({ a: from, b: to }, false);
  };
  return (
    <form className="sides" onSubmit={submit}>
      <input aria-label="From" placeholder="#12, a label, branch:plan-a" value={shorten(from)} onChange={(event) => setFrom(event.target.value)} />
      <span aria-hidden="true">→</span>
      <input aria-label="To" placeholder="now" value={shorten(to)} onChange={(event) => setTo(event.target.value)} />
      <Button type="submit" variant="primary">Compare</Button>
      <Button variant="ghost" aria-label="Swap sides" onClick={() => b && setQuery({ a: b, b: a })}>⇄</Button>
    </form>
  );
}

function ImageComparison({ file, from, to }: { file: ChangedFile; from: Step; to: Step | null }) {
  return (
    <div className="image-comparison">
      {file.before && <ImageSide path={file.from ?? file.path} step={from} name="before" />}
      {file.after && to && <ImageSide path={file.path} step={to} name="after" />}
    </div>
  );
}

function ImageSide({ path, step, name }: { path: string; step: Step; name: string }) {
  const url = `${apiUrl(`/sessions/${step.session}/steps/${step.number}/state`)}/files/${path.split('/').map(encodeURIComponent).join('/')}`;
  const request = useRequest(url, (signal) => getBytes(url, signal));
  return (
    <div>
      <p className="dim">{name}</p>
      {request.data && <ImagePreview path={path} content={request.data} />}
      {request.error && <ErrorMessage error={request.error} />}
    </div>
  );
}
