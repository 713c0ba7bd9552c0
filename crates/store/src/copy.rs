//! Copies everything from one store to another, of any backend.
//!
//! A step's number is its place in its workspace, and numbers have no gaps. So appending the steps in order gives each the
//! number it had, and a copy needs only the public store interface. Until the copy is complete, the target has a reference
//! that marks it as incomplete, and no store with that reference opens: a partial history must not be mistaken for a whole
//! one.

use std::fs;
use std::io;
use std::path::Path;

use stepback_model::ids::{OpId, StepId, WorkspaceId};
use stepback_model::record::WorkspaceRecord;

use crate::error::StoreError;
use crate::port::{Mutation, ObjectInfo, StepQuery, StepRow, Store, VAULT};

/// The reference that a store has as long as a copy into it is incomplete.
pub const INCOMPLETE: &str = "store/incomplete";

/// The error message for a store with that reference.
pub const INCOMPLETE_REASON: &str =
    "a copy into it was not finished; remove it and run \"stepback store copy\" again";

/// A commit is made after this many bytes of objects.
const BATCH_BYTES: usize = 8 << 20;
/// A commit is made after this many objects; no more than a batch stores as deltas.
const BATCH_OBJECTS: usize = 90;
/// Number of steps read and appended at a time.
const STEPS: u64 = 500;

/// Why a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The target is not empty.
    #[error("the target is not empty: it has {what}")]
    NotEmpty {
        /// What the target contains.
        what: String,
    },
    /// Another process wrote to one of the stores during the copy.
    #[error("{0} was changed while it was copied")]
    Disturbed(&'static str),
    /// What was written does not read back the same.
    #[error("the copy differs from the original: {0}")]
    Differs(String),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The current phase of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Objects are being written.
    Objects,
    /// Steps are being written.
    Steps,
    /// Everything is being read back.
    Verifying,
}

/// The number of records copied, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Copied {
    /// Number of objects.
    pub objects: u64,
    /// Size of the objects before compression, in bytes.
    pub bytes: u64,
    /// Number of workspaces.
    pub workspaces: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of steps.
    pub steps: u64,
    /// Number of operations.
    pub operations: u64,
    /// Number of references.
    pub references: u64,
}

/// Copies everything in `from` to `to`, which must be empty, and reads all of it back. `progress` is called with the number
/// done and the total.
pub fn copy(
    from: &dyn Store,
    to: &dyn Store,
    progress: &mut dyn FnMut(Phase, u64, u64),
) -> Result<Copied, CopyError> {
    refuse_unless_empty(to)?;
    let mark = from.commit_seq()?;
    let marker = StepId::from_bytes([0; 16]);
    to.commit(None, &[Mutation::SetRef { name: INCOMPLETE.into(), expected: None, value: marker }])?;
    let mut copied = Copied::default();
    let objects = objects_of(from)?;
    copy_objects(from, to, &objects, &mut copied, progress)?;
    copy_vault(from, to)?;
    let workspaces = from.workspaces()?;
    let total = count_steps(from, &workspaces)?;
    for workspace in &workspaces {
        copy_log(from, to, workspace, &mut copied, &mut |done| progress(Phase::Steps, done, total))?;
    }
    let references = from.references("")?;
    let set = |(name, value): &(String, StepId)| Mutation::SetRef {
        name: name.clone(),
        expected: None,
        value: *value,
    };
    to.commit(None, &references.iter().map(set).collect::<Vec<_>>())?;
    copied.workspaces = workspaces.len() as u64;
    copied.references = references.len() as u64;

    verify(from, to, &objects, &workspaces, progress)?;
    if from.commit_seq()? != mark {
        return Err(CopyError::Disturbed("the original"));
    }
    to.commit(None, &[Mutation::DropRef { name: INCOMPLETE.into() }])?;
    Ok(copied)
}

fn refuse_unless_empty(to: &dyn Store) -> Result<(), CopyError> {
    let not_empty = |what: String| Err(CopyError::NotEmpty { what });
    let objects = to.usage()?.objects;
    let workspaces = to.workspaces()?.len();
    match (objects, workspaces, to.references("")?.len()) {
        (0, 0, 0) => Ok(()),
        (0, 0, references) => not_empty(format!("{references} references")),
        (_, 0, _) => not_empty(format!("{objects} objects")),
        (_, _, _) => not_empty(format!("{workspaces} workspaces")),
    }
}

