// Changed files as one list of rows. Only visible rows are rendered, so that a hundred thousand lines stay usable.
import { type ReactNode, type Ref, useCallback, useEffect, useImperativeHandle, useMemo, useRef, useState } from 'react';
import type { ChangedFile } from '../api/types';
import { formatBytes, formatCount } from '../format';
import { copyToClipboard } from '../toasts';
import { Button } from '../ui';
import { HighlightedLine } from './highlighted-line';
import { highlight, type HighlightToken, languageForPath } from './highlight';
import { countChanges, type DiffLine, type Hunk, ignoreWhitespace, pairLines, parseHunks } from './parse';
import { imageMimeType } from './image-preview';

export interface DiffHandle {
  scrollToFile: (path: string) => void;
  nextFile: (direction: 1 | -1) => void;
  nextChange: (direction: 1 | -1) => void;
}

interface DiffViewProps {
  files: ChangedFile[];
  split: boolean;
  ignoreSpace: boolean;
  /** As tall as its content, instead of scrolling inside. */
  inline?: boolean;
  /** Renders an image file; without it, only its size is shown. */
  renderImage?: (file: ChangedFile) => ReactNode;
  onFile?: (path: string) => void;
  handle?: Ref<DiffHandle>;
}

type DiffRow =
  | { type: 'file'; file: ChangedFile; collapsed: boolean; added: number; removed: number }
  | { type: 'hunk'; hunk: Hunk; path: string }
  | { type: 'line'; line: DiffLine; hunk: Hunk; path: string }
  | { type: 'pair'; left: DiffLine | null; right: DiffLine | null; hunk: Hunk; path: string }
  | { type: 'note'; text: string }
  | { type: 'image'; file: ChangedFile };

const HEIGHTS: Record<DiffRow['type'], number> = { file: 40, hunk: 26, line: 20, pair: 20, note: 44, image: 300 };
/** Files with more changed lines than this start collapsed. */
const COLLAPSE_ABOVE = 3000;

/** Rows of an inline diff; the diff page shows the rest. */
const MAX_INLINE_ROWS = 600;

const describeFile = (file: ChangedFile): string => {
  const size = Math.max(file.before?.size ?? 0, file.after?.size ?? 0);
  if (file.kind === 'mode-changed') return `Mode ${file.before?.mode} → ${file.after?.mode}`;
  if (file.kind === 'renamed') return `Renamed from ${file.from}`;
  if (file.after?.type === 'symlink' || file.before?.type === 'symlink') return `Link ${file.before?.target ?? 'none'} → ${file.after?.target ?? 'none'}`;
  if (file.after?.type === 'directory' || file.before?.type === 'directory') return 'Directory';
  if (file.after?.reason || file.before?.reason) return `Not stored: ${file.after?.reason ?? file.before?.reason}`;
  return `Binary, or too large to compare by lines: ${formatBytes(file.before?.size ?? 0)} → ${formatBytes(file.after?.size ?? 0)}${size > 8e6 ? '; "stepback cat POINT PATH" prints it' : ''}`;
};

