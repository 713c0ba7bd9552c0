// What blame says about a file, arranged for the gutter: authors with colours, runs of lines, and short names. Nothing here renders.
import type { Blame, LineOrigin } from '../api/types';
import { shortId } from '../format';

/** Consecutive lines of one origin. */
export interface LineRun {
  /** The index of its first line. */
  first: number;
  /** The index of its last line. */
  last: number;
  origin: number;
}

export interface BlamedFile {
  document: Blame;
  runs: LineRun[];
  /** The index of the run of each line. */
  runOfLine: Uint32Array;
  /** The class of each origin, which sets its colour. */
  colours: string[];
}

/** As many as there are classes `c0` to `c7`. */
const COLOUR_COUNT = 8;

export function arrangeBlame(document: Blame): BlamedFile {
  const runs: LineRun[] = [];
  const runOfLine = new Uint32Array(document.lines.length);
  document.lines.forEach((line, index) => {
    const run = runs[runs.length - 1];
    if (run && run.origin === line.origin) run.last = index;
    else runs.push({ first: index, last: index, origin: line.origin });
    runOfLine[index] = runs.length - 1;
  });
  const colourOfSession = new Map<string, string>();
  const colours = document.origins.map((origin) => {
    const session = origin.author?.session;
    if (!session) return origin.kind === 'before-recording' ? 'older' : 'user';
    let colour = colourOfSession.get(session);
    if (!colour) {
      colour = `c${colourOfSession.size % COLOUR_COUNT}`;
      colourOfSession.set(session, colour);
    }
    return colour;
  });
  return { document, runs, runOfLine, colours };
}

/** Who wrote lines of this origin, in a few words; `~` marks an inference. */
export function describeAuthor(origin: LineOrigin): string {
  if (origin.author) return `${origin.basis === 'inferred' ? '~' : ''}${[origin.author.agent, origin.author.tool].filter(Boolean).join(' ')}`;
  if (origin.candidates.length > 0) return '~one of several';
  if (origin.kind === 'restored') return 'brought back';
  if (origin.kind === 'before-recording') return 'older';
  return 'you';
}

/** The same as a sentence for the card and for screen readers. */
export function describeOrigin(origin: LineOrigin): string {
  const { author } = origin;
  if (author) return `${author.agent} ${shortId(author.agent_session ?? author.session)}${author.tool ? `, ${author.tool}` : ''}`;
  if (origin.candidates.length > 0) return 'a call of one of several sessions';
  switch (origin.kind) {
    case 'restored':
      return 'brought back by a rewind, undo, switch or merge';
    case 'before-recording':
      return 'older than the recording';
    case 'not-recorded':
      return 'you, not recorded yet';
    default:
      return 'you, or a program that reports nothing';
  }
}

/** Where a click on an origin leads; null if there is no step. */
export function stepHref(workspace: string, origin: LineOrigin): string | null {
  if (origin.step == null) return null;
  if (origin.author) return `/sessions/${origin.author.session}?step=${origin.step}`;
  return pointHref(workspace, `#${origin.step}`);
}

/** A page that leads to the session and the step of a point. */
export const pointHref = (workspace: string, point: string): string => `/go?workspace=${encodeURIComponent(workspace)}&point=${encodeURIComponent(point)}`;
