// The few parts that every page is made of.
import {
  type ButtonHTMLAttributes,
  type ReactNode,
  useEffect,
  useId,
  useRef,
  useState,
  useSyncExternalStore,
} from 'react';
import type { Problem } from './api/client';
import { ago, full } from './format';

type Look = 'plain' | 'primary' | 'danger' | 'ghost';

export function Button({
  look = 'plain',
  small,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { look?: Look; small?: boolean }) {
  return <button type="button" {...rest} className={`button ${look} ${small ? 'small' : ''} ${rest.className ?? ''}`} />;
}

/** Says what there could be here and how to get it. */
export function Empty({ title, children, whole }: { title: string; children?: ReactNode; /** It is all there is on the page. */ whole?: boolean }) {
  return (
    <div className="empty">
      {whole ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

export function Trouble({ problem, again }: { problem: Problem; again?: () => void }) {
  return (
    <div className="trouble" role="alert">
      <strong>{problem.status === 404 ? 'Not there' : problem.status === 0 ? 'No answer' : 'That did not work'}</strong>
      <p>{problem.detail}</p>
      {problem.hints.map((hint) => (
        <p key={hint} className="dim">
          {hint}
        </p>
      ))}
      {again && (
        <Button small onClick={again}>
          Try again
        </Button>
      )}
    </div>
  );
}

export function Loading({ what = 'Loading' }: { what?: string }) {
  return (
    <div className="loading" role="status">
      <span className="spinner" aria-hidden="true" />
      <span>{what} …</span>
    </div>
  );
}

/** A moment, told from now; the whole of it on hover. */
export function Ago({ at }: { at: string }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 15_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <time dateTime={at} title={full(at)}>
      {ago(at)}
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
          <Button look="ghost" small aria-label="Close" onClick={onClose}>
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
        const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const at = tabs.findIndex((tab) => tab.id === value);
        const next = tabs[(at + step + tabs.length) % tabs.length];
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
          {tab.changed && <span className="hidden-text"> (changed in this step)</span>}
        </button>
      ))}
    </div>
  );
}

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}
let toasts: Toast[] = [];
let nextToast = 1;
const toastWatchers = new Set<() => void>();
function setToasts(next: Toast[]) {
  toasts = next;
  for (const watcher of [...toastWatchers]) watcher();
}

/** Says something for a few seconds. */
export function say(text: string, bad = false) {
  const id = nextToast++;
  setToasts([...toasts, { id, text, bad }]);
  setTimeout(() => setToasts(toasts.filter((toast) => toast.id !== id)), bad ? 9000 : 4500);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (watcher) => {
      toastWatchers.add(watcher);
      return () => void toastWatchers.delete(watcher);
    },
    () => toasts,
  );
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.id} className={toast.bad ? 'toast bad' : 'toast'}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}

/** Whether keys are for a field, and not for the page. */
export function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest('input, textarea, select, dialog, [contenteditable]') !== null;
}

/** Keys of a page: `key` as the browser names it; capitals are Shift. */
export function useKeys(keys: Record<string, (() => void) | undefined>) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      // A button that has the focus is pressed by these.
      if ((event.key === ' ' || event.key === 'Enter') && event.target instanceof HTMLElement && event.target.closest('button, a, summary')) return;
      const act = latest.current[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    };
    window.addEventListener('keydown', hear);
    return () => window.removeEventListener('keydown', hear);
  }, []);
}

export function Status({ status }: { status: string }) {
  return <span className={`status ${status}`}>{status}</span>;
}
