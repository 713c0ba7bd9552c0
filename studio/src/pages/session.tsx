// A session: its timeline, its steps, and what was true at each of them.
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { change, get, Problem, useAsk } from '../api/client';
import { useNews, useSoon } from '../api/events';
import type { Marks, Session, StepEvent } from '../api/types';
import { BranchDialog, CheckpointDialog } from '../dialogs';
import { between, clock, count, leaf, money, plural, short, span } from '../format';
import { Icon } from '../icons';
import { family, NAMES, ORDER } from '../kinds';
import { RewindDialog } from '../rewind';
import { Link, set, useRoute } from '../route';
import { type CanvasHandle, TimelineCanvas } from '../session/canvas';
import { StepDetailView } from '../session/detail';
import { Steps, StepList } from '../session/list';
import { FAILED, KEPT, Timeline } from '../session/model';
import { StateView } from '../session/state';
import { Button, Empty, Loading, say, Status, Tabs, Trouble, useKeys } from '../ui';
import { useWorkspaces } from '../workspaces';

const MindView = lazy(() => import('../mind/board'));

type View = 'step' | 'state' | 'mind';
const VIEWS: View[] = ['step', 'state', 'mind'];
type Open = 'checkpoint' | 'rewind' | 'branch' | null;
const SPEEDS = [1, 4, 16, 64];
const TRAVELS = ['rewind', 'branch-switched'];
/** So many steps that were told are kept: far more than come while something is asked for. */
const HEARD = 2000;