export function DiffView({ files, split, ignoreSpace, inline, renderImage, onFile, handle }: DiffViewProps) {
  const container = useRef<HTMLDivElement>(null);
  const [viewport, setViewport] = useState({ top: 0, height: 800 });
  const [collapsedByPath, setCollapsedByPath] = useState<Map<string, boolean>>(new Map());

  const parsed = useMemo(
    () =>
      files.map((file) => {
        const { added, removed } = countChanges(file.text);
        return { file, hunks: file.text ? parseHunks(file.text) : [], added, removed };
      }),
    [files],
  );
  const rows = useMemo(() => {
    const list: DiffRow[] = [];
    for (const { file, hunks: fileHunks, added, removed } of parsed) {
      const collapsed = collapsedByPath.get(file.path) ?? added + removed > COLLAPSE_ABOVE;
      list.push({ type: 'file', file, collapsed, added, removed });
      if (collapsed) continue;
      if (file.text == null) {
        if (renderImage && imageMimeType(file.path)) list.push({ type: 'image', file });
        else list.push({ type: 'note', text: describeFile(file) });
        continue;
      }
      if (fileHunks.length === 0) list.push({ type: 'note', text: file.kind === 'renamed' ? describeFile(file) : 'The content did not change.' });
      let shownHunks = 0;
      for (const originalHunk of fileHunks) {
        const hunk = ignoreSpace ? ignoreWhitespace(originalHunk) : originalHunk;
        if (ignoreSpace && hunk.lines.every((line) => line.sign === ' ')) continue;
        shownHunks++;
        list.push({ type: 'hunk', hunk, path: file.path });
        if (split) for (const pair of pairLines(hunk.lines)) list.push({ type: 'pair', ...pair, hunk, path: file.path });
        else for (const line of hunk.lines) list.push({ type: 'line', line, hunk, path: file.path });
      }
      if (fileHunks.length > 0 && shownHunks === 0) list.push({ type: 'note', text: 'Only white space differs.' });
    }
    return list;
  }, [parsed, split, ignoreSpace, collapsedByPath, renderImage]);
  const tops = useMemo(() => {
    const offsets = new Float64Array(rows.length + 1);
    rows.forEach((row, index) => {
      offsets[index + 1] = (offsets[index] ?? 0) + HEIGHTS[row.type];
    });
    return offsets;
  }, [rows]);
  const widest = useMemo(() => {
    let length = 0;
    for (const row of rows) {
      if (row.type === 'line') length = Math.max(length, row.line.text.length);
      if (row.type === 'pair') length = Math.max(length, row.left?.text.length ?? 0, row.right?.text.length ?? 0);
    }
    return Math.min(length, 4000);
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
    const element = container.current;
    if (!element || inline) return;
    const measure = () => setViewport({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, [inline]);

  const first = inline ? 0 : Math.max(0, rowAt(viewport.top) - 12);
  const last = inline ? Math.min(rows.length - 1, MAX_INLINE_ROWS) : Math.min(rows.length - 1, rowAt(viewport.top + viewport.height) + 12);
  const currentRow = rows.slice(0, rowAt(viewport.top + 4) + 1).findLast((row) => row.type === 'file');
  const currentFile = currentRow?.type === 'file' ? currentRow.file.path : undefined;
  useEffect(() => {
    if (currentFile !== undefined) onFile?.(currentFile);
  }, [currentFile, onFile]);

  const scrollTo = useCallback((top: number) => container.current?.scrollTo({ top }), []);
  useImperativeHandle(handle, () => ({
    scrollToFile: (path) => {
      const index = rows.findIndex((row) => row.type === 'file' && row.file.path === path);
      if (index >= 0) scrollTo(tops[index] ?? 0);
    },
    nextFile: (direction) => {
      const current = rowAt((container.current?.scrollTop ?? 0) + 1);
      for (let i = current + direction; i >= 0 && i < rows.length; i += direction) {
        if (rows[i]?.type === 'file') {
          scrollTo(tops[i] ?? 0);
          return;
        }
      }
    },
    nextChange: (direction) => {
      const current = rowAt((container.current?.scrollTop ?? 0) + HEIGHTS.file + 1);
      for (let i = current + direction; i >= 0 && i < rows.length; i += direction) {
        if (rows[i]?.type === 'hunk') {
          scrollTo((tops[i] ?? 0) - HEIGHTS.file);
          return;
        }
      }
    },
  }));

  const toggle = (path: string, collapsed: boolean) => setCollapsedByPath(new Map(collapsedByPath).set(path, !collapsed));
  const visibleRows = [];
  for (let i = first; i <= last; i++) {
    const row = rows[i];
    if (row) visibleRows.push(<DiffRowView key={i} row={row} top={tops[i] ?? 0} toggle={toggle} renderImage={renderImage} />);
  }
  const height = inline ? (tops[last + 1] ?? 0) : (tops[rows.length] ?? 0);
  return (
    <div className={`diff ${split ? 'side-by-side' : 'unified'} ${inline ? 'inline' : ''}`} ref={container} tabIndex={0} role="region" aria-label="Changed lines">
      <div className="diff-rows" style={{ height, minWidth: split ? `${Math.min(widest, 400) * 2 + 24}ch` : `${widest + 14}ch` }}>
        {visibleRows}
      </div>
      {inline && last < rows.length - 1 && <p className="dim pad">… {formatCount(rows.length - last)} more lines; “Open in the diff viewer” shows all</p>}
    </div>
  );
}

const highlightCache = new WeakMap<Hunk, { oldTokens: HighlightToken[][] | null; newTokens: HighlightToken[][] | null; lineIndex: Map<DiffLine, number> }>();

/** The tokens of a line. Both sides of its hunk are highlighted as a whole, once. */
function highlightLine(line: DiffLine, hunk: Hunk, path: string): HighlightToken[] | undefined {
  const language = languageForPath(path);
  if (!language) return undefined;
  let cached = highlightCache.get(hunk);
  if (!cached) {
    const oldLines = hunk.lines.filter((line) => line.sign !== '+');
    const newLines = hunk.lines.filter((line) => line.sign !== '-');
    const text = (lines: DiffLine[]) => lines.map((line) => line.text).join('\n');
    const lineIndex = new Map<DiffLine, number>();
    newLines.forEach((line, index) => lineIndex.set(line, index));
    oldLines.forEach((line, index) => {
      if (line.sign === '-') lineIndex.set(line, index);
    });
    cached = { oldTokens: highlight(text(oldLines), language), newTokens: highlight(text(newLines), language), lineIndex };
    highlightCache.set(hunk, cached);
  }
  const side = line.sign === '-' ? cached.oldTokens : cached.newTokens;
  return side?.[cached.lineIndex.get(line) ?? -1];
}

function DiffRowView({ row, top, toggle, renderImage }: { row: DiffRow; top: number; toggle: (path: string, collapsed: boolean) => void; renderImage: DiffViewProps['renderImage'] }) {
  const style = { top, height: HEIGHTS[row.type] };
  switch (row.type) {
    case 'file':
      return (
        <div className="diff-file" style={style}>
          <button type="button" className="disclosure" aria-expanded={!row.collapsed} onClick={() => toggle(row.file.path, row.collapsed)}>
            {row.collapsed ? '▸' : '▾'} <code>{row.file.path}</code>
          </button>
          <span className={`change ${row.file.kind}`}>{row.file.kind}</span>
          {row.added > 0 && <span className="added">+{formatCount(row.added)}</span>}
          {row.removed > 0 && <span className="removed">−{formatCount(row.removed)}</span>}
        </div>
      );
    case 'hunk':
      return (
        <div className="diff-hunk" style={style}>
          <span>{row.hunk.header}</span>
          <Button
            variant="ghost"
            small
            onClick={() => void copyToClipboard(`--- a/${row.path}\n+++ b/${row.path}\n${row.hunk.text}\n`, 'Hunk copied.')}
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
    case 'image':
      return (
        <div className="diff-image" style={style}>
          {renderImage?.(row.file)}
        </div>
      );
    case 'line': {
      const { line } = row;
      return (
        <div className={`diff-line ${line.sign === '+' ? 'add' : line.sign === '-' ? 'del' : ''}`} style={style}>
          <span className="line-number">{line.oldNumber || ''}</span>
          <span className="line-number">{line.newNumber || ''}</span>
          <span className="sign">{line.sign}</span>
          <HighlightedLine tokens={highlightLine(line, row.hunk, row.path)} text={line.text.slice(0, 4000)} />
        </div>
      );
    }
    case 'pair':
      return (
        <div className="diff-pair" style={style}>
          <SplitCell line={row.left} side="oldNumber" hunk={row.hunk} path={row.path} />
          <SplitCell line={row.right} side="newNumber" hunk={row.hunk} path={row.path} />
        </div>
      );
  }
}

function SplitCell({ line, side, hunk, path }: { line: DiffLine | null; side: 'oldNumber' | 'newNumber'; hunk: Hunk; path: string }) {
  if (!line) return <div className="half none" />;
  const className = line.sign === '+' ? 'add' : line.sign === '-' ? 'del' : '';
  return (
    <div className={`half diff-line ${className}`}>
      <span className="line-number">{line[side] || ''}</span>
      <span className="sign">{line.sign}</span>
      <HighlightedLine tokens={highlightLine(line, hunk, path)} text={line.text.slice(0, 4000)} />
    </div>
  );
}
