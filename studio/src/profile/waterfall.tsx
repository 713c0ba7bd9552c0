// The waterfall of a session with the size of the context below it: the wheel zooms, dragging pans, a click goes to the step.
import { useEffect, useMemo, useRef, useState } from 'react';
import { get, useRequest } from '../api/client';
import type { ContextSample, Profile, ProfileSpan } from '../api/types';
import { formatBytes, formatCount, formatDuration, pluralize } from '../format';
import { navigate } from '../route';
import { useDark } from '../theme';
import { Button } from '../ui';
import { CATEGORY_NAMES, CATEGORY_ORDER, PART_NAMES, PART_ORDER } from './categories';
import { CONTEXT_HEIGHT, hasParts, layoutLanes, paintContext, paintWaterfall, readPalette, samplesOf, spanAt, type TimeView } from './painter';

type Hover = { x: number; span: ProfileSpan; sample?: undefined } | { x: number; sample: ContextSample; span?: undefined };

const MIN_SPAN_US = 50;

export function Waterfall({ profile: whole }: { profile: Profile }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const contextCanvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  // Colours are read when the theme changes.
  useDark();
  const [width, setWidth] = useState(0);
  const [view, setView] = useState<TimeView | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const [lane, setLane] = useState(() => Math.max(0, whole.lanes.findIndex((_, index) => whole.context.some((sample) => sample.lane === index))));
  const drag = useRef<{ x: number; start: number; moved: boolean } | null>(null);
  const wall = Math.max(whole.wall_us, 1);
  const [range, setRange] = useState<{ from: number; until: number } | null>(null);
  // Of a long session only the longest spans are drawn; a part of it is loaded in full.
  const request = useRequest(range ? `spans ${whole.session} ${range.from} ${range.until}` : null, (signal) =>
    get<Profile>(`/sessions/${whole.session}/profile`, { from_us: range?.from, until_us: range?.until }, signal),
  );
  const part = range ? request.data : undefined;
  const profile = useMemo(() => (part ? { ...whole, spans: part.spans, spans_total: part.spans_total, spans_left_out: part.spans_left_out } : whole), [whole, part]);
  const layout = useMemo(() => layoutLanes(profile), [profile]);
  useEffect(() => {
    if (whole.spans_left_out === 0) return;
    if (!view) {
      setRange(null);
      return;
    }
    // Half a window more on each side, so that panning a little needs no other request.
    const length = view.scale * width;
    const timer = setTimeout(() => setRange({ from: Math.max(0, Math.floor(view.start - length / 2)), until: Math.ceil(view.start + length * 1.5) }), 200);
    return () => clearTimeout(timer);
  }, [whole, view, width]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const fitted: TimeView = { start: -(wall / Math.max(width, 1)) * 4, scale: wall / Math.max(width - 12, 1) };
  const shown = view ?? fitted;
  const clamp = (next: TimeView): TimeView => {
    const scale = Math.min(fitted.scale, Math.max(MIN_SPAN_US / Math.max(width, 1), next.scale));
    return { scale, start: Math.max(fitted.start, Math.min(next.start, wall - scale * (width - 8))) };
  };
  const zoom = (factor: number, x = width / 2) => {
    const at = shown.start + x * shown.scale;
    const scale = shown.scale / factor;
    if (scale >= fitted.scale) setView(null);
    else setView(clamp({ scale, start: at - x * Math.max(scale, MIN_SPAN_US / Math.max(width, 1)) }));
  };
  const pan = (pixels: number) => setView(clamp({ ...shown, start: shown.start + pixels * shown.scale }));
  const zoomRef = useRef({ zoom, pan });
  zoomRef.current = { zoom, pan };

  useEffect(() => {
    const prepare = (element: HTMLCanvasElement | null, height: number) => {
      const context = element?.getContext('2d');
      if (!element || !context || !width) return null;
      const ratio = window.devicePixelRatio || 1;
      element.width = Math.round(width * ratio);
      element.height = Math.round(height * ratio);
      element.style.height = `${height}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      return context;
    };
    const context = prepare(canvas.current, layout.height);
    if (!context || !canvas.current) return;
    const palette = readPalette(canvas.current);
    paintWaterfall(context, profile, layout, shown, width, hover?.span ?? null, palette);
    const below = prepare(contextCanvas.current, CONTEXT_HEIGHT);
    if (below) paintContext(below, profile, lane, shown, width, palette);
  });
  // React's own wheel listener is passive.
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const handleWheel = (event: WheelEvent) => {
      // Without a modifier the page scrolls, unless the wheel moves sideways.
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) zoomRef.current.pan(event.deltaX || event.deltaY);
      else if (event.ctrlKey || event.metaKey || event.altKey) zoomRef.current.zoom(Math.exp(-event.deltaY / 400), event.clientX - element.getBoundingClientRect().left);
      else return;
      event.preventDefault();
    };
    element.addEventListener('wheel', handleWheel, { passive: false });
    return () => element.removeEventListener('wheel', handleWheel);
  }, []);
  const openStep = (step: number) => navigate(`/sessions/${profile.session}?step=${step}`);
  const keys: Record<string, () => void> = {
    ArrowLeft: () => pan(-80),
    ArrowRight: () => pan(80),
    '+': () => zoom(1.5),
    '=': () => zoom(1.5),
    '-': () => zoom(1 / 1.5),
    '0': () => setView(null),
  };
  const categories = CATEGORY_ORDER.filter((category) => profile.spans.some((span) => span.category === category));
  const hasContext = profile.context.some((sample) => sample.lane === lane);
  const byParts = hasParts(profile, lane);
  const lanesWithContext = profile.lanes.map((_, index) => index).filter((index) => profile.context.some((sample) => sample.lane === index));
  return (
    <section className="panel waterfall" aria-label="Waterfall">
      <div className="player">
        <h2>Waterfall</h2>
        <span className="legend" aria-hidden="true">
          {categories.map((category) => (
            <span key={category}>
              <i className={`time-${category}`} /> {CATEGORY_NAMES[category]}
            </span>
          ))}
          {profile.spans.some((span) => span.critical) && (
            <span>
              <i className="critical" /> what the end depended on
            </span>
          )}
        </span>
        <span className="gap" />
        <Button small aria-label="Zoom out" onClick={() => zoom(1 / 1.6)}>−</Button>
        <Button small aria-label="Zoom in" onClick={() => zoom(1.6)}>+</Button>
        <Button small onClick={() => setView(null)}>all</Button>
      </div>
      <div
        className="waterfall-box"
        ref={box}
        tabIndex={0}
        role="group"
        aria-label="Calls over time; plus and minus zoom, arrow keys move. The tables below have the same as text."
        onKeyDown={(event) => {
          const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
          if (!action) return;
          event.preventDefault();
          event.stopPropagation();
          action();
        }}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${pluralize(profile.spans.length, 'span')} in ${pluralize(profile.lanes.length, 'lane')}`}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            drag.current = { x: event.clientX, start: shown.start, moved: false };
          }}
          onPointerMove={(event) => {
            const rect = event.currentTarget.getBoundingClientRect();
            if (drag.current) {
              if (Math.abs(event.clientX - drag.current.x) > 3) drag.current.moved = true;
              if (drag.current.moved) setView(clamp({ ...shown, start: drag.current.start - (event.clientX - drag.current.x) * shown.scale }));
              return;
            }
            const span = spanAt(profile, layout, shown, event.clientX - rect.left, event.clientY - rect.top);
            setHover(span ? { x: event.clientX - rect.left, span } : null);
          }}
          onPointerUp={(event) => {
            const rect = event.currentTarget.getBoundingClientRect();
            if (drag.current && !drag.current.moved) {
              const span = spanAt(profile, layout, shown, event.clientX - rect.left, event.clientY - rect.top);
              if (span) openStep(span.step);
            }
            drag.current = null;
          }}
          onPointerLeave={() => setHover(null)}
        />
        {hasContext && (
          <>
            <h3>
              Context of {profile.lanes[lane]?.worker ?? profile.agent}{' '}
              <span className="dim">{byParts ? 'in bytes of text, by what it is made of' : 'in tokens that the model read'}</span>
            </h3>
            <canvas
              ref={contextCanvas}
              role="img"
              aria-label={describeContext(profile, lane)}
              onPointerMove={(event) => {
                const rect = event.currentTarget.getBoundingClientRect();
                const at = shown.start + (event.clientX - rect.left) * shown.scale;
                const sample = samplesOf(profile, lane).find((candidate) => candidate.sample.at_us <= at && at < candidate.end)?.sample;
                setHover(sample ? { x: event.clientX - rect.left, sample } : null);
              }}
              onPointerLeave={() => setHover(null)}
              onClick={() => hover?.sample && openStep(hover.sample.step)}
            />
          </>
        )}
        {hover && (
          <div className="tooltip waterfall-tooltip" style={{ left: `clamp(0px, ${hover.x}px, calc(100% - 320px))`, ...(hover.span ? { top: 26 } : { bottom: CONTEXT_HEIGHT + 8, top: 'auto' }) }}>
            {hover.span ? <SpanTooltip span={hover.span} /> : <SampleTooltip sample={hover.sample} />}
          </div>
        )}
      </div>
      {hasContext && (
        <div className="player">
          <span className="legend" aria-hidden="true">
            {byParts ? (
              PART_ORDER.filter((kind) => profile.context.some((sample) => sample.lane === lane && sample.parts.some((part) => part.kind === kind))).map((kind) => (
                <span key={kind}>
                  <i className={`part-${kind}`} /> {PART_NAMES[kind]}
                </span>
              ))
            ) : (
              <>
                <span><i className="part-result" /> from the cache</span>
                <span><i className="part-assistant" /> read anew</span>
              </>
            )}
            {profile.context.some((sample) => sample.compacted) && <span><i className="compacted" /> compacted</span>}
          </span>
          <span className="gap" />
          {lanesWithContext.length > 1 && (
            <label className="picker">
              <span className="dim">Context of</span>
              <select value={lane} onChange={(event) => setLane(Number(event.target.value))}>
                {lanesWithContext.map((index) => (
                  <option key={index} value={index}>
                    {profile.lanes[index]?.worker ?? profile.agent}
                  </option>
                ))}
              </select>
            </label>
          )}
        </div>
      )}
      {profile.spans_left_out > 0 && (
        <p className="dim">
          {formatCount(profile.spans_left_out)} of {pluralize(profile.spans_total, 'span')} are not drawn: the shortest ones.
        </p>
      )}
      {profile.context_left_out > 0 && <p className="dim">{pluralize(profile.context_left_out, 'request')} of the context are not drawn; each stretch of time shows its largest.</p>}
    </section>
  );
}

