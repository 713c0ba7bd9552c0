// The state at a step: files, conversation, memory, tasks, environment, git. A dot marks what this step changed.
import { lazy, memo, Suspense, useMemo, useState } from 'react';
import { ApiError, apiUrl, download, get, getAll, getBytes, useRequest } from '../api/client';
import type { Diff, FileEntry, Message, Step, StepState } from '../api/types';
import { formatBytes, pluralize } from '../format';
import { showToast } from '../toasts';
import { Button, EmptyState, ErrorMessage, Loading, Tabs } from '../ui';
import { Conversation } from './detail';
import { JsonTree } from './values';

const Content = lazy(() => import('../diff/file-preview'));

type StatePart = 'files' | 'conversation' | 'memory' | 'task' | 'env' | 'git';
const MAX_FILES = 20_000;

export const StateView = memo(function StateView({
  session,
  workspace,
  step,
  before,
}: {
  session: string;
  workspace: string;
  step: number;
  before: number | undefined;
}) {
  const [part, setPart] = useState<StatePart>('files');
  const base = `/sessions/${session}/steps/${step}/state`;
  const request = useRequest(base, (signal) => get<StepState>(base, { limit: 1 }, signal));
  const previousRequest = useRequest(before === undefined ? null : `before ${session} ${before}`, (signal) =>
    get<StepState>(`/sessions/${session}/steps/${before}/state`, { limit: 1 }, signal),
  );
  const slots = request.data?.slots;
  const previousSlots = previousRequest.data?.slots;
  const hasChanged = (name: keyof StepState['slots']) => Boolean(slots && previousSlots && slots[name] !== previousSlots[name]);
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!slots || !request.data) return <Loading label="Loading the state" />;
  const tabs: { id: StatePart; name: string; changed: boolean }[] = [
    { id: 'files', name: 'Files', changed: hasChanged('files') },
    { id: 'conversation', name: 'Conversation', changed: hasChanged('conversation') },
    { id: 'memory', name: 'Memory', changed: hasChanged('memory') },
    { id: 'task', name: 'Tasks', changed: hasChanged('task') },
    { id: 'env', name: 'Environment', changed: hasChanged('env') },
    { id: 'git', name: 'Git', changed: hasChanged('git') },
  ];
  return (
    <section className="state" aria-label={`State at step ${step}`}>
      <Tabs label="Parts of the state" tabs={tabs} value={part} onChange={setPart} />
      {part === 'files' &&
        (slots.files ? (
          <FilesPanel base={base} workspace={workspace} step={request.data.step} />
        ) : (
          <EmptyState title="No files recorded">
            <p>The workspace had not been scanned yet, or the session was reported by another machine.</p>
          </EmptyState>
        ))}
      {part === 'conversation' && <ConversationPanel base={base} isRecorded={Boolean(slots.conversation)} />}
      {part === 'git' && <GitPanel state={request.data} />}
      {(part === 'memory' || part === 'task' || part === 'env') && <JsonPanel base={base} part={part} isRecorded={Boolean(slots[part])} />}
    </section>
  );
});

