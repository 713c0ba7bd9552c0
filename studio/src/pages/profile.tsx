// Where the time of a session went: by category, as a waterfall, by tool and model.
import { get, useRequest } from '../api/client';
import type { CallStatistics, Profile, Session } from '../api/types';
import { formatCount, formatDateTime, formatDuration, shortId } from '../format';
import { CATEGORY_NAMES, CATEGORY_ORDER } from '../profile/categories';
import { Waterfall } from '../profile/waterfall';
import { Link } from '../route';
import { EmptyState, ErrorMessage, Loading } from '../ui';

export default function ProfilePage({ session: id }: { session: string }) {
  const sessionRequest = useRequest(`session ${id}`, (signal) => get<Session>(`/sessions/${encodeURIComponent(id)}`, {}, signal));
  const session = sessionRequest.data;
  const request = useRequest(session ? `profile ${session.id}` : null, (signal) => get<Profile>(`/sessions/${session?.id}/profile`, {}, signal));
  const error = sessionRequest.error ?? request.error;
  if (error) return <ErrorMessage error={error} onRetry={sessionRequest.error ? sessionRequest.reload : request.reload} />;
  const profile = request.data;
  if (!session || !profile) return <Loading label="Measuring the session" />;
  return (
    <div className="page">
      <header className="head">
        <div>
          <p className="crumbs">
            <Link href="/sessions">Sessions</Link> / <Link href={`/sessions/${session.id}`}>{shortId(session.id)}</Link> / Time
          </p>
          <h1>Where the time went: {session.title ?? `session ${shortId(session.id)}`}</h1>
          <p className="facts dim">
            <span title={formatDateTime(profile.started_at)}>{formatDuration(profile.wall_us)} in all</span>
            {profile.parallel_saved_us > 0 && <span>{formatDuration(profile.parallel_saved_us)} saved by parallel calls</span>}
            {profile.critical_path.us > 0 && <span>critical path {formatDuration(profile.critical_path.us)}</span>}
          </p>
        </div>
      </header>
      {profile.wall_us === 0 && profile.spans.length === 0 ? (
        <EmptyState title="No time was recorded">
          <p>The session has no steps with a duration yet.</p>
        </EmptyState>
      ) : (
        <>
          <Categories profile={profile} />
          <Waterfall profile={profile} />
          <CallTable title="Tools" session={session} calls={profile.tools} kind="tool-end" />
          <CallTable title="Models" session={session} calls={profile.models} kind="model-end" />
        </>
      )}
      {(profile.caveats.length > 0 || profile.rules.length > 0) && (
        <footer className="dim why-notes">
          {profile.caveats.map((caveat) => (
            <p key={caveat}>{caveat}</p>
          ))}
          {profile.rules.length > 0 && (
            <details>
              <summary>What is inferred</summary>
              <ul>
                {profile.rules.map((rule) => (
                  <li key={rule.rule}>
                    {formatDuration(rule.us)}: {rule.rule}
                  </li>
                ))}
              </ul>
            </details>
          )}
        </footer>
      )}
    </div>
  );
}

/** The whole time as one bar, and in numbers. */
function Categories({ profile }: { profile: Profile }) {
  const categories = [...profile.categories].filter((category) => category.us > 0).sort((a, b) => CATEGORY_ORDER.indexOf(a.category) - CATEGORY_ORDER.indexOf(b.category));
  const total = Math.max(1, categories.reduce((sum, category) => sum + category.us, 0));
  return (
    <section className="panel" aria-label="Time by category">
      <div className="time-bar" aria-hidden="true">
        {categories.map((category) => (
          <i key={category.category} className={`time-${category.category}`} style={{ width: `${(category.us / total) * 100}%` }} title={`${CATEGORY_NAMES[category.category]}: ${formatDuration(category.us)}`} />
        ))}
      </div>
      <dl className="time-parts">
        {categories.map((category) => (
          <div key={category.category}>
            <dt>
              <i className={`time-${category.category}`} /> {CATEGORY_NAMES[category.category] ?? category.category}
            </dt>
            <dd>
              {formatDuration(category.us)} <span className="dim">{Math.round((category.us / total) * 100)} %</span>
              {category.inferred_us > 0 && <span className="dim"> {category.inferred_us === category.us ? 'inferred' : `${formatDuration(category.inferred_us)} of it inferred`}</span>}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function CallTable({ title, session, calls, kind }: { title: string; session: Session; calls: CallStatistics[]; kind: string }) {
  if (calls.length === 0) return null;
  const duration = (value: number | undefined) => (value === undefined ? <span className="dim">unknown</span> : formatDuration(value));
  return (
    <section>
      <h2>{title}</h2>
      <div className="table-scroll" tabIndex={0} role="group" aria-label={title}>
        <table className="rows">
          <thead>
            <tr>
              <th>Name</th>
              <th className="number">Calls</th>
              <th className="number">Failed</th>
              <th className="number">Total</th>
              <th className="number">p50</th>
              <th className="number">p95</th>
              <th className="number">Longest</th>
              <th className="number">Waited</th>
              <th className="number">Critical</th>
            </tr>
          </thead>
          <tbody>
            {calls.map((call) => {
              const steps = `/steps?session=${session.id}&kind=${kind}${call.name ? `&tool=${encodeURIComponent(call.name)}` : ''}&order=longest`;
              return (
                <tr key={call.name ?? ''}>
                  <td>
                    <Link href={steps}>{call.name ?? 'not recorded'}</Link>
                  </td>
                  <td className="number">
                    {formatCount(call.calls)}
                    {call.unfinished > 0 && <span className="dim"> ({formatCount(call.unfinished)} without an end)</span>}
                  </td>
                  <td className="number">{call.failed > 0 ? <Link className="bad" href={`${steps}&failed=true`}>{formatCount(call.failed)}</Link> : '–'}</td>
                  <td className="number">{duration(call.durations?.total_us)}</td>
                  <td className="number">{duration(call.durations?.p50_us)}</td>
                  <td className="number">{duration(call.durations?.p95_us)}</td>
                  <td className="number">
                    {call.longest != null && call.durations ? <Link href={`/sessions/${session.id}?step=${call.longest}`}>{formatDuration(call.durations.max_us)}</Link> : duration(call.durations?.max_us)}
                  </td>
                  <td className="number">{call.waited_us > 0 ? formatDuration(call.waited_us) : '–'}</td>
                  <td className="number">{call.critical_us > 0 ? formatDuration(call.critical_us) : '–'}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
