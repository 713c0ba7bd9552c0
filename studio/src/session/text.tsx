// Texts of others, however long and whatever is in them: shown as text, never as markup.
import { useState } from 'react';
import { bytes, pretty } from '../format';
import { Button, say } from '../ui';

const SHOWN = 20_000;

/** A text, cut where it gets long; the rest on demand, piece by piece. */
export function LongText({ text, className }: { text: string; className?: string }) {
  const [most, setMost] = useState(SHOWN);
  return (
    <>
      <pre className={`text ${className ?? ''}`} tabIndex={0}>
        {text.length > most ? text.slice(0, most) : text}
      </pre>
      {text.length > most && (
        <p className="more">
          <span className="dim">
            {bytes(most)} of {bytes(text.length)} shown{' '}
          </span>
          <Button small onClick={() => setMost(most * 4)}>
            Show more
          </Button>
        </p>
      )}
    </>
  );
}

/** Something that was given or came out, with the names of its fields. */
export function Value({ name, value, open = true }: { name: string; value: unknown; open?: boolean }) {
  if (value === null || value === undefined) return null;
  const text = pretty(value);
  return (
    <div className="value">
      <details open={open}>
        <summary>{name}</summary>
        {typeof value === 'object' && !Array.isArray(value) ? <Fields value={value as Record<string, unknown>} /> : <LongText text={text} />}
      </details>
      <Button
        look="ghost"
        small
        className="copy"
        aria-label={`Copy ${name}`}
        onClick={() =>
          navigator.clipboard.writeText(text).then(
            () => say(`${name} is copied.`),
            () => say('The browser does not allow copying here.', true),
          )
        }
      >
        copy
      </Button>
    </div>
  );
}

function Fields({ value }: { value: Record<string, unknown> }) {
  const entries = Object.entries(value);
  if (entries.length === 0) return <pre className="text dim">{'{}'}</pre>;
  return (
    <dl className="fields">
      {entries.map(([name, field]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <LongText text={pretty(field)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** A JSON value as a tree that opens by and by. */
export function Tree({ value, name, find, depth = 0 }: { value: unknown; name?: string; find?: string; depth?: number }) {
  const [open, setOpen] = useState(depth < 2);
  const isOpen = find ? true : open;
  if (value === null || typeof value !== 'object') {
    const text = pretty(value);
    if (find && !`${name ?? ''} ${text}`.toLowerCase().includes(find)) return null;
    return (
      <div className="leaf">
        {name !== undefined && <span className="name">{name}: </span>}
        <span className={`scalar ${typeof value}`}>{text.length > 2000 ? `${text.slice(0, 2000)} …` : text}</span>
      </div>
    );
  }
  const entries = Array.isArray(value) ? value.map((item, index) => [String(index), item] as const) : Object.entries(value);
  if (find && !`${name ?? ''} ${JSON.stringify(value)}`.toLowerCase().includes(find)) return null;
  return (
    <div className="branch">
      <button type="button" className="twist" aria-expanded={isOpen} onClick={() => setOpen(!open)}>
        {isOpen ? '▾' : '▸'} {name ?? (Array.isArray(value) ? 'list' : 'object')}{' '}
        <span className="dim">{Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}</span>
      </button>
      {isOpen && (
        <div className="below">
          {entries.slice(0, 500).map(([key, item]) => (
            <Tree key={key} name={key} value={item} find={find} depth={depth + 1} />
          ))}
          {entries.length > 500 && <div className="dim">… and {entries.length - 500} more</div>}
        </div>
      )}
    </div>
  );
}
