// Changed files as one long page of rows, of which only those that can be seen are there: a hundred thousand lines stay usable.
import { type ReactNode, useCallback, useEffect, useImperativeHandle, useMemo, useRef, useState, type Ref } from 'react';
import type { ChangedFile } from '../api/types';
import { bytes, count } from '../format';
import { Button, say } from '../ui';
import { Code } from './code';
import { highlight, languageOf, type Piece } from './highlight';
import { type Hunk, type Line, counts, hunks, pairs, withoutSpace } from './parse';
import { pictureKind } from './image';

export interface DiffHandle {
  file: (path: string) => void;
  nextFile: (way: 1 | -1) => void;
  nextChange: (way: 1 | -1) => void;
}

interface Props {
  files: ChangedFile[];
  split: boolean;
  ignoreSpace: boolean;
  /** As tall as what is in it, instead of scrolling inside. */
  grows?: boolean;
  /** What is shown of a picture. */
  picture?: (file: ChangedFile) => ReactNode;
  onFile?: (path: string) => void;
  handle?: Ref<DiffHandle>;
}

type Row =
  | { type: 'file'; file: ChangedFile; shut: boolean; added: number; removed: number }
  | { type: 'hunk'; hunk: Hunk; path: string }
  | { type: 'line'; line: Line; hunk: Hunk; path: string }
  | { type: 'pair'; left: Line | null; right: Line | null; hunk: Hunk; path: string }
  | { type: 'note'; text: string }
  | { type: 'picture'; file: ChangedFile };

const HEIGHTS: Record<Row['type'], number> = { file: 40, hunk: 26, line: 20, pair: 20, note: 44, picture: 300 };
/** Files with more changed lines than this begin folded. */
const MANY = 3000;

/** The most rows of a diff that grows with its page. */
const MOST_GROWN = 600;

const why = (file: ChangedFile): string => {
  const size = Math.max(file.before?.size ?? 0, file.after?.size ?? 0);
  if (file.kind === 'mode-changed') return `Mode ${file.before?.mode} → ${file.after?.mode}`;
  if (file.kind === 'renamed') return `Renamed from ${file.from}`;
  if (file.after?.type === 'symlink' || file.before?.type === 'symlink') return `Link ${file.before?.target ?? 'none'} → ${file.after?.target ?? 'none'}`;
  if (file.after?.type === 'directory' || file.before?.type === 'directory') return 'Directory';
  if (file.after?.reason || file.before?.reason) return `Not stored: ${file.after?.reason ?? file.before?.reason}`;
  return `Binary, or too large to compare by lines: ${bytes(file.before?.size ?? 0)} → ${bytes(file.after?.size ?? 0)}${size > 8e6 ? '; "stepback cat POINT PATH" writes it out' : ''}`;
};

