//! Imports a validated bundle: everything that the store does not have yet, in one commit.
//!
//! The sessions of a bundle become part of a workspace of their own, whose root is not a directory: a recording from
//! elsewhere must not be mistaken for the history of a directory that has the same path here. Ids are kept, so that a session
//! has the same id everywhere, and importing it twice changes nothing.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use stepback_engine::Engine;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::hex;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::StepRow;
use stepback_model::record::{Operation, Session, SessionInfo, Step, WorkspaceRecord};
use stepback_store::{Mutation, copy};
use stepback_worktree::WorktreeError;

use crate::error::BundleError;
use crate::gather::origin_id;
use crate::open::Bundle;
use crate::records::{ReferenceKind, WorkspaceLog, portable_info};

/// Root prefix of imported workspaces. The directory need not exist.
pub const ROOT: &str = "/imported/";

/// What an import added to the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ImportReport {
    /// The sessions of the bundle, with the workspaces they are in here.
    pub sessions: Vec<(SessionId, WorkspaceId)>,
    /// Number of steps in the bundle.
    pub steps: u64,
    /// Number of steps that the store did not have.
    pub new_steps: u64,
    /// Number of objects that the store did not have.
    pub new_objects: u64,
    /// Number of git files that the store did not have.
    pub new_git_files: u64,
}

/// Imports everything in a bundle that the store does not have, or nothing.
pub fn import(engine: &Engine, bundle: &Bundle) -> Result<ImportReport, BundleError> {
    let _lock = engine.block_garbage_collection()?;
    let (mut imported, mutations) = plan_import(engine, &bundle.logs, MissingObjects::Nothing)?;
    if mutations.is_empty() {
        return Ok(imported);
    }
    imported.new_git_files = import_git_files(engine, bundle)?;
    let batch = engine.store.begin()?;
    for (hash, placed) in bundle.needed_objects() {
        if let Some(progress) = &engine.progress {
            progress.fetch_add(1, Ordering::Relaxed);
        }
        if !batch.contains(placed.kind, hash)? {
            batch.write(placed.kind, &bundle.read(placed.kind, hash)?, None)?;
            imported.new_objects += 1;
        }
    }
    engine.store.commit(Some(batch.finish()?), &mutations)?;
    Ok(imported)
}

