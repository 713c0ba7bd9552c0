// Asking the server: one function, one kind of failure, and a hook that asks again when told.
import { useCallback, useEffect, useRef, useState } from 'react';
import type { Page, Plan, ProblemDocument } from './types';

/** What the server says when something goes wrong, or what went wrong on the way to it. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly hints: string[] = [],
    /** The plan as it would be now, when one that was agreed to is out of date. */
    readonly plan?: Plan,
  ) {
    super(detail);
  }

  static of(error: unknown): Problem {
    if (error instanceof Problem) return error;
    return new Problem(0, error instanceof Error ? error.message : String(error));
  }
}

export type Values = Record<string, string | number | boolean | null | undefined>;

/** An address below /api/v1 with what is asked; what is empty is left out. */
export function address(path: string, values: Values = {}): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) words.set(name, String(value));
  }
  const text = words.toString();
  return `/api/v1${path}${text ? `?${text}` : ''}`;
}

async function send(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      credentials: 'same-origin',
      signal: signal ?? null,
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, 'the server does not answer', ['it may be starting again; this page tries on its own']);
  }
  if (response.ok) return response;
  const said = (await response.json().catch(() => null)) as (ProblemDocument & { plan?: Plan }) | null;
  throw new Problem(
    response.status,
    said?.detail ?? said?.title ?? `the server answered ${response.status}`,
    said?.hints ?? [],
    said?.plan ?? undefined,
  );
}

export async function get<T>(path: string, values?: Values, signal?: AbortSignal): Promise<T> {
  return (await send('GET', address(path, values), undefined, signal)).json() as Promise<T>;
}

export async function getBytes(url: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await send('GET', url, undefined, signal)).arrayBuffer();
}

export async function change<T>(method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown): Promise<T> {
  const url = path.startsWith('/api/') ? path : address(path);
  const response = await send(method, url, method === 'DELETE' ? undefined : (body ?? {}));
  return (response.status === 204 ? null : await response.json()) as T;
}

/** All pages of a list, up to a number of entries. */
export async function all<T>(path: string, values: Values = {}, most = 5000, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let after: string | null | undefined;
  do {
    const page: Page<T> = await get(path, { ...values, limit: 1000, after }, signal);
    items.push(...page.items);
    after = page.next_cursor;
  } while (after && items.length < most);
  return items;
}

export interface Asked<T> {
  value: T | undefined;
  problem: Problem | undefined;
  loading: boolean;
  again: () => void;
}

/** Asks once for every `key`, keeps what is shown while it asks again, and forgets an answer that comes too late. */
export function useAsk<T>(key: string | null, ask: (signal: AbortSignal) => Promise<T>): Asked<T> {
  const [state, setState] = useState<{ key: string | null; value?: T; problem?: Problem; loading: boolean }>({
    key: null,
    loading: true,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    if (key === null) return;
    const control = new AbortController();
    setState((old) => (old.key === key ? { ...old, loading: true } : { key, loading: true }));
    latest.current(control.signal).then(
      (value) => {
        if (!control.signal.aborted) setState({ key, value, loading: false });
      },
      (error: unknown) => {
        if (!control.signal.aborted) {
          const problem = Problem.of(error);
          // What was there is better than nothing while the server is away.
          setState((old) =>
            problem.status === 0 && old.key === key && old.value !== undefined
              ? { ...old, problem, loading: false }
              : { key, problem, loading: false },
          );
        }
      },
    );
    return () => control.abort();
  }, [key, round]);
  const again = useCallback(() => setRound((count) => count + 1), []);
  const current = state.key === key;
  return {
    value: current ? state.value : undefined,
    problem: current ? state.problem : undefined,
    loading: !current || state.loading,
    again,
  };
}
