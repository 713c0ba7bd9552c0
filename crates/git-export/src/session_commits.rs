//! A session as commits on a branch: one for each turn or checkpoint.
//!
//! The commits are on top of the one that was checked out before the session. They depend on nothing but the recording and
//! the repository's own objects, so that a second export makes the same ones. The identities are not those of the user:
//! the author is the agent, the committer stepback.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;

use stepback_api::git_export::{LeftOutPathDocument, SessionCommitDocument, SessionCommitsDocument};
use stepback_engine::Workspace;
use stepback_git::object::{MODE_DIR, encode_tree};
use stepback_git::reference::is_valid_name;
use stepback_git::{
    GitCommit, GitEntry, GitError, GitObjectKind, GitOid, GitPackWriter, GitRepository, GitSignature,
    ObjectReader,
};
use stepback_model::ids::StepId;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::shell::quote_word;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::time::Timestamp;
use stepback_store::port::StepQuery;

use crate::commit_message::{CommitMessage, SESSION_TRAILER, STEP_TRAILER, trailer};
use crate::error::GitExportError;
use crate::state_tree::StateTreeWriter;

/// The references of our own.
const OWN_PREFIX: &str = "refs/stepback/";
/// Those of them that hold seals.
const SEALS: &str = "refs/stepback/seals/";
/// The name and address of the committer.
const COMMITTER: (&str, &str) = ("stepback", "stepback@localhost");

/// What becomes a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitGrouping {
    /// What the session did between one prompt and the next.
    Turn,
    /// Every checkpoint.
    Checkpoint,
}

/// A session to be written as commits.
#[derive(Clone, Debug)]
pub struct SessionCommitsRequest {
    /// The session.
    pub session: Session,
    /// The branch, or a reference below `refs/stepback/`.
    pub branch: String,
    /// What becomes a commit.
    pub per: CommitGrouping,
    /// Replace a branch that an earlier export wrote.
    pub is_forced: bool,
}

/// A commit to be made.
struct PlannedCommit {
    /// The first checkpoint that it sums up.
    first: StepRow,
    /// The last one, whose files it has.
    checkpoint: StepRow,
    /// The prompt that led to it.
    prompt: Option<StepRow>,
    /// The steps that it sums up.
    steps: Vec<StepRow>,
}

/// Writes a session as commits, and sets the reference to the last one.
pub fn export_session(
    workspace: &Workspace,
    request: &SessionCommitsRequest,
) -> Result<SessionCommitsDocument, GitExportError> {
    // A prune must not free what is being read.
    let _lock = workspace.lock_shared()?;
    let reference = full_name(&request.branch)?;
    let repository = GitRepository::discover(&workspace.root)?;
    let reader = ObjectReader::open(&repository)?;
    let current = check_reference(&repository, &reader, &reference)?;
    let (planned, freed) = plan_commits(workspace, request)?;
    let Some(first) = planned.first() else {
        let reason = match freed {
            0 => ": it changed no files".to_owned(),
            freed => format!(": the files of {freed} were freed"),
        };
        let session = request.session.id.short().to_string();
        return Err(GitExportError::NothingToExport { session, reason });
    };
    let before = match first.first.step.parent {
        Some(parent) => workspace.store().step(parent)?.filter(|before| !before.purged),
        None => None,
    };
    let inside = inside_repository(workspace, &repository);
    let base = find_base(workspace, &repository, &reader, before.as_ref().unwrap_or(&first.first), &inside)?;
    let base_tree = base.map(|base| reader.commit(base)).transpose()?.map(|commit| commit.tree);
    let tracked = match (base_tree, inside.is_empty()) {
        (Some(tree), false) => {
            reader.entry_at(tree, &inside)?.filter(GitEntry::is_dir).map(|entry| entry.oid)
        }
        (tree, _) => tree,
    };
    let mut writer =
        StateTreeWriter::new(workspace, GitPackWriter::create(&repository)?, &repository.exclude_rules());
    let mut branch = BranchBuilder { request, parent: base, tree: base_tree, commits: Vec::new() };
    if let Some(before) = &before {
        // What the user had changed, so that the first commit of the session has only the session's changes.
        let tree = write_tree(workspace, &mut writer, before, tracked, base_tree, &inside)?;
        branch.add(&mut writer, tree, before, &describe_start(request, before))?;
    }
    for commit in &planned {
        let tree = write_tree(workspace, &mut writer, &commit.checkpoint, tracked, base_tree, &inside)?;
        branch.add(&mut writer, tree, &commit.checkpoint, &describe_commit(request, commit))?;
    }
    let Some(tip) = branch.parent.filter(|_| !branch.commits.is_empty()) else {
        let session = request.session.id.short().to_string();
        let reason = ": no file that git takes was changed".to_owned();
        return Err(GitExportError::NothingToExport { session, reason });
    };
    if current.is_some_and(|current| current != tip) && !request.is_forced {
        return Err(GitExportError::ReferenceExists(reference));
    }
    let (objects, left_out) = (writer.pack.added(), writer.left_out);
    let changed = current != Some(tip);
    writer.pack.finish()?;
    if changed {
        let mut anchor = repository.open_for_writing()?;
        repository.move_reference(&mut anchor, &reference, current, tip)?;
    }
    let listed = left_out.listed.into_iter().map(|(path, reason)| LeftOutPathDocument { path, reason });
    Ok(SessionCommitsDocument {
        session: request.session.id.to_string(),
        undo: undo_command(&reference, current.filter(|_| changed)),
        reference,
        commit: tip.to_string(),
        base: base.map(|base| base.to_string()),
        commits: branch.commits,
        objects,
        changed,
        freed,
        left_out: listed.collect(),
        left_out_count: left_out.count,
    })
}

