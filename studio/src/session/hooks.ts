// Hooks of the session page: the selected step, values that follow it more slowly, and playback.
import { useCallback, useEffect, useRef, useState } from 'react';
import { setQuery, useRoute } from '../route';
import type { Timeline } from './timeline';

const URL_UPDATE_DELAY_MS = 200;

/** The step in the URL, 0 for the newest. The URL is updated with a delay, because browsers limit how often it may change. */
export function useSelectedStep() {
  const { query } = useRoute();
  const stepInUrl = Number(query.get('step')) || 0;
  const [requestedStep, setRequestedStep] = useState(stepInUrl);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => {
    if (!timer.current) setRequestedStep(stepInUrl);
  }, [stepInUrl]);
  useEffect(() => () => void (timer.current && clearTimeout(timer.current)), []);
  const selectStep = useCallback((number: number) => {
    setRequestedStep(number);
    if (timer.current) clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = null;
      setQuery({ step: number || null });
    }, URL_UPDATE_DELAY_MS);
  }, []);
  return { requestedStep, selectStep };
}

const THROTTLE_MS = 120;

/** No selection yet; the first value is used without a delay. */
export const NONE = -1;

/** Follows a value at most once per `THROTTLE_MS`, for views that are expensive to render while scrubbing. */
export function useThrottledValue(value: number): number {
  const [throttled, setThrottled] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, last.current + THROTTLE_MS - performance.now());
    const publish = () => {
      last.current = performance.now();
      setThrottled(value);
    };
    if (wait === 0) {
      publish();
      return;
    }
    const timer = setTimeout(publish, wait);
    return () => clearTimeout(timer);
  }, [value]);
  return throttled === NONE ? value : throttled;
}

const SETTLE_MS = 90;

/** Follows a value once it has not changed for `SETTLE_MS`; the first change after a pause is followed at once. */
export function useDebouncedValue(value: number): number {
  const [settled, setSettled] = useState(value);
  const lastChange = useRef(0);
  useEffect(() => {
    const now = performance.now();
    const isCalm = now - lastChange.current > SETTLE_MS * 2;
    lastChange.current = now;
    if (isCalm) {
      setSettled(value);
      return;
    }
    const timer = setTimeout(() => setSettled(value), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled === NONE ? value : settled;
}

/** Plays the steps: each is shown for its duration, within limits, divided by the speed. */
export function usePlayback(timeline: Timeline | undefined, selected: number, select: (index: number) => void) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(4);
  useEffect(() => {
    if (!playing || !timeline) return;
    if (selected >= timeline.length - 1) {
      setPlaying(false);
      return;
    }
    const elapsedMs = ((timeline.at[selected + 1] ?? 0) - (timeline.at[selected] ?? 0)) / 1000;
    const wait = Math.max(16, Math.min(2000, Math.max(elapsedMs, 250)) / speed);
    const timer = setTimeout(() => select(selected + 1), wait);
    return () => clearTimeout(timer);
  }, [playing, speed, selected, timeline, select]);
  const toggle = () => {
    if (!playing && timeline && selected >= timeline.length - 1) select(0);
    setPlaying(!playing);
  };
  return { playing, speed, setSpeed, toggle };
}
