// Going back: what will happen to every file, agreeing to it, what happened, and taking it back. The conversation can go on from
// there as well, alone or with the files.
import { useEffect, useState } from 'react';
import { change, Problem } from './api/client';
import type { Applied, Forked, Plan } from './api/types';
import { ago, bytes, plural } from './format';
import { Button, Dialog, Loading, say, Trouble } from './ui';

interface Props {
  workspace: string;
  /** The point to go back to. */
  point?: string;
  /** The session whose conversation can go on from there. */
  session?: string;
  /** The branch to stand on, instead of a point. */
  branch?: string;
  name: string;
  onClose: () => void;
  onDone?: () => void;
}

type What = 'files' | 'conversation' | 'both';

type Stage =
  | { at: 'planning' }
  /** Without a plan, no file is touched; without a fork, the conversation stays where it is. */
  | { at: 'plan'; plan: Plan | null; fork: Forked | null; moved?: boolean }
  | { at: 'done'; done: Applied | null; fork: Forked | null; failed?: Problem; undone?: boolean }
  | { at: 'failed'; problem: Problem };

const SYMBOL: Record<string, string> = { create: '+', restore: '~', delete: '−', merge: '⇄', 'set mode of': 'm' };

export function RewindDialog({ workspace, point, session, branch, name, onClose, onDone }: Props) {
  const [what, setWhat] = useState<What>('files');
  const [stage, setStage] = useState<Stage>({ at: 'planning' });
  const [everything, setEverything] = useState(false);
  const [git, setGit] = useState(false);
  const [busy, setBusy] = useState(false);
  const [sure, setSure] = useState(false);

  useEffect(() => {
    let ended = false;
    setStage({ at: 'planning' });
    setSure(false);
    const files = async (): Promise<Plan | null> => {
      if (branch) return change<Plan>('POST', `/workspaces/${workspace}/branches/${encodeURIComponent(branch)}/switch-plans`);
      return what === 'conversation' ? null : change<Plan>('POST', `/workspaces/${workspace}/rewind-plans`, { point, everything, git });
    };
    const talk = async (): Promise<Forked | null> => (what === 'files' || branch ? null : change<Forked>('POST', `/sessions/${session}/forks`, { point }));
    Promise.all([files(), talk()]).then(
      ([plan, fork]) => !ended && setStage({ at: 'plan', plan, fork }),
      (error: unknown) => !ended && setStage({ at: 'failed', problem: Problem.of(error) }),
    );
    return () => {
      ended = true;
    };
  }, [workspace, point, session, branch, what, everything, git]);

  const agree = async (plan: Plan | null, fork: Forked | null) => {
    setBusy(true);
    let done: Applied | null = null;
    try {
      // Files first: the agent compares what it knows with what is there when it goes on.
      if (plan && (plan.items.length > 0 || branch)) done = await change<Applied>('POST', plan.apply);
      const ready = fork && (await change<Forked>('POST', `/sessions/${session}/forks`, { point, dry_run: false }));
      setStage({ at: 'done', done, fork: ready });
      onDone?.();
    } catch (error) {
      const problem = Problem.of(error);
      // The files went back and the conversation did not: both is told, and the files can be taken back.
      if (done) setStage({ at: 'done', done, fork: null, failed: problem });
      // Something changed since: nothing was done, and this is what would happen now.
      else setStage(problem.plan ? { at: 'plan', plan: problem.plan, fork, moved: true } : { at: 'failed', problem });
    }
    setBusy(false);
  };
  const undo = async (done: Applied) => {
    setBusy(true);
    try {
      const plan = await change<Plan>('POST', done.undo.href, done.undo.body);
      await change<Applied>('POST', plan.apply);
      setStage({ at: 'done', done, fork: null, undone: true });
      say('It is as it was before.');
      onDone?.();
    } catch (error) {
      setStage({ at: 'failed', problem: Problem.of(error) });
    }
    setBusy(false);
  };

  const planned = stage.at === 'plan' ? stage : null;
  const plan = planned?.plan;
  const fork = planned?.fork;
  const conflicts = plan?.left_alone.filter((item) => item.conflict) ?? [];
  const deletes = plan?.items.filter((item) => item.action === 'delete').length ?? 0;
  const needsSure = (plan?.items.length ?? 0) > 1;
  return (
    <Dialog title={branch ? `Switch to ${name}` : `Rewind to ${name}`} onClose={onClose} wide>
      {stage.at === 'planning' && <Loading what="Looking at every file" />}
      {stage.at === 'failed' && <Trouble problem={stage.problem} />}
      {!branch && session && stage.at !== 'done' && (
        <fieldset className="choices">
          <legend className="hidden-text">Files or conversation</legend>
          {WHATS.map((one) => (
            <label key={one.id}>
              <input type="radio" name="what" checked={what === one.id} onChange={() => setWhat(one.id)} /> {one.name}
              <span className="dim">{one.means}</span>
            </label>
          ))}
        </fieldset>
      )}
      {!branch && what !== 'conversation' && (stage.at === 'plan' || stage.at === 'planning') && (
        <fieldset className="choices">
          <legend className="hidden-text">Which files go back</legend>
          <label>
            <input type="radio" name="scope" checked={!everything} onChange={() => setEverything(false)} /> What agents changed
            <span className="dim">your own edits stay</span>
          </label>
          <label>
            <input type="radio" name="scope" checked={everything} onChange={() => setEverything(true)} /> The whole workspace
            <span className="dim">every file as it was then</span>
          </label>
          <label>
            <input type="checkbox" checked={git} onChange={() => setGit(!git)} /> Git too
            <span className="dim">branches, index, HEAD</span>
          </label>
        </fieldset>
      )}
      {planned?.moved && (
        <p className="trouble" role="alert">
          Something changed since the plan was made. Nothing was done; this is what would happen now.
        </p>
      )}
      {fork && <Onward fork={fork} />}
      {plan && (
        <>
          <p>
            {plan.items.length === 0 ? (
              `Nothing would change: ${plan.unchanged_because ?? 'the files are as they were then'}.`
            ) : (
              <>
                <b>{plural(plan.items.length, 'path')}</b> will change
                {deletes > 0 && <span className="bad">, {deletes} deleted</span>}
                {conflicts.length > 0 && <span className="bad">, {plural(conflicts.length, 'conflict')} left alone</span>}.
                {' '}What is there now is saved first, and Undo brings it back.
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
              “The whole workspace” would {plan.items.length === 0 ? '' : 'also '}change {plural(plan.everything_changes.length, 'path')}: {named(plan.everything_changes)}.
            </p>
          )}
          <ul className="plan" aria-label="What will happen" tabIndex={0}>
            {plan.items.slice(0, 2000).map((item) => (
              <li key={item.path} className={item.action.replaceAll(' ', '-')}>
                <span className="sign" aria-hidden="true">
                  {SYMBOL[item.action] ?? '·'}
                </span>
                <span className="action">{item.action}</span>
                <code>{item.path}</code>
                <span className="dim">
                  {item.now?.size != null ? bytes(item.now.size) : item.now ? item.now.type : 'nothing'} → {item.then?.size != null ? bytes(item.then.size) : item.then ? item.then.type : 'nothing'}
                </span>
              </li>
            ))}
            {plan.left_alone.slice(0, 500).map((item) => (
              <li key={`alone ${item.path}`} className={item.conflict ? 'conflict' : 'skipped'}>
                <span className="sign" aria-hidden="true">
                  {item.conflict ? '!' : '○'}
                </span>
                <span className="action">{item.conflict ? 'conflict' : 'stays'}</span>
                <code>{item.path}</code>
                <span className="dim">{item.reason}</span>
              </li>
            ))}
            {plan.kept.slice(0, 500).map((item) => (
              <li key={`kept ${item.path} ${item.by}`} className="skipped">
                <span className="sign" aria-hidden="true">
                  ○
                </span>
                <span className="action">kept</span>
                <code>{item.path}</code>
                <span className="dim">
                  {item.by}, {ago(item.at)}
                </span>
              </li>
            ))}
          </ul>
          {plan.items.length > 2000 && <p className="dim">… and {plural(plan.items.length - 2000, 'more path', 'more paths')}</p>}
        </>
      )}
      {planned && (
        <footer>
          {needsSure && (
            <label className="sure">
              <input type="checkbox" checked={sure} onChange={() => setSure(!sure)} /> I looked at all {plan?.items.length}
            </label>
          )}
          <Button onClick={onClose}>Cancel</Button>
          <Button look="danger" disabled={busy || (!fork && plan?.items.length === 0 && !branch) || (needsSure && !sure)} onClick={() => void agree(planned.plan, planned.fork)}>
            {busy ? 'Working …' : branch ? 'Switch' : plan ? 'Rewind' : 'Let it go on from there'}
          </Button>
        </footer>
      )}
      {stage.at === 'done' && (
        <>
          <p className="done" role="status">
            {stage.undone ? 'Taken back: everything is as it was before.' : (stage.done?.operation.summary ?? 'The conversation can go on from there.')}
            {stage.done?.partial && !stage.undone && <span className="bad"> Some paths were left alone.</span>}
          </p>
          {stage.failed && <Trouble problem={stage.failed} />}
          {stage.fork && <Onward fork={stage.fork} />}
          <ul className="plan" aria-label="What happened" tabIndex={0}>
            {(stage.done?.items ?? []).slice(0, 2000).map((item) => (
              <li key={item.path} className={item.done ? 'ok' : 'conflict'}>
                <span className="sign" aria-hidden="true">
                  {item.done ? '✓' : '!'}
                </span>
                <span className="action">{item.action}</span>
                <code>{item.path}</code>
                {item.reason && <span className="dim">{item.reason}</span>}
              </li>
            ))}
          </ul>
          <footer>
            {!stage.undone && stage.done && (
              <Button disabled={busy} onClick={() => stage.done && void undo(stage.done)}>
                {busy ? 'Working …' : 'Undo'}
              </Button>
            )}
            <Button look="primary" onClick={onClose}>
              Close
            </Button>
          </footer>
        </>
      )}
    </Dialog>
  );
}

