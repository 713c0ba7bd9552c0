// A hunt for a bug, as an agent puts it on its board.
import type { World } from './world';

/** Thinks something in a session; `words` are those of the command line. */
export function think(world: World, session: string, ...words: string[]): string {
  return world.run(...words, '--session', session);
}

/** A board with something of everything. */
export function hunt(world: World, session: string) {
  const say = (...words: string[]) => think(world, session, ...words);
  say('hypothesis', 'propose', 'the cache is stale after a deploy', '--tag', 'cache');
  say('hypothesis', 'propose', 'the clock jumps', '--prior', '0.2');
  say('hypothesis', 'propose', 'two requests race for one connection');
  say('evidence', 'add', 'H1', 'a hit right after the deploy', '--strength', '0.5', '--tool', 'curl');
  say('evidence', 'add', 'H2', 'the manual says it is monotonic', '--strength', '-0.9', '--doc', 'clock_gettime(2)');
  say('belief', 'add', 'a query takes 5 to 20 ms', '--kind', 'expectation', '--subject', 'query-ms', '--range', '5..20');
  say('belief', 'add', 'it took 120 ms', '--kind', 'observation', '--subject', 'query-ms', '--value', '120');
  say('belief', 'add', 'the pool of connections is exhausted', '--kind', 'inference', '--confidence', '0.9', '--hypothesis', 'H3');
  say('belief', 'depend', 'B3', 'B2', '--kind', 'derived-from', '--strength', '0.8', '--because', 'nothing else waits');
  say('belief', 'add', 'a second pool would help', '--kind', 'assumption', '--confidence', '0.7');
  say('belief', 'depend', 'B4', 'B3', '--kind', 'requires', '--strength', '1');
  say('belief', 'add', 'requests of both pools reach the same server', '--kind', 'inference', '--confidence', '0.8');
  say('belief', 'depend', 'B5', 'B3', '--kind', 'supported-by', '--strength', '0.5');
  say('belief', 'depend', 'B5', 'B4', '--kind', 'supported-by', '--strength', '0.6');
  say('gap', 'add', 'which version does production run?', '--kind', 'environment', '--criticality', 'high', '--blocks', 'H1');
  say('gap', 'add', 'since when?', '--after', 'G1', '--strategy', 'ask the log', '--minutes', '5');
  say('verify', 'add', 'the project has its file', '--file', 'kept.txt', '--text', 'mine', '--pass-evidence', 'H1=0.3', '--pass-fills', 'G1');
  say('verify', 'run');
  say('hypothesis', 'conclude', 'H2', 'rejected', '--because', 'it cannot jump');
  say('evidence', 'add', 'H3', 'both waited for the same lock', '--strength', '0.7', '--code', 'src/pool.rs:31');
  say('note', 'add', 'staging is a copy of Monday', '--about', 'H1');
}
