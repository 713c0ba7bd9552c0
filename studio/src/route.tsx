// Where in the Studio we are: the address is the only place that is remembered.
import { type AnchorHTMLAttributes, useSyncExternalStore } from 'react';

const watchers = new Set<() => void>();
let current = read();

export interface Route {
  /** The parts of the path. */
  parts: string[];
  /** What comes after `?`. */
  words: URLSearchParams;
  href: string;
}

function read(): Route {
  const { pathname, search } = window.location;
  return {
    parts: pathname.split('/').filter(Boolean).map(decodeURIComponent),
    words: new URLSearchParams(search),
    href: pathname + search,
  };
}

function update() {
  current = read();
  for (const watcher of [...watchers]) watcher();
}

window.addEventListener('popstate', update);

export function go(href: string, replace = false) {
  if (href === current.href) return;
  window.history[replace ? 'replaceState' : 'pushState'](null, '', href);
  update();
}

/** Changes what comes after `?`; an empty value is left out. */
export function set(words: Record<string, string | number | null | undefined>, replace = true) {
  const next = new URLSearchParams(current.words);
  for (const [name, value] of Object.entries(words)) {
    if (value === null || value === undefined || value === '') next.delete(name);
    else next.set(name, String(value));
  }
  const text = next.toString();
  go(window.location.pathname + (text ? `?${text}` : ''), replace);
}

export const useRoute = (): Route =>
  useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => void watchers.delete(watcher);
    },
    () => current,
  );

/** A link inside of the Studio. */
export function Link({ href, onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  return (
    <a
      href={href}
      onClick={(event) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        go(href);
      }}
      {...rest}
    />
  );
}