function FilesPanel({ base, workspace, step }: { base: string; workspace: string; step: Step }) {
  const [filter, setFilter] = useState('');
  const [selected, setSelected] = useState<FileEntry | null>(null);
  const [collapsed, setCollapsed] = useState<Set<string>>(new Set());
  const request = useRequest(`${base} files`, (signal) => getAll<FileEntry>(base, {}, MAX_FILES, signal));
  const changesRequest = useRequest(step.checkpoint && step.parent ? `${step.parent} ${step.id}` : null, (signal) =>
    get<Diff>(`/checkpoints/${step.parent}/diff/${step.id}`, { limit: 1000 }, signal),
  );
  const kindByPath = useMemo(() => new Map(changesRequest.data?.items.map((item) => [item.path, item.kind])), [changesRequest.data]);
  // A changed file is selected at first.
  const firstChanged = request.data?.find((file) => file.type === 'file' && kindByPath.has(file.path)) ?? null;
  const shownFile = selected ?? firstChanged;
  const visibleFiles = useMemo(() => {
    const needle = filter.toLowerCase();
    return (request.data ?? []).filter((file) => {
      if (needle) return file.type !== 'directory' && file.path.toLowerCase().includes(needle);
      const parts = file.path.split('/');
      for (let i = 1; i < parts.length; i++) if (collapsed.has(parts.slice(0, i).join('/'))) return false;
      return true;
    });
  }, [request.data, filter, collapsed]);
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!request.data) return <Loading label="Loading files" />;
  const deleted = [...kindByPath].filter(([, kind]) => kind === 'deleted');
  return (
    <div className="files">
      <div className="tree">
        <input type="search" aria-label="Find a file" placeholder={`Find among ${pluralize(request.data.length, 'path')} …`} value={filter} onChange={(event) => setFilter(event.target.value)} />
        <ul aria-label="Files at this step">
          {visibleFiles.slice(0, 2000).map((file) => {
            const depth = filter ? 0 : file.path.split('/').length - 1;
            const isDirectory = file.type === 'directory';
            const kind = kindByPath.get(file.path);
            return (
              <li key={file.address}>
                <button
                  type="button"
                  className={`${isDirectory ? 'directory' : 'file'} ${shownFile?.address === file.address ? 'selected' : ''}`}
                  style={{ paddingLeft: 8 + Math.min(depth, 12) * 14 }}
                  aria-expanded={isDirectory ? !collapsed.has(file.path) : undefined}
                  onClick={() => {
                    if (!isDirectory) {
                      setSelected(file);
                      return;
                    }
                    const next = new Set(collapsed);
                    if (!next.delete(file.path)) next.add(file.path);
                    setCollapsed(next);
                  }}
                >
                  <span className="name">
                    {isDirectory ? (collapsed.has(file.path) ? '▸ ' : '▾ ') : ''}
                    {filter ? file.path : file.path.split('/').pop()}
                  </span>
                  {kind && <span className={`change ${kind}`}>{kind}</span>}
                  <span className="dim size">{file.type === 'file' && file.size != null ? formatBytes(file.size) : file.type === 'symlink' ? '→' : (file.reason ?? '')}</span>
                </button>
              </li>
            );
          })}
          {deleted.map(([path]) => (
            <li key={`deleted ${path}`} className="deleted-path">
              {path} <span className="change deleted">deleted</span>
            </li>
          ))}
        </ul>
        {visibleFiles.length > 2000 && <p className="dim">… and {pluralize(visibleFiles.length - 2000, 'more path', 'more paths')}; filter to see them</p>}
      </div>
      <div className="content">
        {shownFile ? (
          <FileContent base={base} file={shownFile} workspace={workspace} at={`#${step.number}`} />
        ) : (
          <p className="dim pad">Select a file to see its content at this step.</p>
        )}
      </div>
    </div>
  );
}

const MAX_PREVIEW_BYTES = 2_000_000;

const BLAME_SETTING = 'stepback.blame';

/** Whether the origins of lines are shown; kept for the next visit. */
function useBlameSetting(): [boolean, (next: boolean) => void] {
  const [isOn, setOn] = useState(() => {
    try {
      return window.localStorage.getItem(BLAME_SETTING) === 'on';
    } catch {
      return false;
    }
  });
  const set = (next: boolean) => {
    setOn(next);
    try {
      window.localStorage.setItem(BLAME_SETTING, next ? 'on' : 'off');
    } catch {
      // Without storage, the setting lasts as long as the page.
    }
  };
  return [isOn, set];
}

