// Short messages in a corner of the page.
import { useSyncExternalStore } from 'react';

interface Toast {
  id: number;
  text: string;
  isError: boolean;
}
let toasts: Toast[] = [];
let nextToast = 1;
const subscribers = new Set<() => void>();
function setToasts(next: Toast[]) {
  toasts = next;
  for (const subscriber of [...subscribers]) subscriber();
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
      subscribers.add(subscriber);
      return () => void subscribers.delete(subscriber);
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
