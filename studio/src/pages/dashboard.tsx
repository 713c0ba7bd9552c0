// How it goes: sessions, cost and steps over time, what takes long, what goes wrong, and how much room it takes.
import { useMemo } from 'react';
import { all, get, useAsk } from '../api/client';
import type { FoundSteps, Session, Statistics, Usage } from '../api/types';
import { bytes, count, day, money, plural, span } from '../format';
import { Link } from '../route';
import { Empty, Loading, Trouble } from '../ui';

const DAYS = 14;

export default function DashboardPage() {
  const statistics = useAsk('statistics', (signal) => get<Statistics>('/statistics', {}, signal));
  const sessions = useAsk('all sessions', (signal) => all<Session>('/sessions', { counts: true, since: `${DAYS} days ago` }, 2000, signal));
  const usage = useAsk('usage', (signal) => get<Usage>('/usage', { since: `${DAYS} days ago` }, signal));
  const slow = useAsk('slow', (signal) => get<FoundSteps>('/steps', { kind: 'tool-end', order: 'longest', limit: 200 }, signal));
  const about = statistics.value;
  const problem = statistics.problem ?? sessions.problem ?? slow.problem ?? usage.problem;
  const days = useMemo(() => byDay(sessions.value ?? [], usage.value), [sessions.value, usage.value]);
  const tools = useMemo(() => slowest(slow.value), [slow.value]);
  if (problem) return <Trouble problem={problem} again={statistics.again} />;
  if (!about || !sessions.value) return <Loading what="Counting" />;
  const runs = Object.entries(about.sessions).filter(([agent]) => agent !== 'person');
  const steps = Object.values(about.steps).reduce((sum, value) => sum + value, 0);
  if (steps === 0) {
    return (
      <div className="page">
        <h1>Dashboard</h1>
        <Empty title="Nothing is recorded yet">
          <p>Numbers appear here once an agent has worked. “stepback demo” is a quick way to see some.</p>
        </Empty>
      </div>
    );
  }
  const agents = Object.entries(about.agents).filter(([agent]) => agent !== 'person');
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Dashboard</h1>
          <p className="dim">Everything in this store; by day, the last {DAYS} days.</p>
        </div>
      </header>
      <dl className="tiles">
        <Tile name="Sessions" value={count(runs.reduce((sum, [, value]) => sum + value, 0))} />
        <Tile name="Steps" value={count(steps)} />
        <Tile name="Checkpoints" value={count(about.checkpoints)} />
        <Tile name="Cost" value={money(about.cost_usd)} />
        <Tile name="Disk" value={bytes(about.total_bytes)} />
        <Tile name="Saved by sharing" value={about.raw_bytes > about.stored_bytes ? `${Math.round((1 - about.stored_bytes / about.raw_bytes) * 100)} %` : '–'} />
      </dl>
      <div className="charts">
        <Chart title="Sessions a day" days={days} value={(one) => one.sessions} show={count} />
        <Chart title="Steps a day" days={days} value={(one) => one.steps} show={count} />
        <Chart title="Errors a day" days={days} value={(one) => one.errors} show={count} bad />
        <Chart title="Cost a day" days={days} value={(one) => one.cost} show={money} />
        <Chart title="Tokens a day" days={days} value={(one) => one.tokens} show={short} parts={PARTS} />
      </div>
      <div className="two">
        <section className="panel">
          <h2>Slowest tools</h2>
          {tools.length === 0 && <p className="dim">No tool call has a duration yet.</p>}
          <ul className="bars">
            {tools.map((tool) => (
              <li key={tool.name}>
                <Link href={`/sessions/${tool.session}?step=${tool.step}`}>{tool.name}</Link>
                <meter min={0} max={tools[0]?.longest ?? 1} value={tool.longest} aria-label={`${tool.name}: ${span(tool.longest)}`} />
                <span className="number">{span(tool.longest)}</span>
              </li>
            ))}
          </ul>
        </section>
        <section className="panel">
          <h2>What goes wrong</h2>
          <ul className="bars">
            {agents.map(([agent, one]) => {
              const its = Object.values(one.steps).reduce((sum, value) => sum + value, 0);
              const rate = its ? one.failed / its : 0;
              return (
                <li key={agent}>
                  <Link href={`/sessions?agent=${encodeURIComponent(agent)}`}>{agent}</Link>
                  <meter min={0} max={1} value={rate} aria-label={`${agent}: ${(rate * 100).toFixed(1)} percent`} />
                  <span className="number">
                    {(rate * 100).toFixed(1)} % <span className="dim">of {plural(its, 'step')}</span>
                  </span>
                </li>
              );
            })}
          </ul>
        </section>
        <section className="panel">
          <h2>Models</h2>
          {usage.value && !Object.keys(usage.value.models).length && (
            <p className="dim">
              No model call was recorded in {DAYS} days. “stepback run -- AGENT” records them.
            </p>
          )}
          <Models usage={usage.value} />
        </section>
        <section className="panel">
          <h2>Disk</h2>
          <Budget used={about.total_bytes} budget={about.budget_bytes ?? null} />
          <ul className="bars">
            <li>
              <span>stored</span>
              <meter min={0} max={Math.max(about.raw_bytes, about.total_bytes, 1)} value={about.stored_bytes} aria-label={`stored: ${bytes(about.stored_bytes)}`} />
              <span className="number">{bytes(about.stored_bytes)}</span>
            </li>
            <li>
              <span>in all</span>
              <meter min={0} max={Math.max(about.raw_bytes, about.total_bytes, 1)} value={about.total_bytes} aria-label={`in all: ${bytes(about.total_bytes)}`} />
              <span className="number">{bytes(about.total_bytes)}</span>
            </li>
            <li>
              <span>without sharing</span>
              <meter min={0} max={Math.max(about.raw_bytes, about.total_bytes, 1)} value={about.raw_bytes} aria-label={`without sharing: ${bytes(about.raw_bytes)}`} />
              <span className="number">{bytes(about.raw_bytes)}</span>
            </li>
          </ul>
          <p className="dim">
            {plural(about.objects, 'object')}. “stepback prune” gives up what is not needed.
          </p>
        </section>
        <section className="panel">
          <h2>Steps by kind</h2>
          <ul className="bars">
            {Object.entries(about.steps)
              .sort((a, b) => b[1] - a[1])
              .slice(0, 10)
              .map(([kind, value]) => (
                <li key={kind}>
                  <span>{kind}</span>
                  <meter min={0} max={Math.max(...Object.values(about.steps))} value={value} aria-label={`${kind}: ${value}`} />
                  <span className="number">{count(value)}</span>
                </li>
              ))}
          </ul>
        </section>
      </div>
    </div>
  );
}

