// Agents at work: who waits and for what, and where they are to stop.
import { type FormEvent, useState } from 'react';
import { change, get, Problem, useAsk } from '../api/client';
import { useNews, useSoon, useStops } from '../api/events';
import type { Breakpoint, Page, Session, Stop } from '../api/types';
import { ago, plural, pretty, short } from '../format';
import { Link } from '../route';
import { LongText } from '../session/text';
import { Button, Empty, say, Status, Trouble } from '../ui';
import { useWorkspace, WorkspacePicker } from '../workspaces';

export default function LivePage() {
  const stops = useStops();
  const { chosen, all } = useWorkspace();
  const active = useAsk('active', (signal) => get<Page<Session>>('/sessions', { status: 'active', limit: 20 }, signal));
  const again = useSoon(active.again, 500);
  useNews(again);
  const live = (active.value?.items ?? []).filter((session) => session.agent !== 'person');
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Live</h1>
          <p className="dim">Stop agents before they do something, look, change what they are about to do, and let them go on.</p>
        </div>
        <Ask />
      </header>
      <div className="two">
        <section aria-label="Agents that wait">
          <h2>{stops.length ? `${plural(stops.length, 'agent')} wait${stops.length === 1 ? 's' : ''} for you` : 'Nobody waits'}</h2>
          {stops.length === 0 && (
            <Empty title="No agent is stopped">
              <p>Add a breakpoint, and an agent that reaches it waits here before it goes on. A running agent can also be paused from its session.</p>
            </Empty>
          )}
          {stops.map((stop) => (
            <StopCard key={stop.id} stop={stop} />
          ))}
          {live.length > 0 && (
            <>
              <h2>At work</h2>
              <ul className="plain">
                {live.map((session) => (
                  <li key={session.id}>
                    <Status status={session.status} /> <Link href={`/sessions/${session.id}`}>{session.title ?? short(session.id)}</Link> <span className="dim">{session.agent}</span>
                  </li>
                ))}
              </ul>
            </>
          )}
        </section>
        <section aria-label="Breakpoints">
          <h2>Breakpoints</h2>
          <WorkspacePicker chosen={chosen} all={all} />
          {chosen && <Breakpoints key={chosen.id} workspace={chosen.id} />}
          {all?.length === 0 && <p className="dim">There is no workspace yet.</p>}
        </section>
      </div>
    </div>
  );
}

function Ask() {
  const [allowed, setAllowed] = useState('Notification' in window ? Notification.permission : 'denied');
  if (allowed !== 'default') return null;
  return <Button onClick={() => void Notification.requestPermission().then(setAllowed)}>Notify me when one stops</Button>;
}

function StopCard({ stop }: { stop: Stop }) {
  const [input, setInput] = useState(() => pretty(stop.input));
  const [reason, setReason] = useState('');
  const [message, setMessage] = useState('');
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const changed = input !== pretty(stop.input);
  const send = async (body: Record<string, unknown>, what: string) => {
    setBusy(true);
    setProblem(null);
    try {
      await change('POST', `/stops/${stop.id}/answer`, body);
      say(what);
    } catch (error) {
      setProblem(Problem.of(error));
    }
    setBusy(false);
  };
  const goOn = () => {
    if (!changed) {
      void send({ answer: 'resume' }, 'It goes on.');
      return;
    }
    let edited: unknown;
    try {
      edited = JSON.parse(input);
    } catch (error) {
      setProblem(new Problem(0, `the input is no JSON: ${error instanceof Error ? error.message : String(error)}`));
      return;
    }
    const told = stop.can_edit_input ? 'It goes on with the changed input.' : `${stop.agent} cannot change an input: the call is refused, and the model is asked to call again.`;
    void send({ answer: 'edit', input: edited }, told);
  };
  const inject = async () => {
    try {
      await change('POST', `/sessions/${stop.session}/inject`, { text: message });
      say('It hears that with its next call.');
      setMessage('');
    } catch (error) {
      setProblem(Problem.of(error));
    }
  };
  return (
    <article className="card stop" aria-label={`${stop.agent} waits`}>
      <div className="what">
        <span className="status stopped">waits</span> <b>{stop.agent}</b> {stop.output == null ? 'wants to run' : 'has run'} <code className="tool">{stop.tool}</code>
        <span className="gap" />
        <Link href={`/sessions/${stop.session}?step=${stop.step}`}>#{stop.step}</Link>
      </div>
      <p className="dim">
        {stop.reason}; since {ago(stop.at)}. It refuses by itself at {new Date(stop.until).toLocaleTimeString()}.
      </p>
      {stop.output == null ? (
        <label className="form">
          Input
          <textarea className="mono" rows={Math.min(14, input.split('\n').length + 1)} value={input} onChange={(event) => setInput(event.target.value)} />
        </label>
      ) : (
        <LongText text={pretty(stop.output)} />
      )}
      {problem && <Trouble problem={problem} />}
      <div className="foot">
        <Button look="primary" disabled={busy} onClick={goOn}>
          {changed ? 'Go on with this input' : 'Go on'}
        </Button>
        <Button disabled={busy} onClick={() => void send({ answer: 'step' }, 'It goes on, and stops at its next call.')}>Step</Button>
        <span className="gap" />
        <input aria-label="Reason" placeholder="why not" value={reason} onChange={(event) => setReason(event.target.value)} />
        <Button look="danger" disabled={busy} onClick={() => void send({ answer: 'deny', reason: reason || null }, 'The call is refused.')}>Deny</Button>
      </div>
      <div className="foot">
        <input className="grow" aria-label="Message" placeholder="Tell it something with its next call …" value={message} onChange={(event) => setMessage(event.target.value)} />
        <Button disabled={!message} onClick={() => void inject()}>Inject</Button>
      </div>
    </article>
  );
}

