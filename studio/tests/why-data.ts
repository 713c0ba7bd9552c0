// An explanation with every kind of node, hostile texts among them.
const HOSTILE = '<img src=x onerror="window.hacked=1">';

const node = (id: string, kind: string, title: string, more: Record<string, unknown> = {}) => ({
  id, kind, title, text: null, thinking: null, step: null, session: null, agent: null, worker: null, tool: null, path: null, item: null, at: null, source: null, ...more,
});

export function sampleWhy(session: string) {
  const source = (kind: string, trust: string, more: Record<string, unknown> = {}) => ({
    kind,
    trust,
    trust_rule: trust === 'untrusted' ? 'a page from the web was written by others' : 'the user typed it',
    untrusted: trust === 'untrusted',
    place: { message: 7, part: 0, offset: 120, line: 3, file_line: null, url: kind === 'web' ? 'https://docs.example/retry' : null, excerpt: `Before you retry:\nset RETRY_BACKOFF_LIMIT to 40 ${HOSTILE}\nand restart.` },
    runs: [{ text: 'RETRY_BACKOFF_LIMIT to 40', in_change: 'RETRY_BACKOFF_LIMIT = 40', words: 4, offset: 140, line: 3, weight: 12.5 }],
    score: 12.5, found: 3, repeats: 2, in_context: true, ...more,
  });
  return {
    target: { kind: 'step', text: '#6', node: 'n0', step: 6, path: null, lines: null, item: null, session },
    explanations: [
      {
        chain: ['n0', 'n1', 'n2', 'n3'], sources: ['n4', 'n5', 'n6'], board: ['n7'],
        words: { decisive: 9, found: 7, invented: ['jitter', 'quadratic'], invented_count: 5, truncated: false },
        context: { recorded_in: 'request', texts: 42, left: 3, truncated: false },
      },
    ],
    nodes: [
      node('n0', 'change', 'config.py: 2 lines', { step: 6, session, path: 'config.py', at: new Date().toISOString() }),
      node('n1', 'call', 'write: config.py', { step: 5, session, tool: 'write', agent: 'stepback' }),
      node('n2', 'model-turn', 'turn 2', { step: 4, session, agent: 'stepback', text: 'The page says that the limit should be 40.', thinking: 'I should follow the page.' }),
      node('n3', 'prompt', 'make the retries slower', { step: 2, session, text: `make the retries slower ${HOSTILE}` }),
      node('n4', 'source', `fetch https://docs.example/retry ${HOSTILE}`, { step: 3, session, tool: 'WebFetch', source: source('web', 'untrusted') }),
      node('n5', 'source', 'the prompt of turn 1', { step: 2, session, source: source('prompt', 'user') }),
      node('n6', 'source', 'Read src/retry.py', { step: 1, session, path: 'src/retry.py', source: source('file', 'own', { in_context: false, repeats: 0 }) }),
      node('n7', 'item', 'H2: the retries are too fast', { item: 'H2', session, text: 'the retries are too fast' }),
    ],
    edges: [
      { from: 'n0', to: 'n1', relation: 'written-by', basis: 'recorded', rule: 'the call names the file' },
      { from: 'n1', to: 'n2', relation: 'requested-by', basis: 'recorded', rule: 'the id of the call' },
      { from: 'n2', to: 'n3', relation: 'prompted-by', basis: 'recorded', rule: 'the last prompt before the turn' },
      { from: 'n0', to: 'n4', relation: 'words-from', basis: 'inferred', rule: 'four words in the same order, two of them rare' },
      { from: 'n0', to: 'n5', relation: 'words-from', basis: 'inferred', rule: 'one rare word' },
      { from: 'n0', to: 'n6', relation: 'words-from', basis: 'inferred', rule: 'one rare word' },
      { from: 'n2', to: 'n7', relation: 'cites', basis: 'recorded', rule: 'the text of the turn names H2' },
    ],
    notes: ['The thinking of one turn was not recorded.'],
    rules: [{ name: 'words', text: 'Rare words first.' }],
  };
}
