// Running agents: which ones wait and why, and the breakpoints at which they stop.
import { type FormEvent, useState } from 'react';
import { ApiError, get, send, useRequest } from '../api/client';
import { useLiveEvents, useStops, useThrottledCallback } from '../api/events';
import type { Breakpoint, Page, Session, Stop } from '../api/types';
import { formatAge, formatValue, pluralize, shortId } from '../format';
import { Link } from '../route';
import { LongText } from '../session/values';
import { showToast } from '../toasts';
import { Button, EmptyState, ErrorMessage, StatusBadge } from '../ui';
import { useSelectedWorkspace, WorkspacePicker } from '../workspaces';

export default function LivePage() {
  const stops = useStops();
  const { selected, workspaces } = useSelectedWorkspace();
  const activeRequest = useRequest('active', (signal) => get<Page<Session>>('/sessions', { status: 'active', limit: 20 }, signal));
  const reloadSoon = useThrottledCallback(activeRequest.reload, 500);
  useLiveEvents(reloadSoon);
  const activeSessions = (activeRequest.data?.items ?? []).filter((session) => session.agent !== 'person');
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Live</h1>
          <p className="dim">Stop agents before a call, inspect and change its input, and continue.</p>
        </div>
        <NotificationButton />
      </header>
      <div className="two-columns">
        <section aria-label="Waiting agents">
          <h2>{stops.length ? pluralize(stops.length, 'waiting agent') : 'No waiting agents'}</h2>
          {stops.length === 0 && (
            <EmptyState title="No agent is stopped">
              <p>An agent that reaches a breakpoint waits here. You can also pause a running agent on its session page.</p>
            </EmptyState>
          )}
          {stops.map((stop) => (
            <PausedCall key={stop.id} stop={stop} />
          ))}
          {activeSessions.length > 0 && (
            <>
              <h2>Active sessions</h2>
              <ul className="plain">
                {activeSessions.map((session) => (
                  <li key={session.id}>
                    <StatusBadge status={session.status} /> <Link href={`/sessions/${session.id}`}>{session.title ?? shortId(session.id)}</Link> <span className="dim">{session.agent}</span>
                  </li>
                ))}
              </ul>
            </>
          )}
        </section>
        <section aria-label="Breakpoints">
          <h2>Breakpoints</h2>
          <WorkspacePicker selected={selected} workspaces={workspaces} />
          {selected && <BreakpointList key={selected.id} workspace={selected.id} />}
          {workspaces?.length === 0 && <p className="dim">No workspaces yet.</p>}
        </section>
      </div>
    </div>
  );
}

function NotificationButton() {
  const [permission, setPermission] = useState('Notification' in window ? Notification.permission : 'denied');
  if (permission !== 'default') return null;
  return <Button onClick={() => void Notification.requestPermission().then(setPermission)}>Notify me when an agent is waiting</Button>;
}

function PausedCall({ stop }: { stop: Stop }) {
  const [input, setInput] = useState(() => formatValue(stop.input));
  const [reason, setReason] = useState('');
  const [message, setMessage] = useState('');
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const changed = input !== formatValue(stop.input);
  const sendAnswer = async (body: Record<string, unknown>, notice: string) => {
    setBusy(true);
    setError(null);
    try {
      await send('POST', `/stops/${stop.id}/answer`, body);
      showToast(notice);
    } catch (error) {
      setError(ApiError.from(error));
    }
    setBusy(false);
  };
  const resume = () => {
    if (!changed) {
      void sendAnswer({ answer: 'resume' }, 'The agent continues.');
      return;
    }
    let edited: unknown;
    try {
      edited = JSON.parse(input);
    } catch (error) {
      setError(new ApiError(0, `the input is not valid JSON: ${error instanceof Error ? error.message : String(error)}`));
      return;
    }
    const notice = stop.can_edit_input ? 'The agent continues with the changed input.' : `${stop.agent} does not support changed inputs: the call is denied, with a request to the model to repeat it with this input.`;
    void sendAnswer({ answer: 'edit', input: edited }, notice);
  };
  const inject = async () => {
    try {
      await send('POST', `/sessions/${stop.session}/inject`, { text: message });
      showToast('The agent receives the message with its next call.');
      setMessage('');
    } catch (error) {
      setError(ApiError.from(error));
    }
  };
  return (
    <article className="card stop" aria-label={`${stop.agent} is waiting`}>
      <div className="card-title">
        <span className="status stopped">waiting</span> <b>{stop.agent}</b> {stop.output == null ? 'wants to run' : 'has run'} <code className="tool">{stop.tool}</code>
        <span className="gap" />
        <Link href={`/sessions/${stop.session}?step=${stop.step}`}>#{stop.step}</Link>
      </div>
      <p className="dim">
        {stop.reason}; stopped {formatAge(stop.at)}. Without an answer, the call is denied at {new Date(stop.until).toLocaleTimeString()}.
      </p>
      {stop.output == null ? (
        <label className="form">
          Input
          <textarea className="mono" rows={Math.min(14, input.split('\n').length + 1)} value={input} onChange={(event) => setInput(event.target.value)} />
        </label>
      ) : (
        <LongText text={formatValue(stop.output)} />
      )}
      {error && <ErrorMessage error={error} />}
      <div className="foot">
        <Button variant="primary" disabled={busy} onClick={resume}>
          {changed ? 'Continue with this input' : 'Continue'}
        </Button>
        <Button disabled={busy} onClick={() => void sendAnswer({ answer: 'step' }, 'The agent continues, and stops at its next call.')}>Step</Button>
        <span className="gap" />
        <input aria-label="Reason" placeholder="reason" value={reason} onChange={(event) => setReason(event.target.value)} />
        <Button variant="danger" disabled={busy} onClick={() => void sendAnswer({ answer: 'deny', reason: reason || null }, 'The call is denied.')}>Deny</Button>
      </div>
      <div className="foot">
        <input className="grow" aria-label="Message" placeholder="Send a message with its next call …" value={message} onChange={(event) => setMessage(event.target.value)} />
        <Button disabled={!message} onClick={() => void inject()}>Inject</Button>
      </div>
    </article>
  );
}

