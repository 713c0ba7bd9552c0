// The layout around every page: navigation, the state of the connection, and the number of waiting agents.
import { Component, lazy, type ReactNode, Suspense, useEffect, useState } from 'react';
import { ApiError, get } from './api/client';
import { connect, disconnect, useConnection, useStops } from './api/events';
import { Icon, type IconName } from './icons';
import { KeyHelpDialog } from './key-help';
import { useKeyBindings } from './keyboard';
import { useStopNotifications } from './notifications';
import { Link, navigate, useRoute } from './route';
import { SessionPage } from './pages/session';
import { SessionsPage } from './pages/sessions';
import { setTheme, useDark } from './theme';
import { ToastList } from './toasts';
import { Button, EmptyState, ErrorMessage, Loading } from './ui';

const CheckpointsPage = lazy(() => import('./pages/checkpoints'));
const DiffPage = lazy(() => import('./pages/diff'));
const BranchesPage = lazy(() => import('./pages/branches'));
const WhatIfPage = lazy(() => import('./pages/what-if'));
const ComparePage = lazy(() => import('./pages/compare'));
const LivePage = lazy(() => import('./pages/live'));
const SearchPage = lazy(() => import('./pages/search'));
const DashboardPage = lazy(() => import('./pages/dashboard'));

const ProfilePage = lazy(() => import('./pages/profile'));
const StepsPage = lazy(() => import('./pages/steps'));
const WhyPage = lazy(() => import('./pages/why'));
const PointPage = lazy(() => import('./pages/go'));

const NAV_ITEMS: { path: IconName; name: string }[] = [
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
    let cancelled = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const checkAccess = () =>
      get('/workspaces').then(
        () => {
          if (cancelled) return;
          setAccess('yes');
          connect();
        },
        (error: unknown) => {
          if (cancelled) return;
          if (ApiError.from(error).status === 401) setAccess('no');
          else {
            setAccess('yes');
            timer = setTimeout(checkAccess, 1000);
          }
        },
      );
    void checkAccess();
    return () => {
      cancelled = true;
      clearTimeout(timer);
      disconnect();
    };
  }, []);
  if (access === 'no' || connection === 'refused') return <SignInPage />;
  return (
    <>
      <Layout />
      <ToastList />
    </>
  );
}

function Layout() {
  const route = useRoute();
  const stops = useStops();
  useStopNotifications(stops);
  const dark = useDark();
  const connection = useConnection();
  const [showKeyHelp, setShowKeyHelp] = useState(false);
  const section = route.segments[0] ?? 'sessions';
  useKeyBindings({
    '?': () => setShowKeyHelp(true),
    '/': () => navigate('/search'),
  });
  useEffect(() => {
    const name = NAV_ITEMS.find((item) => item.path === section)?.name;
    document.title = `${stops.length ? `(${stops.length}) ` : ''}${name ?? 'Studio'} · stepback`;
  }, [section, stops.length]);
  return (
    <div className="frame">
      <a className="skip" href="#main">
        Skip to content
      </a>
      <nav className="sidebar" aria-label="Main">
        <Link href="/sessions" className="brand" aria-label="stepback Studio">
          <img src="/icon.svg" alt="" width="24" height="24" />
          <span>stepback</span>
        </Link>
        <ul>
          {NAV_ITEMS.map((item) => (
            <li key={item.path}>
              <Link href={`/${item.path}`} aria-current={section === item.path ? 'page' : undefined}>
                <Icon name={item.path} />
                <span className="name">{item.name}</span>
                {item.path === 'live' && stops.length > 0 && (
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
          <Button variant="ghost" small aria-label={dark ? 'Light theme' : 'Dark theme'} onClick={() => setTheme(dark ? 'light' : 'dark')}>
            <Icon name={dark ? 'sun' : 'moon'} />
          </Button>
          <Button variant="ghost" small aria-label="Keyboard shortcuts" onClick={() => setShowKeyHelp(true)}>
            ?
          </Button>
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <ErrorBoundary key={route.segments.join('/')}>
          <Suspense fallback={<Loading />}>
            <CurrentPage segments={route.segments} />
          </Suspense>
        </ErrorBoundary>
      </main>
      {showKeyHelp && <KeyHelpDialog onClose={() => setShowKeyHelp(false)} />}
    </div>
  );
}

function CurrentPage({ segments }: { segments: string[] }) {
  const [first = 'sessions', second, third] = segments;
  if (first === 'sessions' && second && third === 'what-if') return <WhatIfPage session={second} />;
  if (first === 'sessions' && second && third === 'time') return <ProfilePage session={second} />;
  if (first === 'sessions' && second) return <SessionPage key={second} id={second} />;
  if (first === 'sessions') return <SessionsPage />;
  if (first === 'checkpoints') return <CheckpointsPage />;
  if (first === 'diff') return <DiffPage />;
  if (first === 'branches') return <BranchesPage />;
  if (first === 'compare') return <ComparePage />;
  if (first === 'live') return <LivePage />;
  if (first === 'search') return <SearchPage />;
  if (first === 'dashboard') return <DashboardPage />;
  if (first === 'steps') return <StepsPage />;
  if (first === 'why') return <WhyPage />;
  if (first === 'go') return <PointPage />;
  return (
    <EmptyState fullPage title="Page not found">
      <p>
        Go to <Link href="/sessions">all sessions</Link>.
      </p>
    </EmptyState>
  );
}

function SignInPage() {
  return (
    <main className="sign-in">
      <img src="/icon.svg" alt="" width="48" height="48" />
      <h1>This browser is not signed in</h1>
      <p>The Studio shows the contents of your store, so it requires a sign-in. On the machine of the server, run</p>
      <pre>stepback studio</pre>
      <p className="dim">
        It opens this page with an address that is valid once. If the server uses another store, name it:{' '}
        <code>STEPBACK_HOME=… stepback studio</code>
      </p>
      <Button variant="primary" onClick={() => window.location.reload()}>
        Try again
      </Button>
    </main>
  );
}

/** Keeps the rest of the layout usable when a page fails. */
class ErrorBoundary extends Component<{ children: ReactNode }, { error: ApiError | null }> {
  override state = { error: null as ApiError | null };
  static getDerivedStateFromError(error: unknown) {
    return { error: ApiError.from(error) };
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return <ErrorMessage error={this.state.error} onRetry={() => this.setState({ error: null })} />;
  }
}
