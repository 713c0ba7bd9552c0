// Dark or light: what the system says, unless somebody chose.
import { useSyncExternalStore } from 'react';

type Theme = 'system' | 'dark' | 'light';
const STORAGE_KEY = 'stepback-theme';
const subscribers = new Set<() => void>();
const systemPrefersDark = window.matchMedia('(prefers-color-scheme: dark)');
let selectedTheme: Theme = readStoredTheme();

function readStoredTheme(): Theme {
  try {
    const value = localStorage.getItem(STORAGE_KEY);
    return value === 'dark' || value === 'light' ? value : 'system';
  } catch {
    return 'system';
  }
}

const isDark = () => (selectedTheme === 'system' ? systemPrefersDark.matches : selectedTheme === 'dark');

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? 'dark' : 'light';
  for (const subscriber of [...subscribers]) subscriber();
}

export function setTheme(theme: Theme) {
  selectedTheme = theme;
  try {
    if (theme === 'system') localStorage.removeItem(STORAGE_KEY);
    else localStorage.setItem(STORAGE_KEY, theme);
  } catch {
    // A browser that keeps nothing shows it for this visit.
  }
  applyTheme();
}

systemPrefersDark.addEventListener('change', applyTheme);
applyTheme();

const subscribe = (subscriber: () => void) => {
  subscribers.add(subscriber);
  return () => void subscribers.delete(subscriber);
};
/** Whether the page is dark now; changes redraw what is drawn by hand. */
export const useDark = (): boolean => useSyncExternalStore(subscribe, isDark);
