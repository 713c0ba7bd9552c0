// Small dialogs: create a checkpoint, say something about one, make a branch.
import { type FormEvent, useState } from 'react';
import { change, Problem } from './api/client';
import type { Branch, Created, Step } from './api/types';
import { Button, Dialog, say, Trouble } from './ui';

const tagsOf = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

function useSend(onClose: () => void) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const send = async (work: () => Promise<string>) => {
    setBusy(true);
    setProblem(null);
    try {
      say(await work());
      onClose();
    } catch (error) {
      setProblem(Problem.of(error));
      setBusy(false);
    }
  };
  return { problem, busy, send };
}

export function CheckpointDialog({ workspace, onClose, onDone }: { workspace: string; onClose: () => void; onDone?: () => void }) {
  const [label, setLabel] = useState('');
  const [note, setNote] = useState('');
  const [tags, setTags] = useState('');
  const { problem, busy, send } = useSend(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void send(async () => {
      const made = await change<Created>('POST', `/workspaces/${workspace}/checkpoints`, { label: label || null, note: note || null, tags: tagsOf(tags) });
      onDone?.();
      return `Checkpoint #${made.number} is kept.`;
    });
  };
  return (
    <Dialog title="Create a checkpoint" onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="dim">Keeps every file as it is now. You can come back to it whatever happens next.</p>
        <label>
          Name
          <input autoFocus value={label} onChange={(event) => setLabel(event.target.value)} placeholder="before-refactoring" />
        </label>
        <label>
          Note
          <textarea rows={3} value={note} onChange={(event) => setNote(event.target.value)} placeholder="All tests pass." />
        </label>
        <label>
          Tags
          <input value={tags} onChange={(event) => setTags(event.target.value)} placeholder="good release" />
        </label>
        {problem && <Trouble problem={problem} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" disabled={busy}>
            {busy ? 'Looking at the files …' : 'Create'}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

export function AnnotateDialog({ step, onClose, onDone }: { step: Step; onClose: () => void; onDone: () => void }) {
  const [label, setLabel] = useState(step.label ?? '');
  const [note, setNote] = useState(step.note ?? '');
  const [tags, setTags] = useState(step.tags.join(' '));
  const { problem, busy, send } = useSend(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void send(async () => {
      await change('PATCH', `/checkpoints/${step.id}`, { label: label || null, note: note || null, tags: tagsOf(tags) });
      onDone();
      return `#${step.number} is annotated.`;
    });
  };
  return (
    <Dialog title={`Annotate #${step.number}`} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <label>
          Name
          <input autoFocus value={label} onChange={(event) => setLabel(event.target.value)} />
        </label>
        <label>
          Note
          <textarea rows={3} value={note} onChange={(event) => setNote(event.target.value)} />
        </label>
        <label>
          Tags
          <input value={tags} onChange={(event) => setTags(event.target.value)} />
        </label>
        {problem && <Trouble problem={problem} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" disabled={busy}>
            Save
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

export function BranchDialog({ workspace, from, onClose, onDone }: { workspace: string; from: string; onClose: () => void; onDone?: () => void }) {
  const [name, setName] = useState('');
  const [point, setPoint] = useState(from);
  const { problem, busy, send } = useSend(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void send(async () => {
      const made = await change<Branch>('POST', `/workspaces/${workspace}/branches`, { name, from: point || null });
      onDone?.();
      return `Branch ${made.name} begins at ${point || 'the present'}.`;
    });
  };
  return (
    <Dialog title="Create a branch" onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="dim">A name for a line of steps. Nothing changes in your files until you switch to it.</p>
        <label>
          Name
          <input autoFocus required value={name} onChange={(event) => setName(event.target.value)} placeholder="plan-b" />
        </label>
        <label>
          Begins at
          <input value={point} onChange={(event) => setPoint(event.target.value)} placeholder="#12, a label, 15 minutes ago" />
        </label>
        {problem && <Trouble problem={problem} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" disabled={busy || !name}>
            Create
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