const TRIGGERS: Record<string, { name: string; field: string; hint: string } | null> = {
  tool: { name: 'a call of the tool', field: 'name', hint: 'Bash' },
  pattern: { name: 'an input that matches', field: 'pattern', hint: 'rm -rf|git reset' },
  path: { name: 'a call that names the path', field: 'glob', hint: 'src/**' },
  iteration: { name: 'the model turn', field: 'number', hint: '10' },
  cost: { name: 'a cost in dollars above', field: 'usd', hint: '5' },
  error: null,
};

function BreakpointList({ workspace }: { workspace: string }) {
  const request = useRequest(`breakpoints ${workspace}`, (signal) => get<Page<Breakpoint>>(`/workspaces/${workspace}/breakpoints`, {}, signal));
  const [trigger, setTrigger] = useState('tool');
  const [value, setValue] = useState('');
  const [condition, setCondition] = useState('');
  const [log, setLog] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const reloadSoon = useThrottledCallback(request.reload, 300);
  useLiveEvents(reloadSoon);
  const run = async (action: () => Promise<unknown>) => {
    setError(null);
    try {
      await action();
      request.reload();
    } catch (error) {
      setError(ApiError.from(error));
    }
  };
  const field = TRIGGERS[trigger];
  const add = (event: FormEvent) => {
    event.preventDefault();
    const number = trigger === 'iteration' || trigger === 'cost';
    void run(async () => {
      await send('POST', `/workspaces/${workspace}/breakpoints`, {
        on: trigger,
        ...(field ? { [field.field]: number ? Number(value) : value } : {}),
        condition: condition || null,
        log,
      });
      setValue('');
      setCondition('');
    });
  };
  const breakpointPath = (id: number) => `/workspaces/${workspace}/breakpoints/${id}`;
  return (
    <>
      <form className="form panel" onSubmit={add}>
        <div className="line">
          <label>
            Stop at
            <select value={trigger} onChange={(event) => setTrigger(event.target.value)}>
              {Object.entries(TRIGGERS).map(([key, option]) => (
                <option key={key} value={key}>
                  {option?.name ?? 'an error'}
                </option>
              ))}
            </select>
          </label>
          {field && (
            <label>
              <span className="visually-hidden">{field.name}</span>
              <input required value={value} onChange={(event) => setValue(event.target.value)} placeholder={field.hint} />
            </label>
          )}
        </div>
        <label>
          Only if the input matches
          <input value={condition} onChange={(event) => setCondition(event.target.value)} placeholder="any input" />
        </label>
        <label className="check">
          <input type="checkbox" checked={log} onChange={() => setLog(!log)} /> Only record hits, do not stop
        </label>
        {error && <ErrorMessage error={error} />}
        <footer>
          <Button variant="primary" type="submit">Add breakpoint</Button>
        </footer>
      </form>
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {request.data?.items.length === 0 && <p className="dim">No breakpoints.</p>}
      <ul className="plain breakpoints">
        {request.data?.items.map((breakpoint) => (
          <li key={breakpoint.id} className={breakpoint.enabled ? '' : 'inactive'}>
            <label className="check">
              <input type="checkbox" checked={breakpoint.enabled} onChange={() => void run(() => send('PATCH', breakpointPath(breakpoint.id), { enabled: !breakpoint.enabled }))} /> {breakpoint.description}
            </label>
            <span className="dim">
              {pluralize(breakpoint.hits, 'hit')}
              {breakpoint.log ? ', record only' : ''}
            </span>
            <Button small variant="ghost" aria-label={`Remove breakpoint ${breakpoint.id}`} onClick={() => void run(() => send('DELETE', breakpointPath(breakpoint.id)))}>✕</Button>
          </li>
        ))}
      </ul>
    </>
  );
}
