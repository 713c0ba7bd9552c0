// Steps of all sessions by their words, with what was found marked.
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { get, useAsk } from '../api/client';
import type { Hit, Hits, Snippet } from '../api/types';
import { count } from '../format';
import { glyph } from '../kinds';
import { Link, go, set, useRoute } from '../route';
import { Ago, Button, Empty, Loading, Trouble, useKeys } from '../ui';

const PAGE = 50;

export default function SearchPage() {
  const { words } = useRoute();
  const q = words.get('q') ?? '';
  const newest = words.get('newest') ?? '';
  const failed = words.get('failed') ?? '';
  const since = words.get('since') ?? '';
  const substring = words.get('substring') ?? '';
  const [text, setText] = useState(q);
  const [most, setMost] = useState(PAGE);
  const [at, setAt] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => setText(q), [q]);
  useEffect(() => {
    field.current?.focus();
    setMost(PAGE);
  }, [q]);
  const asked = useAsk(q ? `${q} ${newest} ${failed} ${since} ${substring} ${most}` : null, async (signal) => {
    const items: Hit[] = [];
    let after: string | null | undefined;
    let last: Hits;
    do {
      last = await get<Hits>('/search', { q, newest, failed, since, substring, limit: PAGE, after }, signal);
      items.push(...last.items);
      after = last.next_cursor;
    } while (after && items.length < most);
    return { ...last, items };
  });
  const items = asked.value?.items ?? [];
  useKeys({
    j: () => setAt((old) => Math.min(old + 1, items.length - 1)),
    k: () => setAt((old) => Math.max(old - 1, 0)),
    '/': () => field.current?.focus(),
    Enter: () => {
      const hit = items[at];
      if (hit) go(`/sessions/${hit.session}?step=${hit.number}`);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    set({ q: text }, false);
  };
  return (
    <div className="page">
      <header className="head">
        <div>
          <h1>Search</h1>
          <p className="dim">Every prompt, call, output, error, message and note that was recorded.</p>
        </div>
      </header>
      <form className="filters" role="search" aria-label="Search steps" onSubmit={submit}>
        <input ref={field} className="grow" type="search" aria-label="Words" placeholder="Words that must all be there, “a phrase”, -without …" value={text} onChange={(event) => setText(event.target.value)} />
        <Button look="primary" type="submit">Search</Button>
        <select aria-label="Order" value={newest} onChange={(event) => set({ newest: event.target.value })}>
          <option value="">best first</option>
          <option value="true">newest first</option>
        </select>
        <select aria-label="Outcome" value={failed} onChange={(event) => set({ failed: event.target.value })}>
          <option value="">any outcome</option>
          <option value="true">went wrong</option>
        </select>
        <select aria-label="When" value={since} onChange={(event) => set({ since: event.target.value })}>
          <option value="">any time</option>
          <option value="1 hour ago">last hour</option>
          <option value="1 day ago">last day</option>
          <option value="7 days ago">last week</option>
        </select>
        <label className="check">
          <input type="checkbox" checked={substring === 'true'} onChange={() => set({ substring: substring ? null : 'true' })} /> parts of words
        </label>
      </form>
      {!q && (
        <Empty title="What are you looking for?">
          <p>A command, a file, an error message, something somebody said. It looks at all sessions at once, in milliseconds.</p>
        </Empty>
      )}
      {asked.problem && <Trouble problem={asked.problem} again={asked.again} />}
      {q && !asked.value && !asked.problem && <Loading what="Searching" />}
      {asked.value && items.length === 0 && (
        <Empty title="Nothing has these words">
          <p>{substring ? 'Try fewer words.' : 'Try fewer words, or look for parts of words.'}</p>
        </Empty>
      )}
      {asked.value && items.length > 0 && (
        <>
          <p className="dim" role="status">
            {asked.value.total_is_exact ? '' : 'at least '}
            {count(asked.value.total)} found{asked.value.complete ? '' : '; the newest steps are still being read'}
          </p>
          <ul className="hits" aria-label="What was found">
            {items.map((hit, index) => (
              <li key={hit.id} className={`card ${index === at ? 'at' : ''}`}>
                <Link href={`/sessions/${hit.session}?step=${hit.number}`}>
                  <span className="glyph" aria-hidden="true">{glyph(hit.kind)}</span> #{hit.number} {hit.summary}
                </Link>
                <span className="dim">
                  {' '}
                  {hit.kind} · {hit.agent ?? 'person'} · <Ago at={hit.at} />
                </span>
                {hit.snippets.slice(0, 3).map((snippet, place) => (
                  <p key={place} className="snippet">
                    <span className="dim">{snippet.field}</span> <Marked snippet={snippet} />
                  </p>
                ))}
              </li>
            ))}
          </ul>
          {asked.value.next_cursor && (
            <p className="more">
              <Button onClick={() => setMost(most + PAGE)}>Show more</Button>
            </p>
          )}
        </>
      )}
    </div>
  );
}

/** Marks are places in the bytes of the text; here they become places in the text. */
function Marked({ snippet }: { snippet: Snippet }) {
  const bytes = new TextEncoder().encode(snippet.text);
  const decoder = new TextDecoder();
  const parts: ReactNode[] = [];
  let at = 0;
  snippet.marks.forEach(([from = 0, to = 0], index) => {
    parts.push(decoder.decode(bytes.subarray(at, from)));
    parts.push(<mark key={index}>{decoder.decode(bytes.subarray(from, to))}</mark>);
    at = to;
  });
  parts.push(decoder.decode(bytes.subarray(at)));
  return (
    <>
      {snippet.cut[0] ? '… ' : ''}
      {parts}
      {snippet.cut[1] ? ' …' : ''}
    </>
  );
}
