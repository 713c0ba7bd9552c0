// An explanation as a graph: what something comes from is to its right. Recorded links are solid, inferred ones dashed.
import { memo, useMemo, useRef } from 'react';
import type { WhyEdge, WhyExplanation, WhyNode } from '../api/types';
import { layoutGraph, type NodeBox } from '../board/layout';
import { pluralize } from '../format';
import { kindName, nodeClass, relationName } from './names';

const SIZE = { width: 186, height: 62 };
const LINE_LENGTH = 26;
/** A wide graph is scaled down to this; beyond that, it scrolls. */
const MIN_SCALE = 0.85;

interface WhyGraphProps {
  nodes: WhyNode[];
  edges: WhyEdge[];
  explanation: WhyExplanation | undefined;
  selected: string;
  onSelect: (id: string) => void;
  /** Moves on to what led to a node. */
  onOpen: (id: string) => void;
}

export const WhyGraph = memo(function WhyGraph({ nodes, edges, explanation, selected, onSelect, onOpen }: WhyGraphProps) {
  const element = useRef<SVGSVGElement>(null);
  const layout = useMemo(() => {
    const pairs = edges.map((edge): [string, string] => [edge.to, edge.from]);
    // What the model had seen stands behind the turn in which it had seen it, although the link is from the change.
    const turn = explanation?.chain.find((id) => nodes.some((node) => node.id === id && node.kind === 'model-turn'));
    if (turn) for (const source of explanation?.sources ?? []) pairs.push([source, turn]);
    return layoutGraph(nodes.map((node) => node.id), pairs, [], SIZE);
  }, [nodes, edges, explanation]);
  const boxes = layout.boxes;
  const focusNode = (id: string) => {
    onSelect(id);
    requestAnimationFrame(() => element.current?.querySelector<SVGGElement>(`[data-node="${CSS.escape(id)}"]`)?.focus());
  };
  /** The nearest node in a direction: along a link to the side, or within the column. */
  const neighbour = (id: string, key: string): string | undefined => {
    const box = boxes.get(id);
    if (!box) return undefined;
    if (key === 'ArrowRight' || key === 'ArrowLeft') {
      const linked = edges.flatMap((edge) => (edge.from === id ? [edge.to] : edge.to === id ? [edge.from] : []));
      const direction = key === 'ArrowRight' ? 1 : -1;
      return linked
        .map((other) => boxes.get(other))
        .filter((other): other is NodeBox => other !== undefined && Math.sign(other.x - box.x) === direction)
        .sort((a, b) => Math.abs(a.y - box.y) - Math.abs(b.y - box.y))[0]?.id;
    }
    const column = [...boxes.values()].filter((other) => other.x === box.x).sort((a, b) => a.y - b.y);
    return column[column.findIndex((other) => other.id === id) + (key === 'ArrowDown' ? 1 : -1)]?.id;
  };
  return (
    <div className="why-graph" role="group" aria-label="Graph of origins" tabIndex={0}>
      <svg ref={element} style={{ width: '100%', maxWidth: layout.width, minWidth: layout.width * MIN_SCALE }} viewBox={`0 0 ${layout.width} ${layout.height}`} role="group" aria-label={`${pluralize(nodes.length, 'node')}, ${pluralize(edges.length, 'link')}`}>
        <defs>
          <marker id="why-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0.500 7 4 0 7.500Z" />
          </marker>
        </defs>
        {edges.map((edge) => {
          const from = boxes.get(edge.from);
          const to = boxes.get(edge.to);
          if (!from || !to) return null;
          const path = edgePath(from, to);
          return (
            <g key={`${edge.from} ${edge.relation} ${edge.to}`} className={`why-edge ${edge.basis} ${edge.from === selected || edge.to === selected ? 'near' : ''}`}>
              <title>{`${relationName(edge.relation)} (${edge.basis}): ${edge.rule}`}</title>
              {/* A wider line that is easier to point at. */}
              <path className="target" d={path} />
              <path className="line" d={path} markerEnd="url(#why-arrow)" />
            </g>
          );
        })}
        {nodes.map((node) => {
          const box = boxes.get(node.id);
          return box ? <GraphNode key={node.id} node={node} box={box} isSelected={node.id === selected} onSelect={onSelect} onOpen={onOpen} onMove={(key) => {
            const next = neighbour(node.id, key);
            if (next) focusNode(next);
          }} /> : null;
        })}
      </svg>
    </div>
  );
});

