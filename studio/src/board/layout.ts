// Positions of the nodes of a dependency graph: dependencies are to the left, and a few passes reduce crossing edges.
// Nothing here renders.

export interface NodeBox {
  id: string;
  x: number;
  y: number;
  layer: number;
}
export interface GraphLayout {
  boxes: Map<string, NodeBox>;
  width: number;
  height: number;
}

export interface NodeSize {
  width: number;
  height: number;
}
export const NODE_SIZE: NodeSize = { width: 176, height: 46 };
const GAP = { x: 54, y: 14 };
const MARGIN = 10;
/** A taller layer is split into several columns. */
const MAX_COLUMN_HEIGHT = 9;

/** Lays out nodes. `dependencies` are pairs of a node and one it depends on; `symmetric` pairs should be near each other. */
export function layoutGraph(ids: string[], dependencies: [string, string][], symmetric: [string, string][] = [], size = NODE_SIZE): GraphLayout {
  const knownIds = new Set(ids);
  const dependenciesOf = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const [from, to] of dependencies) if (knownIds.has(from) && knownIds.has(to) && from !== to) dependenciesOf.get(from)?.push(to);
  const layers = splitColumns(ids, assignLayers(ids, dependenciesOf));
  const neighbours = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const [a, b] of [...dependencies, ...symmetric]) {
    neighbours.get(a)?.push(b);
    neighbours.get(b)?.push(a);
  }
  const order = new Map<string, number>();
  const updateOrder = () => layers.forEach((layer) => layer.forEach((id, index) => order.set(id, index - layer.length / 2)));
  updateOrder();
  for (let pass = 0; pass < 6; pass++) {
    const sweep = pass % 2 ? [...layers].reverse() : layers;
    for (const layer of sweep) {
      const target = new Map(layer.map((id) => [id, averageOrder(neighbours.get(id) ?? [], order) ?? order.get(id) ?? 0]));
      layer.sort((a, b) => (target.get(a) ?? 0) - (target.get(b) ?? 0) || (a < b ? -1 : 1));
      layer.forEach((id, index) => order.set(id, index - layer.length / 2));
    }
  }
  const maxHeight = Math.max(1, ...layers.map((layer) => layer.length));
  const height = MARGIN * 2 + maxHeight * (size.height + GAP.y) - GAP.y;
  const boxes = new Map<string, NodeBox>();
  layers.forEach((layer, column) => {
    const top = (height - (layer.length * (size.height + GAP.y) - GAP.y)) / 2;
    layer.forEach((id, index) => boxes.set(id, { id, layer: column, x: MARGIN + column * (size.width + GAP.x), y: top + index * (size.height + GAP.y) }));
  });
  return { boxes, width: MARGIN * 2 + layers.length * (size.width + GAP.x) - GAP.x, height: ids.length ? height : 0 };
}

/** The longest path from a node without dependencies. A cycle, which is not valid, ends where it is detected. */
function assignLayers(ids: string[], dependenciesOf: Map<string, string[]>): Map<string, number> {
  const layer = new Map<string, number>();
  for (const start of ids) {
    const pending = [start];
    const visiting = new Set<string>();
    while (pending.length) {
      const id = pending[pending.length - 1] ?? '';
      const unresolved = (dependenciesOf.get(id) ?? []).filter((other) => !layer.has(other) && !visiting.has(other));
      if (layer.has(id)) pending.pop();
      else if (unresolved.length && !visiting.has(id)) {
        visiting.add(id);
        pending.push(...unresolved);
      } else {
        layer.set(id, Math.max(-1, ...(dependenciesOf.get(id) ?? []).map((other) => layer.get(other) ?? -1)) + 1);
        pending.pop();
      }
    }
  }
  return layer;
}

/** Layers as columns; a layer that is too tall becomes several. */
function splitColumns(ids: string[], layer: Map<string, number>): string[][] {
  const layers: string[][] = [];
  for (const id of ids) (layers[layer.get(id) ?? 0] ??= []).push(id);
  return layers.filter(Boolean).flatMap((ids) => {
    const columnCount = Math.ceil(ids.length / MAX_COLUMN_HEIGHT);
    const size = Math.ceil(ids.length / columnCount);
    return Array.from({ length: columnCount }, (_, index) => ids.slice(index * size, (index + 1) * size));
  });
}

function averageOrder(ids: string[], order: Map<string, number>): number | null {
  const orders = ids.map((id) => order.get(id)).filter((value) => value !== undefined);
  return orders.length ? orders.reduce((sum, value) => sum + value, 0) / orders.length : null;
}
