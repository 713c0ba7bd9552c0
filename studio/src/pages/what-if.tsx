// What if: change one thing in a recorded session, run it again in its sandbox, watch it, and compare.
import { type FormEvent, useEffect, useState } from 'react';
import { ApiError, get, send, useRequest } from '../api/client';
import { useLiveEvents, useThrottledCallback } from '../api/events';
import type { Branch, Session, Step, StepDetail } from '../api/types';
import { formatValue, shortId } from '../format';
import { glyphOf } from '../kinds';
import { Link, useRoute } from '../route';
import { Button, ErrorMessage, Loading, StatusBadge } from '../ui';

interface FieldChange {
  path: string;
  value: string;
}

export default function WhatIfPage({ session: id }: { session: string }) {
  const { query } = useRoute();
  const number = query.get('step');
  const sessionRequest = useRequest(`session ${id}`, (signal) => get<Session>(`/sessions/${id}`, {}, signal));
  const stepRequest = useRequest(number ? `${id} ${number}` : null, (signal) => get<StepDetail>(`/sessions/${id}/steps/${number}`, {}, signal));
  const [changes, setChanges] = useState<FieldChange[]>([]);
  const [tools, setTools] = useState('real');
  const [onDifference, setOnDifference] = useState('stop');
  const [branch, setBranch] = useState('');
  const [running, setRunning] = useState<Branch | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);

  // Start with the content of the selected step.
  useEffect(() => {
    const step = stepRequest.data;
    if (!step) return;
    if (step.kind === 'user-input') setChanges([{ path: 'prompt', value: promptOf(step) }]);
    else if (step.kind === 'tool-end') setChanges([{ path: `#${step.number}.output`, value: outputOf(step) }]);
    else if (step.kind === 'tool-start') setChanges([{ path: `#${step.number}.input`, value: formatValue(step.input) }]);
  }, [stepRequest.data]);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const startedBranch = await send<Branch>('POST', `/sessions/${id}/reruns`, {
        set: changes.filter((item) => item.path).map((item) => `${item.path}=${item.value}`),
        tools,
        on_difference: onDifference,
        branch: branch || null,
      });
      setRunning(startedBranch);
    } catch (error) {
      setError(ApiError.from(error));
    }
    setBusy(false);
  };
  const editChange = (position: number, change: Partial<FieldChange>) => setChanges(changes.map((item, index) => (index === position ? { ...item, ...change } : item)));

  if (sessionRequest.error) return <ErrorMessage error={sessionRequest.error} onRetry={sessionRequest.reload} />;
  const session = sessionRequest.data;
  if (!session) return <Loading label="Loading the session" />;
  return (
    <div className="page">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href={`/sessions/${session.id}${number ? `?step=${number}` : ''}`}>{session.title ?? shortId(session.id)}</Link> / What if
          </p>
          <h1>What if …</h1>
          <p className="dim">The agent runs again in a separate directory, with the files as they were and recorded model responses. Your files do not change.</p>
        </div>
      </header>
      <div className="two-columns">
        <form className="form panel" onSubmit={(event) => void submit(event)}>
          <h2>Change one thing</h2>
          {changes.map((item, index) => (
            <fieldset key={index} className="field-change">
              <legend className="visually-hidden">Change {index + 1}</legend>
              <label>
                Field
                <input list="what-if-paths" value={item.path} onChange={(event) => editChange(index, { path: event.target.value })} placeholder="prompt, #14.output, messages[3].content" />
              </label>
              <label>
                New value
                <textarea rows={6} className="mono" value={item.value} onChange={(event) => editChange(index, { value: event.target.value })} />
              </label>
              <Button small variant="ghost" onClick={() => setChanges(changes.filter((_, position) => position !== index))}>Remove</Button>
            </fieldset>
          ))}
          <datalist id="what-if-paths">
            <option value="prompt">the first prompt</option>
            <option value="system">the system prompt</option>
            <option value="model">the name of the model</option>
            <option value="memory.">a value in memory (built-in agent)</option>
            {number && <option value={`#${number}.output`}>the output of this step, as the model sees it</option>}
            {number && <option value={`#${number}.input`}>the input of this step</option>}
          </datalist>
          <Button small onClick={() => setChanges([...changes, { path: changes.length ? '' : 'prompt', value: '' }])}>
            {changes.length ? 'Add another change' : 'Add a change'}
          </Button>
          {changes.length === 0 && <p className="dim">Without a change, the session is repeated and should produce the same files.</p>}
          <label>
            Tool calls
            <select value={tools} onChange={(event) => setTools(event.target.value)}>
              <option value="real">run in the sandbox</option>
              <option value="recorded">do not run; apply recorded results</option>
              <option value="deny">deny calls that change something</option>
            </select>
          </label>
          <label>
            If a model call differs from the recording
            <select value={onDifference} onChange={(event) => setOnDifference(event.target.value)}>
              <option value="stop">stop</option>
              <option value="nearest">use the nearest recorded response</option>
            </select>
          </label>
          <label>
            Branch
            <input value={branch} onChange={(event) => setBranch(event.target.value)} placeholder="rerun-1" />
          </label>
          {error && <ErrorMessage error={error} />}
          <footer>
            <Button variant="primary" type="submit" disabled={busy}>
              {busy ? 'Starting …' : 'Start rerun'}
            </Button>
          </footer>
        </form>
        <div className="panel">
          <h2>Result</h2>
          {running ? <RerunProgress key={running.name} workspace={session.workspace} original={session.id} startedBranch={running} /> : <p className="dim">The steps of the rerun appear here as it runs, then how it ended and whether it diverged.</p>}
        </div>
      </div>
    </div>
  );
}

