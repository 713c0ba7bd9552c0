// Components and hooks that all pages share.
import {
  type ButtonHTMLAttributes,
  type ReactNode,
  useEffect,
  useId,
  useRef,
  useState,
  useSyncExternalStore,
} from 'react';
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

interface Toast {
  id: number;
  text: string;
  isError: boolean;
}
let toasts: Toast[] = [];
let nextToast = 1;
const toastSubscribers = new Set<() => void>();
function setToasts(next: Toast[]) {
  toasts = next;
  for (const subscriber of [...toastSubscribers]) subscriber();
}

/** Shows a short message for a few seconds. */
export function showToast(text: string, isError = false) {
  const id = nextToast++;
  setToasts([...toasts, { id, text, isError }]);
  setTimeout(() => setToasts(toasts.filter((toast) => toast.id !== id)), isError ? 9000 : 4500);
}

export function copyToClipboard(text: string, message: string): Promise<void> {
  return navigator.clipboard.writeText(text).then(
    () => showToast(message),
    () => showToast('The browser does not allow copying here.', true),
  );
}

export function ToastList() {
  const visibleToasts = useSyncExternalStore(
    (subscriber) => {
      toastSubscribers.add(subscriber);
      return () => void toastSubscribers.delete(subscriber);
    },
    () => toasts,
  );
  return (
    <div className="toasts" role="status" aria-live="polite">
      {visibleToasts.map((toast) => (
        <div key={toast.id} className={toast.isError ? 'toast bad' : 'toast'}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}

/** Whether a key press belongs to a form field or a dialog, and not to the page. */
function isTextInput(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest('input, textarea, select, dialog, [contenteditable]') !== null;
}

/** Keyboard shortcuts of a page, by `KeyboardEvent.key`; a capital letter means Shift. */
export function useKeyBindings(bindings: Record<string, (() => void) | undefined>) {
  const latest = useRef(bindings);
  latest.current = bindings;
  useEffect(() => {
    const handleKeyDown = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTextInput(event.target)) return;
      // These keys press a focused button.
      if ((event.key === ' ' || event.key === 'Enter') && event.target instanceof HTMLElement && event.target.closest('button, a, summary')) return;
      const action = latest.current[event.key];
      if (action) {
        event.preventDefault();
        action();
      }
    };
    window.addEventListener('keydown', handleKeyDown);
    return () => window.removeEventListener('keydown', handleKeyDown);
  }, []);
}

export function StatusBadge({ status }: { status: string }) {
  return <span className={`status ${status}`}>{status}</span>;
}
