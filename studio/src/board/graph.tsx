// The graph of dependencies: beliefs from left to right, the hypotheses they belong to, and contradictions in red.
import { memo, useMemo, useState } from 'react';
import { get, useRequest } from '../api/client';
import type { BoardGraph, BoardItem } from '../api/types';
import { formatCount, pluralize } from '../format';
import { Button, ErrorMessage } from '../ui';
import { layoutGraph, NODE_SIZE } from './layout';

/** A graph with more nodes is not readable. */
const MAX_NODES = 48;
/** A wide graph is scaled down to this; beyond that, it scrolls. */
const MIN_SCALE = 0.72;
/** Characters that fit on a line of a node. */
const LINE_LENGTH = 25;
/** Kinds of edges without a direction; all others are dependencies. */
const SYMMETRIC_EDGES = ['contradicts', 'excludes'];

export const BeliefGraph = memo(function BeliefGraph({ session, step, beliefs, onItem }: { session: string; step: number; beliefs: number; onItem: (id: string) => void }) {
  const [center, setCenter] = useState('');
  const request = useRequest(beliefs ? `graph ${session} ${step} ${center}` : null, (signal) =>
    get<BoardGraph>(`/sessions/${session}/mind/graph`, { at: `#${step}`, around: center, limit: MAX_NODES }, signal),
  );
  const [lastGraph, setLastGraph] = useState<BoardGraph | undefined>();
  if (request.data && request.data !== lastGraph) setLastGraph(request.data);
  const graph = request.data ?? lastGraph;
  const graphLayout = useMemo(() => {
    if (!graph) return null;
    const edgesWhere = (accepts: (how: string) => boolean) => graph.edges.filter((edge) => accepts(edge.how)).map((edge): [string, string] => [edge.from, edge.to]);
    return layoutGraph(
      graph.nodes.map((node) => node.id),
      // The hypothesis of a belief is drawn to the right of it, like anything that follows from the belief.
      [...edgesWhere((how) => !SYMMETRIC_EDGES.includes(how) && how !== 'belongs-to'), ...edgesWhere((how) => how === 'belongs-to').map(([from, to]): [string, string] => [to, from])],
      edgesWhere((how) => SYMMETRIC_EDGES.includes(how)),
    );
  }, [graph]);
  if (beliefs === 0) return null;
  // The centre may not exist yet at this step.
  if (request.error && center) {
    setCenter('');
    return null;
  }
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!graph || !graphLayout || graph.edges.length === 0) return null;
  const isPartial = graph.left_out > 0 || center !== '';
  const selectNode = (id: string) => {
    if (isPartial && id !== center) setCenter(id);
    else onItem(id);
  };
  return (
    <figure className="belief-graph">
      <figcaption>
        Dependencies{' '}
        <span className="dim">
          {center ? `around ${center}` : isPartial ? 'newest' : pluralize(graph.nodes.length, 'item')}
          {graph.left_out > 0 && `, ${formatCount(graph.left_out)} not drawn`}
        </span>
        {center && (
          <Button small variant="ghost" onClick={() => setCenter('')}>
            Show newest
          </Button>
        )}
      </figcaption>
      <div className="scroll" tabIndex={0} role="group" aria-label="Graph of beliefs">
        <svg style={{ width: '100%', maxWidth: graphLayout.width, minWidth: graphLayout.width * MIN_SCALE }} viewBox={`0 0 ${graphLayout.width} ${graphLayout.height}`} role="group" aria-label={`${pluralize(graph.nodes.length, 'item')}, ${pluralize(graph.edges.length, 'line')}`}>
          {graph.edges.map((edge) => {
            const from = graphLayout.boxes.get(edge.from);
            const to = graphLayout.boxes.get(edge.to);
            if (!from || !to) return null;
            const description = `${edge.from} ${edge.how.replace('-', ' ')} ${edge.to}${edge.strength != null ? ` (${edge.strength.toFixed(2)})` : ''}${edge.reason ? `: ${edge.reason}` : ''}`;
            return (
              <path key={`${edge.from} ${edge.how} ${edge.to}`} className={`edge ${edge.how}`} d={edgePath(from, to)} style={{ strokeWidth: 1 + (edge.strength ?? 0.6) * 1.4 }}>
                <title>{description}</title>
              </path>
            );
          })}
          {graph.nodes.map((node) => {
            const box = graphLayout.boxes.get(node.id);
            return box ? <GraphNode key={node.id} node={node} x={box.x} y={box.y} isCenter={node.id === center} onSelect={() => selectNode(node.id)} /> : null;
          })}
        </svg>
      </div>
    </figure>
  );
});

/** A curve between the facing sides of two nodes; nodes of one column are connected on their right. */
function edgePath(from: { x: number; y: number; layer: number }, to: { x: number; y: number; layer: number }): string {
  const y1 = from.y + NODE_SIZE.height / 2;
  const y2 = to.y + NODE_SIZE.height / 2;
  if (from.layer === to.layer) {
    const x = from.x + NODE_SIZE.width;
    return `M${x} ${y1} C${x + 34} ${y1} ${x + 34} ${y2} ${x} ${y2}`;
  }
  const [left, right, yl, yr] = from.x < to.x ? [from, to, y1, y2] : [to, from, y2, y1];
  const a = left.x + NODE_SIZE.width;
  const bend = Math.max(22, (right.x - a) / 2);
  return `M${a} ${yl} C${a + bend} ${yl} ${right.x - bend} ${yr} ${right.x} ${yr}`;
}

function GraphNode({ node, x, y, isCenter, onSelect }: { node: BoardItem; x: number; y: number; isCenter: boolean; onSelect: () => void }) {
  const [first, second] = wrapText(node.text);
  const isClosed = node.status === 'retracted' || node.status === 'rejected';
  const confidence = node.confidence ?? 0;
  return (
    <g
      className={`node ${node.kind} ${isClosed ? 'closed' : ''} ${node.change ? `is-${node.change}` : ''} ${isCenter ? 'selected' : ''}`}
      transform={`translate(${x} ${y})`}
      role="button"
      tabIndex={0}
      aria-label={`${node.id}, ${confidence.toFixed(2)}: ${node.text}`}
      onClick={onSelect}
      onKeyDown={(event) => {
        if (event.key === 'Enter' || event.key === ' ') {
          event.preventDefault();
          event.stopPropagation();
          onSelect();
        }
      }}
    >
      <title>{`${node.id}: ${node.text}`}</title>
      <rect width={NODE_SIZE.width} height={NODE_SIZE.height} rx={7} />
      <rect className="confidence-level" x={1} y={NODE_SIZE.height - 4} width={Math.max(0, (NODE_SIZE.width - 2) * confidence)} height={3} />
      <text x={9} y={17}>
        <tspan className="id">{node.id}</tspan> {first}
      </text>
      <text x={9} y={33}>
        {second}
      </text>
    </g>
  );
}

/** A text on two lines, cut between words. */
function wrapText(text: string): [string, string] {
  const takeLine = (rest: string, maxLength: number): [string, string] => {
    if (rest.length <= maxLength) return [rest, ''];
    const space = rest.lastIndexOf(' ', maxLength);
    const end = space > maxLength / 2 ? space : maxLength;
    return [rest.slice(0, end), rest.slice(end).trimStart()];
  };
  const [first, rest] = takeLine(text.replace(/\s+/g, ' '), LINE_LENGTH - 4);
  const [second, more] = takeLine(rest, LINE_LENGTH);
  return [first, more ? `${second}…` : second];
}