function SpanTooltip({ span }: { span: ProfileSpan }) {
  return (
    <>
      <b>{span.name ?? CATEGORY_NAMES[span.category] ?? span.category}</b> {span.subject} <span className="dim">#{span.step}</span>
      <div>
        {formatDuration(span.us)} {CATEGORY_NAMES[span.category]}, from {formatDuration(span.start_us)}
        {span.failed && ', failed'}
        {span.critical && ', the end depended on it'}
      </div>
      {span.rule && <div className="dim">inferred: {span.rule}</div>}
    </>
  );
}

function SampleTooltip({ sample }: { sample: ContextSample }) {
  const parts = [...sample.parts].sort((a, b) => b.bytes - a.bytes);
  return (
    <>
      <b>{sample.model ?? 'a request'}</b> <span className="dim">#{sample.step}, {sample.basis}</span>
      <div className="unclamped">
        {sample.tokens == null ? 'tokens unknown' : pluralize(sample.tokens, 'token')}
        {sample.cached != null && `, ${formatCount(sample.cached)} from the cache`}
        {sample.compacted && ', after a compaction'}
      </div>
      {parts.slice(0, 8).map((part) => (
        <div key={`${part.kind} ${part.tool}`} className="dim">
          {part.tool ? `results of ${part.tool}` : (PART_NAMES[part.kind] ?? part.kind)}: {formatBytes(part.bytes)}
        </div>
      ))}
    </>
  );
}

/** The largest context in words, for a screen reader. */
function describeContext(profile: Profile, lane: number): string {
  const byParts = hasParts(profile, lane);
  const samples = profile.context.filter((sample) => sample.lane === lane);
  const last = samples[samples.length - 1];
  if (!last) return 'No requests recorded';
  const parts = [...last.parts].sort((a, b) => b.bytes - a.bytes).map((part) => `${part.tool ? `results of ${part.tool}` : (PART_NAMES[part.kind] ?? part.kind)} ${formatBytes(part.bytes)}`);
  return `Size of the context over ${pluralize(samples.length, 'request')}. The last: ${last.tokens == null ? 'tokens unknown' : pluralize(last.tokens, 'token')}${byParts ? `: ${parts.join(', ')}` : ''}`;
}
