// One item of a board.
import { createContext, type ReactNode, useContext } from 'react';
import type { BoardItem } from '../api/types';
import { Link } from '../route';
import { whyHref } from '../why/names';

/** Statuses that most items of a kind have; they are not shown. */
const DEFAULT_STATUSES = ['held', 'noted', 'in-force'];
const POSITIVE_STATUSES = ['confirmed', 'passed', 'filled', 'succeeded', 'resolved'];
const NEGATIVE_STATUSES = ['rejected', 'failed', 'error', 'timed-out', 'retracted', 'withdrawn'];
const CLOSED_STATUSES = ['rejected', 'archived', 'retracted', 'withdrawn', 'dropped', 'dismissed', 'resolved', 'filled'];

const statusClass = (status: string): string => (POSITIVE_STATUSES.includes(status) ? 'good' : NEGATIVE_STATUSES.includes(status) ? 'bad' : status === 'open' || status === 'testing' ? 'open' : '');
const LINK_LABELS: Record<string, string> = { of: 'of', for: 'for', blocks: 'blocks', after: 'waits for', about: 'about', contradicts: 'contradicts', excludes: 'excludes' };

/** The board that items are on, for their links. */
export const BoardLocation = createContext({ workspace: '', session: '' });

export function ItemCard({ item, onStep, onItem, children }: { item: BoardItem; onStep: (number: number) => void; onItem: (id: string) => void; children?: ReactNode }) {
  const stepLink = (number: number | null | undefined, label: string) =>
    number != null && (
      <button type="button" className="link" onClick={() => onStep(number)}>
        {label} #{number}
      </button>
    );
  const { workspace, session } = useContext(BoardLocation);
  // Evidence is listed below its hypothesis, so that link is not shown.
  const links = item.links.filter((link) => link.how !== 'for' || item.kind !== 'evidence');
  return (
    <li id={`item-${item.id}`} tabIndex={-1} className={`item ${item.kind} ${CLOSED_STATUSES.includes(item.status) ? 'closed' : ''} ${item.change ? `is-${item.change}` : ''}`}>
      <div className="line">
        <b className="id">{item.id}</b>
        {item.confidence != null && <ConfidenceBar value={item.confidence} alone={item.alone} />}
        {item.strength != null && <EvidenceStrength value={item.strength} />}
        <span className="item-text">{item.text}</span>
        {item.change && <span className={`change ${item.change === 'added' ? 'created' : ''}`}>{item.change === 'added' ? 'new' : 'changed'}</span>}
        {!DEFAULT_STATUSES.includes(item.status) && <span className={`status ${statusClass(item.status)}`}>{item.status}</span>}
      </div>
      {item.more && item.more !== item.text && <p className="item-details">{item.more.length > 600 ? `${item.more.slice(0, 600)} …` : item.more}</p>}
      <p className="facts dim">
        {item.weight && <span className={`weight ${item.weight}`}>{item.weight}</span>}
        {item.sort && item.sort !== item.source?.kind && <span>{item.sort}</span>}
        {links.map((link) => (
          <span key={`${link.how} ${link.to}`} title={link.reason ?? undefined}>
            {LINK_LABELS[link.how] ?? link.how.replace('-', ' ')}{' '}
            <button type="button" className="link id" onClick={() => onItem(link.to)}>
              {link.to}
            </button>
            {link.strength != null && link.strength < 1 && ` ${link.strength.toFixed(2)}`}
          </span>
        ))}
        {item.source && item.source.kind !== 'reasoning' && (
          <span>
            {item.source.kind} {item.source.text} {stepLink(item.source.step, '')}
          </span>
        )}
        {item.tags.map((tag) => (
          <span key={tag} className="tag">
            {tag}
          </span>
        ))}
        {stepLink(item.origin.step, 'from')}
        {item.changed && item.changed.step !== item.origin.step && stepLink(item.changed.step, 'changed in')}
        {stepLink(item.origin.during, 'during the call')}
        {workspace && <Link href={whyHref(workspace, item.id, { session })}>Why?</Link>}
      </p>
      {children}
    </li>
  );
}

/** Confidence as a bar; a tick marks the value without dependencies. */
function ConfidenceBar({ value, alone }: { value: number; alone: number | null | undefined }) {
  const ownConfidence = alone != null && Math.abs(alone - value) > 0.005 ? alone : null;
  return (
    <span className="confidence-bar" title={ownConfidence == null ? undefined : `without dependencies ${ownConfidence.toFixed(2)}`}>
      <span className="track" aria-hidden="true">
        <i style={{ width: `${value * 100}%` }} />
        {ownConfidence != null && <u style={{ left: `${ownConfidence * 100}%` }} />}
      </span>
      {value.toFixed(2)}
    </span>
  );
}

/** The strength of evidence, for or against its hypothesis. */
function EvidenceStrength({ value }: { value: number }) {
  const against = value < 0;
  return (
    <span className={`strength ${against ? 'against' : 'for'}`}>
      {against ? '−' : '+'}
      {Math.abs(value).toFixed(2).replace(/0$/, '')}
      <span className="visually-hidden">{against ? ' against' : ' for'}</span>
    </span>
  );
}
