// The content of a file: highlighted text with line numbers, an image, or its size.
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from 'react';
import { formatBytes } from '../format';
import { HighlightedLine } from './highlighted-line';
import { highlight, languageForPath } from './highlight';
import { imageMimeType, ImagePreview } from './image-preview';

const BlamedCode = lazy(() => import('../blame/blamed-code'));

export const ROW_HEIGHT = 19;
const MAX_LINE_LENGTH = 5000;

/** A file at a point of a workspace, whose lines can be blamed. */
export interface BlameTarget {
  workspace: string;
  at: string;
}

export default function FilePreview({ path, bytes, blame }: { path: string; bytes: ArrayBuffer; blame?: BlameTarget | undefined }) {
  const text = useMemo(() => {
    const view = new Uint8Array(bytes);
    if (view.subarray(0, 8000).includes(0)) return null;
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(view);
    } catch {
      return null;
    }
  }, [bytes]);
  const why = (reason: string) => blame && <p className="dim pad blame-note">{reason}</p>;
  if (imageMimeType(path)) {
    return (
      <>
        {why('An image has no lines whose origin could be shown.')}
        <ImagePreview path={path} content={bytes} />
      </>
    );
  }
  if (text === null) return <p className="dim pad">Binary, {formatBytes(bytes.byteLength)}.{blame && ' It has no lines whose origin could be shown.'}</p>;
  if (text === '') return <p className="dim pad">The file is empty.</p>;
  if (!blame) return <CodeLines key={path} path={path} text={text} />;
  return (
    <Suspense fallback={<CodeLines key={path} path={path} text={text} />}>
      <BlamedCode key={path} path={path} text={text} target={blame} />
    </Suspense>
  );
}

/** The lines of a text, and the tokens of each if its language is known. */
export function useHighlightedLines(path: string, text: string) {
  return useMemo(() => {
    const lines = text.replace(/\n$/, '').split('\n');
    const widest = lines.reduce((length, line) => Math.max(length, line.length), 0);
    return { lines, tokens: highlight(text, languageForPath(path)), widest: Math.min(widest, MAX_LINE_LENGTH) };
  }, [text, path]);
}

/** The rows of a scrolling element that are visible, and some around them. */
export function useVisibleRows(count: number) {
  const container = useRef<HTMLDivElement>(null);
  const [viewport, setViewport] = useState({ top: 0, height: 500 });
  useEffect(() => {
    const element = container.current;
    if (!element) return;
    const measure = () => setViewport({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, []);
  const first = Math.max(0, Math.floor(viewport.top / ROW_HEIGHT) - 10);
  const last = Math.min(count - 1, Math.ceil((viewport.top + viewport.height) / ROW_HEIGHT) + 10);
  return { container, viewport, first, last };
}

/** Renders only the visible lines. */
export function CodeLines({ path, text }: { path: string; text: string }) {
  const { lines, tokens, widest } = useHighlightedLines(path, text);
  const { container, first, last } = useVisibleRows(lines.length);
  const rows = [];
  for (let i = first; i <= last; i++) {
    rows.push(
      <div key={i} className="code-line" style={{ top: i * ROW_HEIGHT }}>
        <CodeLine number={i + 1} tokens={tokens?.[i]} text={lines[i] ?? ''} />
      </div>,
    );
  }
  return (
    <div className="code" ref={container} tabIndex={0} role="region" aria-label={path}>
      <div style={{ height: lines.length * ROW_HEIGHT, minWidth: `${widest + 8}ch` }}>{rows}</div>
    </div>
  );
}

export function CodeLine({ number, tokens, text }: { number: number; tokens: Parameters<typeof HighlightedLine>[0]['tokens']; text: string }) {
  return (
    <>
      <span className="line-number" aria-hidden="true">{number}</span>
      <HighlightedLine tokens={tokens} text={text.slice(0, MAX_LINE_LENGTH)} />
    </>
  );
}
