// The frame around every page: where one can go, whether the server is there, and who waits.
import { Component, lazy, type ReactNode, Suspense, useEffect, useState } from 'react';
import { get, Problem } from './api/client';
import { follow, unfollow, useConnection, useStops } from './api/events';
import { Icon, type IconName } from './icons';
import { Keys } from './keys';
import { useNotification } from './notify';
import { Link, go, useRoute } from './route';
import { SessionPage } from './pages/session';
import { SessionsPage } from './pages/sessions';
import { choose, useDark } from './theme';
import { Button, Empty, Loading, Toasts, Trouble, useKeys } from './ui';

const CheckpointsPage = lazy(() => import('./pages/checkpoints'));
const DiffPage = lazy(() => import('./pages/diff'));
const BranchesPage = lazy(() => import('./pages/branches'));
const WhatIfPage = lazy(() => import('./pages/what-if'));
const ComparePage = lazy(() => import('./pages/compare'));
const LivePage = lazy(() => import('./pages/live'));
const SearchPage = lazy(() => import('./pages/search'));
const DashboardPage = lazy(() => import('./pages/dashboard'));

const PLACES: { path: IconName; name: string }[] = [
  { path: 'sessions', name: 'Sessions' },
  { path: 'checkpoints', name: 'Checkpoints' },
  { path: 'branches', name: 'Branches' },
  { path: 'live', name: 'Live' },
  { path: 'search', name: 'Search' },
  { path: 'dashboard', name: 'Dashboard' },
];

export function App() {
  const [access, setAccess] = useState<'unknown' | 'yes' | 'no'>('unknown');
  const connection = useConnection();
  useEffect(() => {
    let ended = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = () =>
      get('/workspaces').then(
        () => {
          if (ended) return;
          setAccess('yes');
          follow();
        },
        (error: unknown) => {
          if (ended) return;
          if (Problem.of(error).status === 401) setAccess('no');
          else {
            setAccess('yes');
            timer = setTimeout(ask, 1000);
          }
        },
      );
    void ask();
    return () => {
      ended = true;
      clearTimeout(timer);
      unfollow();
    };
  }, []);
  if (access === 'no' || connection === 'refused') return <SignIn />;
  return (
    <>
      <Frame />
      <Toasts />
    </>
  );
}

function Frame() {
  const route = useRoute();
  const stops = useStops();
  useNotification(stops);
  const dark = useDark();
  const connection = useConnection();
  const [keys, setKeys] = useState(false);
  const here = route.parts[0] ?? 'sessions';
  useKeys({
    '?': () => setKeys(true),
    '/': () => go('/search'),
  });
  useEffect(() => {
    const name = PLACES.find((place) => place.path === here)?.name;
    document.title = `${stops.length ? `(${stops.length}) ` : ''}${name ?? 'Studio'} · stepback`;
  }, [here, stops.length]);
  return (
    <div className="frame">
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <nav className="side" aria-label="Places">
        <Link href="/sessions" className="brand" aria-label="stepback Studio">
          <img src="/icon.svg" alt="" width="24" height="24" />
          <span>stepback</span>
        </Link>
        <ul>
          {PLACES.map((place) => (
            <li key={place.path}>
              <Link href={`/${place.path}`} aria-current={here === place.path ? 'page' : undefined}>
                <Icon name={place.path} />
                <span className="name">{place.name}</span>
                {place.path === 'live' && stops.length > 0 && (
                  <span className="count" aria-label={`${stops.length} waiting`}>
                    {stops.length}
                  </span>
                )}
              </Link>
            </li>
          ))}
        </ul>
        <div className="foot">
          <span className={`connection ${connection}`} role="status">
            {connection === 'live' ? 'live' : connection === 'lost' ? 'reconnecting …' : 'connecting …'}
          </span>
          <Button look="ghost" small aria-label={dark ? 'Light theme' : 'Dark theme'} onClick={() => choose(dark ? 'light' : 'dark')}>
            <Icon name={dark ? 'sun' : 'moon'} />
          </Button>
          <Button look="ghost" small aria-label="Keys" onClick={() => setKeys(true)}>
            ?
          </Button>
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <Guard key={route.parts.join('/')}>
          <Suspense fallback={<Loading />}>
            <Place parts={route.parts} />
          </Suspense>
        </Guard>
      </main>
      {keys && <Keys onClose={() => setKeys(false)} />}
    </div>
  );
}

function Place({ parts }: { parts: string[] }) {
  const [first = 'sessions', second, third] = parts;
  if (first === 'sessions' && second && third === 'what-if') return <WhatIfPage session={second} />;
  if (first === 'sessions' && second) return <SessionPage key={second} id={second} />;
  if (first === 'sessions') return <SessionsPage />;
  if (first === 'checkpoints') return <CheckpointsPage />;
  if (first === 'diff') return <DiffPage />;
  if (first === 'branches') return <BranchesPage />;
  if (first === 'compare') return <ComparePage />;
  if (first === 'live') return <LivePage />;
  if (first === 'search') return <SearchPage />;
  if (first === 'dashboard') return <DashboardPage />;
  return (
    <Empty whole title="There is no such page">
      <p>
        <Link href="/sessions">All sessions</Link> is a good place to begin.
      </p>
    </Empty>
  );
}

function SignIn() {
  return (
    <main className="sign-in">
      <img src="/icon.svg" alt="" width="48" height="48" />
      <h1>This browser is not signed in</h1>
      <p>The Studio shows what is in your store, so it asks who you are. On the machine of the server, say</p>
      <pre>stepback studio</pre>
      <p className="dim">
        It opens this page with an address that is good once. If the server was started with another store, say it there:{' '}
        <code>STEPBACK_HOME=… stepback studio</code>
      </p>
      <Button look="primary" onClick={() => window.location.reload()}>
        I did; try again
      </Button>
    </main>
  );
}

/** A page that fails takes nothing else with it. */
class Guard extends Component<{ children: ReactNode }, { problem: Problem | null }> {
  override state = { problem: null as Problem | null };
  static getDerivedStateFromError(error: unknown) {
    return { problem: Problem.of(error) };
  }
  override render() {
    if (!this.state.problem) return this.props.children;
    return <Trouble problem={this.state.problem} again={() => this.setState({ problem: null })} />;
  }
}