/// All objects, bases before the objects stored against them, so that these can be stored as deltas again.
fn objects_of(store: &dyn Store) -> Result<Vec<ObjectInfo>, StoreError> {
    let mut objects = Vec::new();
    store.for_each_object(&mut |object| objects.push(object))?;
    objects.sort_by_key(|object| object.base.is_some());
    Ok(objects)
}

fn copy_objects(
    from: &dyn Store,
    to: &dyn Store,
    objects: &[ObjectInfo],
    copied: &mut Copied,
    progress: &mut dyn FnMut(Phase, u64, u64),
) -> Result<(), CopyError> {
    let mut rest = objects.iter().peekable();
    while rest.peek().is_some() {
        let batch = to.begin()?;
        let (mut bytes, mut count) = (0, 0);
        while bytes < BATCH_BYTES && count < BATCH_OBJECTS {
            let Some(object) = rest.next() else { break };
            let content = from.read(object.kind, object.hash).map_err(StoreError::from)?;
            batch.write(object.kind, &content, object.base).map_err(StoreError::from)?;
            bytes += content.len();
            count += 1;
        }
        to.commit(Some(batch.finish()?), &[])?;
        copied.objects += count as u64;
        copied.bytes += bytes as u64;
        progress(Phase::Objects, copied.objects, objects.len() as u64);
    }
    Ok(())
}

/// Copies the git files in the vault: trees refer to them, and their content is stored nowhere else.
fn copy_vault(from: &dyn Store, to: &dyn Store) -> Result<(), StoreError> {
    let (Some(from), Some(to)) = (from.local_dir(), to.local_dir()) else { return Ok(()) };
    let (from, to) = (from.join(VAULT), to.join(VAULT));
    let entries = match fs::read_dir(&from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(StoreError::io("list", &from))?,
    };
    let mut any = false;
    for entry in entries {
        let entry = entry.map_err(StoreError::io("list", &from))?;
        if !any {
            fs::create_dir_all(&to).map_err(StoreError::io("create", &to))?;
            any = true;
        }
        link_or_copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    if any {
        crate::pack::sync_dir(&to)?;
    }
    Ok(())
}

fn link_or_copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map_err(StoreError::io("copy", from))?;
    fs::File::open(to).and_then(|file| file.sync_all()).map_err(StoreError::io("write", to))
}

fn count_steps(store: &dyn Store, workspaces: &[WorkspaceRecord]) -> Result<u64, StoreError> {
    let mut total = 0;
    for workspace in workspaces {
        let newest = store.steps(workspace.id, &StepQuery { limit: Some(1), ..StepQuery::default() })?;
        total += newest.first().map_or(0, |stored| stored.step.number);
    }
    Ok(total)
}

/// Calls `visit` with the steps of a workspace, oldest first, in batches.
fn for_each_part(
    store: &dyn Store,
    workspace: WorkspaceId,
    visit: &mut dyn FnMut(Vec<StepRow>) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let mut after = 0;
    loop {
        let query =
            StepQuery { after: Some(after), oldest_first: true, limit: Some(STEPS), ..StepQuery::default() };
        let steps = store.steps(workspace, &query)?;
        let Some(last) = steps.last() else { return Ok(()) };
        after = last.step.number;
        visit(steps)?;
    }
}

