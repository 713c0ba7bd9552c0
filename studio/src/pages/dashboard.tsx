// All sessions at a glance: what they cost, which tools are slow, what fails and what is unusual. Every number leads to its steps.
import { useMemo } from 'react';
import { AnomalyList } from '../anomalies/list';
import { get, useRequest } from '../api/client';
import type { Anomalies, Dashboard, Statistics } from '../api/types';
import { CostPanel } from '../dashboard/cost';
import { DiskBudget } from '../dashboard/disk';
import { formatMoney, type Scope, totalTokens } from '../dashboard/money';
import { ErrorRates, SlowTools } from '../dashboard/tools';
import { DayChart, type DayTotals } from '../day-chart';
import { baseName, formatBytes, formatCompact, formatCost, formatCount, formatUtcDay, pluralize } from '../format';
import { setQuery, useRoute } from '../route';
import { EmptyState, ErrorMessage, Loading } from '../ui';
import { useWorkspaces } from '../workspaces';

const PERIODS: [string, string, number][] = [
  ['1 day ago', 'last day', 1],
  ['7 days ago', 'last 7 days', 7],
  ['14 days ago', 'last 14 days', 14],
  ['30 days ago', 'last 30 days', 30],
  ['90 days ago', 'last 90 days', 90],
  ['all', 'everything', 0],
];
const DEFAULT_PERIOD = '14 days ago';
/** A chart with more bars is not readable. */
const MAX_DAYS = 90;
const SHOWN_ANOMALIES = 5;
const DAY_MS = 86_400_000;

