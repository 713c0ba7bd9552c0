// Leads from a point of a workspace to its session and step, for links that know only the point.
import { useEffect } from 'react';
import { get, useRequest } from '../api/client';
import type { Step } from '../api/types';
import { Link, navigate, useRoute } from '../route';
import { ErrorMessage, Loading } from '../ui';

export default function PointPage() {
  const { query } = useRoute();
  const workspace = query.get('workspace') ?? '';
  const point = query.get('point') ?? '';
  const request = useRequest(workspace && point ? `point ${workspace} ${point}` : null, (signal) =>
    get<Step>(`/workspaces/${encodeURIComponent(workspace)}/points/${encodeURIComponent(point)}`, {}, signal),
  );
  const step = request.data;
  useEffect(() => {
    if (step) navigate(`/sessions/${step.session}?step=${step.number}`, true);
  }, [step]);
  if (request.error || !workspace || !point) {
    return (
      <div className="page">
        <h1>Point not found</h1>
        {request.error ? <ErrorMessage error={request.error} onRetry={request.reload} /> : <p>The address names no workspace and point.</p>}
        <p>
          <Link href="/sessions">All sessions</Link>
        </p>
      </div>
    );
  }
  return <Loading label={`Looking for ${point}`} />;
}
