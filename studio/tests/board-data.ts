// A sample board: the search for a bug.
import type { TestProject } from './project';

/** Runs a command that changes the board of a session. */
export function runThought(world: TestProject, session: string, ...args: string[]): string {
  return world.run('board', ...args, '--session', session);
}

/** Adds at least one item of each kind. */
export function addSampleBoard(world: TestProject, session: string) {
  const add = (...args: string[]) => runThought(world, session, ...args);
  add('hypothesis', 'propose', 'the cache is stale after a deploy', '--tag', 'cache');
  add('hypothesis', 'propose', 'the clock jumps', '--prior', '0.2');
  add('hypothesis', 'propose', 'two requests race for one connection');
  add('evidence', 'add', 'H1', 'a hit right after the deploy', '--strength', '0.5', '--tool', 'curl');
  add('evidence', 'add', 'H2', 'the manual says it is monotonic', '--strength', '-0.9', '--doc', 'clock_gettime(2)');
  add('belief', 'add', 'a query takes 5 to 20 ms', '--kind', 'expectation', '--subject', 'query-ms', '--range', '5..20');
  add('belief', 'add', 'it took 120 ms', '--kind', 'observation', '--subject', 'query-ms', '--value', '120');
  add('belief', 'add', 'the pool of connections is exhausted', '--kind', 'inference', '--confidence', '0.9', '--hypothesis', 'H3');
  add('belief', 'depend', 'B3', 'B2', '--kind', 'derived-from', '--strength', '0.8', '--because', 'nothing else waits');
  add('belief', 'add', 'a second pool would help', '--kind', 'assumption', '--confidence', '0.7');
  add('belief', 'depend', 'B4', 'B3', '--kind', 'requires', '--strength', '1');
  add('belief', 'add', 'requests of both pools reach the same server', '--kind', 'inference', '--confidence', '0.8');
  add('belief', 'depend', 'B5', 'B3', '--kind', 'supported-by', '--strength', '0.5');
  add('belief', 'depend', 'B5', 'B4', '--kind', 'supported-by', '--strength', '0.6');
  add('gap', 'add', 'which version does production run?', '--kind', 'environment', '--criticality', 'high', '--blocks', 'H1');
  add('gap', 'add', 'since when?', '--after', 'G1', '--strategy', 'ask the log', '--minutes', '5');
  add('verify', 'add', 'the project has its file', '--file', 'kept.txt', '--text', 'mine', '--pass-evidence', 'H1=0.3', '--pass-fills', 'G1');
  add('verify', 'run');
  add('hypothesis', 'conclude', 'H2', 'rejected', '--because', 'it cannot jump');
  add('evidence', 'add', 'H3', 'both waited for the same lock', '--strength', '0.7', '--code', 'src/pool.rs:31');
  add('note', 'add', 'staging is a copy of Monday', '--about', 'H1');
}
