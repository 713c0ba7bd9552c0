// One step: what it was, what went in and came out, why it happened, and what it changed.
import { lazy, memo, Suspense } from 'react';
import { get, useAsk } from '../api/client';
import type { Message, StepDetail } from '../api/types';
import { clock, full, plural, pretty, span } from '../format';
import { glyph } from '../kinds';
import { Link } from '../route';
import { Loading, Trouble } from '../ui';
import { KEPT, type Timeline } from './model';
import { LongText, Value } from './text';

const StepChanges = lazy(() => import('../diff/step-changes'));

export function useStep(session: string, number: number | undefined) {
  return useAsk(number === undefined ? null : `${session} ${number}`, (signal) =>
    get<StepDetail>(`/sessions/${session}/steps/${number}`, {}, signal),
  );
}

export const StepDetailView = memo(function StepDetailView({
  session,
  timeline,
  index,
  onSelect,
}: {
  session: string;
  timeline: Timeline;
  index: number;
  onSelect: (index: number) => void;
}) {
  const number = timeline.number[index];
  const asked = useStep(session, number);
  const step = asked.value;
  if (asked.problem) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!step) return <Loading what={`Step #${number}`} />;
  const why = timeline.why(index);
  const link = (at: number, text: string) =>
    at >= 0 && (
      <button type="button" className="link" onClick={() => onSelect(at)}>
        {text} #{timeline.number[at]}
      </button>
    );
  return (
    <article className="step" aria-label={`Step ${step.number}`}>
      <header>
        <h2>
          <span className={`mark ${timeline.familyAt(index)}`} aria-hidden="true">
            {glyph(step.kind)}
          </span>
          #{step.number} <span className="dim">{step.kind}</span>
          {step.tool && <code className="tool">{step.tool}</code>}
          {step.failed && <span className="status failed">failed</span>}
          {step.checkpoint && <span className="status kept">{step.trigger === 'manual' ? 'checkpoint' : 'kept'}</span>}
        </h2>
        <p className="summary">{step.summary}</p>
        <p className="facts dim">
          <span title={full(step.at)}>{clock(step.at)}</span>
          {step.duration_us != null && <span>{span(step.duration_us)}</span>}
          <span>turn {step.iteration}</span>
          {step.worker && <span>{step.worker}</span>}
          {step.label && <span>label “{step.label}”</span>}
          {step.tags.map((tag) => (
            <span key={tag} className="tag">
              {tag}
            </span>
          ))}
        </p>
        {step.note && <p className="note">{step.note}</p>}
        {(why.model >= 0 || why.prompt >= 0 || why.partner >= 0) && (
          <p className="why">
            <span className="dim">Why: </span>
            {link(why.model, 'asked for by the model in')}
            {link(why.prompt, 'for the prompt')}
            {link(why.partner, step.kind.endsWith('start') ? 'it ends at' : 'it began at')}
          </p>
        )}
      </header>
      {step.error != null && <Value name="Error" value={step.error} />}
      <Said step={step} />
      {timeline.has(index, KEPT) && step.parent && (
        <section>
          <h3>What it changed</h3>
          <Suspense fallback={<Loading />}>
            <StepChanges before={step.parent} after={step.id} />
          </Suspense>
        </section>
      )}
      {step.metadata != null && <Value name="Metadata" value={step.metadata} open={false} />}
      {(step.kind === 'tool-end' || step.kind === 'tool-start' || step.kind === 'user-input') && (
        <p className="dim">
          <Link href={`/sessions/${session}/what-if?step=${step.number}`}>What if this had been different?</Link>
        </p>
      )}
    </article>
  );
});

interface Part {
  type?: string;
  text?: string;
  thinking?: string;
  name?: string;
  input?: unknown;
  content?: unknown;
}
interface Said {
  role?: string;
  content?: string | Part[];
}

/** Model calls as messages, everything else as its fields. */
function Said({ step }: { step: StepDetail }) {
  const body = (side: unknown): Record<string, unknown> | null => {
    const inner = (side as { body?: unknown } | null)?.body;
    if (typeof inner === 'string') {
      try {
        return JSON.parse(inner) as Record<string, unknown>;
      } catch {
        return null;
      }
    }
    return (inner as Record<string, unknown> | undefined) ?? null;
  };
  if (step.kind === 'model-start') {
    const asked = body(step.input);
    const messages = (asked?.messages ?? asked?.input) as Said[] | undefined;
    if (Array.isArray(messages)) {
      return (
        <>
          {asked?.system != null && <Value name="Instructions" value={asked.system} open={false} />}
          <section>
            <h3>{plural(messages.length, 'message')}</h3>
            <Messages messages={messages} />
          </section>
          <Value name="The whole request" value={step.input} open={false} />
        </>
      );
    }
  }
  if (step.kind === 'model-end') {
    const answer = body(step.output);
    if (answer && Array.isArray(answer.content)) {
      return (
        <>
          <section>
            <h3>Answer</h3>
            <Messages messages={[{ role: 'assistant', content: answer.content as Part[] }]} />
          </section>
          <Value name="The whole answer" value={step.output} open={false} />
        </>
      );
    }
  }
  return (
    <>
      <Value name="Input" value={step.input} />
      <Value name="Output" value={step.output} />
    </>
  );
}

const SEEN = 40;

function Messages({ messages }: { messages: Said[] }) {
  const first = Math.max(0, messages.length - SEEN);
  return (
    <ol className="messages">
      {first > 0 && <li className="dim">… {first} earlier ones</li>}
      {messages.slice(first).map((message, index) => (
        <li key={first + index} className={message.role ?? 'other'}>
          <span className="role">{message.role ?? 'message'}</span>
          {typeof message.content === 'string' ? (
            <LongText text={message.content} />
          ) : (
            (message.content ?? []).map((part, at) => <PartView key={at} part={part} />)
          )}
        </li>
      ))}
    </ol>
  );
}

function PartView({ part }: { part: Part }) {
  if (part.type === 'tool_use') {
    return (
      <div className="call">
        <span className="dim">calls</span> <code>{part.name}</code>
        <LongText text={pretty(part.input)} />
      </div>
    );
  }
  if (part.type === 'tool_result') {
    return (
      <div className="call">
        <span className="dim">result</span>
        <LongText text={typeof part.content === 'string' ? part.content : pretty(part.content)} />
      </div>
    );
  }
  if (part.thinking) return <LongText className="thinking" text={part.thinking} />;
  return <LongText text={part.text ?? pretty(part)} />;
}

/** The conversation of a moment, as the agent's own record has it. */
export function Conversation({ messages }: { messages: Message[] }) {
  return (
    <ol className="messages">
      {messages.map((message) => (
        <li key={message.number} className={message.role ?? 'other'}>
          <span className="role">{message.role ?? `line ${message.number}`}</span>
          <LongText text={message.text || pretty(message.message)} />
        </li>
      ))}
    </ol>
  );
}