const WHATS: { id: What; name: string; means: string }[] = [
  { id: 'files', name: 'Files', means: 'the conversation stays' },
  { id: 'conversation', name: 'Conversation', means: 'no file is touched' },
  { id: 'both', name: 'Both', means: 'files first' },
];

/** The first paths of a list, and how many more there are. */
const named = (paths: string[]): string => paths.slice(0, 5).join(', ') + (paths.length > 5 ? ` and ${paths.length - 5} more` : '');

/** How the conversation goes on, or would. */
function Onward({ fork }: { fork: Forked }) {
  const command = `cd ${quoted(fork.directory)} && ${fork.command.map(quoted).join(' ')}`;
  return (
    <section className="onward" aria-label="The conversation">
      <p>
        {fork.ready ? 'It is ready: this goes on' : 'The conversation would go on'} from #{fork.from} with {plural(fork.messages, 'line')} of it, as a new session of {fork.agent}. What was said since stays in the old one.
      </p>
      {fork.note && <p className="warning">{fork.note}</p>}
      {fork.ready && (
        <div className="command">
          <pre tabIndex={0}>{command}</pre>
          <Button
            small
            onClick={() =>
              navigator.clipboard.writeText(command).then(
                () => say('The command is copied.'),
                () => say('The browser does not allow copying here.', true),
              )
            }
          >
            copy
          </Button>
        </div>
      )}
    </section>
  );
}

/** A word as a shell takes it. */
const quoted = (word: string): string => (/^[\w\-./:=@%+,]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