function Tile({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** How full the store is, if somebody said what it should stay within. */
function Budget({ used, budget }: { used: number; budget: number | null }) {
  if (!budget) {
    return (
      <p className="dim">
        No budget is set. “stepback settings disk.megabytes 5000” sets one of 5 GB.
      </p>
    );
  }
  const over = used > budget;
  return (
    <div className="budget">
      <meter min={0} max={budget} high={budget * 0.8} optimum={0} value={Math.min(used, budget)} aria-label={`${bytes(used)} of a budget of ${bytes(budget)}`} />
      <p className={over ? 'bad' : 'dim'}>
        {bytes(used)} of {bytes(budget)} ({Math.round((used / budget) * 100)} %)
        {over && `: “stepback prune --max-size ${Math.round(budget / 1_000_000)}MB” brings it back within`}
      </p>
    </div>
  );
}

function Models({ usage }: { usage: Usage | undefined }) {
  const models = Object.entries(usage?.models ?? {}).sort((a, b) => tokens(b[1]) - tokens(a[1]));
  const most = Math.max(1, ...models.map(([, spent]) => tokens(spent)));
  return (
    <>
      <ul className="bars">
        {models.slice(0, 8).map(([model, spent]) => (
          <li key={model}>
            <span title={model}>{model}</span>
            <meter min={0} max={most} value={tokens(spent)} aria-label={`${model}: ${tokens(spent)} tokens`} />
            <span className="number">
              {short(tokens(spent))} <span className="dim">{money(spent.cost_usd)}</span>
            </span>
          </li>
        ))}
      </ul>
      {usage && !usage.complete && <p className="dim">Of the newest 20,000 calls.</p>}
    </>
  );
}

type Spent = Usage['total'];
const tokens = (spent: Pick<Spent, 'input' | 'output' | 'cache_read' | 'cache_write'>): number => spent.input + spent.output + spent.cache_read + spent.cache_write;
const short = (value: number): string => new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 }).format(value);

