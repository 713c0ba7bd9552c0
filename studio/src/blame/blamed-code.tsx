// A file with a gutter that names the origin of every line. Only visible lines are rendered.
import { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { get, useRequest } from '../api/client';
import type { Blame } from '../api/types';
import { type BlameTarget, CodeLine, CodeLines, ROW_HEIGHT, useHighlightedLines, useVisibleRows } from '../diff/file-preview';
import { pluralize } from '../format';
import { navigate } from '../route';
import { ErrorMessage } from '../ui';
import { OriginCard } from './card';
import { arrangeBlame, type BlamedFile, describeAuthor, describeOrigin, stepHref } from './origins';

export default function BlamedCode({ path, text, target }: { path: string; text: string; target: BlameTarget }) {
  const request = useRequest(`blame ${target.workspace} ${path} ${target.at}`, async (signal) =>
    arrangeBlame(await get<Blame>(`/workspaces/${target.workspace}/blame`, { path, at: target.at }, signal)),
  );
  const lineCount = useMemo(() => text.replace(/\n$/, '').split('\n').length, [text]);
  if (request.error) {
    return (
      <>
        <ErrorMessage error={request.error} onRetry={request.reload} />
        <CodeLines path={path} text={text} />
      </>
    );
  }
  if (!request.data) {
    return (
      <>
        <p className="dim pad blame-note" role="status">Finding out where each line comes from …</p>
        <CodeLines path={path} text={text} />
      </>
    );
  }
  const { document } = request.data;
  if (document.lines.length !== lineCount) {
    return (
      <>
        <p className="dim pad blame-note">
          The origins are of another version of this file, with {pluralize(document.lines.length, 'line')}, so they are not shown.
        </p>
        <CodeLines path={path} text={text} />
      </>
    );
  }
  return <GutterAndLines path={path} text={text} target={target} file={request.data} />;
}

const CLOSE_DELAY_MS = 180;

function GutterAndLines({ path, text, target, file }: { path: string; text: string; target: BlameTarget; file: BlamedFile }) {
  const { workspace } = target;
  const { lines, tokens, widest } = useHighlightedLines(path, text);
  const { container, viewport, first, last } = useVisibleRows(lines.length);
  const cardId = useId();
  const card = useRef<HTMLDivElement>(null);
  /** The line whose origin the card shows. */
  const [shown, setShown] = useState<number | null>(null);
  /** The run that the Tab key reaches. */
  const [current, setCurrent] = useState(0);
  const wantsFocus = useRef(false);
  const closing = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(closing.current), []);
  const open = useCallback((line: number | null) => {
    clearTimeout(closing.current);
    setShown(line);
  }, []);
  const closeSoon = useCallback(() => {
    clearTimeout(closing.current);
    closing.current = setTimeout(() => setShown(null), CLOSE_DELAY_MS);
  }, []);
  const { document, runs, runOfLine, colours } = file;
  const firstVisible = Math.floor(viewport.top / ROW_HEIGHT);
  const lastVisible = Math.min(lines.length - 1, Math.floor((viewport.top + viewport.height) / ROW_HEIGHT));
  // The run with the tab stop stays; if it is scrolled away, the first visible one takes it.
  const currentRun = runs[current];
  const isCurrentVisible = currentRun !== undefined && currentRun.last >= firstVisible && currentRun.first <= lastVisible;
  const tabStop = isCurrentVisible || wantsFocus.current ? current : (runOfLine[Math.min(firstVisible, lines.length - 1)] ?? 0);

  const moveTo = (index: number) => {
    const run = runs[index];
    const element = container.current;
    if (!run || !element) return;
    const top = run.first * ROW_HEIGHT;
    if (top < element.scrollTop || top + ROW_HEIGHT > element.scrollTop + element.clientHeight) element.scrollTop = Math.max(0, top - element.clientHeight / 3);
    wantsFocus.current = true;
    setCurrent(index);
    open(run.first);
  };
  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    const button = container.current?.querySelector<HTMLElement>(`[data-run="${current}"]`);
    if (!button) return;
    wantsFocus.current = false;
    button.focus({ preventScroll: true });
  });

  const rows = [];
  for (let i = first; i <= last; i++) {
    const run = runOfLine[i] ?? 0;
    const originIndex = document.lines[i]?.origin ?? 0;
    const origin = document.origins[originIndex];
    // A run is named at its first line, or at the first visible one.
    const isNamed = runs[run]?.first === i || (i === firstVisible && (runs[run]?.first ?? 0) < i);
    const href = origin && stepHref(workspace, origin);
    rows.push(
      <div key={i} className={`code-line blamed ${runs[run]?.first === i ? 'starts' : ''}`} style={{ top: i * ROW_HEIGHT }}>
        {origin && isNamed ? (
          <button
            type="button"
            className={`origin ${colours[originIndex] ?? ''} ${shown !== null && runOfLine[shown] === run ? 'shown' : ''}`}
            data-run={run}
            tabIndex={run === tabStop ? 0 : -1}
            aria-label={`Lines ${(runs[run]?.first ?? 0) + 1} to ${(runs[run]?.last ?? 0) + 1}: ${describeOrigin(origin)}, ${origin.basis}${origin.step == null ? '' : `, step #${origin.step}`}`}
            aria-describedby={shown === i ? cardId : undefined}
            onPointerEnter={(event) => event.pointerType === 'mouse' && open(i)}
            onPointerLeave={closeSoon}
            onFocus={() => {
              setCurrent(run);
              open(i);
            }}
            onBlur={(event) => {
              if (!card.current?.contains(event.relatedTarget)) closeSoon();
            }}
            onClick={(event) => {
              // A finger cannot hover: the first tap shows the card, which has the links.
              const isTouch = (event.nativeEvent as PointerEvent).pointerType === 'touch';
              if (isTouch || !href) open(i);
              else navigate(href);
            }}
            onKeyDown={(event) => {
              const to = { ArrowDown: run + 1, ArrowUp: run - 1, Home: 0, End: runs.length - 1 }[event.key];
              if (event.key === 'Escape' && shown !== null) open(null);
              else if (to !== undefined) moveTo(Math.max(0, Math.min(runs.length - 1, to)));
              else return;
              event.preventDefault();
              event.stopPropagation();
            }}
          >
            <span className="who">{describeAuthor(origin)}</span>
            {origin.step != null && <span className="step-number">#{origin.step}</span>}
          </button>
        ) : (
          <span
            className={`origin ${colours[originIndex] ?? ''} ${shown !== null && runOfLine[shown] === run ? 'shown' : ''}`}
            aria-hidden="true"
            onPointerEnter={(event) => event.pointerType === 'mouse' && open(i)}
            onPointerLeave={closeSoon}
            onClick={() => (href ? navigate(href) : open(i))}
          />
        )}
        <CodeLine number={i + 1} tokens={tokens?.[i]} text={lines[i] ?? ''} />
      </div>,
    );
  }
  const shownLine = shown === null ? undefined : document.lines[shown];
  const shownOrigin = shownLine && document.origins[shownLine.origin];
  const offset = shown === null ? 0 : shown * ROW_HEIGHT - viewport.top;
  const isLow = offset > viewport.height / 2;
  return (
    <div className="code-frame">
      <div className="code" ref={container} tabIndex={0} role="region" aria-label={path}>
        <div style={{ height: lines.length * ROW_HEIGHT, minWidth: `${widest + 34}ch` }}>{rows}</div>
      </div>
      {shownLine && shownOrigin && offset > -ROW_HEIGHT * 2 && offset < viewport.height + ROW_HEIGHT && (
        <OriginCard
          id={cardId}
          ref={card}
          workspace={workspace}
          at={target.at}
          origin={shownOrigin}
          line={shownLine}
          path={path}
          style={isLow ? { bottom: Math.max(4, viewport.height - offset - ROW_HEIGHT) } : { top: Math.max(4, offset) }}
          onEnter={() => open(shown)}
          onLeave={closeSoon}
        />
      )}
    </div>
  );
}
