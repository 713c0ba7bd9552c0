// Components that all pages share.
import { type ButtonHTMLAttributes, type ReactNode, useEffect, useId, useRef, useState } from 'react';
import type { ApiError } from './api/client';
import { formatAge, formatDateTime } from './format';

type ButtonVariant = 'plain' | 'primary' | 'danger' | 'ghost';

export function Button({
  variant = 'plain',
  small,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { variant?: ButtonVariant; small?: boolean }) {
  return <button type="button" {...rest} className={`button ${variant} ${small ? 'small' : ''} ${rest.className ?? ''}`} />;
}

/** Stands in for content that does not exist yet; children say how to create it. */
export function EmptyState({ title, children, fullPage }: { title: string; children?: ReactNode; /** It is the only content of the page. */ fullPage?: boolean }) {
  return (
    <div className="empty">
      {fullPage ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

export function ErrorMessage({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  return (
    <div className="error-message" role="alert">
      <strong>{error.status === 404 ? 'Not found' : error.status === 0 ? 'No response' : 'Request failed'}</strong>
      <p>{error.detail}</p>
      {error.hints.map((hint) => (
        <p key={hint} className="dim">
          {hint}
        </p>
      ))}
      {onRetry && (
        <Button small onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

export function Loading({ label = 'Loading' }: { label?: string }) {
  return (
    <div className="loading" role="status">
      <span className="spinner" aria-hidden="true" />
      <span>{label} …</span>
    </div>
  );
}

/** A time relative to now; the full date is the tooltip. */
export function RelativeTime({ timestamp }: { timestamp: string }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 15_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <time dateTime={timestamp} title={formatDateTime(timestamp)}>
      {formatAge(timestamp)}
    </time>
  );
}

export function Dialog({
  title,
  onClose,
  children,
  wide,
}: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      className={wide ? 'wide' : ''}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onKeyDown={(event) => event.stopPropagation()}
      onMouseDown={(event) => {
        if (event.target === element.current) onClose();
      }}
    >
      <div className="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <Button variant="ghost" small aria-label="Close" onClick={onClose}>
            ✕
          </Button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export function Tabs<T extends string>({
  label,
  tabs,
  value,
  onChange,
}: {
  label: string;
  tabs: { id: T; name: ReactNode; changed?: boolean }[];
  value: T;
  onChange: (id: T) => void;
}) {
  return (
    <div
      className="tabs"
      role="tablist"
      aria-label={label}
      onKeyDown={(event) => {
        const offset = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
        if (!offset) return;
        event.preventDefault();
        event.stopPropagation();
        const index = tabs.findIndex((tab) => tab.id === value);
        const next = tabs[(index + offset + tabs.length) % tabs.length];
        if (next) {
          onChange(next.id);
          const buttons = event.currentTarget.querySelectorAll('button');
          buttons[tabs.indexOf(next)]?.focus();
        }
      }}
    >
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          aria-selected={tab.id === value}
          tabIndex={tab.id === value ? 0 : -1}
          onClick={() => onChange(tab.id)}
        >
          {tab.name}
          {tab.changed && <span className="dot" title="changed in this step" />}
          {tab.changed && <span className="visually-hidden"> (changed in this step)</span>}
        </button>
      ))}
    </div>
  );
}

export function StatusBadge({ status }: { status: string }) {
  return <span className={`status ${status}`}>{status}</span>;
}
