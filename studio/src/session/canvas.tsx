// The timeline as something to look at and to touch: zoom with the wheel, drag to pan, click to select, drag above to scrub.
import { forwardRef, useEffect, useImperativeHandle, useRef } from 'react';
import { ORDER } from '../kinds';
import { useDark } from '../theme';
import { leaf } from '../format';
import type { Timeline } from './model';
import { type Colours, heightOf, LANE, laneTop, OVERVIEW, paint, paintOverview, type Window } from './painter';

export interface CanvasHandle {
  zoom: (factor: number) => void;
  all: () => void;
}

interface Props {
  timeline: Timeline;
  /** Changes whenever steps were added. */
  version: number;
  selected: number;
  agent: string;
  onSelect: (index: number) => void;
  onHover: (index: number, x: number) => void;
}

const MOST_SCALE = 28;

function colours(element: HTMLElement): Colours {
  const style = getComputedStyle(element);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return {
    ground: of('--panel'),
    line: of('--line-strong'),
    text: of('--text'),
    dim: of('--dim'),
    accent: of('--accent'),
    families: ORDER.map((family) => of(`--kind-${family}`)),
    error: of('--kind-error'),
  };
}

export const TimelineCanvas = forwardRef<CanvasHandle, Props>(function TimelineCanvas(props, handle) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const dark = useDark();
  const latest = useRef(props);
  latest.current = props;
  const state = useRef({
    view: { start: 0, scale: 0 } as Window,
    width: 0,
    height: 0,
    hovered: -1,
    dirty: false,
    overview: null as HTMLCanvasElement | null,
    overviewOf: -1,
    colours: null as Colours | null,
    drag: null as null | { x: number; start: number; scrub: boolean; moved: boolean },
    touched: false,
  });

  const api = useRef({
    clamp: () => {},
    draw: () => {},
    all: () => {},
    zoom: (_factor: number, _x?: number) => {},
  });

  useEffect(() => {
    const element = canvas.current;
    const box = holder.current;
    const context = element?.getContext('2d');
    if (!element || !box || !context) return;
    const s = state.current;
    const gutter = 0;

    const smallest = () => Math.max(s.width / Math.max(1, latest.current.timeline.length), 1e-6);
    const clamp = () => {
      const { timeline } = latest.current;
      s.view.scale = Math.min(MOST_SCALE, Math.max(Math.min(smallest(), MOST_SCALE), s.view.scale));
      const seen = s.width / s.view.scale;
      s.view.start = Math.max(-0.5, Math.min(s.view.start, Math.max(0, timeline.length - seen) + 0.5));
      if (timeline.length <= seen) s.view.start = 0;
    };
    const render = () => {
      s.dirty = false;
      const { timeline, selected, version } = latest.current;
      s.colours ??= colours(element);
      paint(context, timeline, s.view, { width: s.width, height: s.height }, selected, s.hovered, s.colours);
      if (!s.overview || s.overviewOf !== version || s.overview.width !== Math.ceil(s.width)) {
        s.overview ??= document.createElement('canvas');
        s.overview.width = Math.ceil(s.width);
        s.overview.height = OVERVIEW;
        s.overviewOf = version;
        const to = s.overview.getContext('2d');
        if (to) paintOverview(to, timeline, s.overview.width, s.colours);
      }
      if (s.overview.width) context.drawImage(s.overview, 0, 0, s.width, OVERVIEW);
      const left = (s.view.start / Math.max(1, timeline.length)) * s.width;
      const wide = Math.max(6, (s.width / s.view.scale / Math.max(1, timeline.length)) * s.width);
      if (wide < s.width - 1) {
        context.fillStyle = s.colours.accent;
        context.globalAlpha = 0.14;
        context.fillRect(left, 0, wide, OVERVIEW);
        context.globalAlpha = 1;
        context.strokeStyle = s.colours.accent;
        context.strokeRect(left + 0.5, 0.5, wide - 1, OVERVIEW - 1);
      }
      context.fillStyle = s.colours.accent;
      context.fillRect(((selected + 0.5) / Math.max(1, timeline.length)) * s.width - 0.75, 0, 1.5, OVERVIEW);
    };
    const draw = () => {
      if (s.dirty) return;
      s.dirty = true;
      requestAnimationFrame(render);
    };
    const all = () => {
      s.view = { start: 0, scale: smallest() };
      clamp();
      draw();
    };
    const zoom = (factor: number, x = s.width / 2) => {
      const at = s.view.start + x / s.view.scale;
      s.view.scale *= factor;
      clamp();
      s.view.start = at - x / s.view.scale;
      clamp();
      s.touched = true;
      draw();
    };
    api.current = { clamp, draw, all, zoom };

    const fit = () => {
      const ratio = window.devicePixelRatio || 1;
      s.width = box.clientWidth - gutter;
      s.height = heightOf(latest.current.timeline);
      element.width = Math.round(s.width * ratio);
      element.height = Math.round(s.height * ratio);
      element.style.height = `${s.height}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (!s.view.scale || !s.touched) {
        s.view = { start: 0, scale: smallest() };
        if (s.view.scale > MOST_SCALE) s.view.scale = MOST_SCALE;
      }
      clamp();
      render();
    };
    const observer = new ResizeObserver(fit);
    observer.observe(box);
    fit();

    const place = (event: PointerEvent | WheelEvent) => {
      const rect = element.getBoundingClientRect();
      return { x: event.clientX - rect.left, y: event.clientY - rect.top };
    };
    const indexAt = (x: number) =>
      Math.max(0, Math.min(latest.current.timeline.length - 1, Math.floor(s.view.start + x / s.view.scale)));
    const scrubTo = (x: number) => {
      const { timeline, onSelect } = latest.current;
      const index = Math.max(0, Math.min(timeline.length - 1, Math.floor((x / s.width) * timeline.length)));
      s.view.start = index - s.width / s.view.scale / 2;
      clamp();
      onSelect(index);
      draw();
    };
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      const { x } = place(event);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        s.view.start += ((event.deltaX || event.deltaY) * unit) / s.view.scale;
        s.touched = true;
        clamp();
        draw();
      } else zoom(Math.exp((-event.deltaY * unit) / 400), x);
    };
    const down = (event: PointerEvent) => {
      if (event.button !== 0 || latest.current.timeline.length === 0) return;
      const { x, y } = place(event);
      element.setPointerCapture(event.pointerId);
      s.drag = { x, start: s.view.start, scrub: y < OVERVIEW, moved: false };
      if (s.drag.scrub) scrubTo(x);
    };
    const move = (event: PointerEvent) => {
      const { x } = place(event);
      if (s.drag?.scrub) {
        scrubTo(x);
        return;
      }
      if (s.drag) {
        if (Math.abs(x - s.drag.x) > 3) s.drag.moved = true;
        if (s.drag.moved) {
          s.view.start = s.drag.start - (x - s.drag.x) / s.view.scale;
          s.touched = true;
          clamp();
          draw();
        }
        return;
      }
      const index = latest.current.timeline.length ? indexAt(x) : -1;
      if (index !== s.hovered) {
        s.hovered = index;
        latest.current.onHover(index, x);
        draw();
      }
    };
    const up = (event: PointerEvent) => {
      const { x } = place(event);
      if (s.drag && !s.drag.moved && !s.drag.scrub) latest.current.onSelect(indexAt(x));
      s.drag = null;
    };
    const leave = () => {
      s.hovered = -1;
      latest.current.onHover(-1, 0);
      draw();
    };
    element.addEventListener('wheel', wheel, { passive: false });
    element.addEventListener('pointerdown', down);
    element.addEventListener('pointermove', move);
    element.addEventListener('pointerup', up);
    element.addEventListener('pointerleave', leave);
    return () => {
      observer.disconnect();
      element.removeEventListener('wheel', wheel);
      element.removeEventListener('pointerdown', down);
      element.removeEventListener('pointermove', move);
      element.removeEventListener('pointerup', up);
      element.removeEventListener('pointerleave', leave);
    };
  }, []);

  // What is selected stays in sight.
  useEffect(() => {
    const s = state.current;
    const x = (props.selected - s.view.start + 0.5) * s.view.scale;
    if (s.width && (x < 0 || x > s.width)) {
      s.view.start = props.selected - s.width / s.view.scale / 2;
      api.current.clamp();
    }
    api.current.draw();
  }, [props.selected]);
  useEffect(() => {
    const s = state.current;
    const element = canvas.current;
    if (element && heightOf(props.timeline) !== s.height) {
      s.height = heightOf(props.timeline);
      const ratio = window.devicePixelRatio || 1;
      element.height = Math.round(s.height * ratio);
      element.style.height = `${s.height}px`;
      element.getContext('2d')?.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    if (!s.touched) api.current.all();
    api.current.clamp();
    api.current.draw();
  }, [props.timeline, props.version]);
  useEffect(() => {
    state.current.colours = null;
    state.current.overviewOf = -1;
    api.current.draw();
  }, [dark]);

  useImperativeHandle(handle, () => ({ zoom: (factor) => api.current.zoom(factor), all: () => {
    state.current.touched = false;
    api.current.all();
  } }));

  return (
    <div className="timeline">
      <div className="lanes" aria-hidden="true">
        {props.timeline.lanes.map((lane, index) => (
          <span key={`${lane.branch ?? ''} ${lane.worker ?? ''}`} className={lane.worker ? 'worker' : ''} style={{ top: laneTop(props.timeline, index), height: LANE }} title={[lane.branch, lane.worker ?? props.agent].filter(Boolean).join(': ')}>
            {lane.worker ? leaf(lane.worker) : props.timeline.branched ? lane.branch : props.agent}
          </span>
        ))}
      </div>
      <div className="holder" ref={holder}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Timeline of ${props.timeline.length} steps in ${props.timeline.lanes.length} lanes; the list beside it has the same steps as text`}
        />
      </div>
    </div>
  );
});
