// Server-sent events over fetch: unlike EventSource, it sends the header that authorises the page.
import { sessionHeaders } from './page-key';

export interface ServerEvent {
  type: string;
  data: string;
  /** The position of the last event that had one. */
  lastEventId: string;
}

/** Splits text that arrives in pieces into events, as the HTML standard says. */
export class EventParser {
  private rest = '';
  private type = '';
  private data: string[] = [];
  private lastEventId = '';

  constructor(private readonly onEvent: (event: ServerEvent) => void) {}

  push(text: string) {
    this.rest += text;
    let end = this.rest.indexOf('\n');
    while (end >= 0) {
      this.line(this.rest.slice(0, end).replace(/\r$/, ''));
      this.rest = this.rest.slice(end + 1);
      end = this.rest.indexOf('\n');
    }
  }

  private line(line: string) {
    if (line === '') {
      // Without data it only moves the position.
      const type = this.data.length > 0 ? this.type || 'message' : 'position';
      this.onEvent({ type, data: this.data.join('\n'), lastEventId: this.lastEventId });
      this.type = '';
      this.data = [];
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.type = value;
    else if (field === 'data') this.data.push(value);
    else if (field === 'id') this.lastEventId = value;
  }
}

/** Reads events until the connection ends, which is an error only if the server refused it or was not there. */
export async function readEvents(
  url: string,
  signal: AbortSignal,
  onOpen: () => void,
  onEvent: (event: ServerEvent) => void,
): Promise<number> {
  const response = await fetch(url, {
    credentials: 'same-origin',
    cache: 'no-store',
    headers: { accept: 'text/event-stream', ...sessionHeaders() },
    signal,
  });
  if (!response.ok || !response.body) return response.status;
  onOpen();
  const parser = new EventParser(onEvent);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return response.status;
    parser.push(value);
  }
}
