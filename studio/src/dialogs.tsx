// Small dialogs: create a checkpoint, annotate one, create a branch.
import { type FormEvent, useState } from 'react';
import { ApiError, send } from './api/client';
import type { Branch, CreatedCheckpoint, Step } from './api/types';
import { showToast } from './toasts';
import { Button, Dialog, ErrorMessage } from './ui';

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

/** The editable label, note and tags of a checkpoint; `body` is what the API takes. */
function useAnnotation(step?: Step) {
  const [label, setLabel] = useState(step?.label ?? '');
  const [note, setNote] = useState(step?.note ?? '');
  const [tags, setTags] = useState(step?.tags.join(' ') ?? '');
  const body = { label: label || null, note: note || null, tags: parseTags(tags) };
  return { label, setLabel, note, setNote, tags, setTags, body };
}

function AnnotationFields({ annotation }: { annotation: ReturnType<typeof useAnnotation> }) {
  return (
    <>
      <label>
        Name
        <input autoFocus value={annotation.label} onChange={(event) => annotation.setLabel(event.target.value)} placeholder="before-refactoring" />
      </label>
      <label>
        Note
        <textarea rows={3} value={annotation.note} onChange={(event) => annotation.setNote(event.target.value)} placeholder="All tests pass." />
      </label>
      <label>
        Tags
        <input value={annotation.tags} onChange={(event) => annotation.setTags(event.target.value)} placeholder="good release" />
      </label>
    </>
  );
}

export function CheckpointDialog({ workspace, onClose, onDone }: { workspace: string; onClose: () => void; onDone?: () => void }) {
  const annotation = useAnnotation();
  const { error, busy, run } = useSubmit(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const created = await send<CreatedCheckpoint>('POST', `/workspaces/${workspace}/checkpoints`, annotation.body);
      onDone?.();
      return `Created checkpoint #${created.number}.`;
    });
  };
  return (
    <Dialog title="Create a checkpoint" onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <p className="dim">Saves every file as it is now. You can rewind to it at any time.</p>
        <AnnotationFields annotation={annotation} />
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
  const annotation = useAnnotation(step);
  const { error, busy, run } = useSubmit(onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      await send('PATCH', `/checkpoints/${step.id}`, annotation.body);
      onDone();
      return `Annotated #${step.number}.`;
    });
  };
  return (
    <Dialog title={`Annotate #${step.number}`} onClose={onClose}>
      <form className="form" onSubmit={submit}>
        <AnnotationFields annotation={annotation} />
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
