// Why something is as it is: the chain that led to it and what the model had seen, as a graph to walk or as a list.
import { type FormEvent, useEffect, useState } from 'react';
import { get, useRequest } from '../api/client';
import type { WhyDocument, WhyExplanation, WhyNode } from '../api/types';
import { formatCount, pluralize } from '../format';
import { Link, navigate, setQuery, useRoute } from '../route';
import { Button, EmptyState, ErrorMessage, Loading } from '../ui';
import { WhyGraph } from '../why/graph';
import { kindName, nodeClass, relationName, subgraph, targetOf, whyHref } from '../why/names';
import { NodeBody, NodeDetail, NodeLinks } from '../why/node-detail';
import { useSelectedWorkspace } from '../workspaces';

/** A graph needs width; a narrow page begins with the list. */
const NARROW = '(max-width: 700px)';
/** More nodes than this are not readable as a graph. */
const MAX_GRAPH_NODES = 80;

export default function WhyPage() {
  const { query } = useRoute();
  const { selected: defaultWorkspace } = useSelectedWorkspace();
  const workspace = query.get('workspace') ?? defaultWorkspace?.id ?? '';
  const target = query.get('target') ?? '';
  const session = query.get('session') ?? undefined;
  const at = query.get('at') ?? undefined;
  const request = useRequest(workspace && target ? `why ${workspace} ${target} ${session} ${at}` : null, (signal) =>
    get<WhyDocument>(`/workspaces/${encodeURIComponent(workspace)}/why`, { target, session, at }, signal),
  );
  const document = request.data;
  return (
    <div className="page why-page">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href="/sessions">Sessions</Link> / Why
          </p>
          <h1>Why {document ? describeTarget(document) : target || 'is it so?'}</h1>
        </div>
        <TargetForm key={target} target={target} workspace={workspace} />
      </header>
      {!target && (
        <EmptyState title="What do you want to know the origin of?">
          <p>Enter a step (#12), lines of a file (src/main.rs:40), an item of a board (H2), or the id of a session.</p>
        </EmptyState>
      )}
      {request.error && <ErrorMessage error={request.error} onRetry={request.reload} />}
      {target && !document && !request.error && <Loading label="Looking for the origin" />}
      {document && <Explanations workspace={workspace} document={document} />}
    </div>
  );
}

function describeTarget(document: WhyDocument): string {
  const { target } = document;
  const title = document.nodes.find((node) => node.id === target.node)?.title;
  return title && title !== target.text ? `${target.text}: ${title}` : target.text;
}

function TargetForm({ target, workspace }: { target: string; workspace: string }) {
  const [text, setText] = useState(target);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) navigate(whyHref(workspace, text.trim()));
  };
  return (
    <form className="filters" role="search" aria-label="Ask why" onSubmit={submit}>
      <input type="search" aria-label="Target" placeholder="#12, src/main.rs:40, H2 …" value={text} onChange={(event) => setText(event.target.value)} />
      <Button type="submit">Why?</Button>
    </form>
  );
}

function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(() => window.matchMedia(NARROW).matches);
  useEffect(() => {
    const list = window.matchMedia(NARROW);
    const update = () => setNarrow(list.matches);
    list.addEventListener('change', update);
    return () => list.removeEventListener('change', update);
  }, []);
  return isNarrow;
}

