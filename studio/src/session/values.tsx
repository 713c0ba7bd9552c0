// Untrusted values of any length: shown as text, never as markup.
import { useState } from 'react';
import { formatBytes, formatValue } from '../format';
import { copyToClipboard } from '../toasts';
import { Button } from '../ui';

const INITIAL_LENGTH = 20_000;

/** A text, truncated if it is long; the rest is shown on demand. */
export function LongText({ text, className }: { text: string; className?: string }) {
  const [shownLength, setShownLength] = useState(INITIAL_LENGTH);
  return (
    <>
      <pre className={`text ${className ?? ''}`} tabIndex={0}>
        {text.length > shownLength ? text.slice(0, shownLength) : text}
      </pre>
      {text.length > shownLength && (
        <p className="more">
          <span className="dim">
            {formatBytes(shownLength)} of {formatBytes(text.length)} shown{' '}
          </span>
          <Button small onClick={() => setShownLength(shownLength * 4)}>
            Show more
          </Button>
        </p>
      )}
    </>
  );
}

/** A named value: objects as a list of fields, everything else as text. */
export function ValueSection({ name, value, open = true }: { name: string; value: unknown; open?: boolean }) {
  if (value === null || value === undefined) return null;
  const text = formatValue(value);
  return (
    <div className="value">
      <details open={open}>
        <summary>{name}</summary>
        {typeof value === 'object' && !Array.isArray(value) ? <FieldList value={value as Record<string, unknown>} /> : <LongText text={text} />}
      </details>
      <Button
        variant="ghost"
        small
        className="copy"
        aria-label={`Copy ${name}`}
        onClick={() => void copyToClipboard(text, `${name} copied.`)}
      >
        copy
      </Button>
    </div>
  );
}

function FieldList({ value }: { value: Record<string, unknown> }) {
  const entries = Object.entries(value);
  if (entries.length === 0) return <pre className="text dim">{'{}'}</pre>;
  return (
    <dl className="fields">
      {entries.map(([name, field]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <LongText text={formatValue(field)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** A JSON value as a tree of collapsible nodes. */
export function JsonTree({ value, name, filter, depth = 0 }: { value: unknown; name?: string; filter?: string; depth?: number }) {
  const [open, setOpen] = useState(depth < 2);
  const isOpen = filter ? true : open;
  if (value === null || typeof value !== 'object') {
    const text = formatValue(value);
    if (filter && !`${name ?? ''} ${text}`.toLowerCase().includes(filter)) return null;
    return (
      <div className="leaf">
        {name !== undefined && <span className="name">{name}: </span>}
        <span className={`scalar ${typeof value}`}>{text.length > 2000 ? `${text.slice(0, 2000)} …` : text}</span>
      </div>
    );
  }
  const entries = Array.isArray(value) ? value.map((item, index) => [String(index), item] as const) : Object.entries(value);
  if (filter && !`${name ?? ''} ${JSON.stringify(value)}`.toLowerCase().includes(filter)) return null;
  return (
    <div className="branch">
      <button type="button" className="disclosure" aria-expanded={isOpen} onClick={() => setOpen(!open)}>
        {isOpen ? '▾' : '▸'} {name ?? (Array.isArray(value) ? 'list' : 'object')}{' '}
        <span className="dim">{Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}</span>
      </button>
      {isOpen && (
        <div className="below">
          {entries.slice(0, 500).map(([key, item]) => (
            <JsonTree key={key} name={key} value={item} filter={filter} depth={depth + 1} />
          ))}
          {entries.length > 500 && <div className="dim">… and {entries.length - 500} more</div>}
        </div>
      )}
    </div>
  );
}
