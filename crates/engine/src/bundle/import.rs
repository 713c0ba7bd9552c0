//! From a sound bundle to the store: what it does not have yet, in one commit.
//!
//! The sessions of a bundle become part of a workspace of their own, whose root is no directory: what was recorded elsewhere
//! must not be taken for the past of a directory that happens to have the same path here. Ids stay what they were, so that
//! the same session is the same everywhere, and taking it in twice changes nothing.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::{Operation, Session, SessionInfo, Step, Workspace};
use stepback_store::port::StoredCheckpoint;
use stepback_store::{Mutation, copy};
use stepback_worktree::WorktreeError;

use super::error::BundleError;
use super::gather::origin_id;
use super::open::Bundle;
use super::records::{Log, What, told};
use crate::error::EngineError;
use crate::workspace::Engine;

/// Where workspaces are that came in a bundle. No directory needs to be there.
pub const ROOT: &str = "/imported/";

/// What was taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    /// The sessions that the bundle was made of, with the workspaces they are in here.
    pub sessions: Vec<(SessionId, WorkspaceId)>,
    /// Steps in the bundle.
    pub steps: u64,
    /// Steps that the store did not have.
    pub new_steps: u64,
    /// Objects that the store did not have.
    pub new_objects: u64,
    /// Git files that the store did not have.
    pub new_git_files: u64,
}

impl Engine<'_> {
    /// Takes in what the store does not have of a bundle: everything, or nothing.
    pub fn import_bundle(&self, bundle: &Bundle) -> Result<Imported, EngineError> {
        let _lock = self.keep_collector_out()?;
        let (mut imported, mutations) = plan(self, &bundle.logs, MissingObjects::Nothing)?;
        if mutations.is_empty() {
            return Ok(imported);
        }
        imported.new_git_files = self.import_git_files(bundle)?;
        let batch = self.store.begin()?;
        for (hash, placed) in bundle.objects() {
            if let Some(progress) = self.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
            if !batch.contains(placed.kind, hash)? {
                batch.write(placed.kind, &bundle.read(placed.kind, hash)?, None)?;
                imported.new_objects += 1;
            }
        }
        self.store.commit(Some(batch.finish()?), &mutations)?;
        Ok(imported)
    }

    /// Git files go into the vault before the commit: what nothing needs is cleared away by the next collection.
    fn import_git_files(&self, bundle: &Bundle) -> Result<u64, EngineError> {
        let Some(dir) = self.store.local_dir().filter(|_| !bundle.needed.vaulted.is_empty()) else {
            return match bundle.needed.vaulted.is_empty() {
                true => Ok(0),
                false => Err(EngineError::Input(
                    "the bundle holds files of git, and this store has no directory to keep them in".into(),
                )),
            };
        };
        // They have their names while they are checked: these say what they must hold.
        let aside = Aside::new(dir, &self.env.fresh_id())?;
        let vault = match self.vault()? {
            Some(vault) => vault,
            None => stepback_worktree::vault::Vault::open(&dir.join(stepback_store::port::VAULT))?,
        };
        let mut new = 0;
        for parts in &bundle.git_files {
            let name = parts.file.name.as_bytes();
            if !bundle.needed.vaulted.contains(name) {
                continue;
            }
            let path = aside.0.join(&parts.file.name);
            let mut options = File::options();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o444)
                .open(&path)
                .map_err(WorktreeError::aside("write", &path))?;
            for part in bundle.git_file(parts) {
                let part = part?;
                stepback_faults::point()
                    .and_then(|()| file.write_all(&part))
                    .map_err(WorktreeError::aside("write", &path))?;
            }
            file.sync_all().map_err(WorktreeError::aside("write", &path))?;
            stepback_store::verify_git_file(&path)
                .map_err(|why| BundleError::Senseless(format!("git file {}: {why}", parts.file.name)))?;
            match vault.holds_same(name, &path).map_err(WorktreeError::aside("write", &path))? {
                Some(true) => {}
                Some(false) => {
                    let what = format!("git file {} has other bytes here", parts.file.name);
                    return Err(BundleError::Clash(what).into());
                }
                None => {
                    vault.take_in(&path, name).map_err(WorktreeError::aside("write", &path))?;
                    new += 1;
                }
            }
        }
        vault.sync().map_err(WorktreeError::aside("sync", dir))?;
        Ok(new)
    }
}

