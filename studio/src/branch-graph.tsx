// The graph of the branches page.
import type { Branch } from './api/types';

const ROW_HEIGHT = 44;
const LEFT_MARGIN = 18;
const GRAPH_WIDTH = 330;

/**
 * Branches as lines along step numbers: each starts at the step where it left another one. Only numbers where a branch starts or
 * ends take up space, so that a branch of three steps is visible in a workspace of ten thousand.
 */
export function BranchGraph({ branches }: { branches: Branch[] }) {
  const branchesWithTip = branches.filter((branch) => branch.tip);
  // A branch is drawn below the one it left.
  const rows: Branch[] = [];
  const addDescendants = (from: string | undefined) => {
    for (const branch of branchesWithTip.filter((child) => child.from?.branch === from && !rows.includes(child))) {
      rows.push(branch);
      addDescendants(branch.name);
    }
  };
  addDescendants(undefined);
  rows.push(...branchesWithTip.filter((branch) => !rows.includes(branch)));
  const columns = [...new Set(rows.flatMap((branch) => [branch.first ?? branch.tip?.number ?? 0, branch.from?.number ?? branch.first ?? 1, branch.tip?.number ?? 0]))].sort((a, b) => a - b);
  const x = (number: number) => {
    const column = columns.findIndex((stop) => stop >= number);
    return LEFT_MARGIN + (columns.length > 1 ? (Math.max(0, column) / (columns.length - 1)) * GRAPH_WIDTH : GRAPH_WIDTH);
  };
  const y = (name: string) => rows.findIndex((branch) => branch.name === name) * ROW_HEIGHT + 24;
  const descriptions = rows.map((branch) => `${branch.name}${branch.from ? ` left ${branch.from.branch} at #${branch.from.number} and` : ''} is at #${branch.tip?.number}`);
  return (
    <svg className="branch-graph" viewBox={`0 0 460 ${rows.length * ROW_HEIGHT + 10}`} role="img" aria-label={descriptions.join(', ')}>
      {rows.map((branch) => {
        const rowY = y(branch.name);
        const interruptRerun = x(branch.tip?.number ?? 0);
        const from = branch.from;
        const start = from ? x(from.number) : x(branch.first ?? 1);
        const line = from ? `M${start} ${y(from.branch)} V${rowY - 10} Q${start} ${rowY} ${start + 10} ${rowY} H${Math.max(interruptRerun, start + 10)}` : `M${start} ${rowY} H${interruptRerun}`;
        return (
          <g key={branch.name} className={branch.present ? 'present' : ''}>
            <path d={line} />
            {from && <circle className="fork-point" cx={start} cy={y(from.branch)} r={3.5} />}
            {from && (
              <text className="number" x={start + 5} y={y(from.branch) + 14}>
                #{from.number}
              </text>
            )}
            <circle cx={from ? Math.max(interruptRerun, start + 10) : interruptRerun} cy={rowY} r={branch.present ? 6 : 4.5} />
            <text x={Math.max(interruptRerun, start + 10) + 10} y={rowY + 4}>
              {branch.name}
            </text>
          </g>
        );
      })}
    </svg>
  );
}
