// Parses unified diffs into hunks and lines. Nothing here renders.

type LineSign = ' ' | '-' | '+';

export interface DiffLine {
  sign: LineSign;
  text: string;
  /** Line numbers on both sides; 0 if the line is not on that side. */
  oldNumber: number;
  newNumber: number;
}

export interface Hunk {
  header: string;
  lines: DiffLine[];
  text: string;
}

/** The hunks of one file. */
export function parseHunks(text: string): Hunk[] {
  const hunks: Hunk[] = [];
  let hunk: Hunk | null = null;
  let raw: string[] = [];
  let oldNumber = 0;
  let newNumber = 0;
  const close = () => {
    if (hunk) hunk.text = raw.join('\n');
  };
  for (const line of text.split('\n')) {
    if (line.startsWith('@@')) {
      close();
      const numbers = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
      oldNumber = Number(numbers?.[1] ?? 0);
      newNumber = Number(numbers?.[2] ?? 0);
      hunk = { header: line, lines: [], text: '' };
      raw = [line];
      hunks.push(hunk);
      continue;
    }
    if (!hunk) continue;
    const sign = line[0];
    if (sign === ' ' || sign === '-' || sign === '+') {
      raw.push(line);
      hunk.lines.push({ sign, text: line.slice(1), oldNumber: sign === '+' ? 0 : oldNumber++, newNumber: sign === '-' ? 0 : newNumber++ });
    } else if (sign === '\\') raw.push(line);
  }
  close();
  return hunks;
}

const stripWhitespace = (text: string) => text.replace(/\s+/g, '');

/** The same hunk, with lines that differ only in white space as unchanged lines. */
export function ignoreWhitespace(hunk: Hunk): Hunk {
  const lines: DiffLine[] = [];
  for (const block of groupBlocks(hunk.lines)) {
    if (block.unchanged) {
      lines.push(...block.unchanged);
      continue;
    }
    let next = 0;
    const added = [...block.added];
    for (const line of block.removed) {
      const target = stripWhitespace(line.text);
      const match = added.findIndex((other, index) => index >= next && stripWhitespace(other.text) === target);
      if (match < 0) {
        lines.push(line);
        continue;
      }
      lines.push(...added.slice(next, match));
      const counterpart = added[match];
      if (counterpart) lines.push({ sign: ' ', text: counterpart.text, oldNumber: line.oldNumber, newNumber: counterpart.newNumber });
      next = match + 1;
    }
    lines.push(...added.slice(next));
  }
  return { ...hunk, lines };
}

interface ChangeBlock {
  unchanged?: DiffLine[];
  removed: DiffLine[];
  added: DiffLine[];
}

/** Runs of unchanged lines, and of removed lines with the lines that replace them. */
function groupBlocks(lines: DiffLine[]): ChangeBlock[] {
  const blocks: ChangeBlock[] = [];
  let i = 0;
  while (i < lines.length) {
    const start = i;
    while (i < lines.length && lines[i]?.sign === ' ') i++;
    if (i > start) blocks.push({ unchanged: lines.slice(start, i), removed: [], added: [] });
    const removedAt = i;
    while (i < lines.length && lines[i]?.sign === '-') i++;
    const addedAt = i;
    while (i < lines.length && lines[i]?.sign === '+') i++;
    if (i > removedAt) blocks.push({ removed: lines.slice(removedAt, addedAt), added: lines.slice(addedAt, i) });
  }
  return blocks;
}

interface LinePair {
  left: DiffLine | null;
  right: DiffLine | null;
}

/** Lines for the side-by-side view. */
export function pairLines(lines: DiffLine[]): LinePair[] {
  const pairs: LinePair[] = [];
  for (const block of groupBlocks(lines)) {
    for (const line of block.unchanged ?? []) pairs.push({ left: line, right: line });
    for (let i = 0; i < Math.max(block.removed.length, block.added.length); i++) {
      pairs.push({ left: block.removed[i] ?? null, right: block.added[i] ?? null });
    }
  }
  return pairs;
}

export function countChanges(text: string | null | undefined): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  let inHunk = false;
  for (const line of (text ?? '').split('\n')) {
    if (line.startsWith('@@')) inHunk = true;
    else if (inHunk && line.startsWith('+')) added++;
    else if (inHunk && line.startsWith('-')) removed++;
  }
  return { added, removed };
}