export function DiffView({ files, split, ignoreSpace, grows, picture, onFile, handle }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  const [folded, setFolded] = useState<Map<string, boolean>>(new Map());

  const parsed = useMemo(
    () =>
      files.map((file) => {
        const { added, removed } = counts(file.text);
        return { file, hunks: file.text ? hunks(file.text) : [], added, removed };
      }),
    [files],
  );
  const rows = useMemo(() => {
    const found: Row[] = [];
    for (const { file, hunks: its, added, removed } of parsed) {
      const shut = folded.get(file.path) ?? added + removed > MANY;
      found.push({ type: 'file', file, shut, added, removed });
      if (shut) continue;
      if (file.text == null) {
        if (picture && pictureKind(file.path)) found.push({ type: 'picture', file });
        else found.push({ type: 'note', text: why(file) });
        continue;
      }
      if (its.length === 0) found.push({ type: 'note', text: file.kind === 'renamed' ? why(file) : 'The content is the same.' });
      let shown = 0;
      for (const whole of its) {
        const hunk = ignoreSpace ? withoutSpace(whole) : whole;
        if (ignoreSpace && hunk.lines.every((line) => line.sign === ' ')) continue;
        shown++;
        found.push({ type: 'hunk', hunk, path: file.path });
        if (split) for (const pair of pairs(hunk.lines)) found.push({ type: 'pair', ...pair, hunk, path: file.path });
        else for (const line of hunk.lines) found.push({ type: 'line', line, hunk, path: file.path });
      }
      if (its.length > 0 && shown === 0) found.push({ type: 'note', text: 'Only white space differs.' });
    }
    return found;
  }, [parsed, split, ignoreSpace, folded, picture]);
  const tops = useMemo(() => {
    const all = new Float64Array(rows.length + 1);
    rows.forEach((row, index) => {
      all[index + 1] = (all[index] ?? 0) + HEIGHTS[row.type];
    });
    return all;
  }, [rows]);
  const widest = useMemo(() => {
    let most = 0;
    for (const row of rows) {
      if (row.type === 'line') most = Math.max(most, row.line.text.length);
      if (row.type === 'pair') most = Math.max(most, row.left?.text.length ?? 0, row.right?.text.length ?? 0);
    }
    return Math.min(most, 4000);
  }, [rows]);

  const rowAt = useCallback(
    (top: number) => {
      let low = 0;
      let high = rows.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if ((tops[middle] ?? 0) <= top) low = middle;
        else high = middle - 1;
      }
      return Math.max(0, low);
    },
    [rows, tops],
  );

  useEffect(() => {
    const element = box.current;
    if (!element || grows) return;
    const measure = () => setSeen({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, [grows]);

  const first = grows ? 0 : Math.max(0, rowAt(seen.top) - 12);
  const last = grows ? Math.min(rows.length - 1, MOST_GROWN) : Math.min(rows.length - 1, rowAt(seen.top + seen.height) + 12);
  const at = rows.slice(0, rowAt(seen.top + 4) + 1).findLast((row) => row.type === 'file');
  const current = at?.type === 'file' ? at.file.path : undefined;
  useEffect(() => {
    if (current !== undefined) onFile?.(current);
  }, [current, onFile]);

  const scrollTo = useCallback((top: number) => box.current?.scrollTo({ top }), []);
  useImperativeHandle(handle, () => ({
    file: (path) => {
      const found = rows.findIndex((row) => row.type === 'file' && row.file.path === path);
      if (found >= 0) scrollTo(tops[found] ?? 0);
    },
    nextFile: (way) => {
      const here = rowAt((box.current?.scrollTop ?? 0) + 1);
      for (let i = here + way; i >= 0 && i < rows.length; i += way) {
        if (rows[i]?.type === 'file') {
          scrollTo(tops[i] ?? 0);
          return;
        }
      }
    },
    nextChange: (way) => {
      const here = rowAt((box.current?.scrollTop ?? 0) + HEIGHTS.file + 1);
      for (let i = here + way; i >= 0 && i < rows.length; i += way) {
        if (rows[i]?.type === 'hunk') {
          scrollTo((tops[i] ?? 0) - HEIGHTS.file);
          return;
        }
      }
    },
  }));

  const fold = (path: string, shut: boolean) => setFolded(new Map(folded).set(path, !shut));
  const shown = [];
  for (let i = first; i <= last; i++) {
    const row = rows[i];
    if (row) shown.push(<RowView key={i} row={row} top={tops[i] ?? 0} fold={fold} picture={picture} />);
  }
  const height = grows ? (tops[last + 1] ?? 0) : (tops[rows.length] ?? 0);
  return (
    <div className={`diff ${split ? 'side-by-side' : 'unified'} ${grows ? 'grows' : ''}`} ref={box} tabIndex={0} role="region" aria-label="Changed lines">
      <div className="diff-rows" style={{ height, minWidth: split ? `${Math.min(widest, 400) * 2 + 24}ch` : `${widest + 14}ch` }}>
        {shown}
      </div>
      {grows && last < rows.length - 1 && <p className="dim pad">… {count(rows.length - last)} more lines; “Open in the diff viewer” has all of them</p>}
    </div>
  );
}

const coloured = new WeakMap<Hunk, { old: Piece[][] | null; now: Piece[][] | null; place: Map<Line, number> }>();

/** The colours of a line: both sides of its hunk are read as a whole, once. */
function piecesOf(line: Line, hunk: Hunk, path: string): Piece[] | undefined {
  const language = languageOf(path);
  if (!language) return undefined;
  let known = coloured.get(hunk);
  if (!known) {
    const old = hunk.lines.filter((one) => one.sign !== '+');
    const now = hunk.lines.filter((one) => one.sign !== '-');
    const text = (lines: Line[]) => lines.map((one) => one.text).join('\n');
    const place = new Map<Line, number>();
    now.forEach((one, index) => place.set(one, index));
    old.forEach((one, index) => {
      if (one.sign === '-') place.set(one, index);
    });
    known = { old: highlight(text(old), language), now: highlight(text(now), language), place };
    coloured.set(hunk, known);
  }
  const side = line.sign === '-' ? known.old : known.now;
  return side?.[known.place.get(line) ?? -1];
}

function RowView({ row, top, fold, picture }: { row: Row; top: number; fold: (path: string, shut: boolean) => void; picture: Props['picture'] }) {
  const style = { top, height: HEIGHTS[row.type] };
  switch (row.type) {
    case 'file':
      return (
        <div className="diff-file" style={style}>
          <button type="button" className="twist" aria-expanded={!row.shut} onClick={() => fold(row.file.path, row.shut)}>
            {row.shut ? '▸' : '▾'} <code>{row.file.path}</code>
          </button>
          <span className={`change ${row.file.kind}`}>{row.file.kind}</span>
          {row.added > 0 && <span className="added">+{count(row.added)}</span>}
          {row.removed > 0 && <span className="removed">−{count(row.removed)}</span>}
        </div>
      );
    case 'hunk':
      return (
        <div className="diff-hunk" style={style}>
          <span>{row.hunk.head}</span>
          <Button
            look="ghost"
            small
            onClick={() =>
              navigator.clipboard.writeText(`--- a/${row.path}\n+++ b/${row.path}\n${row.hunk.text}\n`).then(
                () => say('The hunk is copied.'),
                () => say('The browser does not allow copying here.', true),
              )
            }
          >
            copy hunk
          </Button>
        </div>
      );
    case 'note':
      return (
        <div className="diff-note dim" style={style}>
          {row.text}
        </div>
      );
    case 'picture':
      return (
        <div className="diff-picture" style={style}>
          {picture?.(row.file)}
        </div>
      );
    case 'line': {
      const { line } = row;
      return (
        <div className={`diff-line ${line.sign === '+' ? 'add' : line.sign === '-' ? 'del' : ''}`} style={style}>
          <span className="line-number">{line.old || ''}</span>
          <span className="line-number">{line.now || ''}</span>
          <span className="sign">{line.sign}</span>
          <Code pieces={piecesOf(line, row.hunk, row.path)} text={line.text.slice(0, 4000)} />
        </div>
      );
    }
    case 'pair':
      return (
        <div className="diff-pair" style={style}>
          <Half line={row.left} side="old" hunk={row.hunk} path={row.path} />
          <Half line={row.right} side="now" hunk={row.hunk} path={row.path} />
        </div>
      );
  }
}

function Half({ line, side, hunk, path }: { line: Line | null; side: 'old' | 'now'; hunk: Hunk; path: string }) {
  if (!line) return <div className="half none" />;
  const look = line.sign === '+' ? 'add' : line.sign === '-' ? 'del' : '';
  return (
    <div className={`half diff-line ${look}`}>
      <span className="line-number">{line[side] || ''}</span>
      <span className="sign">{line.sign}</span>
      <Code pieces={piecesOf(line, hunk, path)} text={line.text.slice(0, 4000)} />
    </div>
  );
}
