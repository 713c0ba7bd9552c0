// The list of sessions, with waiting and active ones first.
import { useEffect, useMemo, useRef, useState } from 'react';
import { getPages, useRequest } from '../api/client';
import { useLiveEvents, useThrottledCallback } from '../api/events';
import type { Page, Session } from '../api/types';
import { baseName, formatCost, formatCount, formatDuration, microsecondsBetween, shortId } from '../format';
import { useKeyBindings } from '../keyboard';
import { Link, navigate, setQuery, useRoute } from '../route';
import { Button, EmptyState, ErrorMessage, Loading, RelativeTime, StatusBadge } from '../ui';
import { useWorkspaces } from '../workspaces';

const STATUSES = ['active', 'stopped', 'idle', 'ended', 'prepared'];
const STATUS_ORDER: Record<string, number> = { stopped: 0, active: 1 };
const PAGE_SIZE = 100;

export function SessionsPage() {
  const { query } = useRoute();
  const status = query.get('status') ?? '';
  const agent = query.get('agent') ?? '';
  const workspace = query.get('workspace') ?? '';
  const filter = query.get('find') ?? '';
  const [limit, setLimit] = useState(PAGE_SIZE);
  const workspaces = useWorkspaces();
  const request = useRequest(`${status} ${agent} ${workspace} ${limit}`, (signal) =>
    getPages<Page<Session>>('/sessions', { status, agent, workspace, counts: true }, PAGE_SIZE, limit, signal),
  );
  const reloadSoon = useThrottledCallback(request.reload, 400);
  useLiveEvents((event) => {
    reloadSoon();
    if (event.type === 'reset') workspaces.reload();
  });

  const roots = useMemo(() => new Map(workspaces.data?.map((item) => [item.id, item.root])), [workspaces.data]);
  const visibleSessions = useMemo(() => {
    const needle = filter.toLowerCase();
    const matches = (session: Session) =>
      `${session.title ?? ''} ${session.agent} ${session.model ?? ''} ${session.id} ${session.agent_session ?? ''} ${roots.get(session.workspace) ?? ''}`
        .toLowerCase()
        .includes(needle);
    const isPerson = (session: Session) => session.agent === 'person';
    return (request.data?.items ?? [])
      .filter((session) => (!isPerson(session) || agent === 'person') && matches(session))
      .map((session, index) => ({ session, index }))
      .sort((a, b) => (STATUS_ORDER[a.session.status] ?? 2) - (STATUS_ORDER[b.session.status] ?? 2) || a.index - b.index)
      .map(({ session }) => session);
  }, [request.data, filter, roots, agent]);
  const agents = useMemo(
    // What people did is listed only if it is asked for.
    () => [...new Set([...(request.data?.items ?? []).map((session) => session.agent), 'person', ...(agent ? [agent] : [])])].sort(),
    [request.data, agent],
  );

  const [cursor, setCursor] = useState(-1);
  const table = useRef<HTMLTableElement>(null);
  const filterInput = useRef<HTMLInputElement>(null);
  useKeyBindings({
    j: () => setCursor((old) => Math.min(old + 1, visibleSessions.length - 1)),
    k: () => setCursor((old) => Math.max(old - 1, 0)),
    f: () => filterInput.current?.focus(),
    Enter: () => {
      const session = visibleSessions[cursor];
      if (session) navigate(`/sessions/${session.id}`);
    },
  });
  useEffect(() => {
    if (cursor >= 0) table.current?.querySelectorAll('tbody tr')[cursor]?.scrollIntoView({ block: 'nearest' });
  }, [cursor]);

  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Sessions</h1>
          <p className="dim">Recorded runs of agents. Open one to inspect it step by step.</p>
        </div>
      </header>
      <form className="filters" role="search" aria-label="Filter sessions" onSubmit={(event) => event.preventDefault()}>
        <input
          ref={filterInput}
          type="search"
          aria-label="Find by title, agent, model, workspace or id"
          placeholder="Filter by title, agent, model, workspace …"
          value={filter}
          onChange={(event) => setQuery({ find: event.target.value })}
        />
        <select aria-label="Status" value={status} onChange={(event) => setQuery({ status: event.target.value })}>
          <option value="">any status</option>
          {STATUSES.map((option) => (
            <option key={option}>{option}</option>
          ))}
        </select>
        <select aria-label="Agent" value={agent} onChange={(event) => setQuery({ agent: event.target.value })}>
          <option value="">any agent</option>
          {agents.map((option) => (
            <option key={option}>{option}</option>
          ))}
        </select>
        <select aria-label="Workspace" value={workspace} onChange={(event) => setQuery({ workspace: event.target.value })}>
          <option value="">any workspace</option>
          {workspaces.data?.map((option) => (
            <option key={option.id} value={option.id}>
              {baseName(option.root)}
            </option>
          ))}
        </select>
      </form>
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {request.loading && !request.data && <Loading label="Loading sessions" />}
      {request.data && visibleSessions.length === 0 && (status || agent || workspace || filter ? (
        <EmptyState title="No matching sessions">
          <Button onClick={() => navigate('/sessions')}>Show all</Button>
        </EmptyState>
      ) : (
        <EmptyState title="Nothing recorded yet">
          <p>Sessions appear here while agents work. To start, run in your project:</p>
          <pre>stepback init{'\n'}claude   # or codex, gemini, opencode: start your agent as usual</pre>
          <p>
            Without an agent, <code>stepback demo</code> records a sample session.
          </p>
        </EmptyState>
      ))}
      {visibleSessions.length > 0 && (
        <table className="rows sessions" ref={table}>
          <thead>
            <tr>
              <th scope="col">Session</th>
              <th scope="col">Agent</th>
              <th scope="col" className="wide-only">Workspace</th>
              <th scope="col">Last active</th>
              <th scope="col" className="number wide-only">Duration</th>
              <th scope="col" className="number">Steps</th>
              <th scope="col" className="number">Errors</th>
              <th scope="col" className="number wide-only">Cost</th>
              <th scope="col">Status</th>
            </tr>
          </thead>
          <tbody>
            {visibleSessions.map((session, index) => (
              <tr key={session.id} className={index === cursor ? 'selected' : ''} onClick={() => navigate(`/sessions/${session.id}`)}>
                <td className="title">
                  <Link href={`/sessions/${session.id}`} onClick={(event) => event.stopPropagation()}>
                    {session.title ?? `session ${shortId(session.id)}`}
                  </Link>
                  <span className="sub dim">
                    <code>{shortId(session.id)}</code>
                    {session.model ? ` · ${session.model}` : ''}
                    {session.forked_from ? ' · forked' : ''}
                    {session.imported ? ' · imported' : ''}
                  </span>
                </td>
                <td data-name="agent">{session.agent}</td>
                <td className="wide-only dim" title={roots.get(session.workspace)}>
                  {baseName(roots.get(session.workspace) ?? session.workspace)}
                </td>
                <td data-name="last active"><RelativeTime timestamp={session.seen_at ?? session.started_at} /></td>
                <td className="number wide-only">{formatDuration(microsecondsBetween(session.started_at, session.ended_at ?? session.seen_at ?? session.started_at))}</td>
                <td className="number" data-name="steps">{session.steps == null ? '' : formatCount(session.steps)}</td>
                <td className={session.errors ? 'number bad' : 'number dim'} data-name="errors">{session.errors == null ? '' : formatCount(session.errors)}</td>
                <td className="number wide-only">{formatCost(session.cost_usd)}</td>
                <td data-name="status"><StatusBadge status={session.status} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {request.data?.next_cursor && (
        <p className="more">
          <Button onClick={() => setLimit(limit + PAGE_SIZE)}>Show older sessions</Button>
        </p>
      )}
    </div>
  );
}
