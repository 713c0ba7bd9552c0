import type { HighlightToken } from './highlight';

/** A line of code; plain text if there are no tokens. */
export function HighlightedLine({ tokens, text }: { tokens: HighlightToken[] | undefined; text: string }) {
  if (!tokens) return <>{text}</>;
  return (
    <>
      {tokens.map((token, index) => (token.className ? <span key={index} className={token.className}>{token.text}</span> : token.text))}
    </>
  );
}
