//! Brings a mirror up to date with its store: the commits since the mirror's cursor, or, where these cannot be listed, a new
//! generation with everything that the store has.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use stepback_model::env::Env;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSource as _};
use stepback_store::embedded::{CommitsAfter, EmbeddedStore, FollowedCommit, LinkFailure};
use stepback_store::port::{Mutation, ObjectInfo, ObjectStore as _};
use stepback_store::{Store, StoreError};

use crate::archive::{MirrorArchive, SegmentWriter};
use crate::error::MirrorError;
use crate::item::SegmentItem;
use crate::segment::MirrorCursor;
use crate::tally::{self, TallyCounter, WorkspaceTallies};
use crate::vault;

/// Number of commits that are read at a time.
const COMMITS: usize = 500;
/// How often a sync begins again because another process wrote to the mirror meanwhile.
const ATTEMPTS: u32 = 5;
/// Number of unreadable objects that are named.
const MAX_NAMED: usize = 10;

/// What a sync did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SyncReport {
    /// Number of commits that were mirrored one by one.
    pub commits: u64,
    /// Number of objects that were written.
    pub objects: u64,
    /// Number of segments that were written.
    pub segments: u64,
    /// Bytes of these, and of files of the vault.
    pub bytes: u64,
    /// Number of files of the vault that were written.
    pub vault_files: u64,
    /// Why a new generation was begun, if one was.
    pub new_generation: Option<String>,
    /// What contradicts the mirror in the store, if anything does.
    pub contradiction: Option<String>,
    /// What the store has and the mirror could not get.
    pub problems: Vec<String>,
}

/// A store and one of its mirrors.
pub struct MirrorSync<'a> {
    store: &'a EmbeddedStore,
    archive: MirrorArchive,
    env: &'a dyn Env,
    /// The files of the vault that the mirror has; read when it is first needed.
    vault_files: Option<HashSet<String>>,
    /// Counts objects and commits that were written.
    progress: Option<&'a AtomicU64>,
}

impl std::fmt::Debug for MirrorSync<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorSync").field("archive", &self.archive).finish_non_exhaustive()
    }
}

impl<'a> MirrorSync<'a> {
    /// Connects a store with a mirror.
    pub fn new(store: &'a EmbeddedStore, archive: MirrorArchive, env: &'a dyn Env) -> Self {
        Self { store, archive, env, vault_files: None, progress: None }
    }

