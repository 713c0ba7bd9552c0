// One stream of live events for all tabs. A browser opens only six connections to a server, so a stream for each tab would leave
// none for anything else. The tab that holds a lock reads the stream and passes everything on to the others; when it is closed or
// hidden, the next one takes over where it stopped.
import { readEvents, type ServerEvent } from './event-stream';

export type ConnectionState = 'connecting' | 'live' | 'lost' | 'refused';

interface StreamListener {
  onEvent: (event: ServerEvent) => void;
  onConnection: (state: ConnectionState) => void;
  /** Events may have been missed, other than steps. */
  onGap: () => void;
}

type Message =
  | { type: 'event'; event: ServerEvent }
  | { type: 'connection'; state: ConnectionState }
  | { type: 'gap' }
  /** A tab that has just opened asks for the present state. */
  | { type: 'hello' }
  | { type: 'welcome'; state: ConnectionState; stops: ServerEvent | null; position: string | null };

const NAME = 'stepback.events';
const MIN_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 8000;

export class SharedStream {
  /** Locks exist only where the page is from this machine or comes over TLS; elsewhere each tab has its own stream while it is visible. */
  private readonly channel = typeof BroadcastChannel === 'undefined' || !navigator.locks ? null : new BroadcastChannel(NAME);
  private running: AbortController | null = null;
  private leads = false;
  private position: string | null = null;
  /** Whether this tab or another one has read the stream before, so that something may have been missed since. */
  private hasFollowed = false;
  private state: ConnectionState = 'connecting';
  private stops: ServerEvent | null = null;
  private readonly visibility = new AbortController();

  constructor(private readonly listener: StreamListener) {
    this.channel?.addEventListener('message', (message: MessageEvent<Message>) => this.receive(message.data));
    const { signal } = this.visibility;
    document.addEventListener('visibilitychange', () => this.update(), { signal });
    window.addEventListener('pagehide', () => this.stop(), { signal });
    window.addEventListener('pageshow', () => this.update(), { signal });
    this.channel?.postMessage({ type: 'hello' } satisfies Message);
    this.update();
  }

  close() {
    this.visibility.abort();
    this.stop();
    this.channel?.close();
  }

  /** Whether this tab may read the stream: a hidden one only if it can tell the user about an agent that stops. */
  private isWanted(): boolean {
    return !document.hidden || (typeof Notification !== 'undefined' && Notification.permission === 'granted');
  }

  private update() {
    if (!this.isWanted()) this.stop();
    else if (!this.running && this.state !== 'refused') this.start();
  }

  private stop() {
    this.running?.abort();
    this.running = null;
  }

  private start() {
    const running = new AbortController();
    this.running = running;
    const lead = async () => {
      if (running.signal.aborted) return;
      this.leads = true;
      try {
        await this.follow(running.signal);
      } finally {
        this.leads = false;
      }
    };
    if (!this.channel) void lead();
    else navigator.locks.request(NAME, { signal: running.signal }, lead).catch(() => undefined);
  }

  private receive(message: Message) {
    if (message.type !== 'hello') this.hasFollowed = true;
    if (message.type === 'hello') {
      if (this.leads) this.channel?.postMessage({ type: 'welcome', state: this.state, stops: this.stops, position: this.position } satisfies Message);
    } else if (message.type === 'event') this.handleEvent(message.event);
    else if (message.type === 'gap') this.listener.onGap();
    else if (message.type === 'connection') this.setState(message.state);
    else {
      if (message.stops && !this.stops) this.handleEvent(message.stops);
      this.position = message.position;
      this.setState(message.state);
    }
  }

  private handleEvent(event: ServerEvent) {
    this.position = event.lastEventId || this.position;
    if (event.type === 'stops') this.stops = event;
    this.listener.onEvent(event);
  }

  private setState(state: ConnectionState) {
    if (this.state === state) return;
    this.state = state;
    this.listener.onConnection(state);
    if (state === 'refused') this.stop();
  }

  private publish(message: Message) {
    if (this.leads) this.channel?.postMessage(message);
  }

  /** Reads the server's events until `signal` ends it, and connects again whenever the connection is lost. */
  private async follow(signal: AbortSignal) {
    let delay = MIN_RETRY_DELAY_MS;
    const setState = (state: ConnectionState) => {
      this.publish({ type: 'connection', state });
      this.setState(state);
    };
    const handleOpen = () => {
      delay = MIN_RETRY_DELAY_MS;
      // The server repeats steps after the last position, but no other changes: those have to be reloaded.
      if (this.hasFollowed || this.state === 'lost') {
        this.publish({ type: 'gap' });
        this.listener.onGap();
      }
      this.hasFollowed = true;
      setState('live');
    };
    const handleEvent = (event: ServerEvent) => {
      this.publish({ type: 'event', event });
      this.handleEvent(event);
    };
    while (!signal.aborted) {
      const query = this.position === null ? '' : `?after=${encodeURIComponent(this.position)}`;
      try {
        const status = await readEvents(`/api/v1/events${query}`, signal, handleOpen, handleEvent);
        if (status === 401) {
          setState('refused');
          return;
        }
      } catch {
        // The server is away; the next attempt waits longer.
      }
      if (signal.aborted) return;
      setState('lost');
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, delay);
        signal.addEventListener('abort', () => {
          clearTimeout(timer);
          resolve();
        }, { once: true });
      });
      delay = Math.min(delay * 2, MAX_RETRY_DELAY_MS);
    }
  }
}
