//! Converts paths in calls to paths relative to the workspace.

use std::path::{Component, Path, PathBuf};

use stepback_engine::Workspace;

use crate::payload::HookEvent;

/// Returns the paths that a call names, relative to the workspace. A path outside of it stays as written.
pub fn relative_call_paths(workspace: &Workspace, event: &HookEvent) -> Vec<String> {
    let root = &workspace.root;
    // Relative to the agent's current directory, which can be anywhere below the root.
    let cwd = event.cwd.as_ref().and_then(|cwd| cwd.canonicalize().ok()).filter(|cwd| cwd.starts_with(root));
    let base = cwd.as_ref().unwrap_or(root);
    (event.call.paths)
        .iter()
        .map(|path| {
            let whole = normalize_path(&base.join(path));
            let inside = whole.strip_prefix(root).map(Path::to_path_buf).ok();
            match inside.or_else(|| resolve_through_links(&whole, root)) {
                Some(inside) => inside.to_string_lossy().into_owned(),
                None => path.clone(),
            }
        })
        .collect()
}

/// Whether a path that a call names, as written, leads out of the workspace. A relative one is taken from the root.
pub fn is_outside(workspace: &Workspace, path: &Path) -> bool {
    let root = &workspace.root;
    if path.starts_with("~") {
        return true;
    }
    let whole = normalize_path(&root.join(path));
    !whole.starts_with(root) && resolve_through_links(&whole, root).is_none()
}

/// Returns the path inside the workspace of one that leads there through a link, such as another name of the workspace itself.
fn resolve_through_links(path: &Path, root: &Path) -> Option<PathBuf> {
    let dir = path.ancestors().skip(1).find_map(|dir| Some((dir, dir.canonicalize().ok()?)));
    let (dir, real) = dir?;
    let rest = path.strip_prefix(dir).ok()?;
    real.join(rest).strip_prefix(root).map(Path::to_path_buf).ok()
}

/// Removes `.` and `..` from the text of a path, because the file may not exist yet.
fn normalize_path(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                tidy.pop();
            }
            Component::CurDir => {}
            other => tidy.push(other),
        }
    }
    tidy
}
