// What was true at a step: files, conversation, memory, tasks, environment, git. What this step changed has a mark.
import { lazy, memo, Suspense, useMemo, useState } from 'react';
import { address, all, get, getBytes, useAsk } from '../api/client';
import type { Diff, FileEntry, Message, State, Step } from '../api/types';
import { bytes, plural } from '../format';
import { Empty, Loading, Tabs, Trouble } from '../ui';
import { Conversation } from './detail';
import { Tree } from './text';

const Content = lazy(() => import('../diff/content'));

type Part = 'files' | 'conversation' | 'memory' | 'task' | 'env' | 'git';
const MOST_FILES = 20_000;

export const StateView = memo(function StateView({ session, step, before }: { session: string; step: number; before: number | undefined }) {
  const [part, setPart] = useState<Part>('files');
  const base = `/sessions/${session}/steps/${step}/state`;
  const asked = useAsk(base, (signal) => get<State>(base, { limit: 1 }, signal));
  const earlier = useAsk(before === undefined ? null : `before ${session} ${before}`, (signal) =>
    get<State>(`/sessions/${session}/steps/${before}/state`, { limit: 1 }, signal),
  );
  const slots = asked.value?.slots;
  const then = earlier.value?.slots;
  const changed = (name: keyof State['slots']) => Boolean(slots && then && slots[name] !== then[name]);
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!slots || !asked.value) return <Loading what="What was true then" />;
  const tabs: { id: Part; name: string; changed: boolean }[] = [
    { id: 'files', name: 'Files', changed: changed('files') },
    { id: 'conversation', name: 'Conversation', changed: changed('conversation') },
    { id: 'memory', name: 'Memory', changed: changed('memory') },
    { id: 'task', name: 'Tasks', changed: changed('task') },
    { id: 'env', name: 'Environment', changed: changed('env') },
    { id: 'git', name: 'Git', changed: changed('git') },
  ];
  return (
    <section className="state" aria-label={`What was true at step ${step}`}>
      <Tabs label="Parts of the state" tabs={tabs} value={part} onChange={setPart} />
      {part === 'files' &&
        (slots.files ? (
          <Files base={base} step={asked.value.step} />
        ) : (
          <Empty title="No files are known here">
            <p>Nobody had looked at this workspace yet, or the session was reported from elsewhere.</p>
          </Empty>
        ))}
      {part === 'conversation' && <Said base={base} known={Boolean(slots.conversation)} />}
      {part === 'git' && <Git state={asked.value} />}
      {(part === 'memory' || part === 'task' || part === 'env') && <Slot base={base} part={part} known={Boolean(slots[part])} />}
    </section>
  );
});

function Files({ base, step }: { base: string; step: Step }) {
  const [find, setFind] = useState('');
  const [chosen, setChosen] = useState<FileEntry | null>(null);
  const [shut, setShut] = useState<Set<string>>(new Set());
  const asked = useAsk(`${base} files`, (signal) => all<FileEntry>(base, {}, MOST_FILES, signal));
  const changes = useAsk(step.checkpoint && step.parent ? `${step.parent} ${step.id}` : null, (signal) =>
    get<Diff>(`/checkpoints/${step.parent}/diff/${step.id}`, { limit: 1000 }, signal),
  );
  const changed = useMemo(() => new Map(changes.value?.items.map((item) => [item.path, item.kind])), [changes.value]);
  // What this step changed is what one wants to see first.
  const usual = asked.value?.find((file) => file.type === 'file' && changed.has(file.path)) ?? null;
  const shownFile = chosen ?? usual;
  const shown = useMemo(() => {
    const wanted = find.toLowerCase();
    return (asked.value ?? []).filter((file) => {
      if (wanted) return file.type !== 'directory' && file.path.toLowerCase().includes(wanted);
      const parts = file.path.split('/');
      for (let i = 1; i < parts.length; i++) if (shut.has(parts.slice(0, i).join('/'))) return false;
      return true;
    });
  }, [asked.value, find, shut]);
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!asked.value) return <Loading what="Files" />;
  const gone = [...changed].filter(([, kind]) => kind === 'deleted');
  return (
    <div className="files">
      <div className="tree">
        <input type="search" aria-label="Find a file" placeholder={`Find among ${plural(asked.value.length, 'path')} …`} value={find} onChange={(event) => setFind(event.target.value)} />
        <ul aria-label="Files at this step">
          {shown.slice(0, 2000).map((file) => {
            const depth = find ? 0 : file.path.split('/').length - 1;
            const isDirectory = file.type === 'directory';
            const kind = changed.get(file.path);
            return (
              <li key={file.address}>
                <button
                  type="button"
                  className={`${isDirectory ? 'directory' : 'file'} ${shownFile?.address === file.address ? 'at' : ''}`}
                  style={{ paddingLeft: 8 + Math.min(depth, 12) * 14 }}
                  aria-expanded={isDirectory ? !shut.has(file.path) : undefined}
                  onClick={() => {
                    if (!isDirectory) {
                      setChosen(file);
                      return;
                    }
                    const next = new Set(shut);
                    if (!next.delete(file.path)) next.add(file.path);
                    setShut(next);
                  }}
                >
                  <span className="name">
                    {isDirectory ? (shut.has(file.path) ? '▸ ' : '▾ ') : ''}
                    {find ? file.path : file.path.split('/').pop()}
                  </span>
                  {kind && <span className={`change ${kind}`}>{kind}</span>}
                  <span className="dim size">{file.type === 'file' && file.size != null ? bytes(file.size) : file.type === 'symlink' ? '→' : (file.reason ?? '')}</span>
                </button>
              </li>
            );
          })}
          {gone.map(([path]) => (
            <li key={`gone ${path}`} className="gone">
              {path} <span className="change deleted">deleted</span>
            </li>
          ))}
        </ul>
        {shown.length > 2000 && <p className="dim">… and {plural(shown.length - 2000, 'more path', 'more paths')}; say above which</p>}
      </div>
      <div className="content">
        {shownFile ? (
          <FileContent base={base} file={shownFile} />
        ) : (
          <p className="dim pad">Choose a file to see it as it was at this step.</p>
        )}
      </div>
    </div>
  );
}

