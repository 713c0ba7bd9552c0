// A session: its timeline, its steps, and the state at each of them.
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { ApiError, get, send, useRequest } from '../api/client';
import { useLiveEvents, useThrottledCallback } from '../api/events';
import type { Anomalies, Session, StepEvent, TimelineMarks } from '../api/types';
import { Incidents, NO_INCIDENTS } from '../anomalies/incidents';
import { BranchDialog, CheckpointDialog } from '../dialogs';
import { baseName, formatCost, formatCount, formatDuration, formatTime, microsecondsBetween, pluralize, shortId } from '../format';
import { Icon } from '../icons';
import { useKeyBindings } from '../keyboard';
import { FAMILY_NAMES, FAMILY_ORDER, familyOf } from '../kinds';
import { RewindDialog } from '../rewind';
import { Link, setQuery, useRoute } from '../route';
import { TimelineCanvas, type TimelineCanvasHandle } from '../session/canvas';
import { ShareDialog } from '../share';
import { StepDetailView } from '../session/detail';
import { NONE, useDebouncedValue, usePlayback, useSelectedStep, useThrottledValue } from '../session/hooks';
import { StepCache, StepList } from '../session/list';
import { CHECKPOINT, FAILED, Timeline } from '../session/timeline';
import { StateView } from '../session/state';
import { showToast } from '../toasts';
import { Button, EmptyState, ErrorMessage, Loading, StatusBadge, Tabs } from '../ui';
import { useWorkspaces } from '../workspaces';

const MindView = lazy(() => import('../board/view'));

type View = 'step' | 'state' | 'mind';
const VIEWS: View[] = ['step', 'state', 'mind'];
type OpenDialog = 'checkpoint' | 'rewind' | 'branch' | 'share' | null;
const PLAYBACK_SPEEDS = [1, 4, 16, 64];
const TRAVEL_KINDS = ['rewind', 'branch-switched'];
/** Live steps that are kept until the timeline has loaded; far more than arrive in that time. */
const MAX_RECENT_STEPS = 2000;

