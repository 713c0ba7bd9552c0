// What was spent, grouped by model, tool, agent, branch or day.
import { useState } from 'react';
import type { CostSum, Dashboard, DashboardGroup } from '../api/types';
import { formatCompact, formatCount, formatUtcDay, pluralize } from '../format';
import { Link } from '../route';
import { Tabs } from '../ui';
import { formatMoney, stepsHref, totalTokens } from './money';

const GROUPS = [
  { id: 'model', name: 'Model' },
  { id: 'tool', name: 'Tool' },
  { id: 'agent', name: 'Agent' },
  { id: 'branch', name: 'Branch' },
  { id: 'day', name: 'Day' },
] as const;
type Group = (typeof GROUPS)[number]['id'];

const SHOWN_AT_FIRST = 10;

/** A row of any grouping. */
interface MoneyRow {
  id: string;
  label: string;
  href: string | null;
  sum: CostSum;
  /** Whether it is a part of the whole that belongs to no group. */
  isRest?: boolean;
}

const REST_NAMES: Record<string, string> = {
  answers: 'answers of the model',
  prompts: 'prompts',
  context: 'system prompts and descriptions of tools',
  uncounted: 'calls without recorded tokens',
};

function rowsOf(dashboard: Dashboard, by: Group): MoneyRow[] {
  const group = (item: DashboardGroup, label: string, href: string): MoneyRow => ({ id: `${item.workspace ?? ''} ${item.key}`, label, href, sum: item });
  switch (by) {
    case 'model':
      return dashboard.models.map((model) => ({ id: model.name ?? '', label: model.name ?? 'not recorded', href: stepsHref(model.steps), sum: model }));
    case 'tool':
      return [
        ...dashboard.tools.map((tool): MoneyRow => ({ id: tool.name ?? '', label: tool.name ?? 'not recorded', href: stepsHref(tool.steps), sum: tool.cost })),
        ...dashboard.other_costs.map((other): MoneyRow => ({ id: `rest ${other.kind}`, label: REST_NAMES[other.kind] ?? other.kind, href: null, sum: other, isRest: true })),
      ].sort((a, b) => b.sum.cost_usd - a.sum.cost_usd || totalTokens(b.sum) - totalTokens(a.sum));
    case 'agent':
      return dashboard.agents.map((agent) => group(agent, agent.key, stepsHref(agent.steps)));
    case 'branch':
      // The steps of a branch are not found by a query, but by its sessions.
      return dashboard.branches.map((branch) => group(branch, branch.key, branch.session_ids.length === 1 ? `/sessions/${branch.session_ids[0]}` : `/branches?workspace=${branch.workspace ?? ''}`));
    case 'day':
      return dashboard.days.map((day) => group(day, formatUtcDay(day.key), stepsHref(day.steps))).reverse();
  }
}

export function CostPanel({ dashboard }: { dashboard: Dashboard }) {
  const [by, setBy] = useState<Group>('model');
  const [showsAll, setShowsAll] = useState(false);
  const rows = rowsOf(dashboard, by);
  const max = Math.max(0, ...rows.map((row) => row.sum.cost_usd));
  const maxTokens = Math.max(1, ...rows.map((row) => totalTokens(row.sum)));
  const shown = showsAll ? rows : rows.slice(0, SHOWN_AT_FIRST);
  return (
    <section className="panel cost-panel" aria-label="Cost">
      <h2>Cost and tokens by</h2>
      <Tabs
        label="Group by"
        tabs={GROUPS.map(({ id, name }) => ({ id, name }))}
        value={by}
        onChange={(next) => {
          setBy(next);
          setShowsAll(false);
        }}
      />
      {rows.length === 0 && <p className="dim">No model calls with recorded usage. “stepback run -- AGENT” records them.</p>}
      {rows.length > 0 && (
        <div className="table-scroll" tabIndex={0} role="group" aria-label={`Cost by ${by}`}>
          <table className="rows plain-rows">
            <thead>
              <tr>
                <th>{GROUPS.find((group) => group.id === by)?.name}</th>
                <th className="bar-cell"><span className="visually-hidden">Share</span></th>
                <th className="number">Cost</th>
                <th className="number">Input</th>
                <th className="number">Cached</th>
                <th className="number">Output</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <tr key={row.id}>
                  <td className="label-cell">{row.href ? <Link href={row.href}>{row.label}</Link> : <span className={row.isRest ? 'dim' : ''}>{row.label}</span>}</td>
                  <td className="bar-cell">
                    <meter min={0} max={max > 0 ? max : maxTokens} value={max > 0 ? row.sum.cost_usd : totalTokens(row.sum)} aria-label={`${row.label}: ${formatMoney(row.sum)}`} />
                  </td>
                  <td className="number">{formatMoney(row.sum)}</td>
                  <td className="number">{formatCompact(row.sum.input + row.sum.cache_write)}</td>
                  <td className="number">{formatCompact(row.sum.cache_read)}</td>
                  <td className="number">{formatCompact(row.sum.output)}</td>
                </tr>
              ))}
            </tbody>
            <tfoot>
              <tr>
                <th scope="row">all</th>
                <td className="bar-cell" />
                <td className="number">{formatMoney(dashboard.total)}</td>
                <td className="number">{formatCompact(dashboard.total.input + dashboard.total.cache_write)}</td>
                <td className="number">{formatCompact(dashboard.total.cache_read)}</td>
                <td className="number">{formatCompact(dashboard.total.output)}</td>
              </tr>
            </tfoot>
          </table>
        </div>
      )}
      {rows.length > SHOWN_AT_FIRST && (
        <p className="more">
          <button type="button" className="link" onClick={() => setShowsAll(!showsAll)}>
            {showsAll ? 'Show fewer' : `Show all ${formatCount(rows.length)}`}
          </button>
        </p>
      )}
      {by === 'tool' && <p className="dim cost-notes">Inferred: {dashboard.tool_cost_rule}</p>}
      {dashboard.total.unpriced_calls > 0 && (
        <p className="dim cost-notes">{pluralize(dashboard.total.unpriced_calls, 'model call')} of models without a price are not in the sum.</p>
      )}
      {dashboard.replayed_calls > 0 && <p className="dim cost-notes">{pluralize(dashboard.replayed_calls, 'answer')} came from a recording and cost nothing.</p>}
    </section>
  );
}