/// The full name of a reference that the user wrote as a branch or in full.
fn full_name(text: &str) -> Result<String, GitExportError> {
    let is_foreign = text.starts_with(SEALS)
        || (text.starts_with("refs/") && !text.starts_with(OWN_PREFIX) && !text.starts_with("refs/heads/"));
    if is_foreign {
        return Err(GitExportError::ForeignReference(text.to_owned()));
    }
    let full = if text.starts_with("refs/") { text.to_owned() } else { format!("refs/heads/{text}") };
    // Git takes a name that begins with a dash for an option, and HEAD for another thing.
    let short = full.rsplit('/').next().unwrap_or_default();
    if !is_valid_name(&full) || text.starts_with('-') || short == "HEAD" {
        return Err(GitError::BadName(text.to_owned()).into());
    }
    Ok(full)
}

/// The present target of the reference, which must be free or end in a commit of ours.
fn check_reference(
    repository: &GitRepository,
    reader: &ObjectReader,
    reference: &str,
) -> Result<Option<GitOid>, GitExportError> {
    if repository.references_in_use().iter().any(|used| used == reference) {
        return Err(GitExportError::ReferenceInUse(reference.to_owned()));
    }
    let Some(current) = repository.read_reference(reference)? else { return Ok(None) };
    let is_ours = reader.commit(current).is_ok_and(|commit| {
        let message = String::from_utf8_lossy(&commit.message).into_owned();
        (commit.committer.name.as_str(), commit.committer.email.as_str()) == COMMITTER
            && trailer(&message, SESSION_TRAILER).is_some()
    });
    if is_ours { Ok(Some(current)) } else { Err(GitExportError::ReferenceNotOurs(reference.to_owned())) }
}

