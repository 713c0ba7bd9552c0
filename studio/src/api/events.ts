// What happens, as it happens: one connection for the whole page, which comes back where it was cut off.
import { useEffect, useRef, useSyncExternalStore } from 'react';
import type { Page, StepEvent, Stop } from './types';

export type News =
  | { event: 'step'; step: StepEvent }
  | { event: 'changed' }
  /** Something may have been missed; whoever shows anything asks again. */
  | { event: 'reset' };

export type Connection = 'connecting' | 'live' | 'lost' | 'refused';

const listeners = new Set<(news: News) => void>();
const watchers = new Set<() => void>();
let source: EventSource | null = null;
let position: string | null = null;
let connection: Connection = 'connecting';
let stops: Stop[] = [];

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;
let wait = FIRST_WAIT;

function tell(news: News) {
  for (const listener of [...listeners]) listener(news);
}

function become(next: Connection) {
  if (connection === next) return;
  connection = next;
  for (const watcher of [...watchers]) watcher();
}

function open() {
  const words = position === null ? '' : `?after=${encodeURIComponent(position)}`;
  const wasLost = connection === 'lost';
  const opened = new EventSource(`/api/v1/events${words}`);
  source = opened;
  opened.onopen = () => {
    wait = FIRST_WAIT;
    // Steps are told again from the last position; whether anything else changed is not, so everybody asks.
    if (wasLost || connection === 'lost') tell({ event: 'reset' });
    become('live');
  };
  opened.addEventListener('step', (message) => {
    position = message.lastEventId || position;
    tell({ event: 'step', step: JSON.parse(message.data as string) as StepEvent });
  });
  opened.addEventListener('changed', () => tell({ event: 'changed' }));
  opened.addEventListener('stops', (message) => {
    stops = (JSON.parse(message.data as string) as Page<Stop>).items;
    for (const watcher of [...watchers]) watcher();
  });
  opened.onerror = () => {
    become('lost');
    if (opened.readyState !== EventSource.CLOSED) return;
    // The browser gave up: the server refused, or is gone.
    setTimeout(() => void comeBack(), wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };
}

async function comeBack() {
  try {
    const answer = await fetch('/api/v1/workspaces', { credentials: 'same-origin' });
    if (answer.status === 401) {
      become('refused');
      return;
    }
  } catch {
    // Not there yet; the next attempt waits longer.
  }
  open();
}

export function follow() {
  if (!source) open();
}

export function unfollow() {
  source?.close();
  source = null;
}

/** Hears what happens for as long as a component is shown. */
export function useNews(listener: (news: News) => void) {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const hear = (news: News) => latest.current(news);
    listeners.add(hear);
    return () => void listeners.delete(hear);
  }, []);
}

function watch(watcher: () => void) {
  watchers.add(watcher);
  return () => void watchers.delete(watcher);
}

export const useConnection = (): Connection => useSyncExternalStore(watch, () => connection);
/** Agents that wait now. */
export const useStops = (): Stop[] => useSyncExternalStore(watch, () => stops);

/** Calls `then` some time after the last call, so that many events are one question. */
export function useSoon(then: () => void, after = 250): () => void {
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const latest = useRef(then);
  latest.current = then;
  useEffect(() => () => void (timer.current && clearTimeout(timer.current)), []);
  return useRef(() => {
    if (timer.current) return;
    timer.current = setTimeout(() => {
      timer.current = null;
      latest.current();
    }, after);
  }).current;
}