interface Day {
  name: string;
  sessions: number;
  steps: number;
  errors: number;
  cost: number;
  tokens: number;
  input: number;
  cached: number;
  output: number;
}

/** What tokens are made of, from below. */
const PARTS: { name: string; look: string; value: (day: Day) => number }[] = [
  { name: 'read', look: 'model', value: (day) => day.input },
  { name: 'cached', look: 'tool', value: (day) => day.cached },
  { name: 'written', look: 'prompt', value: (day) => day.output },
];

function byDay(sessions: Session[], usage: Usage | undefined): Day[] {
  const days: Day[] = [];
  const places = new Map<string, Day>();
  for (let back = DAYS - 1; back >= 0; back--) {
    const name = day(new Date(Date.now() - back * 86_400_000).toISOString());
    const one = { name, sessions: 0, steps: 0, errors: 0, cost: 0, tokens: 0, input: 0, cached: 0, output: 0 };
    days.push(one);
    places.set(name, one);
  }
  for (const session of sessions) {
    if (session.agent === 'person') continue;
    const one = places.get(day(session.started_at));
    if (!one) continue;
    one.sessions++;
    one.steps += session.steps ?? 0;
    one.errors += session.errors ?? 0;
  }
  // What was spent is told by the hour: which day that is depends on where one is.
  for (const hour of usage?.hours ?? []) {
    const one = places.get(day(hour.at));
    if (!one) continue;
    one.cost += hour.cost_usd;
    one.tokens += tokens(hour);
    one.input += hour.input;
    one.cached += hour.cache_read + hour.cache_write;
    one.output += hour.output;
  }
  return days;
}

function slowest(found: FoundSteps | undefined) {
  const tools = new Map<string, { name: string; longest: number; session: string; step: number }>();
  for (const step of found?.items ?? []) {
    if (!step.tool || !step.duration_us) continue;
    const known = tools.get(step.tool);
    if (!known || known.longest < step.duration_us) tools.set(step.tool, { name: step.tool, longest: step.duration_us, session: step.session, step: step.number });
  }
  return [...tools.values()].sort((a, b) => b.longest - a.longest).slice(0, 8);
}

interface ChartProps {
  title: string;
  days: Day[];
  value: (day: Day) => number;
  show: (value: number) => string;
  bad?: boolean;
  /** What the value is made of. */
  parts?: { name: string; look: string; value: (day: Day) => number }[];
}

function Chart({ title, days, value, show, bad, parts }: ChartProps) {
  const values = days.map(value);
  const most = Math.max(...values, 0);
  const sum = values.reduce((total, one) => total + one, 0);
  const wide = 100 / days.length;
  const tall = (amount: number) => (most ? (amount / most) * 36 : 0);
  return (
    <figure className={bad ? 'chart bad' : 'chart'}>
      <figcaption>
        {title} <span className="dim">{show(sum)}</span>
      </figcaption>
      <svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label={`${title}: ${days.map((one) => `${one.name} ${show(value(one))}`).join(', ')}`}>
        {days.map((one, index) => {
          const whole = tall(value(one));
          const place = { x: index * wide + 0.6, width: wide - 1.2 };
          if (!parts || whole === 0) {
            return (
              <rect key={one.name} className={whole === 0 ? 'none' : ''} {...place} y={39 - Math.max(whole, 0.6)} height={Math.max(whole, 0.6)} rx={0.8}>
                <title>{`${one.name}: ${show(value(one))}`}</title>
              </rect>
            );
          }
          let below = 39;
          return (
            <g key={one.name}>
              <title>{`${one.name}: ${parts.map((part) => `${part.name} ${show(part.value(one))}`).join(', ')}`}</title>
              {parts.map((part) => {
                const height = tall(part.value(one));
                below -= height;
                return <rect key={part.name} className={part.look} {...place} y={below} height={height} />;
              })}
            </g>
          );
        })}
      </svg>
      <div className="axis dim" aria-hidden="true">
        <span>{days[0]?.name}</span>
        <span>{days[days.length - 1]?.name}</span>
      </div>
      {parts && (
        <div className="legend" aria-hidden="true">
          {parts.map((part) => (
            <span key={part.name}>
              <i className={part.look} /> {part.name}
            </span>
          ))}
        </div>
      )}
    </figure>
  );
}
