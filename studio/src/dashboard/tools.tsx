// Which tools are slow and which fail, with the calls behind both.
import { useState } from 'react';
import type { Dashboard, DashboardTool } from '../api/types';
import { formatCount, formatDuration } from '../format';
import { Link } from '../route';
import { stepsHref } from './money';

const SHOWN = 10;
type SpeedOrder = 'p95_us' | 'p50_us';

export function SlowTools({ dashboard }: { dashboard: Dashboard }) {
  const [order, setOrder] = useState<SpeedOrder>('p95_us');
  const tools = dashboard.tools.filter((tool) => tool.latency[order] != null).sort((a, b) => (b.latency[order] ?? 0) - (a.latency[order] ?? 0));
  const max = Math.max(1, ...tools.map((tool) => tool.latency[order] ?? 0));
  return (
    <section className="panel" aria-label="Slowest tools">
      <div className="player">
        <h2>Slowest tools</h2>
        <span className="gap" />
        <label className="picker">
          <span className="dim">by</span>
          <select value={order} onChange={(event) => setOrder(event.target.value as SpeedOrder)}>
            <option value="p95_us">p95</option>
            <option value="p50_us">p50</option>
          </select>
        </label>
      </div>
      {tools.length === 0 && <p className="dim">No calls with a known duration.</p>}
      {tools.length > 0 && (
        <div className="table-scroll" tabIndex={0} role="group" aria-label="Slowest tools">
          <table className="rows plain-rows">
            <thead>
              <tr>
                <th>Tool</th>
                <th className="bar-cell"><span className="visually-hidden">Share</span></th>
                <th className="number">p50</th>
                <th className="number">p95</th>
                <th className="number">Longest</th>
                <th className="number">Calls</th>
              </tr>
            </thead>
            <tbody>
              {tools.slice(0, SHOWN).map((tool) => (
                <tr key={tool.name ?? ''}>
                  <td className="label-cell"><Link href={stepsHref(tool.steps, { order: 'longest' })}>{nameOf(tool)}</Link></td>
                  <td className="bar-cell">
                    <meter min={0} max={max} value={tool.latency[order] ?? 0} aria-label={`${nameOf(tool)}: ${formatDuration(tool.latency[order] ?? 0)}`} />
                  </td>
                  <td className="number">{formatDuration(tool.latency.p50_us ?? 0)}</td>
                  <td className="number">{formatDuration(tool.latency.p95_us ?? 0)}</td>
                  <td className="number">{formatDuration(tool.latency.max_us ?? 0)}</td>
                  <td className="number">{formatCount(tool.latency.count)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {tools.length > 0 && <p className="dim cost-notes">Without waiting. Percentiles are within {(dashboard.latency_error * 100).toLocaleString(undefined, { maximumFractionDigits: 1 })} % of the exact ones.</p>}
    </section>
  );
}

export function ErrorRates({ dashboard }: { dashboard: Dashboard }) {
  const tools = dashboard.tools.filter((tool) => tool.failed > 0).sort((a, b) => (b.error_rate ?? 0) - (a.error_rate ?? 0) || b.failed - a.failed);
  const calls = dashboard.tools.reduce((sum, tool) => sum + tool.calls, 0);
  return (
    <section className="panel" aria-label="Error rates">
      <h2>Error rates</h2>
      {tools.length === 0 && <p className="dim">{calls > 0 ? `None of ${formatCount(calls)} calls failed.` : 'No calls of tools.'}</p>}
      <ul className="bars">
        {tools.slice(0, SHOWN).map((tool) => {
          const rate = tool.error_rate ?? 0;
          return (
            <li key={tool.name ?? ''}>
              <Link href={stepsHref(tool.steps, { failed: 'true' })}>{nameOf(tool)}</Link>
              <meter className="error-meter" min={0} max={1} value={rate} aria-label={`${nameOf(tool)}: ${formatRate(rate)}`} />
              <span className="number">
                {formatRate(rate)} <span className="dim">{formatCount(tool.failed)} of {formatCount(tool.calls)}</span>
              </span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

const nameOf = (tool: DashboardTool): string => tool.name ?? 'not recorded';
const formatRate = (rate: number): string => (rate > 0 && rate < 0.001 ? '< 0.1 %' : `${(rate * 100).toFixed(1)} %`);
