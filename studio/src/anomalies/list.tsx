// Anomalies with their evidence, for a step and for the dashboard.
import type { Anomaly } from '../api/types';
import { formatCount, pluralize, shortId } from '../format';
import { Link } from '../route';
import { copyToClipboard } from '../toasts';
import { Button, RelativeTime } from '../ui';
import { anomalyName, firstStep } from './incidents';

const formatMeasure = (value: number): string => (Number.isInteger(value) ? formatCount(value) : value.toLocaleString(undefined, { maximumSignificantDigits: 3 }));

export function SeverityBadge({ severity }: { severity: string }) {
  return <span className={`status severity-${severity}`}>{severity}</span>;
}

/** All that is known about one anomaly. */
function AnomalyCard({ item, showSession }: { item: Anomaly; showSession: boolean }) {
  return (
    <li className={`anomaly severity-${item.severity}`}>
      <p className="anomaly-title">
        <SeverityBadge severity={item.severity} /> <b>{anomalyName(item.kind)}</b>
        {item.tool && <code className="tool">{item.tool}</code>}
        {item.subject && <span className="mono dim">{item.subject}</span>}
        <span className="gap" />
        <span className="dim"><RelativeTime timestamp={item.until} /></span>
      </p>
      <p>{item.evidence}</p>
      <p className="facts dim">
        <span>
          {formatMeasure(item.measured)} {item.unit}, unusual from {formatMeasure(item.limit)} on
        </span>
        {item.unit !== 'calls' && <span>{pluralize(item.count, 'call')}</span>}
        {item.worker && <span>{item.worker}</span>}
      </p>
      <p className="dim rule">
        {item.basis}: {item.rule}
      </p>
      <p className="origin-links">
        {showSession && (
          <Link href={`/sessions/${item.session}?step=${firstStep(item)}`}>
            {item.agent} {shortId(item.session)}, step #{firstStep(item)}
          </Link>
        )}
        {!showSession &&
          item.steps.map((step) => (
            <Link key={step} href={`/sessions/${item.session}?step=${step}`}>
              #{step}
            </Link>
          ))}
        {item.last !== firstStep(item) && !item.steps.includes(item.last) && <Link href={`/sessions/${item.session}?step=${item.last}`}>last #{item.last}</Link>}
        <Button small variant="ghost" title={item.command} onClick={() => void copyToClipboard(item.command, 'Command copied.')}>
          copy command
        </Button>
      </p>
    </li>
  );
}

export function AnomalyList({ items, showSession = false }: { items: Anomaly[]; showSession?: boolean }) {
  return (
    <ul className="anomalies">
      {items.map((item) => (
        <AnomalyCard key={item.id} item={item} showSession={showSession} />
      ))}
    </ul>
  );
}
