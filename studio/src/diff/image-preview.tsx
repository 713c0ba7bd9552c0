// An image file with its dimensions and size.
import { useEffect, useState } from 'react';
import { formatBytes } from '../format';

const MIME_TYPES: Record<string, string> = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', avif: 'image/avif', bmp: 'image/bmp', ico: 'image/x-icon' };

export const imageMimeType = (path: string): string | undefined => MIME_TYPES[path.split('.').pop()?.toLowerCase() ?? ''];

export function ImagePreview({ path, content }: { path: string; content: ArrayBuffer }) {
  const [url, setUrl] = useState<string>();
  const [caption, setCaption] = useState('');
  useEffect(() => {
    const objectUrl = URL.createObjectURL(new Blob([content], { type: imageMimeType(path) ?? 'application/octet-stream' }));
    setUrl(objectUrl);
    return () => URL.revokeObjectURL(objectUrl);
  }, [content, path]);
  return (
    <figure className="image-preview">
      {url && <img src={url} alt={path} onLoad={(event) => setCaption(`${event.currentTarget.naturalWidth} × ${event.currentTarget.naturalHeight}, `)} onError={() => setCaption('cannot be displayed, ')} />}
      <figcaption className="dim">
        {caption}
        {formatBytes(content.byteLength)}
      </figcaption>
    </figure>
  );
}
