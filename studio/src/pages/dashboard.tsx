// Statistics of the store: sessions, steps, cost and tokens by day, slow tools, error rates, disk use.
import { useMemo } from 'react';
import { get, getAll, useRequest } from '../api/client';
import type { DiskBudgetFacts, Session, Statistics, StepQueryResult, Usage } from '../api/types';
import { DayChart, type DayTotals } from '../day-chart';
import { formatBytes, formatCost, formatCount, formatDay, formatDuration, pluralize } from '../format';
import { Link } from '../route';
import { EmptyState, ErrorMessage, Loading } from '../ui';

const DAYS = 14;

export default function DashboardPage() {
  const statistics = useRequest('statistics', (signal) => get<Statistics>('/statistics', {}, signal));
  const sessions = useRequest('all sessions', (signal) => getAll<Session>('/sessions', { counts: true, since: `${DAYS} days ago` }, 2000, signal));
  const usage = useRequest('usage', (signal) => get<Usage>('/usage', { since: `${DAYS} days ago` }, signal));
  const slowRequest = useRequest('slow', (signal) => get<StepQueryResult>('/steps', { kind: 'tool-end', order: 'longest', limit: 200 }, signal));
  const totals = statistics.data;
  const error = statistics.error ?? sessions.error ?? slowRequest.error ?? usage.error;
  const days = useMemo(() => groupByDay(sessions.data ?? [], usage.data), [sessions.data, usage.data]);
  const tools = useMemo(() => findSlowestTools(slowRequest.data), [slowRequest.data]);
  if (error) return <ErrorMessage error={error} onRetry={statistics.reload} />;
  if (!totals || !sessions.data) return <Loading label="Loading statistics" />;
  const runs = Object.entries(totals.sessions).filter(([agent]) => agent !== 'person');
  const steps = Object.values(totals.steps).reduce((sum, value) => sum + value, 0);
  if (steps === 0) {
    return (
      <div className="page">
        <h1>Dashboard</h1>
        <EmptyState title="Nothing recorded yet">
          <p>Statistics appear after the first session of an agent. “stepback demo” records day.</p>
        </EmptyState>
      </div>
    );
  }
  const agents = Object.entries(totals.agents).filter(([agent]) => agent !== 'person');
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Dashboard</h1>
          <p className="dim">Totals of this store; charts show the last {DAYS} days.</p>
        </div>
      </header>
      <dl className="tiles">
        <StatTile name="Sessions" value={formatCount(runs.reduce((sum, [, value]) => sum + value, 0))} />
        <StatTile name="Steps" value={formatCount(steps)} />
        <StatTile name="Checkpoints" value={formatCount(totals.checkpoints)} />
        <StatTile name="Cost" value={formatCost(totals.cost_usd)} />
        <StatTile name="Disk" value={formatBytes(totals.total_bytes)} />
        <StatTile name="Saved by deduplication" value={totals.raw_bytes > totals.stored_bytes ? `${Math.round((1 - totals.stored_bytes / totals.raw_bytes) * 100)} %` : '–'} />
      </dl>
      <div className="charts">
        <DayChart title="Sessions per day" days={days} value={(day) => day.sessions} format={formatCount} />
        <DayChart title="Steps per day" days={days} value={(day) => day.steps} format={formatCount} />
        <DayChart title="Errors per day" days={days} value={(day) => day.errors} format={formatCount} isError />
        <DayChart title="Cost per day" days={days} value={(day) => day.cost} format={formatCost} />
        <DayChart title="Tokens per day" days={days} value={(day) => day.tokens} format={formatCompact} parts={TOKEN_PARTS} />
      </div>
      <div className="two-columns">
        <section className="panel">
          <h2>Slowest tools</h2>
          {tools.length === 0 && <p className="dim">No tool calls with a duration yet.</p>}
          <ul className="bars">
            {tools.map((tool) => (
              <BarRow key={tool.name} name={tool.name} href={`/sessions/${tool.session}?step=${tool.step}`} value={tool.longest} max={tools[0]?.longest ?? 1} text={formatDuration(tool.longest)} />
            ))}
          </ul>
        </section>
        <section className="panel">
          <h2>Error rates</h2>
          <ul className="bars">
            {agents.map(([agent, counts]) => {
              const stepCount = Object.values(counts.steps).reduce((sum, value) => sum + value, 0);
              const rate = stepCount ? counts.failed / stepCount : 0;
              return (
                <BarRow key={agent} name={agent} href={`/sessions?agent=${encodeURIComponent(agent)}`} value={rate} max={1} text={`${(rate * 100).toFixed(1)} %`} note={`of ${pluralize(stepCount, 'step')}`} />
              );
            })}
          </ul>
        </section>
        <section className="panel">
          <h2>Models</h2>
          {usage.data && !Object.keys(usage.data.models).length && (
            <p className="dim">
              No model calls recorded in the last {DAYS} days. “stepback run -- AGENT” records them.
            </p>
          )}
          <ModelUsage usage={usage.data} />
        </section>
        <section className="panel">
          <h2>Disk</h2>
          <DiskBudget budget={totals.budget ?? null} />
          <ul className="bars">
            {[
              { name: 'stored', value: totals.stored_bytes },
              { name: 'total', value: totals.total_bytes },
              { name: 'without deduplication', value: totals.raw_bytes },
            ].map(({ name, value }) => (
              <BarRow key={name} name={name} value={value} max={Math.max(totals.raw_bytes, totals.total_bytes, 1)} text={formatBytes(value)} />
            ))}
          </ul>
          <p className="dim">
            {pluralize(totals.objects, 'object')}. “stepback prune” deletes what is not needed.
          </p>
        </section>
        <section className="panel">
          <h2>Steps by kind</h2>
          <ul className="bars">
            {Object.entries(totals.steps)
              .sort((a, b) => b[1] - a[1])
              .slice(0, 10)
              .map(([kind, value]) => (
                <BarRow key={kind} name={kind} value={value} max={Math.max(...Object.values(totals.steps))} text={formatCount(value)} />
              ))}
          </ul>
        </section>
      </div>
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

function BarRow({ name, href, value, max, text, note }: { name: string; href?: string; value: number; max: number; text: string; note?: string }) {
  return (
    <li>
      {href ? <Link href={href}>{name}</Link> : <span title={name}>{name}</span>}
      <meter min={0} max={max} value={value} aria-label={`${name}: ${text}`} />
      <span className="number">
        {text} {note && <span className="dim">{note}</span>}
      </span>
    </li>
  );
}

/** Disk use against the budget, what goes next, and what the last pruning did. */
function DiskBudget({ budget }: { budget: DiskBudgetFacts | null }) {
  if (!budget) {
    return (
      <p className="dim">
        The store has no disk budget. “stepback settings disk.budget 5GB” sets one.
      </p>
    );
  }
  const { bytes, used, last } = budget;
  const over = used > bytes;
  return (
    <div className="budget">
      <meter min={0} max={bytes} high={budget.starts_at} optimum={0} value={Math.min(used, bytes)} aria-label={`${formatBytes(used)} of a budget of ${formatBytes(bytes)}`} />
      <p className={over ? 'bad' : 'dim'}>
        {formatBytes(used)} of {formatBytes(bytes)} ({Math.round((used / Math.max(bytes, 1)) * 100)} %)
        {over && ': the budget is too small for what is kept'}
      </p>
      <p className="dim">
        At {formatBytes(budget.starts_at)} the oldest of {pluralize(budget.removable, 'automatic checkpoint')} go
        {budget.next_at && `, the first from ${new Date(budget.next_at).toLocaleString()}`}; {formatCount(budget.kept)} stay.
      </p>
      {last && (
        <p className={last.failure ? 'bad' : 'dim'}>
          {last.failure
            ? `The last pruning failed: ${last.failure}`
            : `The last pruning removed ${pluralize(last.checkpoints, 'checkpoint')}: ${formatBytes(last.size_before)} became ${formatBytes(last.size_after)}.`}
        </p>
      )}
    </div>
  );
}

function ModelUsage({ usage }: { usage: Usage | undefined }) {
  const models = Object.entries(usage?.models ?? {}).sort((a, b) => totalTokens(b[1]) - totalTokens(a[1]));
  const max = Math.max(1, ...models.map(([, modelUsage]) => totalTokens(modelUsage)));
  return (
    <>
      <ul className="bars">
        {models.slice(0, 8).map(([model, modelUsage]) => (
          <BarRow key={model} name={model} value={totalTokens(modelUsage)} max={max} text={formatCompact(totalTokens(modelUsage))} note={formatCost(modelUsage.cost_usd)} />
        ))}
      </ul>
      {usage && !usage.complete && <p className="dim">Newest 20,000 calls only.</p>}
    </>
  );
}

type TokenUsage = Usage['total'];
const totalTokens = (usage: Pick<TokenUsage, 'input' | 'output' | 'cache_read' | 'cache_write'>): number => usage.input + usage.output + usage.cache_read + usage.cache_write;
const formatCompact = (value: number): string => new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 }).format(value);