/// Adds git files to the vault, before the commit: the next garbage collection removes those that nothing needs.
fn import_git_files(engine: &Engine, bundle: &Bundle) -> Result<u64, BundleError> {
    let Some(dir) = engine.store.local_dir().filter(|_| !bundle.needed.vaulted.is_empty()) else {
        return match bundle.needed.vaulted.is_empty() {
            true => Ok(0),
            false => Err(BundleError::NoDirectoryForGit),
        };
    };
    // They are checked under their own names, which determine what they must contain.
    let aside = TemporaryDir::new(dir, &engine.env.fresh_id())?;
    let vault = match engine.vault()? {
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
        for part in bundle.git_file_parts(parts) {
            let part = part?;
            stepback_faults::point()
                .and_then(|()| file.write_all(&part))
                .map_err(WorktreeError::aside("write", &path))?;
        }
        file.sync_all().map_err(WorktreeError::aside("write", &path))?;
        stepback_store::verify_git_file(&path)
            .map_err(|reason| BundleError::Inconsistent(format!("git file {}: {reason}", parts.file.name)))?;
        match vault.holds_same(name, &path).map_err(WorktreeError::aside("write", &path))? {
            Some(true) => {}
            Some(false) => {
                let message = format!("git file {} differs from the one in this store", parts.file.name);
                return Err(BundleError::Conflict(message));
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
/// A temporary directory, removed when dropped.
struct TemporaryDir(PathBuf);

impl TemporaryDir {
    fn new(dir: &Path, id: &[u8; 16]) -> Result<Self, BundleError> {
        let path = dir.join(format!("import-{}", hex::encode(id)));
        stepback_faults::point()
            .and_then(|()| DirBuilder::new().mode(0o700).create(&path))
            .map_err(WorktreeError::aside("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What an imported file lacks of its sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MissingObjects {
    /// Nothing is missing.
    Nothing,
    /// The file contents are missing: the store may know more about a step than the file says.
    Files,
}

/// Returns what will be imported from `logs`, and the mutations that do it.
pub fn plan_import(
    engine: &Engine,
    logs: &[WorkspaceLog],
    lacks: MissingObjects,
) -> Result<(ImportReport, Vec<Mutation>), BundleError> {
    let mut imported = ImportReport::default();
    let mut mutations = Vec::new();
    for log in logs {
        let planned = WorkspaceImport::new(engine, log, lacks)?;
        imported.steps += log.steps.len() as u64;
        imported.sessions.extend(planned.sessions());
        mutations.extend(planned.build_mutations(&mut imported)?);
    }
    Ok((imported, mutations))
}

/// One workspace of a bundle, and the workspace it is imported into.
struct WorkspaceImport<'l> {
    engine: &'l Engine,
    log: &'l WorkspaceLog,
    /// The sessions of the log that the store already has.
    known: HashMap<SessionId, Session>,
    target: WorkspaceRecord,
    is_new: bool,
    missing_objects: MissingObjects,
}

impl<'l> WorkspaceImport<'l> {
    fn new(engine: &'l Engine, log: &'l WorkspaceLog, lacks: MissingObjects) -> Result<Self, BundleError> {
        let mut known_sessions = HashMap::new();
        for listed_session in &log.sessions {
            if let Some(session) = engine.store.session(listed_session.id)? {
                if (&session.agent, session.started_at) != (&listed_session.agent, listed_session.started_at)
                {
                    return Err(conflict_error(format!(
                        "session {} differs from the one in this store",
                        session.id
                    )));
                }
                known_sessions.insert(session.id, session);
            }
        }
        let home = log
            .sessions
            .iter()
            .find_map(|listed_session| known_sessions.get(&listed_session.id))
            .map(|session| session.workspace);
        let workspaces = engine.store.workspaces()?;
        let (id, root) = choose_destination(log, &workspaces);
        let id = home.unwrap_or(id);
        let existing = workspaces.into_iter().find(|workspace| workspace.id == id);
        let is_new = existing.is_none();
        let target = existing.unwrap_or(WorkspaceRecord { id, root, created_at: log.workspace.created_at });
        Ok(Self { engine, log, known: known_sessions, target, is_new, missing_objects: lacks })
    }

    fn sessions(&self) -> Vec<(SessionId, WorkspaceId)> {
        let destination = |listed_session: &Session| {
            let known_session = self.known.get(&listed_session.id);
            (listed_session.id, known_session.map_or(self.target.id, |session| session.workspace))
        };
        self.log.sessions.iter().map(destination).collect()
    }

    /// Returns the mutations that import the log, and counts new steps.
    fn build_mutations(&self, imported: &mut ImportReport) -> Result<Vec<Mutation>, BundleError> {
        let mut mutations = Vec::new();
        let [person, user_session_here] = [self.log.workspace.id, self.target.id]
            .map(|workspace| Session::id_of(workspace, Session::PERSON, ""));
        if self.is_new {
            let person = Session {
                id: user_session_here,
                workspace: self.target.id,
                agent: Session::PERSON.into(),
                started_at: self.target.created_at,
                info: SessionInfo::default(),
            };
            mutations.push(Mutation::AddWorkspace(self.target.clone()));
            mutations.push(Mutation::AddSession(person));
        }
        mutations.extend(self.log.sessions.iter().filter_map(|session| self.session_mutation(session)));
        for moment in &self.log.steps {
            let mut stored = moment.to_row();
            let is_own = moment.step.session != person;
            if !is_own {
                stored.step.session = user_session_here;
            }
            match self.engine.store.step(moment.step.id)? {
                Some(_) if self.missing_objects == MissingObjects::Files => {}
                Some(user_session_here) => check_same_step(&user_session_here, &stored)?,
                // A step exported under a new id: the store has it under its own.
                None if !is_own && !is_imported(&self.target) => {}
                // A session that was recorded here cannot be continued by an import.
                None if !is_imported(&self.target) => {
                    let session = moment.step.session;
                    return Err(conflict_error(format!(
                        "session {session} was recorded here, and does not contain step {}",
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
                Some(user_session_here) if user_session_here.action != operation.action => {
                    return Err(conflict_error(format!(
                        "operation {} differs from the one in this store",
                        user_session_here.id
                    )));
                }
                Some(_) => {}
                None if !is_imported(&self.target) => {}
                None => {
                    let operation = Operation { workspace: self.target.id, ..operation.clone() };
                    mutations.push(Mutation::AppendOp(operation));
                }
            }
        }
        mutations.extend(self.reference_mutations()?);
        Ok(mutations)
    }

    fn session_mutation(&self, session: &Session) -> Option<Mutation> {
        let info = portable_info(&session.info);
        let Some(known_session) = self.known.get(&session.id) else {
            return Some(Mutation::AddSession(Session {
                workspace: self.target.id,
                info,
                ..session.clone()
            }));
        };
        // A later bundle may update a session that was imported.
        let may_change = self.missing_objects == MissingObjects::Nothing
            && known_session.workspace == self.target.id
            && is_imported(&self.target);
        let is_later = known_session.info != info && known_session.info.seen_at <= info.seen_at;
        (may_change && is_later)
            .then(|| Mutation::SetSessionInfo { session: session.id, info: Box::new(info) })
    }

    /// Returns the references whose names are free here. Head and present branch are set only for a new workspace.
    fn reference_mutations(&self) -> Result<Vec<Mutation>, BundleError> {
        let mut mutations = Vec::new();
        if !is_imported(&self.target) {
            return Ok(mutations);
        }
        for reference in &self.log.references {
            let (id, name) = (self.target.id, &reference.name);
            let name = match reference.what {
                ReferenceKind::Head if self.is_new => format!("head/{id}"),
                ReferenceKind::Present if self.is_new => format!("present/{id}/{name}"),
                ReferenceKind::Branch => format!("branch/{id}/{name}"),
                ReferenceKind::Head | ReferenceKind::Present => continue,
            };
            if self.engine.store.reference(&name)?.is_none() {
                mutations.push(Mutation::SetRef { name, expected: None, value: reference.step });
            }
        }
        Ok(mutations)
    }
}

/// Returns the id and root of the workspace that a log becomes. A workspace that was imported before keeps its id.
fn choose_destination(log: &WorkspaceLog, workspaces: &[WorkspaceRecord]) -> (WorkspaceId, Vec<u8>) {
    let source = &log.workspace;
    let mut used_names: Vec<&str> =
        source.root.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let is_recorded_here =
        workspaces.iter().any(|workspaces| workspaces.id == source.id && !is_imported(workspaces));
    let id = match source.root.strip_prefix(ROOT) {
        Some(_) if !is_recorded_here => {
            used_names = used_names.split_off(used_names.len().min(2));
            source.id
        }
        _ => {
            let name = format!("imported workspace {}", source.id);
            let mut id = [0; 16];
            id.copy_from_slice(&Hash::of(ObjectKind::Blob, name.as_bytes()).as_bytes()[..16]);
            WorkspaceId::from_bytes(id)
        }
    };
    // The root contains the whole id, so that two workspaces never have the same root.
    let root = format!("{ROOT}{id}/{}", used_names.join("/").replace('\0', ""));
    (id, root.trim_end_matches('/').as_bytes().to_vec())
}

fn is_imported(workspace: &WorkspaceRecord) -> bool {
    workspace.root.starts_with(ROOT.as_bytes())
}

fn conflict_error(what: String) -> BundleError {
    BundleError::Conflict(what)
}

/// Checks that two records are of the same step. Their annotations may differ, and one of them may have a parent that the
/// other lacks or has under another id.
fn check_same_step(existing: &StepRow, imported: &StepRow) -> Result<(), BundleError> {
    let (a, b) = (&existing.step, &imported.step);
    let same_content =
        |step: &Step| (step.session, step.kind, step.at, step.state, step.summary.clone(), step.meta.clone());
    let grew = match (a.parent, b.parent) {
        (Some(a), Some(b)) => a == b || origin_id(a) == b || a == origin_id(b),
        _ => true,
    };
    match same_content(a) == same_content(b) && grew {
        true => Ok(()),
        false => Err(conflict_error(format!("step {} differs from the one in this store", a.id))),
    }
}
