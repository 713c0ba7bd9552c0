// The rewind dialog: the plan for every file, its confirmation, the result, and undo. It can also continue the conversation from
// that point, alone or together with the files.
import { useEffect, useState } from 'react';
import { ApiError, send } from './api/client';
import type { ApplyResult, ForkResult, Plan } from './api/types';
import { ForkDetails, PlanDetails, ResultList } from './rewind-plan';
import { showToast } from './toasts';
import { Button, Dialog, ErrorMessage, Loading } from './ui';

interface RewindDialogProps {
  workspace: string;
  /** The point to rewind to. */
  point?: string;
  /** The session whose conversation can continue from there. */
  session?: string;
  /** The branch to switch to, instead of a point. */
  branch?: string;
  name: string;
  onClose: () => void;
  onDone?: () => void;
}

type RewindTarget = 'files' | 'conversation' | 'both';

type DialogState =
  | { phase: 'planning' }
  /** Without a plan, no file changes; without a fork, the conversation stays as it is. */
  | { phase: 'plan'; plan: Plan | null; fork: ForkResult | null; isStale?: boolean }
  | { phase: 'done'; result: ApplyResult | null; fork: ForkResult | null; forkError?: ApiError; isUndone?: boolean }
  | { phase: 'failed'; error: ApiError };

const TARGETS: { id: RewindTarget; name: string; hint: string }[] = [
  { id: 'files', name: 'Files', hint: 'the conversation stays' },
  { id: 'conversation', name: 'Conversation', hint: 'files stay as they are' },
  { id: 'both', name: 'Both', hint: 'files and conversation' },
];

