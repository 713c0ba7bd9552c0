// One node of an explanation in full: its text, where its words stand, whose they are, and its links.
import type { WhyEdge, WhyNode } from '../api/types';
import { formatCount, pluralize, shortId } from '../format';
import { Link } from '../route';
import { LongText } from '../session/values';
import { RelativeTime } from '../ui';
import { kindName, nodeClass, relationName, targetOf, TRUST_NAMES, whyHref } from './names';

/** What a node says, for the graph's side and for the list. */
export function NodeBody({ node }: { node: WhyNode }) {
  const { source } = node;
  return (
    <>
      <p className="facts dim">
        {node.agent && <span>{node.agent}{node.worker ? `, ${node.worker}` : ''}</span>}
        {node.tool && <code className="tool">{node.tool}</code>}
        {node.path && <span className="mono">{node.path}{source?.place.file_line ? `:${source.place.file_line}` : ''}</span>}
        {node.at && <RelativeTime timestamp={node.at} />}
        {source?.place.url && <span className="mono">{source.place.url}</span>}
      </p>
      {source && (
        <p className={source.untrusted ? 'untrusted-note' : 'dim'}>
          <b>{source.untrusted ? '⚠ untrusted' : (TRUST_NAMES[source.trust] ?? source.trust)}</b>: {source.trust_rule}
        </p>
      )}
      {source && (
        <>
          <Excerpt node={node} />
          <p className="facts dim">
            <span>
              {source.place.message != null && `message ${source.place.message}, `}line {formatCount(source.place.line)}
            </span>
            <span>{pluralize(source.found, 'decisive word')} of the change in it</span>
            {source.repeats > 0 && <span>{pluralize(source.repeats, 'earlier text says', 'earlier texts say')} the same</span>}
            {!source.in_context && <span className="bad">had left the context before this turn</span>}
          </p>
          {source.runs.length > 0 && (
            <ul className="runs" aria-label="Shared words">
              {source.runs.map((run) => (
                <li key={`${run.offset} ${run.text}`}>
                  <mark>{run.text}</mark>
                  {run.in_change !== run.text && <span className="dim"> in the change: {run.in_change}</span>}
                </li>
              ))}
            </ul>
          )}
        </>
      )}
      {node.text && node.text.trim() !== source?.place.excerpt.trim() && <LongText text={node.text} />}
      {node.thinking && (
        <>
          <p className="dim">It thought:</p>
          <LongText className="thinking" text={node.thinking} />
        </>
      )}
    </>
  );
}

/** The lines around the shared words, with the words marked. */
function Excerpt({ node }: { node: WhyNode }) {
  const excerpt = node.source?.place.excerpt ?? '';
  if (!excerpt) return null;
  const words = (node.source?.runs ?? []).map((run) => run.text).filter(Boolean);
  const parts: { text: string; isMarked: boolean }[] = [];
  let rest = excerpt;
  while (rest) {
    let at = -1;
    let found = '';
    for (const word of words) {
      const index = rest.indexOf(word);
      if (index >= 0 && (at < 0 || index < at || (index === at && word.length > found.length))) {
        at = index;
        found = word;
      }
    }
    if (at < 0) {
      parts.push({ text: rest, isMarked: false });
      break;
    }
    if (at > 0) parts.push({ text: rest.slice(0, at), isMarked: false });
    parts.push({ text: found, isMarked: true });
    rest = rest.slice(at + found.length);
  }
  return (
    <pre className="text excerpt" tabIndex={0}>
      {parts.map((part, index) => (part.isMarked ? <mark key={index}>{part.text}</mark> : part.text))}
    </pre>
  );
}

interface NodeDetailProps {
  workspace: string;
  node: WhyNode;
  nodes: WhyNode[];
  edges: WhyEdge[];
  targetNode: string;
  onSelect: (id: string) => void;
}

export function NodeDetail({ workspace, node, nodes, edges, targetNode, onSelect }: NodeDetailProps) {
  const next = targetOf(node);
  const linkList = (title: string, links: WhyEdge[], other: (edge: WhyEdge) => string) =>
    links.length > 0 && (
      <section>
        <h3>{title}</h3>
        <ul className="plain why-links">
          {links.map((edge) => {
            const neighbour = nodes.find((candidate) => candidate.id === other(edge));
            return (
              <li key={`${edge.from} ${edge.relation} ${edge.to}`}>
                <span className={`basis ${edge.basis}`}>{edge.basis}</span> {relationName(edge.relation)}{' '}
                <button type="button" className="link" onClick={() => onSelect(other(edge))}>
                  {neighbour ? `${kindName(neighbour)}: ${neighbour.title}` : other(edge)}
                </button>
                <span className="dim rule">{edge.rule}</span>
              </li>
            );
          })}
        </ul>
      </section>
    );
  return (
    <article className="panel why-detail" aria-label={`${kindName(node)}: ${node.title}`}>
      <p className={`kind-line ${nodeClass(node)}`}>{kindName(node)}</p>
      <h2>{node.title}</h2>
      <NodeBody node={node} />
      <NodeLinks workspace={workspace} node={node} isTarget={node.id === targetNode} next={next} />
      {linkList('Comes from', edges.filter((edge) => edge.from === node.id), (edge) => edge.to)}
      {linkList('Led to', edges.filter((edge) => edge.to === node.id), (edge) => edge.from)}
    </article>
  );
}

export function NodeLinks({ workspace, node, isTarget, next }: { workspace: string; node: WhyNode; isTarget: boolean; next: string | null }) {
  return (
    <p className="origin-links">
      {node.session && node.step != null && <Link href={`/sessions/${node.session}?step=${node.step}`}>Go to step #{node.step}</Link>}
      {node.session && node.step == null && <Link href={`/sessions/${node.session}`}>Go to session {shortId(node.session)}</Link>}
      {next && !isTarget && <Link href={whyHref(workspace, next, node.kind === 'item' ? { session: node.session ?? undefined } : {})}>Why {next}?</Link>}
    </p>
  );
}
