// The interactive timeline: the wheel zooms, dragging pans, a click selects, dragging in the overview scrubs.
import { forwardRef, useEffect, useImperativeHandle, useRef } from 'react';
import { FAMILY_ORDER } from '../kinds';
import { useDark } from '../theme';
import { baseName } from '../format';
import type { Incidents } from '../anomalies/incidents';
import type { Timeline } from './timeline';
import { LANE_HEIGHT, laneTop, OVERVIEW_HEIGHT, paintOverview, paintTimeline, type TimelineColours, timelineHeight, type Viewport } from './painter';

export interface TimelineCanvasHandle {
  zoom: (factor: number) => void;
  fitAll: () => void;
}

interface TimelineCanvasProps {
  timeline: Timeline;
  incidents: Incidents;
  /** Changes when steps are added. */
  version: number;
  selected: number;
  agent: string;
  onSelect: (index: number) => void;
  onHover: (index: number, x: number) => void;
}

const MAX_SCALE = 28;

function readColours(element: HTMLElement): TimelineColours {
  const style = getComputedStyle(element);
  const cssVariable = (name: string) => style.getPropertyValue(name).trim();
  return {
    background: cssVariable('--panel'),
    border: cssVariable('--line-strong'),
    text: cssVariable('--text'),
    dim: cssVariable('--dim'),
    accent: cssVariable('--accent'),
    families: FAMILY_ORDER.map((family) => cssVariable(`--kind-${family}`)),
    error: cssVariable('--kind-error'),
    severities: { low: cssVariable('--kind-checkpoint'), medium: cssVariable('--kind-control'), high: cssVariable('--kind-error') },
  };
}

