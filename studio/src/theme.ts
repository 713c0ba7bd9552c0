// The dark or light theme: that of the system, unless the user selected one.
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
    // Without storage, the selection lasts for this visit.
  }
  applyTheme();
}

systemPrefersDark.addEventListener('change', applyTheme);
applyTheme();

const subscribe = (subscriber: () => void) => {
  subscribers.add(subscriber);
  return () => void subscribers.delete(subscriber);
};
/** Whether the page is dark now. The canvas uses it to redraw when that changes. */
export const useDark = (): boolean => useSyncExternalStore(subscribe, isDark);
