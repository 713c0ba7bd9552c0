// What if: change one thing of a recorded session, let it run again behind its fence, watch it, and compare.
import { type FormEvent, useEffect, useState } from 'react';
import { change, get, Problem, useAsk } from '../api/client';
import { useNews, useSoon } from '../api/events';
import type { Branch, Session, Step, StepDetail } from '../api/types';
import { pretty, short } from '../format';
import { glyph } from '../kinds';
import { Link, useRoute } from '../route';
import { Button, Loading, Status, Trouble } from '../ui';

interface Change {
  path: string;
  value: string;
}

export default function WhatIfPage({ session: id }: { session: string }) {
  const { words } = useRoute();
  const number = words.get('step');
  const about = useAsk(`session ${id}`, (signal) => get<Session>(`/sessions/${id}`, {}, signal));
  const step = useAsk(number ? `${id} ${number}` : null, (signal) => get<StepDetail>(`/sessions/${id}/steps/${number}`, {}, signal));
  const [changes, setChanges] = useState<Change[]>([]);
  const [tools, setTools] = useState('real');
  const [onDifference, setOnDifference] = useState('stop');
  const [branch, setBranch] = useState('');
  const [running, setRunning] = useState<Branch | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);

  // What the chosen step said is a good thing to begin with.
  useEffect(() => {
    const known = step.value;
    if (!known) return;
    if (known.kind === 'user-input') setChanges([{ path: 'prompt', value: prompt(known) }]);
    else if (known.kind === 'tool-end') setChanges([{ path: `#${known.number}.output`, value: output(known) }]);
    else if (known.kind === 'tool-start') setChanges([{ path: `#${known.number}.input`, value: pretty(known.input) }]);
  }, [step.value]);

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      const begun = await change<Branch>('POST', `/sessions/${id}/reruns`, {
        set: changes.filter((one) => one.path).map((one) => `${one.path}=${one.value}`),
        tools,
        on_difference: onDifference,
        branch: branch || null,
      });
      setRunning(begun);
    } catch (error) {
      setProblem(Problem.of(error));
    }
    setBusy(false);
  };
  const edit = (at: number, change: Partial<Change>) => setChanges(changes.map((one, index) => (index === at ? { ...one, ...change } : one)));

  if (about.problem) return <Trouble problem={about.problem} again={about.again} />;
  const session = about.value;
  if (!session) return <Loading what="The session" />;
  return (
    <div className="page">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href={`/sessions/${session.id}${number ? `?step=${number}` : ''}`}>{session.title ?? short(session.id)}</Link> / What if
          </p>
          <h1>What if …</h1>
          <p className="dim">The agent runs again from the files of then, with the recording for a model, in a directory of its own. Nothing of yours is touched.</p>
        </div>
      </header>
      <div className="two">
        <form className="form panel" onSubmit={(event) => void submit(event)}>
          <h2>Change one thing</h2>
          {changes.map((one, index) => (
            <fieldset key={index} className="change-one">
              <legend className="hidden-text">Change {index + 1}</legend>
              <label>
                What
                <input list="what-if-paths" value={one.path} onChange={(event) => edit(index, { path: event.target.value })} placeholder="prompt, #14.output, memory.KEY" />
              </label>
              <label>
                To
                <textarea rows={6} className="mono" value={one.value} onChange={(event) => edit(index, { value: event.target.value })} />
              </label>
              <Button small look="ghost" onClick={() => setChanges(changes.filter((_, at) => at !== index))}>Remove</Button>
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
          {problem && <Trouble problem={problem} />}
          <footer>
            <Button look="primary" type="submit" disabled={busy}>
              {busy ? 'Starting …' : 'Run it'}
            </Button>
          </footer>
        </form>
        <div className="panel">
          <h2>What comes of it</h2>
          {running ? <Running key={running.name} workspace={session.workspace} original={session.id} begun={running} /> : <p className="dim">It appears here as it runs: every step, then where it parts from the original, and how it ends.</p>}
        </div>
      </div>
    </div>
  );
}

function prompt(step: StepDetail): string {
  const said = (step.input as { prompt?: unknown } | null)?.prompt;
  return typeof said === 'string' ? said : step.summary;
}

function output(step: StepDetail): string {
  const said = step.output as { text?: unknown } | string | null;
  if (typeof said === 'string') return said;
  return typeof said?.text === 'string' ? said.text : pretty(step.output);
}

function Running({ workspace, original, begun }: { workspace: string; original: string; begun: Branch }) {
  const place = `/workspaces/${workspace}/branches/${encodeURIComponent(begun.name)}`;
  const asked = useAsk(place, (signal) => get<Branch>(place, {}, signal));
  const branch = asked.value ?? begun;
  const rerun = branch.rerun as { session?: string | null; reason?: string | null; workspace?: string | null } | null;
  const [steps, setSteps] = useState<Step[]>([]);
  const again = useSoon(asked.again, 200);
  const runs = branch.status === 'running' || branch.status === 'pending';
  useNews((news) => {
    again();
    if (news.event === 'step' && runs && news.step.workspace !== workspace) setSteps((old) => [...old, news.step].slice(-200));
  });
  useEffect(() => {
    if (!runs) return;
    const timer = setInterval(asked.again, 700);
    return () => clearInterval(timer);
  }, [runs, asked.again]);
  return (
    <div className="running" role="status">
      <p>
        <b>{branch.name}</b> <Status status={branch.status} />
        {rerun?.reason && <span className="dim"> {rerun.reason}</span>}
      </p>
      {runs && (
        <Button small onClick={() => void change('POST', `${place}/interrupt`).catch(() => undefined)}>
          End it
        </Button>
      )}
      <ol className="plain small-steps" aria-label="Steps of the rerun">
        {steps.map((step) => (
          <li key={step.id} className={step.failed ? 'bad' : ''}>
            <span className="glyph" aria-hidden="true">{glyph(step.kind)}</span> <span className="dim">{step.kind}</span> {step.summary}
          </li>
        ))}
      </ol>
      {!runs && (
        <p className="actions">
          {rerun?.session && <Link className="button primary" href={`/compare?a=session:${original}&b=session:${rerun.session}`}>Compare with the original</Link>}
          {rerun?.session && <Link className="button" href={`/sessions/${rerun.session}`}>Its session</Link>}
          <Link className="button" href={`/branches?workspace=${workspace}`}>All branches</Link>
        </p>
      )}
    </div>
  );
}
