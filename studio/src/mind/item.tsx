// One thing on a board.
import type { ReactNode } from 'react';
import type { MindItem } from '../api/types';

/** Words that say nothing new: most items of their kind are so. */
const USUAL = ['held', 'noted', 'in-force'];
const GOOD = ['confirmed', 'passed', 'filled', 'succeeded', 'resolved'];
const BAD = ['rejected', 'failed', 'error', 'timed-out', 'retracted', 'withdrawn'];
const OVER = ['rejected', 'archived', 'retracted', 'withdrawn', 'dropped', 'dismissed', 'resolved', 'filled'];

const look = (status: string): string => (GOOD.includes(status) ? 'good' : BAD.includes(status) ? 'bad' : status === 'open' || status === 'testing' ? 'open' : '');
const HOW: Record<string, string> = { of: 'of', for: 'for', blocks: 'holds up', after: 'waits for', about: 'about', contradicts: 'against', excludes: 'excludes' };

export function ItemCard({ item, onStep, onItem, children }: { item: MindItem; onStep: (number: number) => void; onItem: (id: string) => void; children?: ReactNode }) {
  const step = (number: number | null | undefined, words: string) =>
    number != null && (
      <button type="button" className="link" onClick={() => onStep(number)}>
        {words} #{number}
      </button>
    );
  // Evidence stands below its hypothesis; that it is for it need not be said.
  const links = item.links.filter((link) => link.how !== 'for' || item.kind !== 'evidence');
  return (
    <li id={`item-${item.id}`} tabIndex={-1} className={`item ${item.kind} ${OVER.includes(item.status) ? 'over' : ''} ${item.change ? `is-${item.change}` : ''}`}>
      <div className="line">
        <b className="id">{item.id}</b>
        {item.confidence != null && <Sure value={item.confidence} alone={item.alone} />}
        {item.strength != null && <Strength value={item.strength} />}
        <span className="says">{item.text}</span>
        {item.change && <span className={`change ${item.change === 'added' ? 'created' : ''}`}>{item.change === 'added' ? 'new' : 'changed'}</span>}
        {!USUAL.includes(item.status) && <span className={`status ${look(item.status)}`}>{item.status}</span>}
      </div>
      {item.more && item.more !== item.text && <p className="more-words">{item.more.length > 600 ? `${item.more.slice(0, 600)} …` : item.more}</p>}
      <p className="facts dim">
        {item.weight && <span className={`weight ${item.weight}`}>{item.weight}</span>}
        {item.sort && item.sort !== item.source?.kind && <span>{item.sort}</span>}
        {links.map((link) => (
          <span key={`${link.how} ${link.to}`} title={link.reason ?? undefined}>
            {HOW[link.how] ?? link.how.replace('-', ' ')}{' '}
            <button type="button" className="link id" onClick={() => onItem(link.to)}>
              {link.to}
            </button>
            {link.strength != null && link.strength < 1 && ` ${link.strength.toFixed(2)}`}
          </span>
        ))}
        {item.source && item.source.kind !== 'reasoning' && (
          <span>
            {item.source.kind} {item.source.text} {step(item.source.step, '')}
          </span>
        )}
        {item.tags.map((tag) => (
          <span key={tag} className="tag">
            {tag}
          </span>
        ))}
        {step(item.origin.step, 'from')}
        {item.changed && item.changed.step !== item.origin.step && step(item.changed.step, 'changed in')}
        {step(item.origin.during, 'during the call')}
      </p>
      {children}
    </li>
  );
}

/** How sure, as a bar; a tick says how sure it was by itself. */
function Sure({ value, alone }: { value: number; alone: number | null | undefined }) {
  const own = alone != null && Math.abs(alone - value) > 0.005 ? alone : null;
  return (
    <span className="sure-bar" title={own == null ? undefined : `by itself ${own.toFixed(2)}`}>
      <span className="track" aria-hidden="true">
        <i style={{ width: `${value * 100}%` }} />
        {own != null && <u style={{ left: `${own * 100}%` }} />}
      </span>
      {value.toFixed(2)}
    </span>
  );
}

/** How strongly evidence speaks for something, or against it. */
function Strength({ value }: { value: number }) {
  const against = value < 0;
  return (
    <span className={`strength ${against ? 'against' : 'for'}`}>
      {against ? '−' : '+'}
      {Math.abs(value).toFixed(2).replace(/0$/, '')}
      <span className="hidden-text">{against ? ' against' : ' for'}</span>
    </span>
  );
}
