// Where things stand in a graph of what rests on what: what something rests on is left of it, and lines cross as little as a
// few passes can make them. Nothing here draws.

export interface Box {
  id: string;
  x: number;
  y: number;
  layer: number;
}
export interface Drawn {
  boxes: Map<string, Box>;
  width: number;
  height: number;
}

export const BOX = { width: 176, height: 46 };
const GAP = { x: 54, y: 14 };
const MARGIN = 10;
/** A layer that is higher goes on in another column. */
const TALLEST = 9;

/** Lays out nodes; `rests` are pairs of something and what it rests on, `beside` are pairs that should be near each other. */
export function layout(ids: string[], rests: [string, string][], beside: [string, string][] = []): Drawn {
  const known = new Set(ids);
  const below = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const [from, to] of rests) if (known.has(from) && known.has(to) && from !== to) below.get(from)?.push(to);
  const layers = columns(ids, layerOf(ids, below));
  const near = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const [a, b] of [...rests, ...beside]) {
    near.get(a)?.push(b);
    near.get(b)?.push(a);
  }
  const order = new Map<string, number>();
  const number = () => layers.forEach((layer) => layer.forEach((id, at) => order.set(id, at - layer.length / 2)));
  number();
  for (let pass = 0; pass < 6; pass++) {
    const sweep = pass % 2 ? [...layers].reverse() : layers;
    for (const layer of sweep) {
      const middle = new Map(layer.map((id) => [id, average(near.get(id) ?? [], order) ?? order.get(id) ?? 0]));
      layer.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0) || (a < b ? -1 : 1));
      layer.forEach((id, at) => order.set(id, at - layer.length / 2));
    }
  }
  const tallest = Math.max(1, ...layers.map((layer) => layer.length));
  const height = MARGIN * 2 + tallest * (BOX.height + GAP.y) - GAP.y;
  const boxes = new Map<string, Box>();
  layers.forEach((layer, column) => {
    const top = (height - (layer.length * (BOX.height + GAP.y) - GAP.y)) / 2;
    layer.forEach((id, at) => boxes.set(id, { id, layer: column, x: MARGIN + column * (BOX.width + GAP.x), y: top + at * (BOX.height + GAP.y) }));
  });
  return { boxes, width: MARGIN * 2 + layers.length * (BOX.width + GAP.x) - GAP.x, height: ids.length ? height : 0 };
}

/** The longest way from something that rests on nothing. A circle, which there should not be, ends where it is noticed. */
function layerOf(ids: string[], below: Map<string, string[]>): Map<string, number> {
  const layer = new Map<string, number>();
  for (const start of ids) {
    const pending = [start];
    const waiting = new Set<string>();
    while (pending.length) {
      const id = pending[pending.length - 1] ?? '';
      const open = (below.get(id) ?? []).filter((other) => !layer.has(other) && !waiting.has(other));
      if (layer.has(id)) pending.pop();
      else if (open.length && !waiting.has(id)) {
        waiting.add(id);
        pending.push(...open);
      } else {
        layer.set(id, Math.max(-1, ...(below.get(id) ?? []).map((other) => layer.get(other) ?? -1)) + 1);
        pending.pop();
      }
    }
  }
  return layer;
}

/** Layers as columns, in order; one that is too high becomes several. */
function columns(ids: string[], layer: Map<string, number>): string[][] {
  const all: string[][] = [];
  for (const id of ids) (all[layer.get(id) ?? 0] ??= []).push(id);
  return all.filter(Boolean).flatMap((ids) => {
    const parts = Math.ceil(ids.length / TALLEST);
    const size = Math.ceil(ids.length / parts);
    return Array.from({ length: parts }, (_, at) => ids.slice(at * size, (at + 1) * size));
  });
}

function average(ids: string[], order: Map<string, number>): number | null {
  const known = ids.map((id) => order.get(id)).filter((value) => value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
