// Keyboard shortcuts.
import { useEffect, useRef } from 'react';

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
