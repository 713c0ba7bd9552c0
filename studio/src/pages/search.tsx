// Full-text search over the steps of all sessions, with matches highlighted.
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { getPages, useRequest } from '../api/client';
import type { SearchResults, Snippet } from '../api/types';
import { formatCount } from '../format';
import { useKeyBindings } from '../keyboard';
import { glyphOf } from '../kinds';
import { Link, navigate, setQuery, useRoute } from '../route';
import { Button, EmptyState, ErrorMessage, Loading, RelativeTime } from '../ui';

const PAGE_SIZE = 50;

export default function SearchPage() {
  const { query } = useRoute();
  const searchText = query.get('q') ?? '';
  const newest = query.get('newest') ?? '';
  const failed = query.get('failed') ?? '';
  const since = query.get('since') ?? '';
  const substring = query.get('substring') ?? '';
  const [text, setText] = useState(searchText);
  const [limit, setLimit] = useState(PAGE_SIZE);
  const [cursor, setCursor] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setText(searchText), [searchText]);
  useEffect(() => {
    input.current?.focus();
    setLimit(PAGE_SIZE);
  }, [searchText]);
  const request = useRequest(searchText ? `${searchText} ${newest} ${failed} ${since} ${substring} ${limit}` : null, (signal) =>
    getPages<SearchResults>('/search', { q: searchText, newest, failed, since, substring }, PAGE_SIZE, limit, signal),
  );
  const items = request.data?.items ?? [];
  useKeyBindings({
    j: () => setCursor((old) => Math.min(old + 1, items.length - 1)),
    k: () => setCursor((old) => Math.max(old - 1, 0)),
    '/': () => input.current?.focus(),
    Enter: () => {
      const hit = items[cursor];
      if (hit) navigate(`/sessions/${hit.session}?step=${hit.number}`);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setQuery({ q: text }, false);
  };
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Search</h1>
          <p className="dim">Searches all recorded prompts, calls, outputs, errors, messages and notes.</p>
        </div>
      </header>
      <form className="filters" role="search" aria-label="Search steps" onSubmit={submit}>
        <input ref={input} className="grow" type="search" aria-label="Search terms" placeholder="All of these words, “a phrase”, -without …" value={text} onChange={(event) => setText(event.target.value)} />
        <Button variant="primary" type="submit">Search</Button>
        <select aria-label="Order" value={newest} onChange={(event) => setQuery({ newest: event.target.value })}>
          <option value="">best match first</option>
          <option value="true">newest first</option>
        </select>
        <select aria-label="Outcome" value={failed} onChange={(event) => setQuery({ failed: event.target.value })}>
          <option value="">any outcome</option>
          <option value="true">failed</option>
        </select>
        <select aria-label="When" value={since} onChange={(event) => setQuery({ since: event.target.value })}>
          <option value="">any time</option>
          <option value="1 hour ago">last hour</option>
          <option value="1 day ago">last day</option>
          <option value="7 days ago">last week</option>
        </select>
        <label className="check">
          <input type="checkbox" checked={substring === 'true'} onChange={() => setQuery({ substring: substring ? null : 'true' })} /> match parts of words
        </label>
      </form>
      {!searchText && (
        <EmptyState title="Search all sessions">
          <p>Enter a command, a file name, an error message or words of a conversation.</p>
        </EmptyState>
      )}
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {searchText && !request.data && !request.error && <Loading label="Searching" />}
      {request.data && items.length === 0 && (
        <EmptyState title="No results">
          <p>{substring ? 'Try fewer words.' : 'Try fewer words, or match parts of words.'}</p>
        </EmptyState>
      )}
      {request.data && items.length > 0 && (
        <>
          <p className="dim" role="status">
            {request.data.total_is_exact ? '' : 'at least '}
            {formatCount(request.data.total)} found{request.data.complete ? '' : '; the newest steps are still being indexed'}
          </p>
          <ul className="hits" aria-label="Search results">
            {items.map((hit, index) => (
              <li key={hit.id} className={`card ${index === cursor ? 'selected' : ''}`}>
                <Link href={`/sessions/${hit.session}?step=${hit.number}`}>
                  <span className="glyph" aria-hidden="true">{glyphOf(hit.kind)}</span> #{hit.number} {hit.summary}
                </Link>
                <span className="dim">
                  {' '}
                  {hit.kind} · {hit.agent ?? 'person'} · <RelativeTime timestamp={hit.at} />
                </span>
                {hit.snippets.slice(0, 3).map((snippet, index) => (
                  <p key={index} className="snippet">
                    <span className="dim">{snippet.field}</span> <HighlightedSnippet snippet={snippet} />
                  </p>
                ))}
              </li>
            ))}
          </ul>
          {request.data.next_cursor && (
            <p className="more">
              <Button onClick={() => setLimit(limit + PAGE_SIZE)}>Show more</Button>
            </p>
          )}
        </>
      )}
    </div>
  );
}

/** Marks are byte offsets of the UTF-8 text. */
function HighlightedSnippet({ snippet }: { snippet: Snippet }) {
  const bytes = new TextEncoder().encode(snippet.text);
  const decoder = new TextDecoder();
  const parts: ReactNode[] = [];
  let position = 0;
  snippet.marks.forEach(([from = 0, to = 0], index) => {
    parts.push(decoder.decode(bytes.subarray(position, from)));
    parts.push(<mark key={index}>{decoder.decode(bytes.subarray(from, to))}</mark>);
    position = to;
  });
  parts.push(decoder.decode(bytes.subarray(position)));
  return (
    <>
      {snippet.cut[0] ? '… ' : ''}
      {parts}
      {snippet.cut[1] ? ' …' : ''}
    </>
  );
}
