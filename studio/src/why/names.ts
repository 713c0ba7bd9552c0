// The words in which an explanation is shown, and which parts of it belong together. Nothing here renders.
import type { WhyDocument, WhyEdge, WhyExplanation, WhyNode } from '../api/types';

export const NODE_KIND_NAMES: Record<string, string> = {
  lines: 'lines',
  change: 'change',
  call: 'tool call',
  'model-turn': 'model turn',
  prompt: 'prompt',
  session: 'session',
  item: 'board item',
  step: 'step',
  source: 'source',
};

const SOURCE_KIND_NAMES: Record<string, string> = {
  prompt: 'a prompt',
  instructions: 'the instructions',
  injected: 'an injected text',
  file: 'a file',
  web: 'a web page',
  mcp: 'an MCP server',
  command: 'a command',
  'tool-result': 'a tool result',
  summary: 'a summary of the conversation',
  'own-text': 'its own text',
  'own-call': 'its own call',
};

export const RELATION_NAMES: Record<string, string> = {
  'written-by': 'written by',
  'requested-by': 'requested by',
  'prompted-by': 'prompted by',
  'part-of': 'part of',
  'words-from': 'has words from',
  cites: 'cites',
  'supported-by': 'supported by',
  'depends-on': 'depends on',
  'changed-near': 'changed near',
  'recorded-during': 'recorded during',
};

export const TRUST_NAMES: Record<string, string> = {
  user: 'the user’s words',
  own: 'the session’s own words',
  agent: 'the agent’s program or settings',
  unknown: 'unknown author',
  untrusted: 'untrusted',
};

export const relationName = (relation: string): string => RELATION_NAMES[relation] ?? relation.replaceAll('-', ' ');

/** What a node is, in a word or two. */
export function kindName(node: WhyNode): string {
  if (node.source) return SOURCE_KIND_NAMES[node.source.kind] ?? node.source.kind;
  return NODE_KIND_NAMES[node.kind] ?? node.kind;
}

/** The class that gives a node its colour. */
export function nodeClass(node: WhyNode): string {
  if (node.source?.untrusted) return 'untrusted';
  if (node.source) return 'source';
  return { prompt: 'prompt', 'model-turn': 'model', call: 'tool', item: 'thought' }[node.kind] ?? 'other';
}

/** The address of the page that explains a target. */
export function whyHref(workspace: string, target: string, more: Record<string, string | undefined> = {}): string {
  const query = new URLSearchParams({ workspace, target });
  for (const [name, value] of Object.entries(more)) if (value) query.set(name, value);
  return `/why?${query.toString()}`;
}

/** What can be asked about a node in turn; null if it is the last word. */
export function targetOf(node: WhyNode): string | null {
  if (node.kind === 'item' && node.item) return node.item;
  return node.step == null ? null : `#${node.step}`;
}

/** The nodes and edges of one explanation, or of all if there is none. */
export function subgraph(document: WhyDocument, explanation: WhyExplanation | undefined): { nodes: WhyNode[]; edges: WhyEdge[] } {
  if (!explanation) return { nodes: document.nodes, edges: document.edges };
  const ids = new Set([document.target.node, ...explanation.chain, ...explanation.sources, ...explanation.board]);
  return {
    nodes: document.nodes.filter((node) => ids.has(node.id)),
    edges: document.edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to)),
  };
}
