// Live events for the components of a page.
import { useEffect, useRef, useSyncExternalStore } from 'react';
import type { ServerEvent } from './event-stream';
import { type ConnectionState, SharedStream } from './shared-stream';
import type { Page, StepEvent, Stop } from './types';

export type LiveEvent =
  | { type: 'step'; step: StepEvent }
  | { type: 'changed' }
  /** Events may have been missed: reload what is shown. */
  | { type: 'reset' };

const listeners = new Set<(event: LiveEvent) => void>();
const subscribers = new Set<() => void>();
let stream: SharedStream | null = null;
let connection: ConnectionState = 'connecting';
let stops: Stop[] = [];
/** Something changed while the page was hidden, where it loads nothing. */
let isStale = false;

function dispatch(event: LiveEvent) {
  for (const listener of [...listeners]) listener(event);
}

function publish() {
  for (const subscriber of [...subscribers]) subscriber();
}

function dispatchReload(type: 'changed' | 'reset') {
  if (document.hidden) isStale = true;
  else dispatch({ type });
}

function handleEvent({ type, data }: ServerEvent) {
  if (type === 'step') {
    dispatch({ type: 'step', step: JSON.parse(data) as StepEvent });
  } else if (type === 'changed') {
    dispatchReload('changed');
  } else if (type === 'stops') {
    stops = (JSON.parse(data) as Page<Stop>).items;
    publish();
  }
}

function handleVisibility() {
  if (document.hidden || !isStale) return;
  isStale = false;
  dispatch({ type: 'reset' });
}

export function connect() {
  if (stream) return;
  document.addEventListener('visibilitychange', handleVisibility);
  stream = new SharedStream({
    onEvent: handleEvent,
    onConnection: (state) => {
      connection = state;
      publish();
    },
    onGap: () => dispatchReload('reset'),
  });
}

export function disconnect() {
  document.removeEventListener('visibilitychange', handleVisibility);
  stream?.close();
  stream = null;
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
