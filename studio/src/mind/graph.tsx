// What rests on what: beliefs from left to right, the hypotheses they belong to, and in red what contradicts what.
import { memo, useMemo, useState } from 'react';
import { get, useAsk } from '../api/client';
import type { MindGraph, MindItem } from '../api/types';
import { count, plural } from '../format';
import { Button, Trouble } from '../ui';
import { BOX, layout } from './layout';

/** More than this nobody can read at once. */
const AT_ONCE = 48;
/** A graph that is too wide is drawn smaller, down to this; beyond, it is scrolled. */
const SMALLEST = 0.72;
/** Letters that fit on a line of a box. */
const LINE = 25;
/** Lines that say what something rests on; the others join equals. */
const BESIDE = ['contradicts', 'excludes'];

export const BeliefGraph = memo(function BeliefGraph({ session, step, beliefs, onItem }: { session: string; step: number; beliefs: number; onItem: (id: string) => void }) {
  const [around, setAround] = useState('');
  const asked = useAsk(beliefs ? `graph ${session} ${step} ${around}` : null, (signal) =>
    get<MindGraph>(`/sessions/${session}/mind/graph`, { at: `#${step}`, around, limit: AT_ONCE }, signal),
  );
  const [kept, setKept] = useState<MindGraph | undefined>();
  if (asked.value && asked.value !== kept) setKept(asked.value);
  const graph = asked.value ?? kept;
  const drawn = useMemo(() => {
    if (!graph) return null;
    const pairs = (wanted: (how: string) => boolean) => graph.edges.filter((edge) => wanted(edge.how)).map((edge): [string, string] => [edge.from, edge.to]);
    return layout(
      graph.nodes.map((node) => node.id),
      // A belief belongs to a hypothesis: that stands right of it, where what follows from it stands.
      [...pairs((how) => !BESIDE.includes(how) && how !== 'belongs-to'), ...pairs((how) => how === 'belongs-to').map(([from, to]): [string, string] => [to, from])],
      pairs((how) => BESIDE.includes(how)),
    );
  }, [graph]);
  if (beliefs === 0) return null;
  // A belief that is not there yet at this step cannot be in the middle.
  if (asked.problem && around) {
    setAround('');
    return null;
  }
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!graph || !drawn || graph.edges.length === 0) return null;
  const large = graph.left_out > 0 || around !== '';
  const choose = (id: string) => {
    if (large && id !== around) setAround(id);
    else onItem(id);
  };
  return (
    <figure className="belief-graph">
      <figcaption>
        What rests on what{' '}
        <span className="dim">
          {around ? `around ${around}` : large ? 'the newest' : plural(graph.nodes.length, 'item')}
          {graph.left_out > 0 && `, ${count(graph.left_out)} not drawn`}
        </span>
        {around && (
          <Button small look="ghost" onClick={() => setAround('')}>
            The newest
          </Button>
        )}
      </figcaption>
      <div className="scroll" tabIndex={0} role="group" aria-label="Graph of beliefs">
        <svg style={{ width: '100%', maxWidth: drawn.width, minWidth: drawn.width * SMALLEST }} viewBox={`0 0 ${drawn.width} ${drawn.height}`} role="group" aria-label={`${plural(graph.nodes.length, 'item')}, ${plural(graph.edges.length, 'line')}`}>
          {graph.edges.map((edge) => {
            const from = drawn.boxes.get(edge.from);
            const to = drawn.boxes.get(edge.to);
            if (!from || !to) return null;
            const words = `${edge.from} ${edge.how.replace('-', ' ')} ${edge.to}${edge.strength != null ? ` (${edge.strength.toFixed(2)})` : ''}${edge.reason ? `: ${edge.reason}` : ''}`;
            return (
              <path key={`${edge.from} ${edge.how} ${edge.to}`} className={`edge ${edge.how}`} d={curve(from, to)} style={{ strokeWidth: 1 + (edge.strength ?? 0.6) * 1.4 }}>
                <title>{words}</title>
              </path>
            );
          })}
          {graph.nodes.map((node) => {
            const box = drawn.boxes.get(node.id);
            return box ? <Node key={node.id} node={node} x={box.x} y={box.y} at={node.id === around} onChoose={() => choose(node.id)} /> : null;
          })}
        </svg>
      </div>
    </figure>
  );
});

/** From the near side of one box to the near side of another; boxes of one column are joined on their right. */
function curve(from: { x: number; y: number; layer: number }, to: { x: number; y: number; layer: number }): string {
  const y1 = from.y + BOX.height / 2;
  const y2 = to.y + BOX.height / 2;
  if (from.layer === to.layer) {
    const x = from.x + BOX.width;
    return `M${x} ${y1} C${x + 34} ${y1} ${x + 34} ${y2} ${x} ${y2}`;
  }
  const [left, right, yl, yr] = from.x < to.x ? [from, to, y1, y2] : [to, from, y2, y1];
  const a = left.x + BOX.width;
  const bend = Math.max(22, (right.x - a) / 2);
  return `M${a} ${yl} C${a + bend} ${yl} ${right.x - bend} ${yr} ${right.x} ${yr}`;
}

function Node({ node, x, y, at, onChoose }: { node: MindItem; x: number; y: number; at: boolean; onChoose: () => void }) {
  const [first, second] = lines(node.text);
  const gone = node.status === 'retracted' || node.status === 'rejected';
  const sure = node.confidence ?? 0;
  return (
    <g
      className={`node ${node.kind} ${gone ? 'over' : ''} ${node.change ? `is-${node.change}` : ''} ${at ? 'at' : ''}`}
      transform={`translate(${x} ${y})`}
      role="button"
      tabIndex={0}
      aria-label={`${node.id}, ${sure.toFixed(2)}: ${node.text}`}
      onClick={onChoose}
      onKeyDown={(event) => {
        if (event.key === 'Enter' || event.key === ' ') {
          event.preventDefault();
          event.stopPropagation();
          onChoose();
        }
      }}
    >
      <title>{`${node.id}: ${node.text}`}</title>
      <rect width={BOX.width} height={BOX.height} rx={7} />
      <rect className="sure" x={1} y={BOX.height - 4} width={Math.max(0, (BOX.width - 2) * sure)} height={3} />
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
function lines(text: string): [string, string] {
  const cut = (rest: string, most: number): [string, string] => {
    if (rest.length <= most) return [rest, ''];
    const space = rest.lastIndexOf(' ', most);
    const end = space > most / 2 ? space : most;
    return [rest.slice(0, end), rest.slice(end).trimStart()];
  };
  const [first, rest] = cut(text.replace(/\s+/g, ' '), LINE - 4);
  const [second, more] = cut(rest, LINE);
  return [first, more ? `${second}…` : second];
}
