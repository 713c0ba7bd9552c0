// Going back: what will happen to every file, agreeing to it, what happened, and taking it back.
import { useEffect, useState } from 'react';
import { change, Problem } from './api/client';
import type { Applied, Plan } from './api/types';
import { bytes, plural } from './format';
import { Button, Dialog, Loading, say, Trouble } from './ui';

interface Props {
  workspace: string;
  /** The point to go back to. */
  point?: string;
  /** The branch to stand on, instead of a point. */
  branch?: string;
  name: string;
  onClose: () => void;
  onDone?: () => void;
}

type Stage =
  | { at: 'planning' }
  | { at: 'plan'; plan: Plan; moved?: boolean }
  | { at: 'done'; done: Applied; undone?: boolean }
  | { at: 'failed'; problem: Problem };

const SYMBOL: Record<string, string> = { create: '+', restore: '~', delete: '−', merge: '⇄', 'set mode of': 'm' };

export function RewindDialog({ workspace, point, branch, name, onClose, onDone }: Props) {
  const [stage, setStage] = useState<Stage>({ at: 'planning' });
  const [everything, setEverything] = useState(false);
  const [git, setGit] = useState(false);
  const [busy, setBusy] = useState(false);
  const [sure, setSure] = useState(false);

  useEffect(() => {
    let ended = false;
    setStage({ at: 'planning' });
    setSure(false);
    const asked = branch
      ? change<Plan>('POST', `/workspaces/${workspace}/branches/${encodeURIComponent(branch)}/switch-plans`)
      : change<Plan>('POST', `/workspaces/${workspace}/rewind-plans`, { point, everything, git });
    asked.then(
      (plan) => !ended && setStage({ at: 'plan', plan }),
      (error: unknown) => !ended && setStage({ at: 'failed', problem: Problem.of(error) }),
    );
    return () => {
      ended = true;
    };
  }, [workspace, point, branch, everything, git]);

  const agree = async (plan: Plan) => {
    setBusy(true);
    try {
      setStage({ at: 'done', done: await change<Applied>('POST', plan.apply) });
      onDone?.();
    } catch (error) {
      const problem = Problem.of(error);
      // Something changed since: nothing was done, and this is what would happen now.
      setStage(problem.plan ? { at: 'plan', plan: problem.plan, moved: true } : { at: 'failed', problem });
    }
    setBusy(false);
  };
  const undo = async (done: Applied) => {
    setBusy(true);
    try {
      const plan = await change<Plan>('POST', done.undo.href, done.undo.body);
      await change<Applied>('POST', plan.apply);
      setStage({ at: 'done', done, undone: true });
      say('It is as it was before.');
      onDone?.();
    } catch (error) {
      setStage({ at: 'failed', problem: Problem.of(error) });
    }
    setBusy(false);
  };

  const plan = stage.at === 'plan' ? stage.plan : null;
  const conflicts = plan?.left_alone.filter((item) => item.conflict) ?? [];
  const deletes = plan?.items.filter((item) => item.action === 'delete').length ?? 0;
  const needsSure = (plan?.items.length ?? 0) > 1;
  return (
    <Dialog title={branch ? `Switch to ${name}` : `Rewind to ${name}`} onClose={onClose} wide>
      {stage.at === 'planning' && <Loading what="Looking at every file" />}
      {stage.at === 'failed' && <Trouble problem={stage.problem} />}
      {!branch && (stage.at === 'plan' || stage.at === 'planning') && (
        <fieldset className="choices">
          <legend className="hidden-text">What goes back</legend>
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
      {plan && (
        <>
          {stage.at === 'plan' && stage.moved && (
            <p className="trouble" role="alert">
              Something changed since the plan was made. Nothing was done; this is what would happen now.
            </p>
          )}
          <p>
            {plan.items.length === 0 ? (
              'Nothing would change: the files are as they were then.'
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
          </ul>
          {plan.items.length > 2000 && <p className="dim">… and {plural(plan.items.length - 2000, 'more path', 'more paths')}</p>}
          {!branch && (
            <p className="dim">
              Only files go back. For the agent’s conversation: <code>stepback rewind '{point}' --conversation</code>
            </p>
          )}
          <footer>
            {needsSure && (
              <label className="sure">
                <input type="checkbox" checked={sure} onChange={() => setSure(!sure)} /> I looked at all {plan.items.length}
              </label>
            )}
            <Button onClick={onClose}>Cancel</Button>
            <Button look="danger" disabled={busy || (plan.items.length === 0 && !branch) || (needsSure && !sure)} onClick={() => void agree(plan)}>
              {busy ? 'Working …' : branch ? 'Switch' : 'Rewind'}
            </Button>
          </footer>
        </>
      )}
      {stage.at === 'done' && (
        <>
          <p className="done" role="status">
            {stage.undone ? 'Taken back: everything is as it was before.' : stage.done.operation.summary}
            {stage.done.partial && !stage.undone && <span className="bad"> Some paths were left alone.</span>}
          </p>
          <ul className="plan" aria-label="What happened" tabIndex={0}>
            {stage.done.items.slice(0, 2000).map((item) => (
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
            {!stage.undone && (
              <Button disabled={busy} onClick={() => void undo(stage.done)}>
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