function edgePath(from: NodeBox, to: NodeBox): string {
  const y1 = from.y + SIZE.height / 2;
  const y2 = to.y + SIZE.height / 2;
  if (from.layer === to.layer) {
    const x = from.x + SIZE.width;
    return `M${x} ${y1} C${x + 34} ${y1} ${x + 34} ${y2} ${x} ${y2}`;
  }
  const isForward = from.x < to.x;
  const x1 = isForward ? from.x + SIZE.width : from.x;
  const x2 = isForward ? to.x : to.x + SIZE.width;
  const bend = Math.max(22, Math.abs(x2 - x1) / 2) * (isForward ? 1 : -1);
  // A link over other columns passes below the nodes in between.
  const below = Math.abs(from.layer - to.layer) > 1 && Math.abs(y1 - y2) < SIZE.height ? SIZE.height * 1.1 : 0;
  return `M${x1} ${y1} C${x1 + bend} ${y1 + below} ${x2 - bend} ${y2 + below} ${x2} ${y2}`;
}

interface GraphNodeProps {
  node: WhyNode;
  box: NodeBox;
  isSelected: boolean;
  onSelect: (id: string) => void;
  onOpen: (id: string) => void;
  onMove: (key: string) => void;
}

function GraphNode({ node, box, isSelected, onSelect, onOpen, onMove }: GraphNodeProps) {
  const [first, second] = wrapText(node.title);
  const isUntrusted = node.source?.untrusted ?? false;
  return (
    <g
      className={`why-node ${nodeClass(node)} ${isSelected ? 'selected' : ''} ${node.source && !node.source.in_context ? 'gone' : ''}`}
      transform={`translate(${box.x} ${box.y})`}
      role="button"
      data-node={node.id}
      tabIndex={isSelected ? 0 : -1}
      aria-pressed={isSelected}
      aria-label={`${kindName(node)}${isUntrusted ? ', untrusted' : ''}: ${node.title}`}
      onClick={() => (isSelected ? onOpen(node.id) : onSelect(node.id))}
      onKeyDown={(event) => {
        if (event.key === 'Enter' || event.key === ' ') {
          if (isSelected) onOpen(node.id);
          else onSelect(node.id);
        } else if (event.key.startsWith('Arrow')) onMove(event.key);
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <title>{node.title}</title>
      <rect width={SIZE.width} height={SIZE.height} rx={8} />
      <rect className="stripe" width={4} height={SIZE.height - 16} x={0} y={8} rx={2} />
      <text className="kind" x={14} y={18}>
        {isUntrusted ? `⚠ ${kindName(node)}` : kindName(node)}
      </text>
      {node.step != null && (
        <text className="at" x={SIZE.width - 10} y={18} textAnchor="end">
          #{node.step}
        </text>
      )}
      <text x={14} y={36}>{first}</text>
      <text x={14} y={51}>{second}</text>
    </g>
  );
}

/** A text on two lines, cut between words where that is possible. */
function wrapText(text: string): [string, string] {
  const characters = [...text.replace(/\s+/g, ' ')];
  if (characters.length <= LINE_LENGTH) return [characters.join(''), ''];
  const space = characters.lastIndexOf(' ', LINE_LENGTH);
  const end = space > LINE_LENGTH / 2 ? space : LINE_LENGTH;
  const rest = characters.slice(end).join('').trimStart();
  return [characters.slice(0, end).join(''), [...rest].length > LINE_LENGTH ? `${[...rest].slice(0, LINE_LENGTH - 1).join('')}…` : rest];
}
