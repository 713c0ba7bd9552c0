//! What a connection may do.
//!
//! An agent runs as the user whose hooks record it, so whatever the hooks may do, the agent may do. A connection with `append`
//! can do everything that recording, rewinding, undoing and branching need, and nothing that takes away what is recorded:
//! steps, operations, objects and annotations stay, whatever the client sends.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use stepback_model::ids::StepId;
use stepback_model::record::{Annotation, OpStatus, OperationAction, SessionInfo, WorkspaceRecord};
use stepback_store::port::{Mutation, Store};
use stepback_store::{StoreError, copy};

/// What the client of a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRole {
    /// Read everything, and add to it.
    Append,
    /// Everything that the owner of the store may do.
    Full,
}

/// References with this prefix are the store's own.
const STORE_PREFIX: &str = "store/";

impl AccessRole {
    /// The name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Full => "full",
        }
    }

    /// The role with this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Append, Self::Full].into_iter().find(|role| role.name() == text)
    }

    /// Refuses what only the owner of the store may do.
    pub(crate) fn require_full(self, what: &str) -> Result<(), StoreError> {
        match self {
            Self::Full => Ok(()),
            Self::Append => forbidden(what),
        }
    }
}

fn forbidden<T>(what: impl Into<String>) -> Result<T, StoreError> {
    Err(StoreError::Forbidden { what: what.into() })
}

/// Fails if these mutations take away anything that is recorded. The caller keeps other such commits waiting until this one
/// is done, so that what was checked still holds.
pub(crate) fn check_append(store: &dyn Store, mutations: &[Mutation]) -> Result<(), StoreError> {
    for mutation in mutations {
        match mutation {
            Mutation::AddWorkspace(workspace) => check_root(store, &workspace.root)?,
            Mutation::AddSession(_)
            | Mutation::AppendStep { .. }
            | Mutation::AppendOp(_)
            | Mutation::SetOpUndone { .. } => {}
            Mutation::SetSessionInfo { session, info } => {
                if let Some(known) = store.session(*session)? {
                    check_session_info(&known.info, info)?;
                }
            }
            Mutation::Annotate { step, annotation } => {
                if let Some(known) = store.step(*step)? {
                    check_annotation(&known.annotation, annotation)?;
                }
            }
            Mutation::SetRef { name, value, .. } => check_set_ref(store, mutations, name, *value)?,
            Mutation::DropRef { name } => check_drop_ref(store, mutations, name)?,
            Mutation::SetOpStatus { op, status } => {
                let known = store.operation(*op)?.map(|known| known.status);
                let is_appended = || {
                    mutations
                        .iter()
                        .any(|other| matches!(other, Mutation::AppendOp(appended) if appended.id == *op))
                };
                let is_open = match known {
                    Some(known) => known == OpStatus::Applying,
                    None => is_appended(),
                };
                if !is_open || *status == OpStatus::Applying {
                    return forbidden("another status for an operation that has ended");
                }
            }
            Mutation::SetHidden { .. } => return forbidden("hiding checkpoints or showing them again"),
            Mutation::Purge { .. } => return forbidden("freeing checkpoints"),
            Mutation::SetWorkspaceRoot { .. } => return forbidden("moving or forgetting a workspace"),
        }
    }
    Ok(())
}

/// A workspace must not overlap with the store. Whoever opens a workspace finishes an operation that is recorded in it as
/// unfinished, so a client could otherwise have the owner's next command change the store's own files.
fn check_root(store: &dyn Store, root: &[u8]) -> Result<(), StoreError> {
    if root.starts_with(WorkspaceRecord::REMOTE) {
        return Ok(());
    }
    let root = Path::new(OsStr::from_bytes(root));
    let is_plain = root.components().enumerate().all(|(at, component)| match component {
        Component::RootDir => at == 0,
        Component::Normal(_) => at > 0,
        _ => false,
    });
    // Components skip what a path says twice.
    let is_canonical = is_plain && root.components().collect::<PathBuf>().as_os_str() == root.as_os_str();
    if !is_canonical {
        return forbidden("a workspace whose root is not a plain absolute path");
    }
    let overlaps = |dir: &Path| dir.starts_with(root) || root.starts_with(dir);
    let is_store = store
        .local_dir()
        .is_some_and(|dir| overlaps(dir) || dir.canonicalize().is_ok_and(|dir| overlaps(&dir)));
    if is_store { forbidden("a workspace that contains the store") } else { Ok(()) }
}