export function SessionPage({ id }: { id: string }) {
  const { words } = useRoute();
  const about = useAsk(`session ${id}`, (signal) => get<Session>(`/sessions/${id}`, {}, signal));
  const asked = useAsk(`marks ${id}`, async (signal) => new Timeline(await get<Marks>(`/sessions/${id}/marks`, {}, signal)));
  const workspaces = useWorkspaces();
  const [version, setVersion] = useState(0);
  const bump = useCallback(() => setVersion((old) => old + 1), []);
  const session = about.value;
  const timeline = asked.value;
  const whole = session?.id;
  const steps = useMemo(() => new Steps(id, bump), [id, bump]);
  const canvas = useRef<CanvasHandle>(null);

  const { wanted, choose } = useChosenStep();
  const first = useRef(wanted);
  useEffect(() => steps.begin(first.current), [steps]);
  const selected = timeline?.length ? (wanted ? timeline.indexOf(wanted) : timeline.length - 1) : 0;
  // Who runs through the steps wants to see them fly by; what a step is about is asked for where they rest.
  const rested = useRested(timeline ? selected : NONE);
  const listed = useThrottled(timeline ? selected : NONE);
  const view = VIEWS.find((one) => one === words.get('view')) ?? 'step';
  const [open, setOpen] = useState<Open>(null);
  const [hover, setHover] = useState<{ index: number; x: number }>({ index: -1, x: 0 });
  // Nobody chose a step: the newest is shown as it comes.
  const follows = !wanted;

  const select = useCallback(
    (index: number) => {
      const number = timeline?.number[index];
      if (number !== undefined) choose(number);
    },
    [timeline, choose],
  );

  const askAll = useSoon(() => {
    asked.again();
    about.again();
  }, 300);
  const askAbout = useSoon(about.again, 500);
  const pending = useRef(false);
  // Steps that were told while the session or its timeline were still asked for are in neither: they are added when these come.
  const heard = useRef<StepEvent[]>([]);
  useEffect(() => {
    if (!timeline || !whole) return;
    let any = false;
    for (const step of heard.current) any = (step.session === whole && timeline.add(step)) || any;
    if (any) bump();
  }, [timeline, whole, bump]);
  useNews((news) => {
    if (news.event === 'reset') {
      steps.clear();
      askAll();
      return;
    }
    if (news.event === 'changed') {
      askAbout();
      return;
    }
    const { step } = news;
    if (heard.current.push(step) > HEARD) heard.current.splice(0, HEARD / 2);
    if (step.session !== whole) {
      if (TRAVELS.includes(step.kind) && step.workspace === session?.workspace) askAll();
      return;
    }
    steps.put(step);
    if (timeline?.add(step) && !pending.current) {
      pending.current = true;
      requestAnimationFrame(() => {
        pending.current = false;
        bump();
      });
    }
    if (TRAVELS.includes(step.kind)) askAll();
  });

  const legend = useMemo(
    () => ORDER.filter((one) => one !== 'other' && timeline?.kinds.some((kind) => family(kind) === one)),
    // Kinds are added as steps come.
    [timeline, timeline?.kinds.length],
  );
  const move = (to: number) => {
    if (timeline && to >= 0 && to < timeline.length) select(to);
  };
  const seek = (way: 1 | -1, fits: (i: number) => boolean, what: string) => {
    if (!timeline) return;
    const found = timeline.seek(selected, way, fits);
    if (found >= 0) select(found);
    else say(`No ${way > 0 ? 'later' : 'earlier'} ${what}.`);
  };
  const isError = (i: number) => timeline?.has(i, FAILED) ?? false;
  const isKept = (i: number) => timeline?.has(i, KEPT) ?? false;
  const isAlike = (i: number) => timeline?.kind[i] === timeline?.kind[selected];
  const play = usePlay(timeline, selected, select);
  const pause = async () => {
    try {
      await change('POST', `/sessions/${id}/pause`);
      say('It stops at its next call.');
      about.again();
    } catch (error) {
      say(Problem.of(error).detail, true);
    }
  };
  const jump = () => {
    const text = window.prompt('Jump to step number');
    if (text && timeline) select(timeline.indexOf(Number(text.replace('#', '')) || 1));
  };
  useKeys({
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
    e: () => seek(1, isError, 'error'),
    E: () => seek(-1, isError, 'error'),
    n: () => seek(1, isAlike, 'step of this kind'),
    N: () => seek(-1, isAlike, 'step of this kind'),
    ']': () => seek(1, isKept, 'checkpoint'),
    '[': () => seek(-1, isKept, 'checkpoint'),
    ' ': play.toggle,
    '+': () => canvas.current?.zoom(1.5),
    '=': () => canvas.current?.zoom(1.5),
    '-': () => canvas.current?.zoom(1 / 1.5),
    '0': () => canvas.current?.all(),
    g: jump,
    c: () => setOpen('checkpoint'),
    w: () => setOpen('rewind'),
    b: () => setOpen('branch'),
    p: () => void pause(),
  });

  if (about.problem && about.problem.status === 404) {
    return (
      <Empty whole title="This session is not in the store">
        <p>It may have been deleted, or belong to another store.</p>
        <p>
          <Link href="/sessions">All sessions</Link>
        </p>
      </Empty>
    );
  }
  if (about.problem && !session) return <Trouble problem={about.problem} again={about.again} />;
  if (asked.problem && !timeline) return <Trouble problem={asked.problem} again={asked.again} />;
  if (!session || !timeline) return <Loading what="The session" />;

  const number = timeline.number[selected];
  const root = workspaces.value?.find((one) => one.id === session.workspace)?.root;
  const isRemote = root?.startsWith('remote:') ?? false;
  return (
    <div className="page session">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href="/sessions">Sessions</Link> / <code>{short(session.id)}</code>
          </p>
          <h1>{session.title ?? `session ${short(session.id)}`}</h1>
          <p className="facts dim">
            <Status status={session.status} />
            <span>{session.agent}</span>
            {session.model && <span>{session.model}</span>}
            {root && <span title={root}>{leaf(root)}</span>}
            <span>{span(between(session.started_at, session.ended_at ?? session.seen_at ?? session.started_at))}</span>
            <span>{plural(timeline.length, 'step')}</span>
            <span className={timeline.errors ? 'bad' : ''}>{plural(timeline.errors, 'error')}</span>
            <span>{plural(timeline.kept, 'checkpoint')}</span>
            {session.cost_usd > 0 && <span>{money(session.cost_usd)}</span>}
          </p>
        </div>
        <div className="actions">
          {(session.status === 'active' || session.status === 'idle') && <Button onClick={() => void pause()}>Pause</Button>}
          {session.status === 'stopped' && <Link className="button primary" href="/live">It waits for you</Link>}
          {!isRemote && <Button onClick={() => setOpen('checkpoint')}>Checkpoint</Button>}
          <Button onClick={() => setOpen('branch')}>Branch</Button>
          <Link className="button" href={`/sessions/${session.id}/what-if?step=${number ?? ''}`}>What if</Link>
          {!isRemote && (
            <Button look="primary" onClick={() => setOpen('rewind')} disabled={number === undefined}>
              Rewind to #{number}
            </Button>
          )}
        </div>
      </header>
      {timeline.length === 0 ? (
        <Empty title="No steps yet">
          <p>They appear here as the agent works.</p>
        </Empty>
      ) : (
        <>
          <div className="player" role="toolbar" aria-label="Go through the steps">
            <Button small aria-label="First step" onClick={() => move(0)}><Icon name="first" /></Button>
            <Button small aria-label="Step back" onClick={() => move(selected - 1)}><Icon name="back" /></Button>
            <Button small look={play.playing ? 'primary' : 'plain'} aria-label={play.playing ? 'Pause' : 'Play'} onClick={play.toggle}>
              <Icon name={play.playing ? 'pause' : 'play'} />
            </Button>
            <Button small aria-label="Step forward" onClick={() => move(selected + 1)}><Icon name="forward" /></Button>
            <Button small aria-label="Last step" onClick={() => choose(0)}><Icon name="last" /></Button>
            <label className="speed">
              <span className="hidden-text">Speed</span>
              <select value={play.speed} onChange={(event) => play.setSpeed(Number(event.target.value))}>
                {SPEEDS.map((speed) => (
                  <option key={speed} value={speed}>
                    {speed}×
                  </option>
                ))}
              </select>
            </label>
            <span className="where">
              <b>{count(selected + 1)}</b> / {count(timeline.length)}
            </span>
            <Button small disabled={!timeline.errors} onClick={() => seek(-1, isError, 'error')}>‹ error</Button>
            <Button small disabled={!timeline.errors} onClick={() => seek(1, isError, 'error')}>error ›</Button>
            <span className="gap" />
            {follows && session.status === 'active' && <span className="following">following</span>}
            <span className="legend" aria-hidden="true">
              {legend.map((one) => (
                <span key={one}>
                  <i className={one} /> {NAMES[one]}
                </span>
              ))}
            </span>
            <Button small aria-label="Zoom out" onClick={() => canvas.current?.zoom(1 / 1.6)}>−</Button>
            <Button small aria-label="Zoom in" onClick={() => canvas.current?.zoom(1.6)}>+</Button>
            <Button small onClick={() => canvas.current?.all()}>all</Button>
          </div>
          <div className="stage">
            <TimelineCanvas ref={canvas} timeline={timeline} version={version} selected={selected} agent={session.agent} onSelect={select} onHover={(index, x) => setHover({ index, x })} />
            {hover.index >= 0 && hover.index < timeline.length && (
              <div className="tip" style={{ left: `clamp(0px, ${hover.x}px, calc(100% - 320px))` }}>
                <b>#{timeline.number[hover.index]}</b> {timeline.kindAt(hover.index)} {timeline.tools[(timeline.tool[hover.index] ?? 0) - 1] ?? ''}{' '}
                <span className="dim">
                  {clock(new Date((timeline.started + (timeline.at[hover.index] ?? 0)) / 1000).toISOString())} {timeline.duration[hover.index] ? span(timeline.duration[hover.index] ?? 0) : ''}
                </span>
                <div>{steps.get(timeline.number[hover.index] ?? 0)?.summary ?? ''}</div>
              </div>
            )}
          </div>
          <div className="split">
            <StepList timeline={timeline} version={version} steps={steps} selected={Math.min(listed, timeline.length - 1)} onSelect={select} />
            <div className="inspector">
              <Tabs
                label="Views"
                value={view}
                onChange={(next) => set({ view: next === 'step' ? null : next })}
                tabs={[
                  { id: 'step', name: 'Step' },
                  { id: 'state', name: 'State at this step' },
                  { id: 'mind', name: 'Reasoning', changed: timeline.kindAt(Math.min(rested, timeline.length - 1)) === 'reasoning' },
                ]}
              />
              {view === 'step' && (
                <StepDetailView session={session.id} timeline={timeline} index={Math.min(rested, timeline.length - 1)} onSelect={select} />
              )}
              {view === 'state' && (
                <StateView session={session.id} step={timeline.number[Math.min(rested, timeline.length - 1)] ?? 1} before={timeline.number[rested - 1]} />
              )}
              {view === 'mind' && (
                <Suspense fallback={<Loading />}>
                  <MindView session={session.id} step={timeline.number[Math.min(rested, timeline.length - 1)] ?? 1} thoughts={timeline.thoughts} onStep={choose} />
                </Suspense>
              )}
            </div>
          </div>
        </>
      )}
      {open === 'checkpoint' && <CheckpointDialog workspace={session.workspace} onClose={() => setOpen(null)} />}
      {open === 'branch' && number !== undefined && <BranchDialog workspace={session.workspace} from={`#${number}`} onClose={() => setOpen(null)} onDone={askAll} />}
      {open === 'rewind' && number !== undefined && (
        <RewindDialog workspace={session.workspace} session={session.id} point={`#${number}`} name={`step #${number}`} onClose={() => setOpen(null)} onDone={askAll} />
      )}
    </div>
  );
}

