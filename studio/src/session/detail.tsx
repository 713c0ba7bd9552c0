// The details of a step: input and output, what caused it, and what it changed.
import { lazy, memo, Suspense } from 'react';
import { get, useRequest } from '../api/client';
import type { Message, StepDetail } from '../api/types';
import { formatDateTime, formatDuration, formatTime, formatValue, pluralize } from '../format';
import { glyphOf } from '../kinds';
import { Link } from '../route';
import { ErrorMessage, Loading } from '../ui';
import { whyHref } from '../why/names';
import type { Incidents } from '../anomalies/incidents';
import { AnomalyList } from '../anomalies/list';
import { CHECKPOINT, type Timeline } from './timeline';
import { LongText, ValueSection } from './values';

const StepChanges = lazy(() => import('../diff/step-changes'));

function useStep(session: string, number: number | undefined) {
  return useRequest(number === undefined ? null : `${session} ${number}`, (signal) =>
    get<StepDetail>(`/sessions/${session}/steps/${number}`, {}, signal),
  );
}

export const StepDetailView = memo(function StepDetailView({
  session,
  workspace,
  incidents,
  timeline,
  index,
  onSelect,
}: {
  session: string;
  workspace: string;
  incidents: Incidents;
  timeline: Timeline;
  index: number;
  onSelect: (index: number) => void;
}) {
  const number = timeline.number[index];
  const request = useStep(session, number);
  const step = request.data;
  if (request.error) return <ErrorMessage error={request.error} onRetry={request.reload} />;
  if (!step) return <Loading label={`Loading step #${number}`} />;
  const causes = timeline.findCauses(index);
  const stepLink = (at: number, text: string) =>
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
            {glyphOf(step.kind)}
          </span>
          #{step.number} <span className="dim">{step.kind}</span>
          {step.tool && <code className="tool">{step.tool}</code>}
          {step.failed && <span className="status failed">failed</span>}
          {step.checkpoint && <span className="status checkpoint-mark">{step.trigger === 'manual' ? 'checkpoint' : 'automatic checkpoint'}</span>}
        </h2>
        <p className="summary">{step.summary}</p>
        <p className="facts dim">
          <span title={formatDateTime(step.at)}>{formatTime(step.at)}</span>
          {step.duration_us != null && <span>{formatDuration(step.duration_us)}</span>}
          <span>turn {step.iteration}</span>
          {step.worker && <span>{step.worker}</span>}
          {step.task && <span>task {step.task}</span>}
          {step.trace_id && (
            <span title={[step.trace_id, step.span_id && `span ${step.span_id}`, step.parent_span_id && `in span ${step.parent_span_id}`].filter(Boolean).join(', ')}>
              trace {step.trace_id}
            </span>
          )}
          {step.label && <span>label “{step.label}”</span>}
          {step.tags.map((tag) => (
            <span key={tag} className="tag">
              {tag}
            </span>
          ))}
        </p>
        {step.note && <p className="note">{step.note}</p>}
        <p className="why">
          {(causes.model >= 0 || causes.prompt >= 0 || causes.partner >= 0) && <span className="dim">Cause: </span>}
          {stepLink(causes.model, 'model response')}
          {stepLink(causes.prompt, 'prompt')}
          {stepLink(causes.partner, step.kind.endsWith('start') ? 'ends at' : 'started at')}
          <Link href={whyHref(workspace, `#${step.number}`)}>Why?</Link>
        </p>
      </header>
      {incidents.at(step.number).length > 0 && (
        <section aria-label="Anomalies">
          <h3>Unusual here</h3>
          <AnomalyList items={incidents.at(step.number)} />
        </section>
      )}
      {step.error != null && <ValueSection name="Error" value={step.error} />}
      {step.message && (
        <section>
          <h3>
            {step.message.sender ?? 'main'} → {step.message.receiver ?? 'main'}: {step.message.performative}
          </h3>
          {step.message.answers && <p className="dim">answers {step.message.answers}</p>}
          {step.message.content != null && <ValueSection name="Content" value={step.message.content} />}
        </section>
      )}
      <StepPayload step={step} />
      {timeline.has(index, CHECKPOINT) && step.parent && (
        <section>
          <h3>Changed files</h3>
          <Suspense fallback={<Loading />}>
            <StepChanges before={step.parent} after={step.id} />
          </Suspense>
        </section>
      )}
      {step.metadata != null && <ValueSection name="Metadata" value={step.metadata} open={false} />}
      {(step.kind === 'tool-end' || step.kind === 'tool-start' || step.kind === 'user-input') && (
        <p className="dim">
          <Link href={`/sessions/${session}/what-if?step=${step.number}`}>Rerun with a change here</Link>
        </p>
      )}
    </article>
  );
});

