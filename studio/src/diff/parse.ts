// Unified diffs as rows that can be counted, found and drawn. Nothing here draws.

export type Sign = ' ' | '-' | '+';

export interface Line {
  sign: Sign;
  text: string;
  /** Line numbers on both sides; 0 is none. */
  old: number;
  now: number;
}

export interface Hunk {
  head: string;
  lines: Line[];
  text: string;
}

/** The hunks of one file. */
export function hunks(text: string): Hunk[] {
  const found: Hunk[] = [];
  let hunk: Hunk | null = null;
  let raw: string[] = [];
  let old = 0;
  let now = 0;
  const close = () => {
    if (hunk) hunk.text = raw.join('\n');
  };
  for (const line of text.split('\n')) {
    if (line.startsWith('@@')) {
      close();
      const numbers = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
      old = Number(numbers?.[1] ?? 0);
      now = Number(numbers?.[2] ?? 0);
      hunk = { head: line, lines: [], text: '' };
      raw = [line];
      found.push(hunk);
      continue;
    }
    if (!hunk) continue;
    const sign = line[0];
    if (sign === ' ' || sign === '-' || sign === '+') {
      raw.push(line);
      hunk.lines.push({ sign, text: line.slice(1), old: sign === '+' ? 0 : old++, now: sign === '-' ? 0 : now++ });
    } else if (sign === '\\') raw.push(line);
  }
  close();
  return found;
}

const bare = (text: string) => text.replace(/\s+/g, '');

/** The same hunk, with lines that differ in white space only shown as unchanged. */
export function withoutSpace(hunk: Hunk): Hunk {
  const lines: Line[] = [];
  for (const block of blocks(hunk.lines)) {
    if (block.same) {
      lines.push(...block.same);
      continue;
    }
    let at = 0;
    const rest = [...block.added];
    for (const line of block.removed) {
      const wanted = bare(line.text);
      const found = rest.findIndex((other, place) => place >= at && bare(other.text) === wanted);
      if (found < 0) {
        lines.push(line);
        continue;
      }
      lines.push(...rest.slice(at, found));
      const twin = rest[found];
      if (twin) lines.push({ sign: ' ', text: twin.text, old: line.old, now: twin.now });
      at = found + 1;
    }
    lines.push(...rest.slice(at));
  }
  return { ...hunk, lines };
}

export interface Block {
  same?: Line[];
  removed: Line[];
  added: Line[];
}

/** Runs of unchanged lines, and of removed ones with what was added in their place. */
export function blocks(lines: Line[]): Block[] {
  const found: Block[] = [];
  let i = 0;
  while (i < lines.length) {
    const start = i;
    while (i < lines.length && lines[i]?.sign === ' ') i++;
    if (i > start) found.push({ same: lines.slice(start, i), removed: [], added: [] });
    const removedAt = i;
    while (i < lines.length && lines[i]?.sign === '-') i++;
    const addedAt = i;
    while (i < lines.length && lines[i]?.sign === '+') i++;
    if (i > removedAt) found.push({ removed: lines.slice(removedAt, addedAt), added: lines.slice(addedAt, i) });
  }
  return found;
}

export interface Pair {
  left: Line | null;
  right: Line | null;
}

/** Lines side by side. */
export function pairs(lines: Line[]): Pair[] {
  const found: Pair[] = [];
  for (const block of blocks(lines)) {
    for (const line of block.same ?? []) found.push({ left: line, right: line });
    for (let i = 0; i < Math.max(block.removed.length, block.added.length); i++) {
      found.push({ left: block.removed[i] ?? null, right: block.added[i] ?? null });
    }
  }
  return found;
}

export function counts(text: string | null | undefined): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  let inside = false;
  for (const line of (text ?? '').split('\n')) {
    if (line.startsWith('@@')) inside = true;
    else if (inside && line.startsWith('+')) added++;
    else if (inside && line.startsWith('-')) removed++;
  }
  return { added, removed };
}
