// Pictures and other bytes: a picture is shown as one, anything else by its size.
import { useEffect, useState } from 'react';
import { bytes } from '../format';

const KINDS: Record<string, string> = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', avif: 'image/avif', bmp: 'image/bmp', ico: 'image/x-icon' };

export const pictureKind = (path: string): string | undefined => KINDS[path.split('.').pop()?.toLowerCase() ?? ''];

export function Picture({ path, content }: { path: string; content: ArrayBuffer }) {
  const [url, setUrl] = useState<string>();
  const [size, setSize] = useState('');
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([content], { type: pictureKind(path) ?? 'application/octet-stream' }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [content, path]);
  return (
    <figure className="picture">
      {url && <img src={url} alt={path} onLoad={(event) => setSize(`${event.currentTarget.naturalWidth} × ${event.currentTarget.naturalHeight}, `)} onError={() => setSize('it cannot be shown, ')} />}
      <figcaption className="dim">
        {size}
        {bytes(content.byteLength)}
      </figcaption>
    </figure>
  );
}