/// A directory that is gone when it is no longer needed.
struct Aside(PathBuf);

impl Aside {
    fn new(dir: &Path, id: &[u8; 16]) -> Result<Self, EngineError> {
        let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = dir.join(format!("import-{name}"));
        stepback_faults::point()
            .and_then(|()| DirBuilder::new().mode(0o700).create(&path))
            .map_err(WorktreeError::aside("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a file does not have of its sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingObjects {
    /// It has everything.
    Nothing,
    /// It has no files: what is known of a step here may be more than it says.
    Files,
}

/// What is to be taken in of logs, and the changes that do it.
pub(super) fn plan(
    engine: &Engine<'_>,
    logs: &[Log],
    lacks: MissingObjects,
) -> Result<(Imported, Vec<Mutation>), EngineError> {
    let mut imported = Imported::default();
    let mut mutations = Vec::new();
    for log in logs {
        let planned = Planned::new(engine, log, lacks)?;
        imported.steps += log.steps.len() as u64;
        imported.sessions.extend(planned.sessions());
        mutations.extend(planned.mutations(&mut imported)?);
    }
    Ok((imported, mutations))
}

/// One workspace of a bundle, and where it goes.
struct Planned<'l> {
    engine: &'l Engine<'l>,
    log: &'l Log,
    /// Those of its sessions that the store knows.
    known: HashMap<SessionId, Session>,
    target: Workspace,
    is_new: bool,
    lacks: MissingObjects,
}

impl<'l> Planned<'l> {
    fn new(engine: &'l Engine<'l>, log: &'l Log, lacks: MissingObjects) -> Result<Self, EngineError> {
        let mut known = HashMap::new();
        for told in &log.sessions {
            if let Some(session) = engine.store.session(told.id)? {
                if (&session.agent, session.started_at) != (&told.agent, told.started_at) {
                    return Err(clash(format!("session {} is another one here", session.id)));
                }
                known.insert(session.id, session);
            }
        }
        let home = log.sessions.iter().find_map(|told| known.get(&told.id)).map(|session| session.workspace);
        let all = engine.store.workspaces()?;
        let (id, root) = destination(log, &all);
        let id = home.unwrap_or(id);
        let found = all.into_iter().find(|workspace| workspace.id == id);
        let is_new = found.is_none();
        let target = found.unwrap_or(Workspace { id, root, created_at: log.place.created_at });
        Ok(Self { engine, log, known, target, is_new, lacks })
    }

    fn sessions(&self) -> Vec<(SessionId, WorkspaceId)> {
        let place = |told: &Session| {
            let known = self.known.get(&told.id);
            (told.id, known.map_or(self.target.id, |session| session.workspace))
        };
        self.log.sessions.iter().map(place).collect()
    }

    /// What the store is told.
    fn mutations(&self, imported: &mut Imported) -> Result<Vec<Mutation>, EngineError> {
        let mut mutations = Vec::new();
        let [person, here] =
            [self.log.place.id, self.target.id].map(|place| Session::id_of(place, Session::PERSON, ""));
        if self.is_new {
            let person = Session {
                id: here,
                workspace: self.target.id,
                agent: Session::PERSON.into(),
                started_at: self.target.created_at,
                info: SessionInfo::default(),
            };
            mutations.push(Mutation::AddWorkspace(self.target.clone()));
            mutations.push(Mutation::AddSession(person));
        }
        mutations.extend(self.log.sessions.iter().filter_map(|session| self.session(session)));
        for moment in &self.log.steps {
            let mut stored = moment.stored();
            let is_own = moment.step.session != person;
            if !is_own {
                stored.checkpoint.step.session = here;
            }
            match self.engine.store.step(moment.step.id)? {
                Some(_) if self.lacks == MissingObjects::Files => {}
                Some(here) => same(&here, &stored)?,
                // What others call it: here it has its own name.
                None if !is_own && !is_imported(&self.target) => {}
                // What was recorded here is not for others to go on with.
                None if !is_imported(&self.target) => {
                    let session = moment.step.session;
                    return Err(clash(format!(
                        "session {session} was recorded here, and step {} is not part of it",
                        moment.step.id
                    )));
                }
                None => {
                    imported.new_steps += 1;
                    mutations.push(copy::appended(&stored));
                    mutations.extend(copy::hidden(&stored));
                }
            }
        }
        for operation in &self.log.operations {
            match self.engine.store.operation(operation.id)? {
                Some(here) if here.action != operation.action => {
                    return Err(clash(format!("operation {} is another one here", here.id)));
                }
                Some(_) => {}
                None if !is_imported(&self.target) => {}
                None => {
                    let operation = Operation { workspace: self.target.id, ..operation.clone() };
                    mutations.push(Mutation::AppendOp(operation));
                }
            }
        }
        mutations.extend(self.references()?);
        Ok(mutations)
    }

    fn session(&self, session: &Session) -> Option<Mutation> {
        let info = told(&session.info);
        let Some(known) = self.known.get(&session.id) else {
            return Some(Mutation::AddSession(Session {
                workspace: self.target.id,
                info,
                ..session.clone()
            }));
        };
        // What came in a bundle may be changed by a later one.
        let may_change = self.lacks == MissingObjects::Nothing
            && known.workspace == self.target.id
            && is_imported(&self.target);
        let is_later = known.info != info && known.info.seen_at <= info.seen_at;
        (may_change && is_later)
            .then(|| Mutation::SetSessionInfo { session: session.id, info: Box::new(info) })
    }

    /// Names that are free here. Where a workspace stands is only said for one that is new.
    fn references(&self) -> Result<Vec<Mutation>, EngineError> {
        let mut mutations = Vec::new();
        if !is_imported(&self.target) {
            return Ok(mutations);
        }
        for reference in &self.log.references {
            let (id, name) = (self.target.id, &reference.name);
            let name = match reference.what {
                What::Head if self.is_new => format!("head/{id}"),
                What::Present if self.is_new => format!("present/{id}/{name}"),
                What::Branch => format!("branch/{id}/{name}"),
                What::Head | What::Present => continue,
            };
            if self.engine.store.reference(&name)?.is_none() {
                mutations.push(Mutation::SetRef { name, expected: None, value: reference.step });
            }
        }
        Ok(mutations)
    }
}

/// The id and root of the workspace that a log becomes. One that came in a bundle before stays what it is.
fn destination(log: &Log, known: &[Workspace]) -> (WorkspaceId, Vec<u8>) {
    let place = &log.place;
    let mut below: Vec<&str> =
        place.root.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let is_recorded_here = known.iter().any(|known| known.id == place.id && !is_imported(known));
    let id = match place.root.strip_prefix(ROOT) {
        Some(_) if !is_recorded_here => {
            below = below.split_off(below.len().min(2));
            place.id
        }
        _ => {
            let name = format!("imported workspace {}", place.id);
            let mut id = [0; 16];
            id.copy_from_slice(&Hash::of(ObjectKind::Blob, name.as_bytes()).as_bytes()[..16]);
            WorkspaceId::from_bytes(id)
        }
    };
    // The whole id: two workspaces never have the same root.
    let root = format!("{ROOT}{id}/{}", below.join("/").replace('\0', ""));
    (id, root.trim_end_matches('/').as_bytes().to_vec())
}

fn is_imported(workspace: &Workspace) -> bool {
    workspace.root.starts_with(ROOT.as_bytes())
}

fn clash(what: String) -> EngineError {
    BundleError::Clash(what).into()
}

/// Whether two records are of the same step. What is said about it may differ, and one may know what it grew from, or by
/// another name.
fn same(here: &StoredCheckpoint, there: &StoredCheckpoint) -> Result<(), EngineError> {
    let (a, b) = (&here.checkpoint.step, &there.checkpoint.step);
    let told = |step: &Step| {
        (step.session, step.kind, step.at, step.state, step.summary.clone(), step.facts.clone())
    };
    let grew = match (a.parent, b.parent) {
        (Some(a), Some(b)) => a == b || origin_id(a) == b || a == origin_id(b),
        _ => true,
    };
    match told(a) == told(b) && grew {
        true => Ok(()),
        false => Err(clash(format!("step {} is another one here", a.id))),
    }
}