export function SessionPage({ id }: { id: string }) {
  const { query } = useRoute();
  const sessionRequest = useRequest(`session ${id}`, (signal) => get<Session>(`/sessions/${id}`, {}, signal));
  const timelineRequest = useRequest(`marks ${id}`, async (signal) => new Timeline(await get<TimelineMarks>(`/sessions/${id}/marks`, {}, signal)));
  const anomaliesRequest = useRequest(`anomalies ${id}`, async (signal) => new Incidents((await get<Anomalies>('/anomalies', { session: id }, signal)).items));
  const incidents = anomaliesRequest.data ?? NO_INCIDENTS;
  const workspaces = useWorkspaces();
  const [version, setVersion] = useState(0);
  const bumpVersion = useCallback(() => setVersion((old) => old + 1), []);
  const session = sessionRequest.data;
  const timeline = timelineRequest.data;
  const sessionId = session?.id;
  const steps = useMemo(() => new StepCache(id, bumpVersion), [id, bumpVersion]);
  const canvas = useRef<TimelineCanvasHandle>(null);

  const { requestedStep, selectStep } = useSelectedStep();
  const initialStep = useRef(requestedStep);
  useEffect(() => steps.preload(initialStep.current), [steps]);
  const selected = timeline?.length ? (requestedStep ? timeline.indexOf(requestedStep) : timeline.length - 1) : 0;
  // While the user moves fast, only the timeline follows; details are loaded where they stop.
  const settledIndex = useDebouncedValue(timeline ? selected : NONE);
  const listIndex = useThrottledValue(timeline ? selected : NONE);
  const view = VIEWS.find((candidate) => candidate === query.get('view')) ?? 'step';
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const [hover, setHover] = useState<{ index: number; x: number }>({ index: -1, x: 0 });
  // Without a selected step, the newest is shown as it arrives.
  const isFollowing = !requestedStep;

  const select = useCallback(
    (index: number) => {
      const number = timeline?.number[index];
      if (number !== undefined) selectStep(number);
    },
    [timeline, selectStep],
  );

  const reloadAll = useThrottledCallback(() => {
    timelineRequest.reload();
    sessionRequest.reload();
  }, 300);
  const reloadSession = useThrottledCallback(sessionRequest.reload, 500);
  const reloadAnomalies = useThrottledCallback(anomaliesRequest.reload, 3000);
  const isRedrawPending = useRef(false);
  // Steps that arrive while the session or its timeline load may be in neither; they are added afterwards.
  const recentSteps = useRef<StepEvent[]>([]);
  useEffect(() => {
    if (!timeline || !sessionId) return;
    let isChanged = false;
    for (const step of recentSteps.current) isChanged = (step.session === sessionId && timeline.add(step)) || isChanged;
    if (isChanged) bumpVersion();
  }, [timeline, sessionId, bumpVersion]);
  useLiveEvents((event) => {
    if (event.type === 'reset') {
      steps.clear();
      reloadAll();
      reloadAnomalies();
      return;
    }
    if (event.type === 'changed') {
      reloadSession();
      return;
    }
    const { step } = event;
    if (recentSteps.current.push(step) > MAX_RECENT_STEPS) recentSteps.current.splice(0, MAX_RECENT_STEPS / 2);
    if (step.session !== sessionId) {
      if (TRAVEL_KINDS.includes(step.kind) && step.workspace === session?.workspace) reloadAll();
      return;
    }
    steps.put(step);
    if (step.kind.endsWith('-end')) reloadAnomalies();
    if (timeline?.add(step) && !isRedrawPending.current) {
      isRedrawPending.current = true;
      requestAnimationFrame(() => {
        isRedrawPending.current = false;
        bumpVersion();
      });
    }
    if (TRAVEL_KINDS.includes(step.kind)) reloadAll();
  });

  const legend = useMemo(
    () => FAMILY_ORDER.filter((family) => family !== 'other' && timeline?.kinds.some((kind) => familyOf(kind) === family)),
    // New steps can add kinds.
    [timeline, timeline?.kinds.length],
  );
  const move = (to: number) => {
    if (timeline && to >= 0 && to < timeline.length) select(to);
  };
  const jumpTo = (direction: 1 | -1, matches: (i: number) => boolean, name: string) => {
    if (!timeline) return;
    const index = timeline.seek(selected, direction, matches);
    if (index >= 0) select(index);
    else showToast(`No ${direction > 0 ? 'later' : 'earlier'} ${name}.`);
  };
  const jumpToAnomaly = (direction: 1 | -1) => {
    if (!timeline) return;
    const step = incidents.seek(timeline.number[selected] ?? 0, direction);
    if (step === undefined) showToast(`No ${direction > 0 ? 'later' : 'earlier'} anomaly.`);
    else selectStep(step);
  };
  const isError = (i: number) => timeline?.has(i, FAILED) ?? false;
  const isCheckpoint = (i: number) => timeline?.has(i, CHECKPOINT) ?? false;
  const isSameKind = (i: number) => timeline?.kind[i] === timeline?.kind[selected];
  const playback = usePlayback(timeline, selected, select);
  const pause = async () => {
    try {
      await send('POST', `/sessions/${id}/pause`);
      showToast('The agent stops at its next call.');
      sessionRequest.reload();
    } catch (error) {
      showToast(ApiError.from(error).detail, true);
    }
  };
  const promptForStep = () => {
    const text = window.prompt('Jump to step number');
    if (text && timeline) select(timeline.indexOf(Number(text.replace('#', '')) || 1));
  };
  useKeyBindings({
    h: () => move(selected - 1),
    l: () => move(selected + 1),
    ArrowLeft: () => move(selected - 1),
    ArrowRight: () => move(selected + 1),
    k: () => move(selected - 1),
    j: () => move(selected + 1),
    ArrowUp: () => move(selected - 1),
    ArrowDown: () => move(selected + 1),
    Home: () => move(0),
    End: () => move((timeline?.length ?? 1) - 1),
    e: () => jumpTo(1, isError, 'error'),
    E: () => jumpTo(-1, isError, 'error'),
    n: () => jumpTo(1, isSameKind, 'step of this kind'),
    N: () => jumpTo(-1, isSameKind, 'step of this kind'),
    ']': () => jumpTo(1, isCheckpoint, 'checkpoint'),
    '[': () => jumpTo(-1, isCheckpoint, 'checkpoint'),
    a: () => jumpToAnomaly(1),
    A: () => jumpToAnomaly(-1),
    ' ': playback.toggle,
    '+': () => canvas.current?.zoom(1.5),
    '=': () => canvas.current?.zoom(1.5),
    '-': () => canvas.current?.zoom(1 / 1.5),
    '0': () => canvas.current?.fitAll(),
    g: promptForStep,
    c: () => setOpenDialog('checkpoint'),
    w: () => setOpenDialog('rewind'),
    b: () => setOpenDialog('branch'),
    p: () => void pause(),
    s: () => setOpenDialog('share'),
  });

  if (sessionRequest.error && sessionRequest.error.status === 404) {
    return (
      <EmptyState fullPage title="Session not found">
        <p>It may have been deleted, or is in another store.</p>
        <p>
          <Link href="/sessions">All sessions</Link>
        </p>
      </EmptyState>
    );
  }
  if (sessionRequest.error && !session) return <ErrorMessage error={sessionRequest.error} onRetry={sessionRequest.reload} />;
  if (timelineRequest.error && !timeline) return <ErrorMessage error={timelineRequest.error} onRetry={timelineRequest.reload} />;
  if (!session || !timeline) return <Loading label="Loading the session" />;

  const number = timeline.number[selected];
  const root = workspaces.data?.find((workspace) => workspace.id === session.workspace)?.root;
  const isRemote = root?.startsWith('remote:') ?? false;
  return (
    <div className="page session">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href="/sessions">Sessions</Link> / <code>{shortId(session.id)}</code>
          </p>
          <h1>{session.title ?? `session ${shortId(session.id)}`}</h1>
          <p className="facts dim">
            <StatusBadge status={session.status} />
            <span>{session.agent}</span>
            {session.model && <span>{session.model}</span>}
            {root && <span title={root}>{baseName(root)}</span>}
            <span>{formatDuration(microsecondsBetween(session.started_at, session.ended_at ?? session.seen_at ?? session.started_at))}</span>
            <span>{pluralize(timeline.length, 'step')}</span>
            <span className={timeline.errors ? 'bad' : ''}>{pluralize(timeline.errors, 'error')}</span>
            <span>{pluralize(timeline.checkpoints, 'checkpoint')}</span>
            {incidents.items.length > 0 && (
              <button type="button" className="link anomaly-count" onClick={() => jumpToAnomaly(1)}>
                ⚠ {pluralize(incidents.items.length, 'anomaly', 'anomalies')}
              </button>
            )}
            {session.cost_usd > 0 && <span>{formatCost(session.cost_usd)}</span>}
          </p>
        </div>
        <div className="actions">
          {(session.status === 'active' || session.status === 'idle') && <Button onClick={() => void pause()}>Pause</Button>}
          {session.status === 'stopped' && <Link className="button primary" href="/live">Waiting for you</Link>}
          {!isRemote && <Button onClick={() => setOpenDialog('checkpoint')}>Checkpoint</Button>}
          <Button onClick={() => setOpenDialog('branch')}>Branch</Button>
          <Link className="button" href={`/sessions/${session.id}/time`}>Time</Link>
          <Link className="button" href={`/sessions/${session.id}/what-if?step=${number ?? ''}`}>What if</Link>
          <Button onClick={() => setOpenDialog('share')}>Share</Button>
          {!isRemote && (
            <Button variant="primary" onClick={() => setOpenDialog('rewind')} disabled={number === undefined}>
              Rewind to #{number}
            </Button>
          )}
        </div>
      </header>
      {timeline.length === 0 ? (
        <EmptyState title="No steps yet">
          <p>Steps appear here as the agent works.</p>
        </EmptyState>
      ) : (
        <>
          <div className="player" role="toolbar" aria-label="Playback">
            <Button small aria-label="First step" onClick={() => move(0)}><Icon name="first" /></Button>
            <Button small aria-label="Step back" onClick={() => move(selected - 1)}><Icon name="back" /></Button>
            <Button small variant={playback.playing ? 'primary' : 'plain'} aria-label={playback.playing ? 'Pause' : 'Play'} onClick={playback.toggle}>
              <Icon name={playback.playing ? 'pause' : 'play'} />
            </Button>
            <Button small aria-label="Step forward" onClick={() => move(selected + 1)}><Icon name="forward" /></Button>
            <Button small aria-label="Last step" onClick={() => selectStep(0)}><Icon name="last" /></Button>
            <label className="speed">
              <span className="visually-hidden">Speed</span>
              <select value={playback.speed} onChange={(event) => playback.setSpeed(Number(event.target.value))}>
                {PLAYBACK_SPEEDS.map((speed) => (
                  <option key={speed} value={speed}>
                    {speed}×
                  </option>
                ))}
              </select>
            </label>
            <span className="position">
              <b>{formatCount(selected + 1)}</b> / {formatCount(timeline.length)}
            </span>
            <Button small disabled={!timeline.errors} onClick={() => jumpTo(-1, isError, 'error')}>‹ error</Button>
            <Button small disabled={!timeline.errors} onClick={() => jumpTo(1, isError, 'error')}>error ›</Button>
            <span className="gap" />
            {isFollowing && session.status === 'active' && <span className="following">following</span>}
            <span className="legend" aria-hidden="true">
              {legend.map((family) => (
                <span key={family}>
                  <i className={family} /> {FAMILY_NAMES[family]}
                </span>
              ))}
            </span>
            <Button small aria-label="Zoom out" onClick={() => canvas.current?.zoom(1 / 1.6)}>−</Button>
            <Button small aria-label="Zoom in" onClick={() => canvas.current?.zoom(1.6)}>+</Button>
            <Button small onClick={() => canvas.current?.fitAll()}>all</Button>
          </div>
          <div className="stage">
            <TimelineCanvas ref={canvas} timeline={timeline} incidents={incidents} version={version} selected={selected} agent={session.agent} onSelect={select} onHover={(index, x) => setHover({ index, x })} />
            {hover.index >= 0 && hover.index < timeline.length && (
              <div className="tooltip" style={{ left: `clamp(0px, ${hover.x}px, calc(100% - 320px))` }}>
                <b>#{timeline.number[hover.index]}</b> {timeline.kindAt(hover.index)} {timeline.tools[(timeline.tool[hover.index] ?? 0) - 1] ?? ''}{' '}
                <span className="dim">
                  {formatTime(new Date((timeline.started + (timeline.at[hover.index] ?? 0)) / 1000).toISOString())} {timeline.duration[hover.index] ? formatDuration(timeline.duration[hover.index] ?? 0) : ''}
                </span>
                <div>{steps.get(timeline.number[hover.index] ?? 0)?.summary ?? ''}</div>
                {incidents.at(timeline.number[hover.index] ?? 0).map((item) => (
                  <div key={item.id} className="bad">⚠ {item.evidence}</div>
                ))}
              </div>
            )}
          </div>
          <div className="split">
            <StepList timeline={timeline} incidents={incidents} version={version} steps={steps} selected={Math.min(listIndex, timeline.length - 1)} onSelect={select} />
            <div className="inspector">
              <Tabs
                label="Views"
                value={view}
                onChange={(next) => setQuery({ view: next === 'step' ? null : next })}
                tabs={[
                  { id: 'step', name: 'Step' },
                  { id: 'state', name: 'State at this step' },
                  { id: 'mind', name: 'Reasoning', changed: timeline.kindAt(Math.min(settledIndex, timeline.length - 1)) === 'reasoning' },
                ]}
              />
              {view === 'step' && (
                <StepDetailView session={session.id} workspace={session.workspace} incidents={incidents} timeline={timeline} index={Math.min(settledIndex, timeline.length - 1)} onSelect={select} />
              )}
              {view === 'state' && (
                <StateView session={session.id} workspace={session.workspace} step={timeline.number[Math.min(settledIndex, timeline.length - 1)] ?? 1} before={timeline.number[settledIndex - 1]} />
              )}
              {view === 'mind' && (
                <Suspense fallback={<Loading />}>
                  <MindView workspace={session.workspace} session={session.id} step={timeline.number[Math.min(settledIndex, timeline.length - 1)] ?? 1} thoughts={timeline.thoughts} onStep={selectStep} />
                </Suspense>
              )}
            </div>
          </div>
        </>
      )}
      {openDialog === 'share' && <ShareDialog session={session} step={isFollowing ? undefined : number} onClose={() => setOpenDialog(null)} />}
      {openDialog === 'checkpoint' && <CheckpointDialog workspace={session.workspace} onClose={() => setOpenDialog(null)} />}
      {openDialog === 'branch' && number !== undefined && <BranchDialog workspace={session.workspace} from={`#${number}`} onClose={() => setOpenDialog(null)} onDone={reloadAll} />}
      {openDialog === 'rewind' && number !== undefined && (
        <RewindDialog workspace={session.workspace} session={session.id} point={`#${number}`} name={`step #${number}`} onClose={() => setOpenDialog(null)} onDone={reloadAll} />
      )}
    </div>
  );
}
