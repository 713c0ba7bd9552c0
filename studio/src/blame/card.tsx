// The card beside a line: who wrote it, when, for which prompt, and how that is known.
import { type Ref } from 'react';
import type { BlamedLine, LineOrigin } from '../api/types';
import { shortId } from '../format';
import { Link } from '../route';
import { RelativeTime } from '../ui';
import { whyHref } from '../why/names';
import { describeOrigin, stepHref } from './origins';

interface OriginCardProps {
  id: string;
  workspace: string;
  /** The point at which the file is looked at. */
  at: string;
  origin: LineOrigin;
  line: BlamedLine;
  path: string;
  style: { top?: number; bottom?: number };
  ref: Ref<HTMLDivElement>;
  onEnter: () => void;
  onLeave: () => void;
}

export function OriginCard({ id, workspace, at, origin, line, path, style, ref, onEnter, onLeave }: OriginCardProps) {
  const { author } = origin;
  const href = stepHref(workspace, origin);
  return (
    <div id={id} ref={ref} className="origin-card" role="group" aria-label={`Origin of line ${line.number}`} style={style} onPointerEnter={onEnter} onPointerLeave={onLeave}>
      <p className="origin-title">
        <b>{describeOrigin(origin)}</b>
        <span className={`status ${origin.basis === 'inferred' ? 'pending' : ''}`}>{origin.basis}</span>
      </p>
      {author?.prompt_text && <blockquote>{author.prompt_text}</blockquote>}
      <p className="facts dim">
        {origin.kind !== 'before-recording' && <RelativeTime timestamp={origin.at} />}
        {author?.turn != null && <span>turn {author.turn}</span>}
        {origin.path !== path && <span>written into {origin.path}</span>}
        {line.formatted != null && <span>formatted in #{line.formatted}</span>}
        {line.moved != null && <span>moved in #{line.moved}</span>}
      </p>
      {origin.candidates.length > 0 && (
        <ul className="plain">
          {origin.candidates.map((candidate) => (
            <li key={`${candidate.session} ${candidate.call}`}>
              <Link href={`/sessions/${candidate.session}${candidate.call == null ? '' : `?step=${candidate.call}`}`}>
                {candidate.agent} {shortId(candidate.agent_session ?? candidate.session)} {candidate.tool}
              </Link>
            </li>
          ))}
        </ul>
      )}
      <p className="dim rule">{origin.rule}</p>
      <p className="origin-links">
        <Link href={whyHref(workspace, `${path}:${line.number}`, { at })}>Why is it here?</Link>
        {href && <Link href={href}>Step #{origin.step}</Link>}
        {author?.model != null && <Link href={`/sessions/${author.session}?step=${author.model}`}>Model answer #{author.model}</Link>}
        {author?.prompt != null && <Link href={`/sessions/${author.session}?step=${author.prompt}`}>Prompt #{author.prompt}</Link>}
      </p>
    </div>
  );
}