/// A session's info is replaced as a whole by design. What identifies a session, and that it came from another one, stays. A
/// rerun says where its session came from after an agent may have said it.
fn check_session_info(known: &SessionInfo, new: &SessionInfo) -> Result<(), StoreError> {
    let keeps = |is_set: bool, is_same: bool| !is_set || is_same;
    let is_kept = keeps(known.external.is_some(), known.external == new.external)
        && keeps(known.forked_from.is_some(), new.forked_from.is_some())
        && keeps(known.imported, new.imported);
    if is_kept { Ok(()) } else { forbidden("another identity or origin for a session") }
}

/// A label, a note or tags may be added where there are none.
fn check_annotation(known: &Annotation, new: &Annotation) -> Result<(), StoreError> {
    let keeps = |known: &Option<String>, new: &Option<String>| known.is_none() || known == new;
    let is_kept = keeps(&known.label, &new.label)
        && keeps(&known.note, &new.note)
        && known.tags.iter().all(|tag| new.tags.contains(tag));
    if is_kept { Ok(()) } else { forbidden("a change to a label, note or tag that exists") }
}

/// A reference moves by compare-and-swap, and only to a step. The steps it pointed to stay.
fn check_set_ref(
    store: &dyn Store,
    mutations: &[Mutation],
    name: &str,
    value: StepId,
) -> Result<(), StoreError> {
    // A store with the reference of an unfinished copy does not open.
    if name.starts_with(STORE_PREFIX) || name == copy::INCOMPLETE {
        return forbidden("a reference of the store itself");
    }
    let is_appended =
        mutations.iter().any(|other| matches!(other, Mutation::AppendStep { step, .. } if step.id == value));
    match is_appended || store.step(value)?.is_some() {
        true => Ok(()),
        false => forbidden("a reference to a step that does not exist"),
    }
}

/// A reference is dropped where another one takes its place in the same commit: a branch that is renamed or becomes the
/// present one, and the mark of the present one. The undo of `branch create` drops a branch that is still where it began.
fn check_drop_ref(store: &dyn Store, mutations: &[Mutation], name: &str) -> Result<(), StoreError> {
    let Some(value) = store.reference(name)? else { return Ok(()) };
    let mut parts = name.splitn(3, '/');
    let (kind, workspace, branch) = (parts.next(), parts.next(), parts.next());
    let (Some(kind), Some(workspace), Some(branch)) = (kind, workspace, branch) else {
        return forbidden("the deletion of a reference");
    };
    let is_set = |wanted: &dyn Fn(&str, StepId) -> bool| {
        mutations
            .iter()
            .any(|other| matches!(other, Mutation::SetRef { name, value, .. } if wanted(name, *value)))
    };
    let is_replaced = match kind {
        "present" => {
            let prefix = format!("present/{workspace}/");
            is_set(&|name, _| name.starts_with(&prefix))
        }
        "branch" => {
            let (present, prefix) = (format!("present/{workspace}/{branch}"), format!("branch/{workspace}/"));
            is_set(&|other, _| other == present)
                || is_set(&|other, moved| other != name && other.starts_with(&prefix) && moved == value)
                || undoes_creation(store, mutations, workspace, branch, value)?
        }
        "worktree" => {
            let prefix = format!("worktree/{workspace}/");
            is_set(&|other, moved| other != name && other.starts_with(&prefix) && moved == value)
        }
        _ => false,
    };
    if is_replaced { Ok(()) } else { forbidden(format!("the deletion of {name}")) }
}

/// Whether these mutations record the undo of the operation that created a branch, which has not moved since.
fn undoes_creation(
    store: &dyn Store,
    mutations: &[Mutation],
    workspace: &str,
    branch: &str,
    value: StepId,
) -> Result<bool, StoreError> {
    for mutation in mutations {
        let Mutation::AppendOp(operation) = mutation else { continue };
        let OperationAction::Undo { op, .. } = &operation.action else { continue };
        let Some(undone) = store.operation(*op)? else { continue };
        let is_it = matches!(&undone.action, OperationAction::BranchCreate { name, step, .. }
            if name == branch && *step == value);
        if is_it && undone.workspace == operation.workspace && undone.workspace.to_string() == workspace {
            return Ok(true);
        }
    }
    Ok(false)
}