export default function DashboardPage() {
  const { query } = useRoute();
  const period = query.get('period') ?? DEFAULT_PERIOD;
  const since = period === 'all' ? '' : period;
  const workspace = query.get('workspace') ?? '';
  const reruns = query.get('reruns') === 'true';
  const scope = useMemo((): Scope => ({ since, workspace, reruns }), [since, workspace, reruns]);
  const workspaces = useWorkspaces();
  const key = JSON.stringify(scope);
  const request = useRequest(`dashboard ${key}`, (signal) => get<Dashboard>('/dashboard', { ...scope }, signal));
  const statistics = useRequest('statistics', (signal) => get<Statistics>('/statistics', {}, signal));
  const anomalies = useRequest(`anomalies ${key}`, (signal) => get<Anomalies>('/anomalies', { since, workspace, limit: 50 }, signal));
  const dashboard = request.data;
  const totals = statistics.data;
  const days = useMemo(() => (dashboard ? fillDays(dashboard, PERIODS.find(([id]) => id === period)?.[2] ?? 0) : []), [dashboard, period]);
  const error = request.error ?? statistics.error;
  if (error && !dashboard) return <ErrorMessage error={error} onRetry={request.error ? request.reload : statistics.reload} />;
  if (totals && totals.total_steps === 0) {
    return (
      <div className="page">
        <h1>Dashboard</h1>
        <EmptyState title="Nothing recorded yet">
          <p>Statistics appear after the first session of an agent. “stepback demo” records one.</p>
        </EmptyState>
      </div>
    );
  }
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Dashboard</h1>
          <p className="dim">
            {dashboard?.since ? `Since ${new Date(dashboard.since).toLocaleString()}` : 'Everything recorded'}
            {reruns ? ', with reruns' : ', without reruns'}.
          </p>
        </div>
        <div className="filters">
          <select aria-label="Period" value={period} onChange={(event) => setQuery({ period: event.target.value === DEFAULT_PERIOD ? null : event.target.value })}>
            {PERIODS.map(([id, name]) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
          <select aria-label="Workspace" value={workspace} onChange={(event) => setQuery({ workspace: event.target.value })}>
            <option value="">all workspaces</option>
            {workspaces.data?.map((item) => (
              <option key={item.id} value={item.id}>
                {baseName(item.root)}
              </option>
            ))}
          </select>
          <label className="check">
            <input type="checkbox" checked={reruns} onChange={(event) => setQuery({ reruns: event.target.checked ? 'true' : null })} /> Reruns
          </label>
        </div>
      </header>
      {!dashboard && <Loading label="Adding up" />}
      {dashboard && (
        <>
          <dl className="tiles">
            <StatTile name="Sessions" value={formatCount(dashboard.sessions)} />
            <StatTile name="Cost" value={formatMoney(dashboard.total)} />
            <StatTile name="Tokens" value={formatCompact(totalTokens(dashboard.total))} />
            <StatTile name="Model calls" value={formatCount(dashboard.total.calls)} />
            <StatTile name="Tool calls" value={formatCount(dashboard.tools.reduce((sum, tool) => sum + tool.calls, 0))} />
            <StatTile name="Anomalies" value={anomalies.data ? formatCount(anomalies.data.total) : '…'} />
            <StatTile name="Disk" value={formatBytes(dashboard.disk.used_bytes)} />
          </dl>
          <div className="charts">
            <DayChart title="Cost per day" days={days} value={(day) => day.cost} format={formatCost} />
            <DayChart title="Tokens per day" days={days} value={(day) => day.tokens} format={formatCompact} parts={TOKEN_PARTS} />
            <DayChart title="Sessions per day" days={days} value={(day) => day.sessions} format={formatCount} />
            <DayChart title="Tool calls per day" days={days} value={(day) => day.calls} format={formatCount} />
            <DayChart title="Failed calls per day" days={days} value={(day) => day.errors} format={formatCount} isError />
          </div>
          <CostPanel dashboard={dashboard} />
          <div className="two-columns">
            <SlowTools dashboard={dashboard} />
            <ErrorRates dashboard={dashboard} />
          </div>
        </>
      )}
      <section className="panel" aria-label="Anomalies">
        <h2>Anomalies</h2>
        {anomalies.error && <ErrorMessage error={anomalies.error} onRetry={anomalies.reload} />}
        {!anomalies.data && !anomalies.error && <Loading label="Looking for what is unusual" />}
        {anomalies.data?.items.length === 0 && <p className="dim">Nothing unusual.</p>}
        {anomalies.data && <AnomalyList items={anomalies.data.items.slice(0, SHOWN_ANOMALIES)} showSession />}
        {anomalies.data && anomalies.data.total > SHOWN_ANOMALIES && (
          <details className="more-anomalies">
            <summary>{pluralize(Math.min(anomalies.data.items.length, anomalies.data.total) - SHOWN_ANOMALIES, 'more', 'more')}{anomalies.data.total > anomalies.data.items.length && `, of ${formatCount(anomalies.data.total)} in all`}</summary>
            <AnomalyList items={anomalies.data.items.slice(SHOWN_ANOMALIES)} showSession />
          </details>
        )}
      </section>
      {totals && (
        <section className="panel" aria-label="Disk">
          <h2>Disk</h2>
          <DiskBudget budget={totals.budget ?? null} />
          <p className="dim">
            {formatBytes(totals.total_bytes)} for {pluralize(totals.checkpoints, 'checkpoint')} of {pluralize(totals.total_steps, 'step')}; {formatBytes(totals.raw_bytes)} without deduplication. “stepback prune” deletes what is not needed.
          </p>
        </section>
      )}
    </div>
  );
}

function StatTile({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** Kinds of tokens, from the bottom of a bar to its top. */
const TOKEN_PARTS: { name: string; className: string; value: (day: DayTotals) => number }[] = [
  { name: 'input', className: 'model', value: (day) => day.input },
  { name: 'cached', className: 'tool', value: (day) => day.cached },
  { name: 'output', className: 'prompt', value: (day) => day.output },
];

/** Every day of the period, in universal time as the server counts; those without sessions are zero. */
function fillDays(dashboard: Dashboard, length: number): DayTotals[] {
  const byKey = new Map(dashboard.days.map((day) => [day.key, day]));
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const oldest = Date.parse(`${dashboard.days[0]?.key ?? ''}T00:00:00Z`);
  const wanted = length > 0 ? length + 1 : Number.isNaN(oldest) ? 1 : Math.round((today - oldest) / DAY_MS) + 1;
  const count = Math.max(2, Math.min(MAX_DAYS + 1, wanted));
  return Array.from({ length: count }, (_, index) => {
    const key = new Date(today - (count - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    const day = byKey.get(key);
    return {
      name: formatUtcDay(key),
      sessions: day?.sessions ?? 0,
      calls: day?.tool_calls ?? 0,
      errors: day?.failed_tool_calls ?? 0,
      cost: day?.cost_usd ?? 0,
      tokens: day ? totalTokens(day) : 0,
      input: day?.input ?? 0,
      cached: day ? day.cache_read + day.cache_write : 0,
      output: day?.output ?? 0,
    };
  });
}
