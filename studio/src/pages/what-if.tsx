// What if: change one thing of a recorded session, let it run again behind its fence, watch it, and compare.
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

  // What the chosen step said is a good thing to begin with.
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
        set: changes.filter((one) => one.path).map((one) => `${one.path}=${one.value}`),
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
  const editChange = (position: number, change: Partial<FieldChange>) => setChanges(changes.map((one, index) => (index === position ? { ...one, ...change } : one)));

  if (sessionRequest.error) return <ErrorMessage error={sessionRequest.error} onRetry={sessionRequest.reload} />;
  const session = sessionRequest.data;
  if (!session) return <Loading label="The session" />;
  return (
    <div className="page">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href={`/sessions/${session.id}${number ? `?step=${number}` : ''}`}>{session.title ?? shortId(session.id)}</Link> / What if
          </p>
          <h1>What if …</h1>
          <p className="dim">The agent runs again in its own directory, with the files of that point; its model calls are answered from the recording. Your files are not changed.</p>
        </div>
      </header>
      <div className="two-columns">
        <form className="form panel" onSubmit={(event) => void submit(event)}>
          <h2>Change one thing</h2>
          {changes.map((one, index) => (
            <fieldset key={index} className="field-change">
              <legend className="visually-hidden">Change {index + 1}</legend>
              <label>
                What
                <input list="what-if-paths" value={one.path} onChange={(event) => editChange(index, { path: event.target.value })} placeholder="prompt, #14.output, memory.KEY" />
              </label>
              <label>
                To
                <textarea rows={6} className="mono" value={one.value} onChange={(event) => editChange(index, { value: event.target.value })} />
              </label>
              <Button small variant="ghost" onClick={() => setChanges(changes.filter((_, position) => position !== index))}>Remove</Button>
            </fieldset>
          ))}
          <datalist id="what-if-paths">
            <option value="prompt">what was said first</option>
            <option value="system">the instructions</option>
            <option value="model">the model that is asked</option>
            <option value="memory.">a value in the memory (built-in agent)</option>
            {number && <option value={`#${number}.output`}>what the model hears of this step</option>}
            {number && <option value={`#${number}.input`}>what goes into this step</option>}
          </datalist>
          <Button small onClick={() => setChanges([...changes, { path: changes.length ? '' : 'prompt', value: '' }])}>
            {changes.length ? 'Change something else, too' : 'Change something'}
          </Button>
          {changes.length === 0 && <p className="dim">Without a change it is done again as it was: that should come to the same files.</p>}
          <label>
            Tool calls
            <select value={tools} onChange={(event) => setTools(event.target.value)}>
              <option value="real">run, behind the fence</option>
              <option value="recorded">do not run; what they did then is put in place</option>
              <option value="deny">that change something are refused</option>
            </select>
          </label>
          <label>
            A model call that was never recorded like this
            <select value={onDifference} onChange={(event) => setOnDifference(event.target.value)}>
              <option value="stop">ends it</option>
              <option value="nearest">gets the nearest recorded answer</option>
            </select>
          </label>
          <label>
            Branch
            <input value={branch} onChange={(event) => setBranch(event.target.value)} placeholder="rerun-1" />
          </label>
          {error && <ErrorMessage error={error} />}
          <footer>
            <Button variant="primary" type="submit" disabled={busy}>
              {busy ? 'Starting …' : 'Run it'}
            </Button>
          </footer>
        </form>
        <div className="panel">
          <h2>What comes of it</h2>
          {running ? <RerunProgress key={running.name} workspace={session.workspace} original={session.id} startedBranch={running} /> : <p className="dim">It appears here as it runs: every step, then where it parts from the original, and how it ends.</p>}
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
          End it
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
          {rerun?.session && <Link className="button" href={`/sessions/${rerun.session}`}>Its session</Link>}
          <Link className="button" href={`/branches?workspace=${workspace}`}>All branches</Link>
        </p>
      )}
    </div>
  );
}