const ADDRESS_AFTER = 200;

/** The step in the address, 0 for the newest. It is changed at once here, and in the address when one rests: browsers limit that. */
function useChosenStep() {
  const { words } = useRoute();
  const said = Number(words.get('step')) || 0;
  const [wanted, setWanted] = useState(said);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => {
    if (!timer.current) setWanted(said);
  }, [said]);
  useEffect(() => () => void (timer.current && clearTimeout(timer.current)), []);
  const choose = useCallback((number: number) => {
    setWanted(number);
    if (timer.current) clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = null;
      set({ step: number || null });
    }, ADDRESS_AFTER);
  }, []);
  return { wanted, choose };
}

const EVERY = 120;

/** Nothing is selected yet; what is selected first is followed in the same breath. */
const NONE = -1;

/** A value that follows another one at once, but not more often than so: for what is expensive to draw while somebody scrubs. */
function useThrottled(value: number): number {
  const [shown, setShown] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, last.current + EVERY - performance.now());
    const follow = () => {
      last.current = performance.now();
      setShown(value);
    };
    if (wait === 0) {
      follow();
      return;
    }
    const timer = setTimeout(follow, wait);
    return () => clearTimeout(timer);
  }, [value]);
  return shown === NONE ? value : shown;
}

const RESTED_AFTER = 90;

