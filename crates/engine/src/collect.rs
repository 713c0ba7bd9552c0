//! Garbage collection: finds the objects in use, verifies them, and frees the rest.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::WorkspaceId;
use stepback_model::path::display_bytes;
use stepback_store::StoreError;
use stepback_store::port::{StepQuery, StepRow, Swept};
use stepback_store::step_chain::{self, ChainBreak};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::reachability::{Alive, Marker};
use crate::retry::{is_race, retry};
use crate::workspace::{PATIENCE, StoreSource, wait_for_lock};

/// How many steps are read at once of those that were committed during a walk.
const NEW_STEPS: u64 = 1000;

/// A walk from the roots to everything that they need.
struct Walk {
    alive: Alive,
    /// The newest step when it began.
    position: u64,
}

/// The result of a check of the store.
#[derive(Debug, Default, serde::Serialize)]
pub struct Health {
    /// Number of objects that were read and verified.
    pub verified: u64,
    /// Size of these objects before compression, in bytes.
    pub bytes: u64,
    /// Number of steps.
    pub steps: u64,
    /// Number of steps that have a link in the chain of their session; those from before stores had links have none.
    pub linked: u64,
    /// Steps that were changed by other means than stepback.
    pub breaks: Vec<WorkspaceBreak>,
    /// Problems found, as sentences; breaks are among them.
    pub problems: Vec<String>,
}

/// A break in the chain of a session.
#[derive(Debug, serde::Serialize)]
pub struct WorkspaceBreak {
    /// The workspace of the session.
    pub workspace: WorkspaceId,
    /// What happened, and where.
    #[serde(rename = "break")]
    pub chain_break: ChainBreak,
}

impl Engine {
    /// Returns everything that unpruned states, sessions and open journals need, and the problems met, such as missing
    /// objects.
    fn find_reachable(&self) -> Result<(Alive, Vec<String>), EngineError> {
        let (Walk { mut alive, .. }, problems) = self.walk(None)?;
        self.add_bases(&mut alive)?;
        Ok((alive, problems))
    }

    /// Walks from all roots to everything that they need. `earlier` is a walk that met no problem: what it reached is not
    /// read again, and only the steps that were committed since are roots.
    fn walk(&self, earlier: Option<Walk>) -> Result<(Walk, Vec<String>), EngineError> {
        let source = StoreSource(self.store());
        let mut marker = Marker::new(&source);
        // Read first: what is committed meanwhile belongs to the next walk.
        let position = self.store.newest_position()?;
        match earlier {
            None => self.push_roots(&mut marker, &|_| false)?,
            Some(earlier) => {
                marker.alive = earlier.alive;
                let mut from = earlier.position;
                loop {
                    let steps = self.store.follow(from, NEW_STEPS)?;
                    let Some(last) = steps.last() else { break };
                    from = last.position;
                    for new in &steps {
                        marker.push_step(&new.stored.step, new.stored.purged);
                    }
                }
                for workspace in self.store.workspaces()? {
                    self.push_movable_roots(&mut marker, workspace.id)?;
                }
            }
        }
        marker.run();
        Ok((Walk { alive: marker.alive, position }, marker.problems))
    }

    /// Adds the bases of objects that are stored as deltas. Nothing may be marked from these objects afterwards: what a base
    /// refers to is not needed.
    fn add_bases(&self, alive: &mut Alive) -> Result<(), EngineError> {
        let mut bases: HashMap<Hash, Hash> = HashMap::new();
        self.store.for_each_object(&mut |object| {
            if let Some(base) = object.base {
                bases.insert(object.hash, base);
            }
        })?;
        let mut chains: Vec<Hash> = alive.objects.iter().copied().collect();
        while let Some(hash) = chains.pop() {
            if let Some(base) = bases.get(&hash)
                && alive.objects.insert(*base)
            {
                chains.push(*base);
            }
        }
        Ok(())
    }

    /// Adds everything that steps, sessions and open journals of all workspaces refer to. The states of purged steps are not
    /// needed, nor are those of steps for which `is_freed` holds.
    pub(crate) fn push_roots(
        &self,
        marker: &mut Marker<'_>,
        is_freed: &dyn Fn(&StepRow) -> bool,
    ) -> Result<(), EngineError> {
        for workspace in self.store.workspaces()? {
            for stored in self.store.steps(workspace.id, &StepQuery::default())? {
                marker.push_step(&stored.step, stored.purged || is_freed(&stored));
            }
            self.push_movable_roots(marker, workspace.id)?;
        }
        Ok(())
    }