function FileContent({ base, file, workspace, at }: { base: string; file: FileEntry; workspace: string; at: string }) {
  const [isBlamed, setBlamed] = useBlameSetting();
  const url = `${apiUrl(base)}/files/${file.address}`;
  const isTooLarge = (file.size ?? 0) > MAX_PREVIEW_BYTES;
  const request = useRequest(isTooLarge || file.type === 'excluded' ? null : url, (signal) => getBytes(url, signal));
  const saveFile = () =>
    download(url, file.path.split('/').pop() ?? 'file').catch((error: unknown) => showToast(ApiError.from(error).detail, true));
  return (
    <>
      <div className="path">
        <h2>
          {file.path}{' '}
          <span className="dim">
            {file.mode} {file.size != null ? formatBytes(file.size) : ''}
          </span>
        </h2>
        {file.type === 'file' && !isTooLarge && (
          <Button small variant={isBlamed ? 'primary' : 'plain'} aria-pressed={isBlamed} title="Show who wrote each line, and why" onClick={() => setBlamed(!isBlamed)}>
            Blame
          </Button>
        )}
      </div>
      {file.type === 'excluded' && <p className="dim pad">Not stored: {file.reason}</p>}
      {isTooLarge && (
        <p className="pad">
          {formatBytes(file.size ?? 0)} is too large to show.{' '}
          <button type="button" className="link" onClick={() => void saveFile()}>
            Download it
          </button>{' '}
          instead.
        </p>
      )}
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {request.data && (
        <Suspense fallback={<Loading />}>
          <Content path={file.path} bytes={request.data} blame={isBlamed && file.type === 'file' ? { workspace, at } : undefined} />
        </Suspense>
      )}
    </>
  );
}

function ConversationPanel({ base, isRecorded }: { base: string; isRecorded: boolean }) {
  const [filter, setFilter] = useState('');
  const request = useRequest(isRecorded ? `${base}/conversation` : null, (signal) => getAll<Message>(`${base}/conversation`, {}, 2000, signal));
  if (!isRecorded) return <EmptyState title="No messages yet" />;
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!request.data) return <Loading label="Loading the conversation" />;
  const needle = filter.toLowerCase();
  return (
    <div className="pad">
      <input type="search" aria-label="Find in the conversation" placeholder={`Find in ${pluralize(request.data.length, 'message')} …`} value={filter} onChange={(event) => setFilter(event.target.value)} />
      <Conversation messages={request.data.filter((message) => !needle || message.text.toLowerCase().includes(needle))} />
    </div>
  );
}

const EMPTY_TITLES: Record<'memory' | 'task' | 'env', string> = {
  memory: 'No memory recorded',
  task: 'No task list recorded',
  env: 'No environment recorded',
};

function JsonPanel({ base, part, isRecorded }: { base: string; part: 'memory' | 'task' | 'env'; isRecorded: boolean }) {
  const [filter, setFilter] = useState('');
  const request = useRequest(isRecorded ? `${base}/${part}` : null, (signal) => get<unknown>(`${base}/${part}`, {}, signal));
  if (!isRecorded) return <EmptyState title={EMPTY_TITLES[part]} />;
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (request.data === undefined) return <Loading />;
  return (
    <div className="pad">
      <input type="search" aria-label="Find" placeholder="Find …" value={filter} onChange={(event) => setFilter(event.target.value)} />
      <div className="json">
        <JsonTree value={request.data} filter={filter.toLowerCase() || undefined} />
      </div>
    </div>
  );
}

function GitPanel({ state }: { state: StepState }) {
  if (state.git.length === 0) return <EmptyState title="No git repository" />;
  return (
    <ul className="pad plain">
      {state.git.map((repository) => (
        <li key={repository.path}>
          <code>{repository.path}</code> on <b>{repository.branch ?? 'no branch (detached)'}</b> at{' '}
          <code>{repository.commit?.slice(0, 12) ?? 'no commit'}</code>
          {repository.in_progress && <span className="status failed">{repository.in_progress} in progress</span>}
          {repository.stashes > 0 && <span className="dim"> · {pluralize(repository.stashes, 'stash', 'stashes')}</span>}
          {repository.uncommitted && <span className="dim"> · uncommitted changes</span>}
          {repository.staged && repository.staged.length > 0 && <span className="dim"> · staged: {repository.staged.join(', ')}</span>}
        </li>
      ))}
    </ul>
  );
}