    /// Counts what is written in `progress`.
    pub fn with_progress(self, progress: &'a AtomicU64) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// The mirror.
    pub fn archive(&self) -> &MirrorArchive {
        &self.archive
    }

    /// Mirrors everything that the store has. What was written before an error counts.
    pub fn sync(&mut self) -> Result<SyncReport, MirrorError> {
        let mut report = SyncReport::default();
        self.archive.refresh()?;
        for attempt in 1.. {
            match self.sync_once(&mut report) {
                Err(MirrorError::Conflict { .. }) if attempt < ATTEMPTS => self.archive.find_tail()?,
                done => return done.map(|()| report),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn sync_once(&mut self, report: &mut SyncReport) -> Result<(), MirrorError> {
        let generation = self.archive.cursor.generation;
        if !self.archive.cursor.is_complete {
            let reason = match generation {
                0 => "the mirror is new",
                _ => "the generation before it was not finished",
            };
            self.begin_generation(reason.to_owned(), report)?;
        }
        loop {
            match self.store.commits_after(self.archive.cursor.commit, COMMITS)? {
                CommitsAfter::Linked(commits) if commits.is_empty() => return Ok(()),
                CommitsAfter::Linked(commits) => self.write_commits(commits, report)?,
                CommitsAfter::Unlinked(failure) => {
                    let contradiction = find_contradiction(self.store, &self.archive.cursor, failure)?;
                    let reason = contradiction.clone().unwrap_or_else(|| match failure {
                        LinkFailure::OutOfReach => {
                            "the mirror was further behind than the store's record of commits reaches"
                                .to_owned()
                        }
                        _ => "the store was restored or copied, and has all steps of the mirror".to_owned(),
                    });
                    if contradiction.is_some() {
                        report.contradiction = contradiction;
                    }
                    self.begin_generation(reason, report)?;
                }
            }
        }
    }

    /// Compares all steps of the store with those that were mirrored.
    pub fn compare(&self) -> Result<Option<String>, MirrorError> {
        compare_with_store(self.store, &self.archive.cursor)
    }

    /// Copies files of the vault before the commits that refer to them.
    fn copy_vault(&mut self, report: &mut SyncReport) -> Result<Vec<SegmentItem>, MirrorError> {
        let Some(dir) = self.store.local_dir() else { return Ok(Vec::new()) };
        if self.vault_files.is_none() {
            self.vault_files = Some(vault::mirrored_files(self.archive.storage())?);
        }
        let known = self.vault_files.get_or_insert_default();
        let copied = vault::copy_new(dir, self.archive.storage(), known)?;
        report.vault_files += copied.manifests.len() as u64;
        report.bytes += copied.bytes;
        report.problems.extend(copied.problems);
        Ok(copied.manifests.into_iter().map(|manifest| SegmentItem::VaultFile { manifest }).collect())
    }

    fn write_commits(
        &mut self,
        commits: Vec<FollowedCommit>,
        report: &mut SyncReport,
    ) -> Result<(), MirrorError> {
        let vault_items = self.copy_vault(report)?;
        let now = self.env.now();
        let (store, progress) = (self.store, self.progress);
        let mut writer = SegmentWriter::new(&mut self.archive, now);
        for item in &vault_items {
            writer.push(item)?;
        }
        for commit in commits {
            for object in &commit.objects {
                write_object(store, object, &mut writer, report)?;
                count(progress);
            }
            match parse_mutations(&commit.mutations) {
                Ok(mutations) => {
                    let mut counter = TallyCounter::new(std::mem::take(&mut writer.cursor.workspaces));
                    for mutation in &mutations {
                        counter.count(mutation, Some(store))?;
                    }
                    writer.cursor.workspaces = counter.tallies;
                }
                // No store wrote it. It must not end the copying of what comes after.
                Err(error) => report.problems.push(format!("commit {}: {error}", commit.link.commit)),
            }
            writer.cursor.commit = commit.link;
            let FollowedCommit { link, before, mutations, .. } = commit;
            writer.push(&SegmentItem::Commit { link, before, mutations })?;
            report.commits += 1;
            count(progress);
        }
        writer.flush()?;
        report.segments += writer.segments;
        report.bytes += writer.bytes;
        Ok(())
    }

    /// Writes everything that the store has: first the log, so that a mirror whose first sync is interrupted has all of it,
    /// then the objects that no earlier generation has.
    fn begin_generation(&mut self, reason: String, report: &mut SyncReport) -> Result<(), MirrorError> {
        let known = mirrored_objects(&self.archive)?;
        let vault_items = self.copy_vault(report)?;
        let now = self.env.now();
        let (store, progress) = (self.store, self.progress);
        let mut writer = SegmentWriter::new(&mut self.archive, now);
        let number = writer.cursor.generation + 1;
        writer.cursor = MirrorCursor { generation: number, ..MirrorCursor::empty() };
        writer.push(&SegmentItem::Generation { number, reason: reason.clone() })?;
        for item in &vault_items {
            writer.push(item)?;
        }
        let mut parts = 0;
        let mut counter = TallyCounter::default();
        let link = store.read_log::<MirrorError>(&mut |mutations| {
            for mutation in &mutations {
                counter.count(mutation, None)?;
            }
            writer.cursor.workspaces.clone_from(&counter.tallies);
            // Mutations are plain data with string keys, which always serialise.
            let mutations = serde_json::to_vec(&mutations).unwrap_or_default();
            writer.push(&SegmentItem::Log { part: parts, mutations })?;
            parts += 1;
            count(progress);
            Ok(())
        })?;
        writer.cursor.commit = link;
        writer.push(&SegmentItem::LogEnd { link, parts })?;
        let mut objects = Vec::new();
        store.for_each_object(&mut |object| objects.push(object))?;
        objects.retain(|object| !known.contains(&object.hash));
        // Small ones first, since every checkpoint needs some; and a base before what is stored against it.
        objects.sort_by_key(|object| (object.kind == ObjectKind::Blob, object.base.is_some()));
        for object in &objects {
            write_object(store, object, &mut writer, report)?;
            count(progress);
        }
        writer.cursor.is_complete = true;
        writer.push(&SegmentItem::Complete)?;
        writer.flush()?;
        report.segments += writer.segments;
        report.bytes += writer.bytes;
        report.new_generation = Some(reason);
        Ok(())
    }
}

fn count(progress: Option<&AtomicU64>) {
    if let Some(progress) = progress {
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the changes of a commit.
pub fn parse_mutations(json: &[u8]) -> Result<Vec<Mutation>, MirrorError> {
    serde_json::from_slice(json).map_err(|error| MirrorError::Damaged {
        what: format!("changes that this version of stepback cannot read: {error}"),
    })
}

/// Copies an object. One that a collection has freed meanwhile is passed over, as is one that cannot be read.
fn write_object(
    store: &EmbeddedStore,
    object: &ObjectInfo,
    writer: &mut SegmentWriter<'_>,
    report: &mut SyncReport,
) -> Result<(), MirrorError> {
    let ObjectInfo { kind, hash, base, .. } = *object;
    match store.read(kind, hash) {
        Ok(bytes) => {
            report.objects += 1;
            writer.push(&SegmentItem::Object { kind, hash, base, bytes })
        }
        Err(ObjectError::Missing { .. }) => Ok(()),
        Err(error @ ObjectError::Corrupt { .. }) => {
            if report.problems.len() < MAX_NAMED {
                report.problems.push(error.to_string());
            }
            Ok(())
        }
        Err(error) => Err(StoreError::from(error).into()),
    }
}

/// The hashes of all objects that the mirror has. Reads the whole mirror, which only a new generation needs.
fn mirrored_objects(archive: &MirrorArchive) -> Result<HashSet<Hash>, MirrorError> {
    let mut known = HashSet::new();
    for (sequence, _) in archive.sequences()? {
        let segment = match archive.read(sequence) {
            Ok(segment) => segment,
            // What it had is written again.
            Err(MirrorError::Damaged { .. }) => continue,
            Err(error) => return Err(error),
        };
        for item in segment.items().flatten() {
            if let SegmentItem::Object { hash, .. } = item {
                known.insert(hash);
            }
        }
    }
    Ok(known)
}

/// Why the store's history is not that of the mirror; `None` if the mirror is only far behind.
fn find_contradiction(
    store: &EmbeddedStore,
    cursor: &MirrorCursor,
    failure: LinkFailure,
) -> Result<Option<String>, MirrorError> {
    let number = cursor.commit.commit;
    let difference = tally::find_difference(store, &cursor.workspaces)?;
    if difference.is_none() && !cursor.workspaces.is_empty() {
        return Ok(None);
    }
    Ok(match failure {
        LinkFailure::WentBack { newest } => Some(format!(
            "the store is older than the mirror: it ends at commit {}, the mirror has commit {number}",
            newest.commit
        )),
        LinkFailure::OtherHistory => {
            Some(format!("the store has another history: commit {number} is not the one in the mirror"))
        }
        LinkFailure::OutOfReach => difference,
    })
}

/// Whether the store has everything that the mirror has: that its history goes on from the mirror's, and that no step was
/// changed. Returns what contradicts it.
pub fn compare_with_store(
    store: &EmbeddedStore,
    cursor: &MirrorCursor,
) -> Result<Option<String>, MirrorError> {
    if let CommitsAfter::Unlinked(failure) = store.commits_after(cursor.commit, 0)?
        && let Some(contradiction) = find_contradiction(store, cursor, failure)?
    {
        return Ok(Some(contradiction));
    }
    Ok(tally::find_difference(store, &cursor.workspaces)?)
}

/// Whether a store may continue a mirror: it has the mirror's newest commit, or all of its steps.
pub fn can_continue(store: &EmbeddedStore, cursor: &MirrorCursor) -> Result<bool, MirrorError> {
    if cursor.generation == 0 {
        return Ok(true);
    }
    match store.commits_after(cursor.commit, 0)? {
        CommitsAfter::Linked(_) => Ok(true),
        CommitsAfter::Unlinked(_) => has_all(store, &cursor.workspaces),
    }
}

fn has_all(store: &dyn Store, tallies: &WorkspaceTallies) -> Result<bool, MirrorError> {
    Ok(!tallies.is_empty() && tally::find_difference(store, tallies)?.is_none())
}