/// The checkpoints that become commits, oldest first, and the number of those whose files were freed.
fn plan_commits(
    workspace: &Workspace,
    request: &SessionCommitsRequest,
) -> Result<(Vec<PlannedCommit>, u64), GitExportError> {
    let query = StepQuery { session: Some(request.session.id), oldest_first: true, ..StepQuery::default() };
    let steps = workspace.store().steps(workspace.record.id, &query)?;
    let query = StepQuery { checkpoint: Some(true), ..query };
    let checkpoints = workspace.store().steps(workspace.record.id, &query)?;
    let checkpoints: HashSet<StepId> = checkpoints.iter().map(|stored| stored.step.id).collect();
    let mut planned: Vec<PlannedCommit> = Vec::new();
    let (mut freed, mut prompt, mut pending) = (0, None, Vec::new());
    for stored in steps {
        if stored.step.kind == StepKind::UserInput {
            prompt = Some(stored.clone());
        }
        if stored.step.kind == StepKind::ToolEnd {
            pending.push(stored.clone());
        }
        if !checkpoints.contains(&stored.step.id) {
            continue;
        }
        if stored.purged {
            freed += 1;
            continue;
        }
        let id = |prompt: &Option<StepRow>| prompt.as_ref().map(|prompt| prompt.step.id);
        match planned
            .last_mut()
            .filter(|last| request.per == CommitGrouping::Turn && id(&last.prompt) == id(&prompt))
        {
            Some(last) => {
                last.checkpoint = stored;
                last.steps.append(&mut pending);
            }
            None => {
                let steps = std::mem::take(&mut pending);
                let first = stored.clone();
                planned.push(PlannedCommit { first, checkpoint: stored, prompt: prompt.clone(), steps });
            }
        }
    }
    Ok((planned, freed))
}

/// The path of the workspace in the work tree of the repository; empty if it is its root.
fn inside_repository(workspace: &Workspace, repository: &GitRepository) -> Vec<u8> {
    let inside = repository.work_dir.as_ref().and_then(|root| workspace.root.strip_prefix(root).ok());
    inside.map(|inside| inside.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}

/// The commit that was checked out at a step, if the repository has it; otherwise the present one.
fn find_base(
    workspace: &Workspace,
    repository: &GitRepository,
    reader: &ObjectReader,
    step: &StepRow,
    inside: &[u8],
) -> Result<Option<GitOid>, GitExportError> {
    let git = load_git(workspace, step)?;
    let recorded = git.get(b".git").filter(|_| inside.is_empty());
    let commit = recorded.and_then(|recorded| recorded.summary.commit.clone());
    let commit = commit.and_then(|commit| GitOid::parse(commit.as_bytes()));
    match (commit.filter(|commit| reader.commit(*commit).is_ok()), recorded) {
        (Some(commit), _) => Ok(Some(commit)),
        // There was no commit yet.
        (None, Some(recorded)) if recorded.summary.commit.is_none() => Ok(None),
        _ => Ok(repository.head_commit()?.filter(|head| reader.commit(*head).is_ok())),
    }
}

fn load_git(workspace: &Workspace, step: &StepRow) -> Result<GitState, GitExportError> {
    let state = WorkspaceState::load(workspace.store(), step.step.state)?;
    Ok(match state.git {
        Some(git) => GitState::load(workspace.store(), git)?,
        None => GitState::default(),
    })
}

/// Writes the files of a checkpoint as a tree, which is only a part of the repository's if the workspace is one.
fn write_tree(
    workspace: &Workspace,
    writer: &mut StateTreeWriter<'_, '_>,
    step: &StepRow,
    tracked: Option<GitOid>,
    base_tree: Option<GitOid>,
    inside: &[u8],
) -> Result<GitOid, GitExportError> {
    let state = WorkspaceState::load(workspace.store(), step.step.state)?;
    let files = writer.write(state.files, &load_git(workspace, step)?, tracked)?;
    if inside.is_empty() {
        return Ok(files);
    }
    let names: Vec<&[u8]> = inside.split(|byte| *byte == b'/').collect();
    place_inside(writer, base_tree, &names, files)
}

/// A tree with `files` at the path `names`, and everything else as in `around`.
fn place_inside(
    writer: &mut StateTreeWriter<'_, '_>,
    around: Option<GitOid>,
    names: &[&[u8]],
    files: GitOid,
) -> Result<GitOid, GitExportError> {
    let Some((name, rest)) = names.split_first() else { return Ok(files) };
    let mut entries = match around {
        Some(around) => writer.pack.reader().tree(around)?,
        None => Vec::new(),
    };
    let inner = entries.iter().find(|entry| entry.name == *name && entry.is_dir()).map(|entry| entry.oid);
    let oid = place_inside(writer, inner, rest, files)?;
    entries.retain(|entry| entry.name != *name);
    entries.push(GitEntry { mode: MODE_DIR, name: name.to_vec(), oid });
    Ok(writer.pack.add(GitObjectKind::Tree, &encode_tree(entries))?)
}

/// The commits made so far.
struct BranchBuilder<'e> {
    request: &'e SessionCommitsRequest,
    parent: Option<GitOid>,
    tree: Option<GitOid>,
    commits: Vec<SessionCommitDocument>,
}