const LARGEST_SHOWN = 2_000_000;

function FileContent({ base, file }: { base: string; file: FileEntry }) {
  const url = `${address(base)}/files/${file.address}`;
  const large = (file.size ?? 0) > LARGEST_SHOWN;
  const asked = useAsk(large || file.type === 'excluded' ? null : url, (signal) => getBytes(url, signal));
  return (
    <>
      <h2 className="path">
        {file.path}{' '}
        <span className="dim">
          {file.mode} {file.size != null ? bytes(file.size) : ''}
        </span>
      </h2>
      {file.type === 'excluded' && <p className="dim pad">Not stored: {file.reason}</p>}
      {large && (
        <p className="pad">
          {bytes(file.size ?? 0)} is too much to show here. <a href={url} download={file.path.split('/').pop()}>Save it</a> instead.
        </p>
      )}
      {asked.problem && <Trouble problem={asked.problem} again={asked.again} />}
      {asked.value && (
        <Suspense fallback={<Loading />}>
          <Content path={file.path} bytes={asked.value} />
        </Suspense>
      )}
    </>
  );
}

function Said({ base, known }: { base: string; known: boolean }) {
  const [find, setFind] = useState('');
  const asked = useAsk(known ? `${base}/conversation` : null, (signal) => all<Message>(`${base}/conversation`, {}, 2000, signal));
  if (!known) return <Empty title="Nothing was said yet" />;
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!asked.value) return <Loading what="The conversation" />;
  const wanted = find.toLowerCase();
  return (
    <div className="pad">
      <input type="search" aria-label="Find in the conversation" placeholder={`Find in ${plural(asked.value.length, 'message')} …`} value={find} onChange={(event) => setFind(event.target.value)} />
      <Conversation messages={asked.value.filter((message) => !wanted || message.text.toLowerCase().includes(wanted))} />
    </div>
  );
}

const TEACH: Record<'memory' | 'task' | 'env', string> = {
  memory: 'This agent had not remembered anything.',
  task: 'This agent kept no task list.',
  env: 'Nothing is known of its environment.',
};

function Slot({ base, part, known }: { base: string; part: 'memory' | 'task' | 'env'; known: boolean }) {
  const [find, setFind] = useState('');
  const asked = useAsk(known ? `${base}/${part}` : null, (signal) => get<unknown>(`${base}/${part}`, {}, signal));
  if (!known) return <Empty title={TEACH[part]} />;
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (asked.value === undefined) return <Loading />;
  return (
    <div className="pad">
      <input type="search" aria-label="Find in it" placeholder="Find …" value={find} onChange={(event) => setFind(event.target.value)} />
      <div className="json">
        <Tree value={asked.value} find={find.toLowerCase() || undefined} />
      </div>
    </div>
  );
}

function Git({ state }: { state: State }) {
  if (state.git.length === 0) return <Empty title="There was no git repository here" />;
  return (
    <ul className="pad plain">
      {state.git.map((repository) => (
        <li key={repository.path}>
          <code>{repository.path}</code> on <b>{repository.branch ?? 'no branch (detached)'}</b> at{' '}
          <code>{repository.commit?.slice(0, 12) ?? 'no commit'}</code>
          {repository.in_progress && <span className="status failed">{repository.in_progress} in progress</span>}
          {repository.stashes > 0 && <span className="dim"> · {plural(repository.stashes, 'stash', 'stashes')}</span>}
        </li>
      ))}
    </ul>
  );
}