/** A value that follows another one when that has not changed for a moment; the first change of a calm one is followed at once. */
function useRested(value: number): number {
  const [rested, setRested] = useState(value);
  const changed = useRef(0);
  useEffect(() => {
    const now = performance.now();
    const calm = now - changed.current > RESTED_AFTER * 2;
    changed.current = now;
    if (calm) {
      setRested(value);
      return;
    }
    const timer = setTimeout(() => setRested(value), RESTED_AFTER);
    return () => clearTimeout(timer);
  }, [value]);
  return rested === NONE ? value : rested;
}

/** Plays the steps: each is shown for as long as it took, within reason, divided by the speed. */
function usePlay(timeline: Timeline | undefined, selected: number, select: (index: number) => void) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(4);
  useEffect(() => {
    if (!playing || !timeline) return;
    if (selected >= timeline.length - 1) {
      setPlaying(false);
      return;
    }
    const passed = ((timeline.at[selected + 1] ?? 0) - (timeline.at[selected] ?? 0)) / 1000;
    const wait = Math.max(16, Math.min(2000, Math.max(passed, 250)) / speed);
    const timer = setTimeout(() => select(selected + 1), wait);
    return () => clearTimeout(timer);
  }, [playing, speed, selected, timeline, select]);
  const toggle = () => {
    if (!playing && timeline && selected >= timeline.length - 1) select(0);
    setPlaying(!playing);
  };
  return { playing, speed, setSpeed, toggle };
}