impl BranchBuilder<'_> {
    /// Adds a commit, unless it would have the same files as the one before it.
    fn add(
        &mut self,
        writer: &mut StateTreeWriter<'_, '_>,
        tree: GitOid,
        step: &StepRow,
        message: &CommitMessage,
    ) -> Result<(), GitExportError> {
        if self.tree == Some(tree) {
            return Ok(());
        }
        let is_start = step.step.session != self.request.session.id;
        let author = match is_start {
            true => COMMITTER.0.to_owned(),
            false => self.request.session.agent.clone(),
        };
        let commit = GitCommit {
            tree,
            parents: self.parent.into_iter().collect(),
            author: signature(&author, &format!("{author}@localhost"), step.step.at),
            committer: signature(COMMITTER.0, COMMITTER.1, step.step.at),
            message: message.encode(),
        };
        let oid = writer.pack.add(GitObjectKind::Commit, &commit.encode())?;
        self.commits.push(SessionCommitDocument {
            id: oid.to_string(),
            step: step.step.number,
            subject: commit.subject(),
        });
        (self.parent, self.tree) = (Some(oid), Some(tree));
        Ok(())
    }
}

fn signature(name: &str, email: &str, at: Timestamp) -> GitSignature {
    GitSignature {
        name: name.to_owned(),
        email: email.to_owned(),
        seconds: at.as_micros().div_euclid(1_000_000),
    }
}

fn trailers(request: &SessionCommitsRequest, step: &StepRow) -> Vec<(&'static str, String)> {
    let mut trailers = vec![
        (SESSION_TRAILER, request.session.id.to_string()),
        (STEP_TRAILER, step.step.number.to_string()),
        ("Stepback-Agent", request.session.agent.clone()),
    ];
    trailers.extend(request.session.info.model.clone().map(|model| ("Stepback-Model", model)));
    trailers
}

fn describe_start(request: &SessionCommitsRequest, before: &StepRow) -> CommitMessage {
    CommitMessage {
        subject: format!("Files before session {}", request.session.id.short()),
        body: vec!["What differed from the commit that was checked out when the session began.".to_owned()],
        trailers: trailers(request, before),
    }
}

fn describe_commit(request: &SessionCommitsRequest, commit: &PlannedCommit) -> CommitMessage {
    let prompt = commit.prompt.as_ref().map(|prompt| prompt.step.summary.clone());
    let subject = match (request.per, &prompt) {
        (CommitGrouping::Turn, Some(prompt)) => prompt.clone(),
        _ => commit.checkpoint.step.summary.clone(),
    };
    let mut trailers = trailers(request, &commit.checkpoint);
    trailers.extend(prompt.map(|prompt| ("Stepback-Prompt", prompt)));
    let body = commit.steps.iter().map(|stored| format!("#{} {}", stored.step.number, stored.step.summary));
    CommitMessage { subject, body: body.collect(), trailers }
}

/// The command with which git takes the export back.
fn undo_command(reference: &str, replaced: Option<GitOid>) -> String {
    match (reference.strip_prefix("refs/heads/"), replaced) {
        (_, Some(replaced)) => format!("git update-ref {} {replaced}", quote_word(reference)),
        (Some(branch), None) => format!("git branch -D {}", quote_word(branch)),
        (None, None) => format!("git update-ref -d {}", quote_word(reference)),
    }
}