const FIELDS: Record<string, { name: string; field: string; hint: string } | null> = {
  tool: { name: 'a call of the tool', field: 'name', hint: 'Bash' },
  pattern: { name: 'an input that matches', field: 'pattern', hint: 'rm -rf|git reset' },
  path: { name: 'a call that names the path', field: 'glob', hint: 'src/**' },
  iteration: { name: 'the model turn', field: 'number', hint: '10' },
  cost: { name: 'a cost in dollars above', field: 'usd', hint: '5' },
  error: null,
};

function Breakpoints({ workspace }: { workspace: string }) {
  const asked = useAsk(`breakpoints ${workspace}`, (signal) => get<Page<Breakpoint>>(`/workspaces/${workspace}/breakpoints`, {}, signal));
  const [on, setOn] = useState('tool');
  const [value, setValue] = useState('');
  const [condition, setCondition] = useState('');
  const [log, setLog] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const soon = useSoon(asked.again, 300);
  useNews(soon);
  const act = async (work: () => Promise<unknown>) => {
    setProblem(null);
    try {
      await work();
      asked.again();
    } catch (error) {
      setProblem(Problem.of(error));
    }
  };
  const field = FIELDS[on];
  const add = (event: FormEvent) => {
    event.preventDefault();
    const number = on === 'iteration' || on === 'cost';
    void act(async () => {
      await change('POST', `/workspaces/${workspace}/breakpoints`, {
        on,
        ...(field ? { [field.field]: number ? Number(value) : value } : {}),
        condition: condition || null,
        log,
      });
      setValue('');
      setCondition('');
    });
  };
  const place = (id: number) => `/workspaces/${workspace}/breakpoints/${id}`;
  return (
    <>
      <form className="form panel" onSubmit={add}>
        <div className="line">
          <label>
            Stop at
            <select value={on} onChange={(event) => setOn(event.target.value)}>
              {Object.entries(FIELDS).map(([key, one]) => (
                <option key={key} value={key}>
                  {one?.name ?? 'an error'}
                </option>
              ))}
            </select>
          </label>
          {field && (
            <label>
              <span className="hidden-text">{field.name}</span>
              <input required value={value} onChange={(event) => setValue(event.target.value)} placeholder={field.hint} />
            </label>
          )}
        </div>
        <label>
          Only if the input matches
          <input value={condition} onChange={(event) => setCondition(event.target.value)} placeholder="any input" />
        </label>
        <label className="check">
          <input type="checkbox" checked={log} onChange={() => setLog(!log)} /> Only record it, and stop nobody
        </label>
        {problem && <Trouble problem={problem} />}
        <footer>
          <Button look="primary" type="submit">Add breakpoint</Button>
        </footer>
      </form>
      {asked.problem && <Trouble problem={asked.problem} again={asked.again} />}
      {asked.value?.items.length === 0 && <p className="dim">No breakpoints here.</p>}
      <ul className="plain breakpoints">
        {asked.value?.items.map((one) => (
          <li key={one.id} className={one.enabled ? '' : 'behind'}>
            <label className="check">
              <input type="checkbox" checked={one.enabled} onChange={() => void act(() => change('PATCH', place(one.id), { enabled: !one.enabled }))} /> {one.description}
            </label>
            <span className="dim">
              {plural(one.hits, 'hit')}
              {one.log ? ', records only' : ''}
            </span>
            <Button small look="ghost" aria-label={`Remove breakpoint ${one.id}`} onClick={() => void act(() => change('DELETE', place(one.id)))}>✕</Button>
          </li>
        ))}
      </ul>
    </>
  );
}
