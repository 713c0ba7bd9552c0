// Requests to the API: one error type, and a hook that loads data and can reload it.
import { useCallback, useEffect, useRef, useState } from 'react';
import { sessionHeaders } from './page-key';
import type { Page, Plan, ProblemDocument } from './types';

/** An error response of the server, or a request that failed on the way (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly hints: string[] = [],
    /** The current plan, if the one that was confirmed is out of date. */
    readonly plan?: Plan,
  ) {
    super(detail);
  }

  static from(error: unknown): ApiError {
    if (error instanceof ApiError) return error;
    return new ApiError(0, error instanceof Error ? error.message : String(error));
  }
}

export type QueryParams = Record<string, string | number | boolean | null | undefined>;

/** A URL below /api/v1; empty parameters are left out. */
export function apiUrl(path: string, params: QueryParams = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) query.set(name, String(value));
  }
  const queryString = query.toString();
  return `/api/v1${path}${queryString ? `?${queryString}` : ''}`;
}

async function fetchChecked(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      credentials: 'same-origin',
      signal: signal ?? null,
      headers: { ...sessionHeaders(), ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, 'the server does not respond', ['it may be restarting; this page reconnects automatically']);
  }
  if (response.ok) return response;
  const document = (await response.json().catch(() => null)) as (ProblemDocument & { plan?: Plan }) | null;
  throw new ApiError(
    response.status,
    document?.detail ?? document?.title ?? `the server responded with status ${response.status}`,
    document?.hints ?? [],
    document?.plan ?? undefined,
  );
}

export async function get<T>(path: string, params?: QueryParams, signal?: AbortSignal): Promise<T> {
  return (await fetchChecked('GET', apiUrl(path, params), undefined, signal)).json() as Promise<T>;
}

export async function getBytes(url: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  return (await fetchChecked('GET', url, undefined, signal)).arrayBuffer();
}

/**
 * Saves what is at `url` as a file, with the name that the server gives it or else `name`, and returns its size. A link could not
 * send the header that authorises the request.
 */
export async function download(url: string, name: string): Promise<number> {
  const response = await fetchChecked('GET', url);
  const blob = await response.blob();
  const givenName = /filename="([^"/\\]+)"/.exec(response.headers.get('content-disposition') ?? '')?.[1];
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = givenName ?? name;
  link.click();
  // Once the browser has begun to save it.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return blob.size;
}

export async function send<T>(method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown): Promise<T> {
  const url = path.startsWith('/api/') ? path : apiUrl(path);
  const response = await fetchChecked(method, url, method === 'DELETE' ? undefined : (body ?? {}));
  return (response.status === 204 ? null : await response.json()) as T;
}

/** Loads pages of a list until there are no more, or `maxItems` are loaded. `next_cursor` of the result tells whether there are more. */
export async function getPages<P extends Page<unknown>>(path: string, params: QueryParams, pageSize: number, maxItems: number, signal?: AbortSignal): Promise<P> {
  let page = await get<P>(path, { ...params, limit: pageSize }, signal);
  const { items } = page;
  while (page.next_cursor && items.length < maxItems) {
    page = await get<P>(path, { ...params, limit: pageSize, after: page.next_cursor }, signal);
    items.push(...page.items);
  }
  return { ...page, items };
}

/** The items of a whole list, up to about `maxItems`. */
export async function getAll<T>(path: string, params: QueryParams = {}, maxItems = 5000, signal?: AbortSignal): Promise<T[]> {
  return (await getPages<Page<T>>(path, params, 1000, maxItems, signal)).items;
}

export interface RequestState<T> {
  data: T | undefined;
  error: ApiError | undefined;
  loading: boolean;
  reload: () => void;
}

/** Sends one request for each `key`. Data stays while it is reloaded; a response that comes after the key changed is dropped. */
export function useRequest<T>(key: string | null, request: (signal: AbortSignal) => Promise<T>): RequestState<T> {
  const [state, setState] = useState<{ key: string | null; data?: T; error?: ApiError; loading: boolean }>({
    key: null,
    loading: true,
  });
  const [attempt, setAttempt] = useState(0);
  const latest = useRef(request);
  latest.current = request;
  useEffect(() => {
    if (key === null) return;
    const controller = new AbortController();
    setState((old) => (old.key === key ? { ...old, loading: true } : { key, loading: true }));
    latest.current(controller.signal).then(
      (data) => {
        if (!controller.signal.aborted) setState({ key, data, loading: false });
      },
      (error: unknown) => {
        if (!controller.signal.aborted) {
          const apiError = ApiError.from(error);
          // While the server is away, the last data stays.
          setState((old) =>
            apiError.status === 0 && old.key === key && old.data !== undefined
              ? { ...old, error: apiError, loading: false }
              : { key, error: apiError, loading: false },
          );
        }
      },
    );
    return () => controller.abort();
  }, [key, attempt]);
  const reload = useCallback(() => setAttempt((count) => count + 1), []);
  const current = state.key === key;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    loading: !current || state.loading,
    reload,
  };
}