/** Kinds of tokens, from the bottom of a bar to its top. */
const TOKEN_PARTS: { name: string; className: string; value: (day: DayTotals) => number }[] = [
  { name: 'input', className: 'model', value: (day) => day.input },
  { name: 'cached', className: 'tool', value: (day) => day.cached },
  { name: 'output', className: 'prompt', value: (day) => day.output },
];

function groupByDay(sessions: Session[], usage: Usage | undefined): DayTotals[] {
  const days: DayTotals[] = [];
  const daysByName = new Map<string, DayTotals>();
  for (let daysAgo = DAYS - 1; daysAgo >= 0; daysAgo--) {
    const name = formatDay(new Date(Date.now() - daysAgo * 86_400_000).toISOString());
    const day = { name, sessions: 0, steps: 0, errors: 0, cost: 0, tokens: 0, input: 0, cached: 0, output: 0 };
    days.push(day);
    daysByName.set(name, day);
  }
  for (const session of sessions) {
    if (session.agent === 'person') continue;
    const day = daysByName.get(formatDay(session.started_at));
    if (!day) continue;
    day.sessions++;
    day.steps += session.steps ?? 0;
    day.errors += session.errors ?? 0;
  }
  // Usage is counted by the hour, because days depend on the time zone of the browser.
  for (const hour of usage?.hours ?? []) {
    const day = daysByName.get(formatDay(hour.at));
    if (!day) continue;
    day.cost += hour.cost_usd;
    day.tokens += totalTokens(hour);
    day.input += hour.input;
    day.cached += hour.cache_read + hour.cache_write;
    day.output += hour.output;
  }
  return days;
}

function findSlowestTools(result: StepQueryResult | undefined) {
  const tools = new Map<string, { name: string; longest: number; session: string; step: number }>();
  for (const step of result?.items ?? []) {
    if (!step.tool || !step.duration_us) continue;
    const slowest = tools.get(step.tool);
    if (!slowest || slowest.longest < step.duration_us) tools.set(step.tool, { name: step.tool, longest: step.duration_us, session: step.session, step: step.number });
  }
  return [...tools.values()].sort((a, b) => b.longest - a.longest).slice(0, 8);
}
