import type { Piece } from './highlight';

/** A line of code: pieces of text with their colours. */
export function Code({ pieces, text }: { pieces: Piece[] | undefined; text: string }) {
  if (!pieces) return <>{text}</>;
  return (
    <>
      {pieces.map((piece, index) => (piece.look ? <span key={index} className={piece.look}>{piece.text}</span> : piece.text))}
    </>
  );
}
