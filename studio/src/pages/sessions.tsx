// All sessions: who ran, where, how it went; the live ones first.
import { useEffect, useMemo, useRef, useState } from 'react';
import { get, useAsk } from '../api/client';
import { useNews, useSoon } from '../api/events';
import type { Page, Session } from '../api/types';
import { between, count, leaf, money, short, span } from '../format';
import { Link, go, set, useRoute } from '../route';
import { Ago, Button, Empty, Loading, Status, Trouble, useKeys } from '../ui';
import { useWorkspaces } from '../workspaces';

const STATUSES = ['active', 'stopped', 'idle', 'ended', 'prepared'];
const RANK: Record<string, number> = { stopped: 0, active: 1 };
const PAGE = 100;

export function SessionsPage() {
  const { words } = useRoute();
  const status = words.get('status') ?? '';
  const agent = words.get('agent') ?? '';
  const workspace = words.get('workspace') ?? '';
  const find = words.get('find') ?? '';
  const [most, setMost] = useState(PAGE);
  const workspaces = useWorkspaces();
  const asked = useAsk(`${status} ${agent} ${workspace} ${most}`, async (signal) => {
    const items: Session[] = [];
    let after: string | null | undefined;
    do {
      const page: Page<Session> = await get('/sessions', { status, agent, workspace, counts: true, limit: PAGE, after }, signal);
      items.push(...page.items);
      after = page.next_cursor;
    } while (after && items.length < most);
    return { items, more: Boolean(after) };
  });
  const soon = useSoon(asked.again, 400);
  useNews((news) => {
    soon();
    if (news.event === 'reset') workspaces.again();
  });

  const roots = useMemo(() => new Map(workspaces.value?.map((one) => [one.id, one.root])), [workspaces.value]);
  const shown = useMemo(() => {
    const wanted = find.toLowerCase();
    const fits = (session: Session) =>
      `${session.title ?? ''} ${session.agent} ${session.model ?? ''} ${session.id} ${session.agent_session ?? ''} ${roots.get(session.workspace) ?? ''}`
        .toLowerCase()
        .includes(wanted);
    const isPerson = (session: Session) => session.agent === 'person';
    return (asked.value?.items ?? [])
      .filter((session) => (!isPerson(session) || agent === 'person') && fits(session))
      .map((session, place) => ({ session, place }))
      .sort((a, b) => (RANK[a.session.status] ?? 2) - (RANK[b.session.status] ?? 2) || a.place - b.place)
      .map(({ session }) => session);
  }, [asked.value, find, roots, agent]);
  const agents = useMemo(
    () => [...new Set([...(asked.value?.items ?? []).map((session) => session.agent), ...(agent ? [agent] : [])])].sort(),
    [asked.value, agent],
  );

  const [at, setAt] = useState(-1);
  const table = useRef<HTMLTableElement>(null);
  const finder = useRef<HTMLInputElement>(null);
  useKeys({
    j: () => setAt((old) => Math.min(old + 1, shown.length - 1)),
    k: () => setAt((old) => Math.max(old - 1, 0)),
    f: () => finder.current?.focus(),
    Enter: () => {
      const session = shown[at];
      if (session) go(`/sessions/${session.id}`);
    },
  });
  useEffect(() => {
    if (at >= 0) table.current?.querySelectorAll('tbody tr')[at]?.scrollIntoView({ block: 'nearest' });
  }, [at]);

  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Sessions</h1>
          <p className="dim">Recorded runs of agents. Open one to go through it step by step.</p>
        </div>
      </header>
      <form className="filters" role="search" aria-label="Filter sessions" onSubmit={(event) => event.preventDefault()}>
        <input
          ref={finder}
          type="search"
          aria-label="Find by title, agent, model, workspace or id"
          placeholder="Filter by title, agent, model, workspace …"
          value={find}
          onChange={(event) => set({ find: event.target.value })}
        />
        <select aria-label="Status" value={status} onChange={(event) => set({ status: event.target.value })}>
          <option value="">any status</option>
          {STATUSES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <select aria-label="Agent" value={agent} onChange={(event) => set({ agent: event.target.value })}>
          <option value="">any agent</option>
          {agents.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <select aria-label="Workspace" value={workspace} onChange={(event) => set({ workspace: event.target.value })}>
          <option value="">any workspace</option>
          {workspaces.value?.map((one) => (
            <option key={one.id} value={one.id}>
              {leaf(one.root)}
            </option>
          ))}
        </select>
      </form>
      {asked.problem && <Trouble problem={asked.problem} again={asked.again} />}
      {asked.loading && !asked.value && <Loading what="Asking for sessions" />}
      {asked.value && shown.length === 0 && (status || agent || workspace || find ? (
        <Empty title="No session fits">
          <Button onClick={() => go('/sessions')}>Show all</Button>
        </Empty>
      ) : (
        <Empty title="Nothing is recorded yet">
          <p>Sessions appear here by themselves as agents work. To begin, in a project of yours:</p>
          <pre>stepback init{'\n'}claude   # or codex, gemini, opencode: start your agent as always</pre>
          <p>
            Without an agent at hand, <code>stepback demo</code> shows everything in a minute.
          </p>
        </Empty>
      ))}
      {shown.length > 0 && (
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
            {shown.map((session, index) => (
              <tr key={session.id} className={index === at ? 'at' : ''} onClick={() => go(`/sessions/${session.id}`)}>
                <td className="title">
                  <Link href={`/sessions/${session.id}`} onClick={(event) => event.stopPropagation()}>
                    {session.title ?? `session ${short(session.id)}`}
                  </Link>
                  <span className="sub dim">
                    <code>{short(session.id)}</code>
                    {session.model ? ` · ${session.model}` : ''}
                    {session.forked_from ? ' · forked' : ''}
                    {session.imported ? ' · imported' : ''}
                  </span>
                </td>
                <td data-name="agent">{session.agent}</td>
                <td className="wide-only dim" title={roots.get(session.workspace)}>
                  {leaf(roots.get(session.workspace) ?? session.workspace)}
                </td>
                <td data-name="last active"><Ago at={session.seen_at ?? session.started_at} /></td>
                <td className="number wide-only">{span(between(session.started_at, session.ended_at ?? session.seen_at ?? session.started_at))}</td>
                <td className="number" data-name="steps">{session.steps == null ? '' : count(session.steps)}</td>
                <td className={session.errors ? 'number bad' : 'number dim'} data-name="errors">{session.errors == null ? '' : count(session.errors)}</td>
                <td className="number wide-only">{money(session.cost_usd)}</td>
                <td data-name="status"><Status status={session.status} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {asked.value?.more && (
        <p className="more">
          <Button onClick={() => setMost(most + PAGE)}>Show older ones</Button>
        </p>
      )}
    </div>
  );
}
