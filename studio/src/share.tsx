// The dialog that shares a session: a link for this server, or one of several files.
import { useState } from 'react';
import { ApiError, apiUrl, download } from './api/client';
import type { Session } from './api/types';
import { formatBytes, shortId } from './format';
import { copyToClipboard } from './toasts';
import { Button, Dialog, ErrorMessage } from './ui';

/** The formats of an export, in the order of how often they are wanted. */
const FORMATS: { id: string; name: string; description: string; ending: string }[] = [
  { id: 'bundle', name: 'Bundle', description: 'Everything, with the files at every step: “stepback import” opens it elsewhere.', ending: 'bundle' },
  { id: 'jsonl', name: 'Lines of JSON', description: 'The steps, one for each line, for other programs.', ending: 'jsonl' },
];

export function ShareDialog({ session, step, onClose }: { session: Session; step: number | undefined; onClose: () => void }) {
  const [busy, setBusy] = useState<string | null>(null);
  const [saved, setSaved] = useState<{ id: string; bytes: number } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const link = `${window.location.origin}/sessions/${session.id}${step === undefined ? '' : `?step=${step}`}`;
  const save = async (format: (typeof FORMATS)[number]) => {
    setBusy(format.id);
    setSaved(null);
    setError(null);
    try {
      const bytes = await download(apiUrl(`/sessions/${session.id}/export`, { format: format.id }), `${shortId(session.id)}.${format.ending}`);
      setSaved({ id: format.id, bytes });
    } catch (failure) {
      setError(ApiError.from(failure));
    }
    setBusy(null);
  };
  return (
    <Dialog title="Share this session" onClose={onClose} wide>
      <section>
        <h3>Link{step !== undefined && ` to step #${step}`}</h3>
        <p className="dim">Opens in browsers that are signed in to this server.</p>
        <div className="command">
          <pre>{link}</pre>
          <Button onClick={() => void copyToClipboard(link, 'Link copied.')}>Copy</Button>
        </div>
      </section>
      <section>
        <h3>File</h3>
        <p className="dim">Contains what the session recorded. Secrets that were recognised are removed, but read a file before you give it away.</p>
        <ul className="formats">
          {FORMATS.map((format) => (
            <li key={format.id}>
              <span>
                <b>{format.name}</b>
                <span className="dim">{format.description}</span>
                {saved?.id === format.id && <span className="good">Saved, {formatBytes(saved.bytes)}.</span>}
              </span>
              <Button disabled={busy !== null} aria-label={`Download ${format.name}`} onClick={() => void save(format)}>
                {busy === format.id ? 'Preparing …' : 'Download'}
              </Button>
            </li>
          ))}
        </ul>
        <span className="visually-hidden" role="status">
          {busy ? 'Preparing the file' : saved ? 'The file is saved' : ''}
        </span>
      </section>
      {error && <ErrorMessage error={error} />}
      <footer>
        <Button onClick={onClose}>Close</Button>
      </footer>
    </Dialog>
  );
}
