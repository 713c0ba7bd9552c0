// Which workspace a page is about: the one in the address, else the one where something happened last.
import { all, get, useAsk } from './api/client';
import type { Page, Session, Workspace } from './api/types';
import { leaf } from './format';
import { set, useRoute } from './route';

export function useWorkspaces() {
  return useAsk('workspaces', async (signal) => (await get<Page<Workspace>>('/workspaces', {}, signal)).items);
}

/** The chosen workspace and all there are. */
export function useWorkspace(): { chosen: Workspace | undefined; all: Workspace[] | undefined; problem: ReturnType<typeof useWorkspaces>['problem'] } {
  const { words } = useRoute();
  const asked = useWorkspaces();
  const newest = useAsk('newest', (signal) => all<Session>('/sessions', {}, 1, signal));
  const wanted = words.get('workspace');
  const known = asked.value;
  const usual = newest.value?.find((session) => session.agent !== 'person')?.workspace ?? newest.value?.[0]?.workspace;
  const chosen =
    known?.find((workspace) => workspace.id === wanted) ??
    (newest.loading && !wanted ? undefined : (known?.find((workspace) => workspace.id === usual) ?? known?.[known.length - 1]));
  return { chosen, all: known, problem: asked.problem };
}

export function WorkspacePicker({ chosen, all: known }: { chosen: Workspace | undefined; all: Workspace[] | undefined }) {
  if (!known?.length) return null;
  return (
    <label className="picker">
      <span className="dim">Workspace</span>
      <select value={chosen?.id ?? ''} onChange={(event) => set({ workspace: event.target.value })}>
        {known.map((workspace) => (
          <option key={workspace.id} value={workspace.id}>
            {leaf(workspace.root)} – {workspace.root}
          </option>
        ))}
      </select>
    </label>
  );
}
