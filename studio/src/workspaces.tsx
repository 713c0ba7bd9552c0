// The workspace a page shows: the one in the URL, or that of the newest session.
import { get, getAll, useRequest } from './api/client';
import type { Page, Session, Workspace } from './api/types';
import { baseName } from './format';
import { setQuery, useRoute } from './route';

export function useWorkspaces() {
  return useRequest('workspaces', async (signal) => (await get<Page<Workspace>>('/workspaces', {}, signal)).items);
}

/** The selected workspace, and all workspaces. */
export function useSelectedWorkspace(): { selected: Workspace | undefined; workspaces: Workspace[] | undefined; error: ReturnType<typeof useWorkspaces>['error'] } {
  const { query } = useRoute();
  const request = useWorkspaces();
  const newestSession = useRequest('newest', (signal) => getAll<Session>('/sessions', {}, 1, signal));
  const requestedId = query.get('workspace');
  const workspaces = request.data;
  const defaultId = newestSession.data?.find((session) => session.agent !== 'person')?.workspace ?? newestSession.data?.[0]?.workspace;
  const selected =
    workspaces?.find((workspace) => workspace.id === requestedId) ??
    (newestSession.loading && !requestedId ? undefined : (workspaces?.find((workspace) => workspace.id === defaultId) ?? workspaces?.[workspaces.length - 1]));
  return { selected, workspaces, error: request.error };
}

export function WorkspacePicker({ selected, workspaces }: { selected: Workspace | undefined; workspaces: Workspace[] | undefined }) {
  if (!workspaces?.length) return null;
  return (
    <label className="picker">
      <span className="dim">Workspace</span>
      <select value={selected?.id ?? ''} onChange={(event) => setQuery({ workspace: event.target.value })}>
        {workspaces.map((workspace) => (
          <option key={workspace.id} value={workspace.id}>
            {baseName(workspace.root)} – {workspace.root}
          </option>
        ))}
      </select>
    </label>
  );
}