interface ContentPart {
  type?: string;
  text?: string;
  thinking?: string;
  name?: string;
  input?: unknown;
  content?: unknown;
}
interface ChatMessage {
  role?: string;
  content?: string | ContentPart[];
}

/** Model calls as messages, all other steps as input and output. */
function StepPayload({ step }: { step: StepDetail }) {
  const parseBody = (payload: unknown): Record<string, unknown> | null => {
    const body = (payload as { body?: unknown } | null)?.body;
    if (typeof body === 'string') {
      try {
        return JSON.parse(body) as Record<string, unknown>;
      } catch {
        return null;
      }
    }
    return (body as Record<string, unknown> | undefined) ?? null;
  };
  if (step.kind === 'model-start') {
    const requestBody = parseBody(step.input);
    const messages = (requestBody?.messages ?? requestBody?.input) as ChatMessage[] | undefined;
    if (Array.isArray(messages)) {
      return (
        <>
          {requestBody?.system != null && <ValueSection name="Instructions" value={requestBody.system} open={false} />}
          <section>
            <h3>{pluralize(messages.length, 'message')}</h3>
            <Messages messages={messages} />
          </section>
          <ValueSection name="Full request" value={step.input} open={false} />
        </>
      );
    }
  }
  if (step.kind === 'model-end') {
    const answer = parseBody(step.output);
    if (answer && Array.isArray(answer.content)) {
      return (
        <>
          <section>
            <h3>Response</h3>
            <Messages messages={[{ role: 'assistant', content: answer.content as ContentPart[] }]} />
          </section>
          <ValueSection name="Full response" value={step.output} open={false} />
        </>
      );
    }
  }
  return (
    <>
      <ValueSection name="Input" value={step.input} />
      <ValueSection name="Output" value={step.output} />
    </>
  );
}

const MAX_MESSAGES = 40;

function Messages({ messages }: { messages: ChatMessage[] }) {
  const first = Math.max(0, messages.length - MAX_MESSAGES);
  return (
    <ol className="messages">
      {first > 0 && <li className="dim">… {first} earlier messages</li>}
      {messages.slice(first).map((message, index) => (
        <li key={first + index} className={message.role ?? 'other'}>
          <span className="role">{message.role ?? 'message'}</span>
          {typeof message.content === 'string' ? (
            <LongText text={message.content} />
          ) : (
            (message.content ?? []).map((part, index) => <ContentPartView key={index} part={part} />)
          )}
        </li>
      ))}
    </ol>
  );
}

function ContentPartView({ part }: { part: ContentPart }) {
  if (part.type === 'tool_use') {
    return (
      <div className="call">
        <span className="dim">calls</span> <code>{part.name}</code>
        <LongText text={formatValue(part.input)} />
      </div>
    );
  }
  if (part.type === 'tool_result') {
    return (
      <div className="call">
        <span className="dim">result</span>
        <LongText text={typeof part.content === 'string' ? part.content : formatValue(part.content)} />
      </div>
    );
  }
  if (part.thinking) return <LongText className="thinking" text={part.thinking} />;
  return <LongText text={part.text ?? formatValue(part)} />;
}

/** The conversation at a step, from the agent's own transcript. */
export function Conversation({ messages }: { messages: Message[] }) {
  return (
    <ol className="messages">
      {messages.map((message) => (
        <li key={message.number} className={message.role ?? 'other'}>
          <span className="role">{message.role ?? `line ${message.number}`}</span>
          <LongText text={message.text || formatValue(message.message)} />
        </li>
      ))}
    </ol>
  );
}