export const TimelineCanvas = forwardRef<TimelineCanvasHandle, TimelineCanvasProps>(function TimelineCanvas(props, handle) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const container = useRef<HTMLDivElement>(null);
  const dark = useDark();
  const latest = useRef(props);
  latest.current = props;
  const stateRef = useRef({
    view: { start: 0, scale: 0 } as Viewport,
    width: 0,
    height: 0,
    hovered: -1,
    dirty: false,
    overview: null as HTMLCanvasElement | null,
    overviewVersion: -1,
    colours: null as TimelineColours | null,
    drag: null as null | { x: number; start: number; scrub: boolean; moved: boolean },
    isAdjusted: false,
  });

  const canvasActions = useRef({
    clamp: () => {},
    draw: () => {},
    fitAll: () => {},
    zoom: (_factor: number, _x?: number) => {},
  });

  useEffect(() => {
    const element = canvas.current;
    const box = container.current;
    const context = element?.getContext('2d');
    if (!element || !box || !context) return;
    const state = stateRef.current;

    const minScale = () => Math.max(state.width / Math.max(1, latest.current.timeline.length), 1e-6);
    const clamp = () => {
      const { timeline } = latest.current;
      state.view.scale = Math.min(MAX_SCALE, Math.max(Math.min(minScale(), MAX_SCALE), state.view.scale));
      const visibleSteps = state.width / state.view.scale;
      state.view.start = Math.max(-0.5, Math.min(state.view.start, Math.max(0, timeline.length - visibleSteps) + 0.5));
      if (timeline.length <= visibleSteps) state.view.start = 0;
    };
    const render = () => {
      state.dirty = false;
      const { timeline, selected, version, incidents } = latest.current;
      state.colours ??= readColours(element);
      paintTimeline(context, timeline, state.view, { width: state.width, height: state.height }, selected, state.hovered, state.colours, incidents);
      if (!state.overview || state.overviewVersion !== version || state.overview.width !== Math.ceil(state.width)) {
        state.overview ??= document.createElement('canvas');
        state.overview.width = Math.ceil(state.width);
        state.overview.height = OVERVIEW_HEIGHT;
        state.overviewVersion = version;
        const overviewContext = state.overview.getContext('2d');
        if (overviewContext) paintOverview(overviewContext, timeline, state.overview.width, state.colours, incidents);
      }
      if (state.overview.width) context.drawImage(state.overview, 0, 0, state.width, OVERVIEW_HEIGHT);
      const left = (state.view.start / Math.max(1, timeline.length)) * state.width;
      const windowWidth = Math.max(6, (state.width / state.view.scale / Math.max(1, timeline.length)) * state.width);
      if (windowWidth < state.width - 1) {
        context.fillStyle = state.colours.accent;
        context.globalAlpha = 0.14;
        context.fillRect(left, 0, windowWidth, OVERVIEW_HEIGHT);
        context.globalAlpha = 1;
        context.strokeStyle = state.colours.accent;
        context.strokeRect(left + 0.5, 0.5, windowWidth - 1, OVERVIEW_HEIGHT - 1);
      }
      context.fillStyle = state.colours.accent;
      context.fillRect(((selected + 0.5) / Math.max(1, timeline.length)) * state.width - 0.75, 0, 1.5, OVERVIEW_HEIGHT);
    };
    const draw = () => {
      if (state.dirty) return;
      state.dirty = true;
      requestAnimationFrame(render);
    };
    const fitAll = () => {
      state.view = { start: 0, scale: minScale() };
      clamp();
      draw();
    };
    const zoom = (factor: number, x = state.width / 2) => {
      const stepAtPointer = state.view.start + x / state.view.scale;
      state.view.scale *= factor;
      clamp();
      state.view.start = stepAtPointer - x / state.view.scale;
      clamp();
      state.isAdjusted = true;
      draw();
    };
    canvasActions.current = { clamp, draw, fitAll, zoom };

    const resize = () => {
      const ratio = window.devicePixelRatio || 1;
      state.width = box.clientWidth;
      state.height = timelineHeight(latest.current.timeline);
      element.width = Math.round(state.width * ratio);
      element.height = Math.round(state.height * ratio);
      element.style.height = `${state.height}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (!state.view.scale || !state.isAdjusted) {
        state.view = { start: 0, scale: minScale() };
        if (state.view.scale > MAX_SCALE) state.view.scale = MAX_SCALE;
      }
      clamp();
      render();
    };
    const observer = new ResizeObserver(resize);
    observer.observe(box);
    resize();

    const pointerPosition = (event: PointerEvent | WheelEvent) => {
      const rect = element.getBoundingClientRect();
      return { x: event.clientX - rect.left, y: event.clientY - rect.top };
    };
    const indexAt = (x: number) =>
      Math.max(0, Math.min(latest.current.timeline.length - 1, Math.floor(state.view.start + x / state.view.scale)));
    const scrubTo = (x: number) => {
      const { timeline, onSelect } = latest.current;
      const index = Math.max(0, Math.min(timeline.length - 1, Math.floor((x / state.width) * timeline.length)));
      state.view.start = index - state.width / state.view.scale / 2;
      clamp();
      onSelect(index);
      draw();
    };
    const handleWheel = (event: WheelEvent) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      const { x } = pointerPosition(event);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        state.view.start += ((event.deltaX || event.deltaY) * unit) / state.view.scale;
        state.isAdjusted = true;
        clamp();
        draw();
      } else zoom(Math.exp((-event.deltaY * unit) / 400), x);
    };
    const handlePointerDown = (event: PointerEvent) => {
      if (event.button !== 0 || latest.current.timeline.length === 0) return;
      const { x, y } = pointerPosition(event);
      element.setPointerCapture(event.pointerId);
      state.drag = { x, start: state.view.start, scrub: y < OVERVIEW_HEIGHT, moved: false };
      if (state.drag.scrub) scrubTo(x);
    };
    const handlePointerMove = (event: PointerEvent) => {
      const { x } = pointerPosition(event);
      if (state.drag?.scrub) {
        scrubTo(x);
        return;
      }
      if (state.drag) {
        if (Math.abs(x - state.drag.x) > 3) state.drag.moved = true;
        if (state.drag.moved) {
          state.view.start = state.drag.start - (x - state.drag.x) / state.view.scale;
          state.isAdjusted = true;
          clamp();
          draw();
        }
        return;
      }
      const index = latest.current.timeline.length ? indexAt(x) : -1;
      if (index !== state.hovered) {
        state.hovered = index;
        latest.current.onHover(index, x);
        draw();
      }
    };
    const handlePointerUp = (event: PointerEvent) => {
      const { x } = pointerPosition(event);
      if (state.drag && !state.drag.moved && !state.drag.scrub) latest.current.onSelect(indexAt(x));
      state.drag = null;
    };
    const handlePointerLeave = () => {
      state.hovered = -1;
      latest.current.onHover(-1, 0);
      draw();
    };
    element.addEventListener('wheel', handleWheel, { passive: false });
    element.addEventListener('pointerdown', handlePointerDown);
    element.addEventListener('pointermove', handlePointerMove);
    element.addEventListener('pointerup', handlePointerUp);
    element.addEventListener('pointerleave', handlePointerLeave);
    return () => {
      observer.disconnect();
      element.removeEventListener('wheel', handleWheel);
      element.removeEventListener('pointerdown', handlePointerDown);
      element.removeEventListener('pointermove', handlePointerMove);
      element.removeEventListener('pointerup', handlePointerUp);
      element.removeEventListener('pointerleave', handlePointerLeave);
    };
  }, []);

  // Keep the selected step visible.
  useEffect(() => {
    const state = stateRef.current;
    const x = (props.selected - state.view.start + 0.5) * state.view.scale;
    if (state.width && (x < 0 || x > state.width)) {
      state.view.start = props.selected - state.width / state.view.scale / 2;
      canvasActions.current.clamp();
    }
    canvasActions.current.draw();
  }, [props.selected]);
  useEffect(() => {
    const state = stateRef.current;
    const element = canvas.current;
    if (element && timelineHeight(props.timeline) !== state.height) {
      state.height = timelineHeight(props.timeline);
      const ratio = window.devicePixelRatio || 1;
      element.height = Math.round(state.height * ratio);
      element.style.height = `${state.height}px`;
      element.getContext('2d')?.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    if (!state.isAdjusted) canvasActions.current.fitAll();
    canvasActions.current.clamp();
    canvasActions.current.draw();
  }, [props.timeline, props.version]);
  useEffect(() => {
    stateRef.current.colours = null;
    stateRef.current.overviewVersion = -1;
    canvasActions.current.draw();
  }, [dark, props.incidents]);

  useImperativeHandle(handle, () => ({
    zoom: (factor) => canvasActions.current.zoom(factor),
    fitAll: () => {
      stateRef.current.isAdjusted = false;
      canvasActions.current.fitAll();
    },
  }));

  return (
    <div className="timeline">
      <div className="lanes" aria-hidden="true">
        {props.timeline.lanes.map((lane, index) => (
          <span key={`${lane.branch ?? ''} ${lane.worker ?? ''}`} className={lane.worker ? 'worker' : ''} style={{ top: laneTop(props.timeline, index), height: LANE_HEIGHT }} title={[lane.branch, lane.worker ?? props.agent].filter(Boolean).join(': ')}>
            {lane.worker ? baseName(lane.worker) : props.timeline.branched ? lane.branch : props.agent}
          </span>
        ))}
      </div>
      <div className="holder" ref={container}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Timeline of ${props.timeline.length} steps in ${props.timeline.lanes.length} lanes; the list below has the same steps as text${props.incidents.items.length ? `; anomalies are marked: ${props.incidents.items.length}` : ''}`}
        />
      </div>
    </div>
  );
});
