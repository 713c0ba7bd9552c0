// A file as it was: text with colours and line numbers, a picture, or how many bytes it has.
import { useEffect, useMemo, useRef, useState } from 'react';
import { bytes as size } from '../format';
import { Code } from './code';
import { highlight, languageOf } from './highlight';
import { Picture, pictureKind } from './image';

const ROW = 19;

export default function Content({ path, bytes }: { path: string; bytes: ArrayBuffer }) {
  const text = useMemo(() => {
    const view = new Uint8Array(bytes);
    if (view.subarray(0, 8000).includes(0)) return null;
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(view);
    } catch {
      return null;
    }
  }, [bytes]);
  if (pictureKind(path)) return <Picture path={path} content={bytes} />;
  if (text === null) return <p className="dim pad">Binary, {size(bytes.byteLength)}.</p>;
  if (text === '') return <p className="dim pad">The file is empty.</p>;
  return <Lines key={path} path={path} text={text} />;
}

/** Lines of text, only those that can be seen. */
function Lines({ path, text }: { path: string; text: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 500 });
  const lines = useMemo(() => text.replace(/\n$/, '').split('\n'), [text]);
  const pieces = useMemo(() => highlight(text, languageOf(path)), [text, path]);
  const widest = useMemo(() => lines.reduce((most, line) => Math.max(most, line.length), 0), [lines]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setSeen({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, []);
  const first = Math.max(0, Math.floor(seen.top / ROW) - 10);
  const last = Math.min(lines.length - 1, Math.ceil((seen.top + seen.height) / ROW) + 10);
  const rows = [];
  for (let i = first; i <= last; i++) {
    rows.push(
      <div key={i} className="code-line" style={{ top: i * ROW }}>
        <span className="line-number" aria-hidden="true">{i + 1}</span>
        <Code pieces={pieces?.[i]} text={(lines[i] ?? '').slice(0, 5000)} />
      </div>,
    );
  }
  return (
    <div className="code" ref={box} tabIndex={0} role="region" aria-label={path}>
      <div style={{ height: lines.length * ROW, minWidth: `${Math.min(widest, 5000) + 8}ch` }}>{rows}</div>
    </div>
  );
}
