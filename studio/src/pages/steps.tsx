// The steps behind a number: a query over the steps of all sessions, kept in the address.
import { useState } from 'react';
import { getPages, useRequest } from '../api/client';
import type { StepQueryResult } from '../api/types';
import { formatCount, formatDuration, shortId } from '../format';
import { glyphOf, familyOf } from '../kinds';
import { Link, setQuery, useRoute } from '../route';
import { Button, EmptyState, ErrorMessage, Loading, RelativeTime } from '../ui';

const PAGE_SIZE = 100;

/** The fields that a query may have, with their names on the page. */
const FIELDS: [string, string][] = [
  ['workspace', 'workspace'],
  ['session', 'session'],
  ['agent', 'agent'],
  ['worker', 'worker'],
  ['kind', 'kind'],
  ['tool', 'tool or model'],
  ['failed', 'failed'],
  ['branch', 'branch'],
  ['iteration', 'turn'],
  ['call', 'call'],
  ['since', 'since'],
  ['until', 'until'],
  ['min_duration', 'at least'],
];

const ORDERS: [string, string][] = [
  ['latest', 'latest first'],
  ['earliest', 'earliest first'],
  ['longest', 'longest first'],
  ['shortest', 'shortest first'],
];

export default function StepsPage() {
  const { query } = useRoute();
  const [limit, setLimit] = useState(PAGE_SIZE);
  const order = query.get('order') ?? 'latest';
  const params: Record<string, string> = { order };
  for (const [field] of FIELDS) {
    const value = query.get(field);
    if (value) params[field] = value;
  }
  const key = JSON.stringify([params, limit]);
  const request = useRequest(key, (signal) => getPages<StepQueryResult>('/steps', params, PAGE_SIZE, limit, signal));
  const fields = FIELDS.filter(([field]) => params[field]);
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Steps</h1>
          <p className="facts">
            {fields.length === 0 && <span className="dim">of all sessions</span>}
            {fields.map(([field, name]) => (
              <button key={field} type="button" className="tag" aria-label={`Remove ${name} ${params[field]}`} title="Remove this condition" onClick={() => setQuery({ [field]: null }, false)}>
                {name}: {field === 'session' || field === 'workspace' ? shortId(params[field] ?? '') : params[field]} ✕
              </button>
            ))}
          </p>
        </div>
        <label className="picker">
          <span className="dim">Order</span>
          <select value={order} onChange={(event) => setQuery({ order: event.target.value })}>
            {ORDERS.map(([id, name]) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </header>
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {!request.data && !request.error && <Loading label="Looking for steps" />}
      {request.data?.items.length === 0 && (
        <EmptyState title="No matching steps">
          <p>Remove a condition above, or look at <Link href="/sessions">all sessions</Link>.</p>
        </EmptyState>
      )}
      {request.data && request.data.items.length > 0 && (
        <ul className="found-steps" aria-label="Steps">
          {request.data.items.map((step) => (
            <li key={step.id} className={`${familyOf(step.kind)} ${step.failed ? 'failed' : ''}`}>
              <span className="glyph" aria-hidden="true">{glyphOf(step.kind)}</span>
              <span className="summary">
                <Link href={`/sessions/${step.session}?step=${step.number}`}>
                  #{step.number} {step.summary || step.kind}
                </Link>
              </span>
              {step.failed && <span className="status failed">failed</span>}
              {step.tool && <code className="tool">{step.tool}</code>}
              <span className="dim number">{step.duration_us == null ? '' : formatDuration(step.duration_us)}</span>
              <span className="dim when"><RelativeTime timestamp={step.at} /></span>
            </li>
          ))}
        </ul>
      )}
      {request.data?.next_cursor && (
        <p className="more">
          <span className="dim">{formatCount(request.data.items.length)} shown </span>
          <Button onClick={() => setLimit(limit + PAGE_SIZE * 4)}>Show more</Button>
        </p>
      )}
    </div>
  );
}
