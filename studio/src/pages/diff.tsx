// Any two moments side by side: points, branches, checkpoints, or now.
import { type FormEvent, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { address, get, getBytes, useAsk } from '../api/client';
import type { ChangedFile, Diff, Step } from '../api/types';
import { Picture } from '../diff/image';
import { counts } from '../diff/parse';
import { type DiffHandle, DiffView } from '../diff/view';
import { count, leaf, plural } from '../format';
import { set, useRoute } from '../route';
import { Button, Empty, Loading, Trouble, useKeys } from '../ui';
import { useWorkspace, WorkspacePicker } from '../workspaces';

const PAGE = 200;
const NARROW = 900;

/** A step by its id, or by a point of a workspace. */
async function resolve(text: string, workspace: string | undefined, signal: AbortSignal): Promise<Step> {
  if (/^[0-9a-f]{32}$/.test(text)) return get<Step>(`/checkpoints/${text}`, {}, signal);
  return get<Step>(`/workspaces/${workspace}/points/${encodeURIComponent(text)}`, {}, signal);
}

export default function DiffPage() {
  const { words } = useRoute();
  const { chosen, all, problem } = useWorkspace();
  const a = words.get('a') ?? '';
  const b = words.get('b') ?? '';
  const [split, setSplit] = useState(window.innerWidth >= NARROW && words.get('view') !== 'unified');
  const [ignoreSpace, setIgnoreSpace] = useState(false);
  const [pages, setPages] = useState(1);
  const [at, setAt] = useState('');
  const view = useRef<DiffHandle>(null);

  const asked = useAsk(a && (chosen || (a.length === 32 && b.length === 32)) ? `${chosen?.id} ${a} ${b} ${pages}` : null, async (signal) => {
    const from = await resolve(a, chosen?.id, signal);
    const to = b ? await resolve(b, chosen?.id, signal) : null;
    const path = to ? `/checkpoints/${from.id}/diff/${to.id}` : `/checkpoints/${from.id}/diff`;
    const items: ChangedFile[] = [];
    let after: string | null | undefined;
    for (let page = 0; page < pages; page++) {
      const found: Diff = await get(path, { text: true, limit: PAGE, after }, signal);
      items.push(...found.items);
      after = found.next_cursor;
      if (!after) break;
    }
    return { from, to, items, more: Boolean(after) };
  });
  const diff = asked.value;
  const totals = useMemo(() => {
    const each = diff?.items.map((file) => ({ file, ...counts(file.text) })) ?? [];
    return { each, added: each.reduce((sum, one) => sum + one.added, 0), removed: each.reduce((sum, one) => sum + one.removed, 0) };
  }, [diff]);
  const picture = useCallback((file: ChangedFile) => (diff ? <Pictures file={file} from={diff.from} to={diff.to} /> : null), [diff]);
  useKeys({
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
              <span>{plural(diff.items.length, 'file')}{diff.more ? ' and more' : ''}</span>
              <span className="added">+{count(totals.added)}</span>
              <span className="removed">−{count(totals.removed)}</span>
            </p>
          )}
        </div>
        <Sides a={a} b={b} />
      </header>
      <WorkspacePicker chosen={chosen} all={all} />
      {problem && <Trouble problem={problem} />}
      {!a && (
        <Empty title="Which two moments?">
          <p>Say a point on each side: a step (<code>#12</code>), a label, a branch (<code>branch:plan-a</code>), <code>@-1</code>, <code>15 minutes ago</code>. Without the second, it is compared with what is there now.</p>
        </Empty>
      )}
      {asked.problem && <Trouble problem={asked.problem} again={asked.again} />}
      {a && asked.loading && !diff && !asked.problem && <Loading what="Comparing" />}
      {diff && diff.items.length === 0 && <Empty title="They are the same">
        <p>No file differs between the two.</p>
      </Empty>}
      {diff && diff.items.length > 0 && (
        <>
          <div className="player" role="toolbar" aria-label="Diff">
            <Button small look={split ? 'plain' : 'primary'} aria-pressed={!split} onClick={() => setSplit(false)}>Unified</Button>
            <Button small look={split ? 'primary' : 'plain'} aria-pressed={split} onClick={() => setSplit(true)}>Side by side</Button>
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
                {totals.each.map(({ file, added, removed }) => (
                  <li key={file.path}>
                    <button type="button" className={file.path === at ? 'at' : ''} onClick={() => view.current?.file(file.path)} title={file.path}>
                      <span className={`change ${file.kind}`} aria-label={file.kind}>{file.kind[0]?.toUpperCase()}</span>
                      <span className="name">
                        {leaf(file.path)} <span className="dim">{file.path.split('/').slice(0, -1).join('/')}</span>
                      </span>
                      {added > 0 && <span className="added">+{added}</span>}
                      {removed > 0 && <span className="removed">−{removed}</span>}
                    </button>
                  </li>
                ))}
              </ul>
              {diff.more && <Button small onClick={() => setPages(pages + 5)}>Show more files</Button>}
            </nav>
            <DiffView handle={view} files={diff.items} split={split} ignoreSpace={ignoreSpace} picture={picture} onFile={setAt} />
          </div>
        </>
      )}
    </div>
  );
}

function Sides({ a, b }: { a: string; b: string }) {
  const [from, setFrom] = useState(a);
  const [to, setTo] = useState(b);
  useEffect(() => {
    setFrom(a);
    setTo(b);
  }, [a, b]);
  const shown = (text: string) => (/^[0-9a-f]{32}$/.test(text) ? text.slice(0, 8) : text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    set({ a: from, b: to }, false);
  };
  return (
    <form className="sides" onSubmit={submit}>
      <input aria-label="From" placeholder="#12, a label, branch:plan-a" value={shown(from)} onChange={(event) => setFrom(event.target.value)} />
      <span aria-hidden="true">→</span>
      <input aria-label="To" placeholder="now" value={shown(to)} onChange={(event) => setTo(event.target.value)} />
      <Button type="submit" look="primary">Compare</Button>
      <Button look="ghost" aria-label="Exchange the sides" onClick={() => b && set({ a: b, b: a })}>⇄</Button>
    </form>
  );
}

function Pictures({ file, from, to }: { file: ChangedFile; from: Step; to: Step | null }) {
  return (
    <div className="pictures">
      {file.before && <OnePicture path={file.from ?? file.path} step={from} name="before" />}
      {file.after && to && <OnePicture path={file.path} step={to} name="after" />}
    </div>
  );
}

function OnePicture({ path, step, name }: { path: string; step: Step; name: string }) {
  const url = `${address(`/sessions/${step.session}/steps/${step.number}/state`)}/files/${path.split('/').map(encodeURIComponent).join('/')}`;
  const asked = useAsk(url, (signal) => getBytes(url, signal));
  return (
    <div>
      <p className="dim">{name}</p>
      {asked.value && <Picture path={path} content={asked.value} />}
      {asked.problem && <Trouble problem={asked.problem} />}
    </div>
  );
}