export function RewindDialog({ workspace, point, session, branch, name, onClose, onDone }: RewindDialogProps) {
  const [target, setTarget] = useState<RewindTarget>('files');
  const [state, setState] = useState<DialogState>({ phase: 'planning' });
  const [everything, setEverything] = useState(false);
  const [git, setGit] = useState(false);
  const [busy, setBusy] = useState(false);
  const [confirmed, setConfirmed] = useState(false);

  useEffect(() => {
    let cancelled = false;
    setState({ phase: 'planning' });
    setConfirmed(false);
    const planFiles = async (): Promise<Plan | null> => {
      if (branch) return send<Plan>('POST', `/workspaces/${workspace}/branches/${encodeURIComponent(branch)}/switch-plans`);
      return target === 'conversation' ? null : send<Plan>('POST', `/workspaces/${workspace}/rewind-plans`, { point, everything, git });
    };
    const planFork = async (): Promise<ForkResult | null> => (target === 'files' || branch ? null : send<ForkResult>('POST', `/sessions/${session}/forks`, { point }));
    Promise.all([planFiles(), planFork()]).then(
      ([plan, fork]) => !cancelled && setState({ phase: 'plan', plan, fork }),
      (error: unknown) => !cancelled && setState({ phase: 'failed', error: ApiError.from(error) }),
    );
    return () => {
      cancelled = true;
    };
  }, [workspace, point, session, branch, target, everything, git]);

  const applyPlan = async (plan: Plan | null, fork: ForkResult | null) => {
    setBusy(true);
    let result: ApplyResult | null = null;
    try {
      // Files first: when the agent continues, it compares what it knows with the files.
      if (plan && (plan.items.length > 0 || branch)) result = await send<ApplyResult>('POST', plan.apply);
      const readyFork = fork && (await send<ForkResult>('POST', `/sessions/${session}/forks`, { point, dry_run: false }));
      setState({ phase: 'done', result, fork: readyFork });
      onDone?.();
    } catch (error) {
      const apiError = ApiError.from(error);
      // The files are rewound but the conversation is not: show both, and offer to undo the files.
      if (result) setState({ phase: 'done', result, fork: null, forkError: apiError });
      // The plan is out of date: nothing was applied, and the server sent the current plan.
      else setState(apiError.plan ? { phase: 'plan', plan: apiError.plan, fork, isStale: true } : { phase: 'failed', error: apiError });
    }
    setBusy(false);
  };
  const undo = async (result: ApplyResult) => {
    setBusy(true);
    try {
      const plan = await send<Plan>('POST', result.undo.href, result.undo.body);
      await send<ApplyResult>('POST', plan.apply);
      setState({ phase: 'done', result, fork: null, isUndone: true });
      showToast('Undone.');
      onDone?.();
    } catch (error) {
      setState({ phase: 'failed', error: ApiError.from(error) });
    }
    setBusy(false);
  };

  const planned = state.phase === 'plan' ? state : null;
  const plan = planned?.plan;
  const fork = planned?.fork;
  const needsConfirmation = (plan?.items.length ?? 0) > 1;
  return (
    <Dialog title={branch ? `Switch to ${name}` : `Rewind to ${name}`} onClose={onClose} wide>
      {state.phase === 'planning' && <Loading label="Scanning files" />}
      {state.phase === 'failed' && <ErrorMessage error={state.error} />}
      {!branch && session && state.phase !== 'done' && (
        <fieldset className="choices">
          <legend className="visually-hidden">Files or conversation</legend>
          {TARGETS.map((option) => (
            <label key={option.id}>
              <input type="radio" name="target" checked={target === option.id} onChange={() => setTarget(option.id)} /> {option.name}
              <span className="dim">{option.hint}</span>
            </label>
          ))}
        </fieldset>
      )}
      {!branch && target !== 'conversation' && (state.phase === 'plan' || state.phase === 'planning') && (
        <fieldset className="choices">
          <legend className="visually-hidden">Files to rewind</legend>
          <label>
            <input type="radio" name="scope" checked={!everything} onChange={() => setEverything(false)} /> Changes of agents
            <span className="dim">your own edits stay</span>
          </label>
          <label>
            <input type="radio" name="scope" checked={everything} onChange={() => setEverything(true)} /> The whole workspace
            <span className="dim">every file as it was at that step</span>
          </label>
          <label>
            <input type="checkbox" checked={git} onChange={() => setGit(!git)} /> Git too
            <span className="dim">branches, index, HEAD</span>
          </label>
        </fieldset>
      )}
      {planned?.isStale && (
        <p className="error-message" role="alert">
          Files changed after this plan was made. Nothing was applied; this is the current plan.
        </p>
      )}
      {fork && <ForkDetails fork={fork} />}
      {plan && <PlanDetails plan={plan} everything={everything} />}
      {planned && (
        <footer>
          {needsConfirmation && (
            <label className="confirmation">
              <input type="checkbox" checked={confirmed} onChange={() => setConfirmed(!confirmed)} /> I reviewed all {plan?.items.length} changes
            </label>
          )}
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="danger" disabled={busy || (!fork && plan?.items.length === 0 && !branch) || (needsConfirmation && !confirmed)} onClick={() => void applyPlan(planned.plan, planned.fork)}>
            {busy ? 'Working …' : branch ? 'Switch' : plan ? 'Rewind' : 'Continue conversation'}
          </Button>
        </footer>
      )}
      {state.phase === 'done' && (
        <>
          <p className="done" role="status">
            {state.isUndone ? 'Undone: everything is as it was before.' : (state.result?.operation.summary ?? 'The conversation can continue from there.')}
            {state.result?.partial && !state.isUndone && <span className="bad"> Some paths were skipped.</span>}
          </p>
          {state.forkError && <ErrorMessage error={state.forkError} />}
          {state.fork && <ForkDetails fork={state.fork} />}
          {state.result && <ResultList result={state.result} />}
          <footer>
            {!state.isUndone && state.result && (
              <Button disabled={busy} onClick={() => state.result && void undo(state.result)}>
                {busy ? 'Working …' : 'Undo'}
              </Button>
            )}
            <Button variant="primary" onClick={onClose}>
              Close
            </Button>
          </footer>
        </>
      )}
    </Dialog>
  );
}