function promptOf(step: StepDetail): string {
  const prompt = (step.input as { promptOf?: unknown } | null)?.promptOf;
  return typeof prompt === 'string' ? prompt : step.summary;
}

function outputOf(step: StepDetail): string {
  const output = step.output as { text?: unknown } | string | null;
  if (typeof output === 'string') return output;
  return typeof output?.text === 'string' ? output.text : formatValue(step.output);
}

function RerunProgress({ workspace, original, startedBranch }: { workspace: string; original: string; startedBranch: Branch }) {
  const branchPath = `/workspaces/${workspace}/branches/${encodeURIComponent(startedBranch.name)}`;
  const request = useRequest(branchPath, (signal) => get<Branch>(branchPath, {}, signal));
  const branch = request.data ?? startedBranch;
  const rerun = branch.rerun as { session?: string | null; reason?: string | null; workspace?: string | null } | null;
  const [steps, setSteps] = useState<Step[]>([]);
  const reloadSoon = useThrottledCallback(request.reload, 200);
  const isRunning = branch.status === 'running' || branch.status === 'pending';
  useLiveEvents((event) => {
    reloadSoon();
    if (event.type === 'step' && isRunning && event.step.workspace !== workspace) setSteps((old) => [...old, event.step].slice(-200));
  });
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(request.reload, 700);
    return () => clearInterval(timer);
  }, [isRunning, request.reload]);
  return (
    <div className="running" role="status">
      <p>
        <b>{branch.name}</b> <StatusBadge status={branch.status} />
        {rerun?.reason && <span className="dim"> {rerun.reason}</span>}
      </p>
      {isRunning && (
        <Button small onClick={() => void send('POST', `${branchPath}/interrupt`).catch(() => undefined)}>
          Stop
        </Button>
      )}
      <ol className="plain small-steps" aria-label="Steps of the rerun">
        {steps.map((step) => (
          <li key={step.id} className={step.failed ? 'bad' : ''}>
            <span className="glyph" aria-hidden="true">{glyphOf(step.kind)}</span> <span className="dim">{step.kind}</span> {step.summary}
          </li>
        ))}
      </ol>
      {!isRunning && (
        <p className="actions">
          {rerun?.session && <Link className="button primary" href={`/compare?a=session:${original}&b=session:${rerun.session}`}>Compare with the original</Link>}
          {rerun?.session && <Link className="button" href={`/sessions/${rerun.session}`}>Session</Link>}
          <Link className="button" href={`/branches?workspace=${workspace}`}>All branches</Link>
        </p>
      )}
    </div>
  );
}