fn copy_log(
    from: &dyn Store,
    to: &dyn Store,
    workspace: &WorkspaceRecord,
    copied: &mut Copied,
    progress: &mut dyn FnMut(u64),
) -> Result<(), CopyError> {
    let sessions = from.sessions(workspace.id)?;
    copied.sessions += sessions.len() as u64;
    let mut mutations = vec![Mutation::AddWorkspace(workspace.clone())];
    mutations.extend(sessions.into_iter().map(Mutation::AddSession));
    to.commit(None, &mutations)?;
    for_each_part(from, workspace.id, &mut |steps| {
        let mut mutations: Vec<Mutation> = steps.iter().map(appended).collect();
        mutations.extend(steps.iter().flat_map(hidden));
        let receipt = to.commit(None, &mutations)?;
        if !receipt.steps.iter().copied().eq(steps.iter().map(|stored| stored.step.number)) {
            return Err(CopyError::Differs("step numbers differ; does the original have gaps?".into()));
        }
        copied.steps += steps.len() as u64;
        progress(copied.steps);
        Ok(())
    })?;
    let mut operations = from.operations(workspace.id)?;
    operations.reverse();
    copied.operations += operations.len() as u64;
    for part in operations.chunks(STEPS as usize) {
        let mutations: Vec<Mutation> = part.iter().cloned().map(Mutation::AppendOp).collect();
        let receipt = to.commit(None, &mutations)?;
        if !receipt.ops.iter().copied().eq(part.iter().map(|operation| operation.number)) {
            return Err(CopyError::Differs("operation numbers differ; does the original have gaps?".into()));
        }
    }
    Ok(())
}

/// The mutation that appends a step as it is now, except for whether it is hidden.
pub fn appended(stored: &StepRow) -> Mutation {
    Mutation::AppendStep {
        step: stored.step.clone(),
        annotation: stored.annotation.clone(),
        trigger: stored.trigger,
    }
}

/// The mutations that hide and purge a step as it is now.
pub fn hidden(stored: &StepRow) -> Vec<Mutation> {
    let steps = vec![stored.step.id];
    let by = stored.hidden_by;
    let hide = |by| Mutation::SetHidden { steps: steps.clone(), by };
    match (stored.purged, by) {
        (false, None) => Vec::new(),
        (false, by) => vec![hide(by)],
        // Only hidden steps can be purged, and this one may have been shown again since.
        (true, by) => vec![
            hide(by.or(Some(OpId::from_bytes([0; 16])))),
            Mutation::Purge { steps: steps.clone() },
            hide(by),
        ],
    }
}

/// Reads everything back from the target and compares it with the original.
fn verify(
    from: &dyn Store,
    to: &dyn Store,
    objects: &[ObjectInfo],
    workspaces: &[WorkspaceRecord],
    progress: &mut dyn FnMut(Phase, u64, u64),
) -> Result<(), CopyError> {
    let differs = |what: String| Err(CopyError::Differs(what));
    let mut count = 0u64;
    to.for_each_object(&mut |_| count += 1)?;
    if count != objects.len() as u64 {
        return differs(format!("{count} objects instead of {}", objects.len()));
    }
    for (done, object) in objects.iter().enumerate() {
        // Reading verifies the hash.
        let content = to.read(object.kind, object.hash).map_err(StoreError::from)?;
        if content.len() as u64 != object.raw_len {
            return differs(format!("{} {} has a different size", object.kind, object.hash));
        }
        if done % 100 == 99 || done + 1 == objects.len() {
            progress(Phase::Verifying, done as u64 + 1, objects.len() as u64);
        }
    }
    if to.workspaces()? != workspaces {
        return differs("the list of workspaces".into());
    }
    for workspace in workspaces {
        let id = workspace.id;
        if from.sessions(id)? != to.sessions(id)? {
            return differs(format!("the sessions of workspace {id}"));
        }
        if from.operations(id)? != to.operations(id)? {
            return differs(format!("the operations of workspace {id}"));
        }
        for_each_part(from, id, &mut |steps| {
            let first = steps.first().map_or(0, |stored| stored.step.number);
            let query = StepQuery {
                after: Some(first.saturating_sub(1)),
                oldest_first: true,
                limit: Some(steps.len() as u64),
                ..StepQuery::default()
            };
            if to.steps(id, &query)? == steps {
                return Ok(());
            }
            Err(CopyError::Differs(format!("the steps of workspace {id} from #{first} on")))
        })?;
    }
    let mut references = to.references("")?;
    references.retain(|(name, _)| name != INCOMPLETE);
    if references != from.references("")? {
        return differs("the references".into());
    }
    let complaints = to.check()?;
    match complaints.first() {
        Some(complaint) => differs(complaint.clone()),
        None => Ok(()),
    }
}
