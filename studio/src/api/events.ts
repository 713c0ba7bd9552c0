// Live events over one connection for the whole page, which resumes where it was cut off.
import { useEffect, useRef, useSyncExternalStore } from 'react';
import type { Page, StepEvent, Stop } from './types';

export type LiveEvent =
  | { type: 'step'; step: StepEvent }
  | { type: 'changed' }
  /** Events may have been missed: reload what is shown. */
  | { type: 'reset' };

export type ConnectionState = 'connecting' | 'live' | 'lost' | 'refused';

const listeners = new Set<(event: LiveEvent) => void>();
const subscribers = new Set<() => void>();
let source: EventSource | null = null;
let position: string | null = null;
let connection: ConnectionState = 'connecting';
let stops: Stop[] = [];

const MIN_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 8000;
let retryDelay = MIN_RETRY_DELAY_MS;

function dispatch(event: LiveEvent) {
  for (const listener of [...listeners]) listener(event);
}

function setConnection(next: ConnectionState) {
  if (connection === next) return;
  connection = next;
  for (const subscriber of [...subscribers]) subscriber();
}

function openEventSource() {
  const query = position === null ? '' : `?after=${encodeURIComponent(position)}`;
  const wasLost = connection === 'lost';
  const opened = new EventSource(`/api/v1/events${query}`);
  source = opened;
  opened.onopen = () => {
    retryDelay = MIN_RETRY_DELAY_MS;
    // The server repeats steps after the last position, but no other changes: those have to be reloaded.
    if (wasLost || connection === 'lost') dispatch({ type: 'reset' });
    setConnection('live');
  };
  opened.addEventListener('step', (message) => {
    position = message.lastEventId || position;
    dispatch({ type: 'step', step: JSON.parse(message.data as string) as StepEvent });
  });
  opened.addEventListener('changed', () => dispatch({ type: 'changed' }));
  opened.addEventListener('stops', (message) => {
    stops = (JSON.parse(message.data as string) as Page<Stop>).items;
    for (const subscriber of [...subscribers]) subscriber();
  });
  opened.onerror = () => {
    setConnection('lost');
    if (opened.readyState !== EventSource.CLOSED) return;
    // The browser gave up: the server refused the connection, or is gone.
    setTimeout(() => void reconnect(), retryDelay);
    retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY_MS);
  };
}

async function reconnect() {
  try {
    const response = await fetch('/api/v1/workspaces', { credentials: 'same-origin' });
    if (response.status === 401) {
      setConnection('refused');
      return;
    }
  } catch {
    // The server is still away; the next attempt waits longer.
  }
  openEventSource();
}

export function connect() {
  if (!source) openEventSource();
}

export function disconnect() {
  source?.close();
  source = null;
}

/** Calls `listener` for each live event while the component is mounted. */
export function useLiveEvents(listener: (event: LiveEvent) => void) {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const forward = (event: LiveEvent) => latest.current(event);
    listeners.add(forward);
    return () => void listeners.delete(forward);
  }, []);
}

function subscribe(subscriber: () => void) {
  subscribers.add(subscriber);
  return () => void subscribers.delete(subscriber);
}

export const useConnection = (): ConnectionState => useSyncExternalStore(subscribe, () => connection);
/** Agents that wait at a breakpoint now. */
export const useStops = (): Stop[] => useSyncExternalStore(subscribe, () => stops);

/** Collects calls within `intervalMs` into one call of `callback`, so that many events cause one request. */
export function useThrottledCallback(callback: () => void, intervalMs = 250): () => void {
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => () => void (timer.current && clearTimeout(timer.current)), []);
  return useRef(() => {
    if (timer.current) return;
    timer.current = setTimeout(() => {
      timer.current = null;
      latest.current();
    }, intervalMs);
  }).current;
}
