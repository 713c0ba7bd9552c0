// Live events over one connection for the whole page, which resumes where it was cut off.
import { useEffect, useRef, useSyncExternalStore } from 'react';
import { readEvents, type ServerEvent } from './event-stream';
import type { Page, StepEvent, Stop } from './types';

export type LiveEvent =
  | { type: 'step'; step: StepEvent }
  | { type: 'changed' }
  /** Events may have been missed: reload what is shown. */
  | { type: 'reset' };

export type ConnectionState = 'connecting' | 'live' | 'lost' | 'refused';

const listeners = new Set<(event: LiveEvent) => void>();
const subscribers = new Set<() => void>();
let following: AbortController | null = null;
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

function handleEvent({ type, data, lastEventId }: ServerEvent) {
  position = lastEventId || position;
  if (type === 'step') {
    dispatch({ type: 'step', step: JSON.parse(data) as StepEvent });
  } else if (type === 'changed') {
    dispatch({ type: 'changed' });
  } else if (type === 'stops') {
    stops = (JSON.parse(data) as Page<Stop>).items;
    for (const subscriber of [...subscribers]) subscriber();
  }
}

function handleOpen() {
  retryDelay = MIN_RETRY_DELAY_MS;
  // The server repeats steps after the last position, but no other changes: those have to be reloaded.
  if (connection === 'lost') dispatch({ type: 'reset' });
  setConnection('live');
}

/** Follows the server's events until `signal` ends it, and connects again whenever the connection is lost. */
async function follow(signal: AbortSignal) {
  while (!signal.aborted) {
    const query = position === null ? '' : `?after=${encodeURIComponent(position)}`;
    try {
      const status = await readEvents(`/api/v1/events${query}`, signal, handleOpen, handleEvent);
      if (status === 401) {
        setConnection('refused');
        following = null;
        return;
      }
    } catch {
      // The server is away; the next attempt waits longer.
    }
    if (signal.aborted) return;
    setConnection('lost');
    await new Promise((resolve) => setTimeout(resolve, retryDelay));
    retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY_MS);
  }
}

export function connect() {
  if (following) return;
  following = new AbortController();
  void follow(following.signal);
}

export function disconnect() {
  following?.abort();
  following = null;
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
