// Routing. The URL is the only state that is kept between visits.
import { type AnchorHTMLAttributes, useSyncExternalStore } from 'react';

const subscribers = new Set<() => void>();
let current = readLocation();

export interface Route {
  segments: string[];
  query: URLSearchParams;
  href: string;
}

function readLocation(): Route {
  const { pathname, search } = window.location;
  return {
    segments: pathname.split('/').filter(Boolean).map(decodeURIComponent),
    query: new URLSearchParams(search),
    href: pathname + search,
  };
}

function publishLocation() {
  current = readLocation();
  for (const subscriber of [...subscribers]) subscriber();
}

window.addEventListener('popstate', publishLocation);

export function navigate(href: string, replace = false) {
  if (href === current.href) return;
  window.history[replace ? 'replaceState' : 'pushState'](null, '', href);
  publishLocation();
}

/** Changes query parameters; an empty value removes the parameter. */
export function setQuery(changes: Record<string, string | number | null | undefined>, replace = true) {
  const next = new URLSearchParams(current.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '') next.delete(name);
    else next.set(name, String(value));
  }
  const queryString = next.toString();
  navigate(window.location.pathname + (queryString ? `?${queryString}` : ''), replace);
}

export const useRoute = (): Route =>
  useSyncExternalStore(
    (subscriber) => {
      subscribers.add(subscriber);
      return () => void subscribers.delete(subscriber);
    },
    () => current,
  );

/** A link to another page of the Studio, followed without loading the page again. */
export function Link({ href, onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  return (
    <a
      href={href}
      onClick={(event) => {
        onClick?.(event);
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        navigate(href);
      }}
      {...rest}
    />
  );
}
