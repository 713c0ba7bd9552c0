// Small dialogs: create a checkpoint, annotate one, create a branch.
import { type FormEvent, useState } from 'react';
import { ApiError, send } from './api/client';
import type { Branch, CreatedCheckpoint, Step } from './api/types';
import { Button, Dialog, ErrorMessage, showToast } from './ui';

const parseTags = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

function useSubmit(onClose: () => void) {
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (action: () => Promise<string>) => {
    setBusy(true);
    setError(null);
    try {
      showToast(await action());
      onClose();
    } catch (error) {
      setError(ApiError.from(error));
      setBusy(false);
    }
  };
  return { error, busy, run };
}

export function CheckpointDialog({ workspace, onClose, onDone }: { workspace: string; onClose: () => void; onDone?: () => void }) {
  const [label, setLabel] = useState('');
  const [note, setNote] = useState('');
  const [tags, setTags] = useState('');
  const { error, busy, run } = useSubmit(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const created = await send<CreatedCheckpoint>('POST', `/workspaces/${workspace}/checkpoints`, { label: label || null, note: note || null, tags: parseTags(tags) });
      onDone?.();
      return `Created checkpoint #${created.number}.`;
    });
  };
  return (
    <Dialog title="Create a checkpoint" onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="dim">Saves every file as it is now. You can rewind to it at any time.</p>
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
        {error && <ErrorMessage error={error} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" disabled={busy}>
            {busy ? 'Scanning files …' : 'Create'}
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
  const { error, busy, run } = useSubmit(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      await send('PATCH', `/checkpoints/${step.id}`, { label: label || null, note: note || null, tags: parseTags(tags) });
      onDone();
      return `Annotated #${step.number}.`;
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
        {error && <ErrorMessage error={error} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" disabled={busy}>
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
  const { error, busy, run } = useSubmit(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const created = await send<Branch>('POST', `/workspaces/${workspace}/branches`, { name, from: point || null });
      onDone?.();
      return `Created branch ${created.name} at ${point || 'the current step'}.`;
    });
  };
  return (
    <Dialog title="Create a branch" onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="dim">A named line of steps. Your files do not change until you switch to it.</p>
        <label>
          Name
          <input autoFocus required value={name} onChange={(event) => setName(event.target.value)} placeholder="plan-b" />
        </label>
        <label>
          Starts at
          <input value={point} onChange={(event) => setPoint(event.target.value)} placeholder="#12, a label, 15 minutes ago" />
        </label>
        {error && <ErrorMessage error={error} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" disabled={busy || !name}>
            Create
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
