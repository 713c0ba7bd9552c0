// What the rewind dialog shows of a plan, of its result, and of a forked conversation.
import type { ReactNode } from 'react';
import type { ApplyResult, ForkResult, Plan } from './api/types';
import { formatAge, formatBytes, pluralize } from './format';
import { copyToClipboard } from './toasts';
import { Button } from './ui';

const MAX_CHANGES = 2000;
const MAX_SKIPPED = 500;
const ACTION_SIGNS: Record<string, string> = { create: '+', restore: '~', delete: '−', merge: '⇄', 'set mode of': 'm' };

type PlannedChange = Plan['items'][number];

export function PlanDetails({ plan, everything }: { plan: Plan; everything: boolean }) {
  const changes = plan.items.length;
  const conflicts = plan.left_alone.filter((item) => item.conflict).length;
  const deletes = plan.items.filter((item) => item.action === 'delete').length;
  return (
    <>
      <p>
        {changes === 0 ? (
          `Nothing would change: ${plan.unchanged_because ?? 'the files are the same as at that step'}.`
        ) : (
          <>
            <b>{pluralize(changes, 'path')}</b> will change
            {deletes > 0 && <span className="bad">, {deletes} deleted</span>}
            {conflicts > 0 && <span className="bad">, {pluralize(conflicts, 'conflict')} skipped</span>}. The current files are saved first; Undo restores them.
          </>
        )}
      </p>
      {plan.warnings.map((warning) => (
        <p key={warning} className="warning">
          {warning}
        </p>
      ))}
      {!everything && plan.everything_changes.length > 0 && (
        <p className="dim">
          “The whole workspace” would {changes === 0 ? '' : 'also '}change {pluralize(plan.everything_changes.length, 'path')}: {summarizePaths(plan.everything_changes)}.
        </p>
      )}
      <ul className="plan" aria-label="Planned changes" tabIndex={0}>
        {plan.items.slice(0, MAX_CHANGES).map((item) => (
          <PathRow key={item.path} className={item.action.replaceAll(' ', '-')} sign={ACTION_SIGNS[item.action] ?? '·'} action={item.action} path={item.path}>
            {describeEntry(item.now)} → {describeEntry(item.then)}
          </PathRow>
        ))}
        {plan.left_alone.slice(0, MAX_SKIPPED).map((item) => (
          <PathRow key={`skipped ${item.path}`} className={item.conflict ? 'conflict' : 'skipped'} sign={item.conflict ? '!' : '○'} action={item.conflict ? 'conflict' : 'stays'} path={item.path}>
            {item.reason}
          </PathRow>
        ))}
        {plan.kept.slice(0, MAX_SKIPPED).map((item) => (
          <PathRow key={`kept ${item.path} ${item.by}`} className="skipped" sign="○" action="kept" path={item.path}>
            {item.by}, {formatAge(item.at)}
          </PathRow>
        ))}
      </ul>
      {changes > MAX_CHANGES && <p className="dim">… and {pluralize(changes - MAX_CHANGES, 'more path', 'more paths')}</p>}
    </>
  );
}

export function ResultList({ result }: { result: ApplyResult }) {
  return (
    <ul className="plan" aria-label="Results" tabIndex={0}>
      {result.items.slice(0, MAX_CHANGES).map((item) => (
        <PathRow key={item.path} className={item.done ? 'ok' : 'conflict'} sign={item.done ? '✓' : '!'} action={item.action} path={item.path}>
          {item.reason}
        </PathRow>
      ))}
    </ul>
  );
}

function PathRow({ className, sign, action, path, children }: { className: string; sign: string; action: string; path: string; children: ReactNode }) {
  return (
    <li className={className}>
      <span className="sign" aria-hidden="true">
        {sign}
      </span>
      <span className="action">{action}</span>
      <code>{path}</code>
      {children && <span className="dim">{children}</span>}
    </li>
  );
}

const describeEntry = (entry: PlannedChange['now']): string => (entry?.size != null ? formatBytes(entry.size) : (entry?.type ?? 'nothing'));

/** The first paths of a list, and how many more there are. */
const summarizePaths = (paths: string[]): string => paths.slice(0, 5).join(', ') + (paths.length > 5 ? ` and ${paths.length - 5} more` : '');

/** How the conversation continues, or would. */
export function ForkDetails({ fork }: { fork: ForkResult }) {
  const command = `cd ${shellQuote(fork.directory)} && ${fork.command.map(shellQuote).join(' ')}`;
  return (
    <section className="fork-details" aria-label="Conversation">
      <p>
        The conversation {fork.ready ? 'is ready to continue' : 'would continue'} from #{fork.from} with {pluralize(fork.messages, 'line')} of its transcript, as a new session of {fork.agent}. Later messages stay in the old session.
      </p>
      {fork.note && <p className="warning">{fork.note}</p>}
      {fork.ready && (
        <div className="command">
          <pre tabIndex={0}>{command}</pre>
          <Button small onClick={() => void copyToClipboard(command, 'Command copied.')}>
            copy
          </Button>
        </div>
      )}
    </section>
  );
}

/** Quotes an argument for a shell. */
const shellQuote = (word: string): string => (/^[\w\-./:=@%+,]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
