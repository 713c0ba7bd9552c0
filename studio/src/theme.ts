// Dark or light: what the system says, unless somebody chose.
import { useSyncExternalStore } from 'react';

export type Theme = 'system' | 'dark' | 'light';
const KEY = 'stepback-theme';
const watchers = new Set<() => void>();
const system = window.matchMedia('(prefers-color-scheme: dark)');
let chosen: Theme = stored();

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'dark' || value === 'light' ? value : 'system';
  } catch {
    return 'system';
  }
}

const isDark = () => (chosen === 'system' ? system.matches : chosen === 'dark');

function apply() {
  document.documentElement.dataset.theme = isDark() ? 'dark' : 'light';
  for (const watcher of [...watchers]) watcher();
}

export function choose(theme: Theme) {
  chosen = theme;
  try {
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // A browser that keeps nothing shows it for this visit.
  }
  apply();
}

system.addEventListener('change', apply);
apply();

const watch = (watcher: () => void) => {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
};
/** Whether the page is dark now; changes redraw what is drawn by hand. */
export const useDark = (): boolean => useSyncExternalStore(watch, isDark);