    /// Adds what the sessions and open journals of a workspace refer to. It changes, other than what a step refers to.
    fn push_movable_roots(&self, marker: &mut Marker<'_>, workspace: WorkspaceId) -> Result<(), EngineError> {
        for session in self.store.sessions(workspace)? {
            marker.push_session(&session.info);
        }
        for operation in self.store.unfinished(workspace)? {
            if let Some(journal) = operation.journal {
                marker.push(ObjectKind::Plan, journal);
            }
            if let Some(detail) = operation.action.moved().and_then(|moved| moved.detail) {
                marker.push(ObjectKind::Json, detail);
            }
        }
        Ok(())
    }

    /// Frees the objects that nothing needs. Other processes may write and read meanwhile; a process that relied on a freed
    /// object gets an error.
    ///
    /// The walk through a large store takes long, and hooks do not wait: so it is done before the lock is taken, and only
    /// what was committed meanwhile is walked under the lock.
    pub fn collect_garbage(&self) -> Result<Swept, EngineError> {
        let (before, problems) = self.walk(None)?;
        // Another collection may have freed what this walk was about to read; the walk under the lock decides.
        let mut walked = Some(before).filter(|_| problems.is_empty());
        let _lock = match self.store.local_dir() {
            Some(dir) => Some(wait_for_lock(&dir.join("collect.lock"), File::try_lock, dir, PATIENCE)?),
            None => None,
        };
        retry("free unused objects", is_race, || {
            let mark = self.store.commit_seq()?;
            let (walk, problems) = self.walk(walked.take())?;
            if let Some(problem) = problems.first() {
                return Err(StoreError::Corrupt {
                    what: format!("{problem}; nothing is freed from a damaged store"),
                }
                .into());
            }
            let alive = &walked.insert(walk).alive;
            let mut swept = self.store.sweep(&alive.objects, mark)?;
            if let Some(vault) = self.vault()? {
                let lenders = self.store.lenders()?;
                let (_, bytes) = vault
                    .retain(|name| alive.vaulted.contains(name) || lenders.contains(name))
                    .map_err(stepback_worktree::WorktreeError::aside("clean up", "the vault"))?;
                swept.bytes += bytes;
            }
            Ok(swept)
        })
    }

    /// Verifies the chains of all sessions: whether steps were changed since they were recorded.
    fn verify_chains(&self, health: &mut Health) -> Result<(), EngineError> {
        for workspace in self.store.workspaces()? {
            let report = step_chain::verify(self.store(), workspace.id)?;
            health.steps += report.steps;
            health.linked += report.linked;
            let root = display_bytes(&workspace.root);
            let breaks = report.breaks.into_iter();
            health.breaks.extend(breaks.map(|chain_break| {
                health.problems.push(format!("{root}: {chain_break}"));
                WorkspaceBreak { workspace: workspace.id, chain_break }
            }));
            if report.omitted > 0 {
                health.problems.push(format!("{root}: {} more changes of steps", report.omitted));
            }
        }
        Ok(())
    }

    /// Reads and verifies all objects, and verifies the chains of all sessions.
    pub fn verify_objects(&self) -> Result<Health, EngineError> {
        let mut health = Health { problems: self.store.check()?, ..Health::default() };
        self.verify_chains(&mut health)?;
        let mut objects = Vec::new();
        self.store.for_each_object(&mut |object| objects.push(object))?;
        for object in objects {
            match self.store.read(object.kind, object.hash) {
                Ok(bytes) => {
                    health.verified += 1;
                    health.bytes += bytes.len() as u64;
                }
                Err(error) => health.problems.push(error.to_string()),
            }
            if let Some(progress) = &self.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (alive, missing) = match self.find_reachable() {
            // A step that was changed may not be readable as one.
            Err(error) if !health.breaks.is_empty() => (Alive::default(), vec![error.to_string()]),
            result => result?,
        };
        health.problems.extend(missing);
        for hash in &alive.objects {
            let is_other_kind =
                ObjectKind::ALL.iter().any(|kind| self.store.contains(*kind, *hash).unwrap_or(false));
            if !is_other_kind {
                health
                    .problems
                    .push(format!("object {hash} is required by a checkpoint but missing from the store"));
            }
        }
        if let Some(dir) = self
            .store
            .local_dir()
            .filter(|dir| self.store.has_vault() || dir.join(stepback_store::port::VAULT).is_dir())
        {
            for name in &alive.vaulted {
                let path = dir.join(stepback_store::port::VAULT).join(OsStr::from_bytes(name));
                if let Err(problem) = stepback_store::verify_git_file(&path) {
                    health.problems.push(format!("{} is needed by a checkpoint: {problem}", path.display()));
                }
            }
        }
        health.problems.sort();
        health.problems.dedup();
        Ok(health)
    }
}