function Explanations({ workspace, document }: { workspace: string; document: WhyDocument }) {
  const { query } = useRoute();
  const isNarrow = useNarrow();
  const index = Math.max(0, Math.min(document.explanations.length - 1, (Number(query.get('n')) || 1) - 1));
  const explanation = document.explanations[index];
  const { nodes, edges } = subgraph(document, explanation);
  const isGraph = (query.get('form') ?? (isNarrow ? 'list' : 'graph')) === 'graph' && nodes.length <= MAX_GRAPH_NODES;
  const [chosen, setChosen] = useState('');
  const fallback = explanation?.chain[0] ?? document.target.node;
  const selected = nodes.find((node) => node.id === chosen) ?? nodes.find((node) => node.id === fallback) ?? nodes[0];
  const open = (id: string) => {
    const node = nodes.find((candidate) => candidate.id === id);
    const next = node && id !== document.target.node ? targetOf(node) : null;
    if (node && next) navigate(whyHref(workspace, next, node.kind === 'item' ? { session: node.session ?? undefined } : {}));
  };
  const untrusted = nodes.filter((node) => node.source?.untrusted);
  return (
    <>
      {document.explanations.length === 0 && (
        <p className="banner">Nothing that was recorded led to it. {document.notes[0]}</p>
      )}
      {untrusted.length > 0 && (
        <p className="untrusted-note" role="note">
          <b>⚠ {pluralize(untrusted.length, 'untrusted source')}</b>: words of this change stand in texts that neither the user nor the session wrote:{' '}
          {untrusted.slice(0, 5).map((node, at) => (
            <span key={node.id}>
              {at > 0 && ', '}
              <button type="button" className="link" onClick={() => setChosen(node.id)}>
                {node.title}
              </button>
            </span>
          ))}
        </p>
      )}
      <div className="filters">
        {document.explanations.length > 1 && (
          <label className="picker">
            <span className="dim">Explanation</span>
            <select value={index + 1} onChange={(event) => setQuery({ n: event.target.value })}>
              {document.explanations.map((candidate, at) => (
                <option key={at} value={at + 1}>
                  {at + 1} of {document.explanations.length}: {document.nodes.find((node) => node.id === candidate.chain[0])?.title}
                </option>
              ))}
            </select>
          </label>
        )}
        <span className="segments" role="group" aria-label="Form">
          <Button small variant={isGraph ? 'primary' : 'plain'} aria-pressed={isGraph} disabled={nodes.length > MAX_GRAPH_NODES} onClick={() => setQuery({ form: 'graph' })}>
            Graph
          </Button>
          <Button small variant={isGraph ? 'plain' : 'primary'} aria-pressed={!isGraph} onClick={() => setQuery({ form: 'list' })}>
            List
          </Button>
        </span>
        {isGraph && (
          <span className="why-legend dim" aria-hidden="true">
            <span><i className="recorded" /> recorded</span>
            <span><i className="inferred" /> inferred: point at it for the rule</span>
          </span>
        )}
      </div>
      {explanation && <Summary explanation={explanation} />}
      {isGraph && selected ? (
        <div className="why-split">
          <WhyGraph nodes={nodes} edges={edges} explanation={explanation} selected={selected.id} onSelect={setChosen} onOpen={open} />
          <NodeDetail workspace={workspace} node={selected} nodes={document.nodes} edges={document.edges} targetNode={document.target.node} onSelect={setChosen} />
        </div>
      ) : (
        <WhyList workspace={workspace} document={document} explanation={explanation} nodes={nodes} />
      )}
      <footer className="dim why-notes">
        {document.notes.map((note) => (
          <p key={note}>{note}</p>
        ))}
        {document.rules.length > 0 && (
          <details>
            <summary>How this was inferred</summary>
            <dl className="fields">
              {document.rules.map((rule) => (
                <div key={rule.name}>
                  <dt>{rule.name}</dt>
                  <dd>{rule.text}</dd>
                </div>
              ))}
            </dl>
          </details>
        )}
      </footer>
    </>
  );
}

const CONTEXT_NAMES: Record<string, string> = {
  request: 'the recorded request of the model call',
  conversation: 'the agent’s own conversation',
  steps: 'the inputs and outputs of earlier steps',
  none: 'nothing: what the model had seen is not recorded',
};

/** How much of the change is explained by what the model had seen. */
function Summary({ explanation }: { explanation: WhyExplanation }) {
  const { words, context } = explanation;
  return (
    <p className="dim">
      {words.decisive > 0
        ? `${formatCount(words.found)} of ${pluralize(words.decisive, 'decisive word')} stand in what the model had seen`
        : 'The change has no decisive words to look for'}
      {words.invented.length > 0 && (
        <>
          ; the model’s own, as far as it is recorded: <span className="mono">{words.invented.join(' ')}</span>
          {words.invented_count > words.invented.length && ` and ${formatCount(words.invented_count - words.invented.length)} more`}
        </>
      )}
      . Searched: {CONTEXT_NAMES[context.recorded_in] ?? context.recorded_in}
      {context.texts > 0 && `, ${pluralize(context.texts, 'text')}`}
      {context.left > 0 && `, ${formatCount(context.left)} of which had left the context`}
      {(words.truncated || context.truncated) && '; too large to be searched completely'}.
    </p>
  );
}

/** The same as text, in reading order. */
function WhyList({ workspace, document, explanation, nodes }: { workspace: string; document: WhyDocument; explanation: WhyExplanation | undefined; nodes: WhyNode[] }) {
  const byId = (ids: string[]) => ids.map((id) => nodes.find((node) => node.id === id)).filter((node) => node !== undefined);
  const groups: [string, WhyNode[]][] = explanation
    ? [
        ['The chain', byId(explanation.chain)],
        ['What the model had seen', byId(explanation.sources)],
        ['On the board', byId(explanation.board)],
      ]
    : [['What is known', nodes]];
  return (
    <>
      {groups.map(([title, items]) =>
        items.length === 0 ? null : (
          <section key={title} className="why-list">
            <h2>{title}</h2>
            <ol>
              {items.map((node) => {
                // How the thing before it leads here.
                const link = document.edges.find((edge) => edge.to === node.id && nodes.some((other) => other.id === edge.from));
                return (
                  <li key={node.id} className={`panel ${nodeClass(node)}`}>
                    {link && (
                      <p className="dim relation">
                        <span className={`basis ${link.basis}`}>{link.basis}</span> {relationName(link.relation)} – {link.rule}
                      </p>
                    )}
                    <p className={`kind-line ${nodeClass(node)}`}>{kindName(node)}</p>
                    <h3>{node.title}</h3>
                    <NodeBody node={node} />
                    <NodeLinks workspace={workspace} node={node} isTarget={node.id === document.target.node} next={targetOf(node)} />
                  </li>
                );
              })}
            </ol>
          </section>
        ),
      )}
    </>
  );
}
