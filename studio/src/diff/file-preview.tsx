// The content of a file: highlighted text with line numbers, an image, or its size.
import { useEffect, useMemo, useRef, useState } from 'react';
import { formatBytes } from '../format';
import { HighlightedLine } from './highlighted-line';
import { highlight, languageForPath } from './highlight';
import { imageMimeType, ImagePreview } from './image-preview';

const ROW_HEIGHT = 19;

export default function FilePreview({ path, bytes }: { path: string; bytes: ArrayBuffer }) {
  const text = useMemo(() => {
    const view = new Uint8Array(bytes);
    if (view.subarray(0, 8000).includes(0)) return null;
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(view);
    } catch {
      return null;
    }
  }, [bytes]);
  if (imageMimeType(path)) return <ImagePreview path={path} content={bytes} />;
  if (text === null) return <p className="dim pad">Binary, {formatBytes(bytes.byteLength)}.</p>;
  if (text === '') return <p className="dim pad">The file is empty.</p>;
  return <CodeLines key={path} path={path} text={text} />;
}

/** Renders only the visible lines. */
function CodeLines({ path, text }: { path: string; text: string }) {
  const container = useRef<HTMLDivElement>(null);
  const [viewport, setViewport] = useState({ top: 0, height: 500 });
  const lines = useMemo(() => text.replace(/\n$/, '').split('\n'), [text]);
  const tokens = useMemo(() => highlight(text, languageForPath(path)), [text, path]);
  const widest = useMemo(() => lines.reduce((length, line) => Math.max(length, line.length), 0), [lines]);
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
  const last = Math.min(lines.length - 1, Math.ceil((viewport.top + viewport.height) / ROW_HEIGHT) + 10);
  const rows = [];
  for (let i = first; i <= last; i++) {
    rows.push(
      <div key={i} className="code-line" style={{ top: i * ROW_HEIGHT }}>
        <span className="line-number" aria-hidden="true">{i + 1}</span>
        <HighlightedLine tokens={tokens?.[i]} text={(lines[i] ?? '').slice(0, 5000)} />
      </div>,
    );
  }
  return (
    <div className="code" ref={container} tabIndex={0} role="region" aria-label={path}>
      <div style={{ height: lines.length * ROW_HEIGHT, minWidth: `${Math.min(widest, 5000) + 8}ch` }}>{rows}</div>
    </div>
  );
}
