//! The commits of lines that are older than the recording, or that came in with a commit.
//!
//! The oldest recorded state says which commit was checked out then, so its lines are followed from there in git's
//! history. The same is done for changes that no agent made and that came together with another commit, such as those of
//! a pull. Nothing that is wrong with a repository fails the question: it is the reason why a commit is not known.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use stepback_engine::Workspace;
use stepback_engine::authorship::Attribution;
use stepback_git::{GitError, GitOid, GitRepository};
use stepback_model::path::RelPath;
use stepback_model::record::StepRow;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::time::Timestamp;
use stepback_model::tree::{Tree, TreeNode};

use crate::blame::{Blame, LineOrigin, OriginKind};
use crate::commit_walk::{CommitWalk, FoundCommit, WalkEnd, WalkLimits};
use crate::error::ProvenanceError;
use crate::file_versions::is_text;

/// The commit that a line comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineCommit {
    /// Its id.
    pub oid: GitOid,
    /// The name of its author.
    pub author: String,
    /// The author's address.
    pub email: String,
    /// When the author wrote it.
    pub at: Timestamp,
    /// The first line of its message.
    pub subject: String,
    /// The path of the file in that commit, from the root of the repository.
    pub path: String,
    /// Why the line may be from an older commit; `None` if it is certainly from this one.
    pub or_older: Option<WalkEnd>,
}

/// How a commit was found, or why none is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitRule {
    /// In the history of the commit that was checked out at a step.
    RecordedHead(u64),
    /// In the history of the commit that is checked out now, because the step names none that is still there.
    PresentHead,
    /// The commit does not have the line: it was not committed.
    NotCommitted,
    /// There is no repository.
    NoRepository,
    /// The repository has no commit.
    NoCommits,
    /// The repository cannot be read.
    Unreadable(String),
}

/// Where the search in git's history begins.
struct StartCommit {
    repository: PathBuf,
    path: Vec<u8>,
    commit: Option<GitOid>,
}

/// Adds the commits of lines that are older than the recording, or that came in with a commit.
pub fn add_commits(
    workspace: &Workspace,
    blame: &mut Blame,
    limits: WalkLimits,
) -> Result<(), ProvenanceError> {
    let _lock = workspace.lock_shared()?;
    let mut walks = HashMap::new();
    for index in 0..blame.origins.len() {
        let origin = &blame.origins[index];
        let Some(step) = origin.step.clone() else { continue };
        let is_searched = match origin.kind {
            OriginKind::BeforeRecording => true,
            OriginKind::Change => {
                origin.who == Attribution::Unreported && has_new_commit(workspace, &step, &origin.path)?
            }
            _ => false,
        };
        if is_searched {
            add_commits_of(workspace, blame, index, &step, limits, &mut walks)?;
        }
    }
    Ok(())
}

type Walks = HashMap<PathBuf, Result<(GitRepository, CommitWalk), CommitRule>>;

/// Finds the commits of the lines of one origin, and gives those of different commits origins of their own.
fn add_commits_of(
    workspace: &Workspace,
    blame: &mut Blame,
    index: usize,
    step: &StepRow,
    limits: WalkLimits,
    walks: &mut Walks,
) -> Result<(), ProvenanceError> {
    let origin = blame.origins[index].clone();
    let Some(text) = text_at(workspace, step, &origin.path)? else { return Ok(()) };
    let start = find_start(workspace, step, &origin.path)?;
    let walk = walks.entry(start.repository.clone()).or_insert_with(|| open_walk(&start.repository, limits));
    let lines: Vec<usize> =
        blame.lines.iter().filter(|line| line.origin == index).map(|line| line.original - 1).collect();
    let (found, rule) = match walk {
        Err(rule) => (Ok(HashMap::new()), rule.clone()),
        Ok((repository, walk)) => follow(repository, walk, &start, step, &text, &lines),
    };
    let (found, rule) = match found {
        Ok(found) => (found, rule),
        Err(error) => (HashMap::new(), CommitRule::Unreadable(error.to_string())),
    };
    let mut known: HashMap<Option<FoundCommit>, usize> = HashMap::new();
    for position in 0..blame.lines.len() {
        let line = &blame.lines[position];
        if line.origin != index {
            continue;
        }
        let commit = found.get(&(line.original - 1)).map(|(key, _)| key.clone());
        let target = match known.get(&commit) {
            Some(target) => *target,
            None => {
                let details = found.get(&(line.original - 1)).map(|(_, details)| details.clone());
                let is_committed = details.is_some();
                let described = LineOrigin {
                    commit: details,
                    commit_rule: Some(match (&rule, is_committed) {
                        (CommitRule::RecordedHead(_) | CommitRule::PresentHead, false) => {
                            CommitRule::NotCommitted
                        }
                        (rule, _) => rule.clone(),
                    }),
                    ..origin.clone()
                };
                // The first one takes the place of the origin without a commit.
                let target = match known.is_empty() {
                    true => index,
                    false => blame.origins.len(),
                };
                match blame.origins.get_mut(target) {
                    Some(place) => *place = described,
                    None => blame.origins.push(described),
                }
                known.insert(commit, target);
                target
            }
        };
        blame.lines[position].origin = target;
    }
    Ok(())
}

type FoundCommits = HashMap<usize, (FoundCommit, LineCommit)>;

fn follow(
    repository: &GitRepository,
    walk: &mut CommitWalk,
    start: &StartCommit,
    step: &StepRow,
    text: &[u8],
    lines: &[usize],
) -> (Result<FoundCommits, GitError>, CommitRule) {
    let recorded = start.commit.filter(|commit| walk.commit(*commit).is_ok());
    let (commit, rule) = match recorded {
        Some(commit) => (Some(commit), CommitRule::RecordedHead(step.step.number)),
        None => match repository.head_commit() {
            Ok(head) => (head, CommitRule::PresentHead),
            Err(error) => return (Err(error), CommitRule::PresentHead),
        },
    };
    let Some(commit) = commit else { return (Ok(HashMap::new()), CommitRule::NoCommits) };
    let mut details: HashMap<FoundCommit, LineCommit> = HashMap::new();
    let found = walk.follow(commit, &start.path, text, lines).and_then(|found| {
        let mut commits = HashMap::with_capacity(found.len());
        for (line, found) in found {
            let described = match details.get(&found) {
                Some(known) => known.clone(),
                None => describe_commit(walk, &found)?,
            };
            details.insert(found.clone(), described.clone());
            commits.insert(line, (found, described));
        }
        Ok(commits)
    });
    (found, rule)
}

fn describe_commit(walk: &mut CommitWalk, found: &FoundCommit) -> Result<LineCommit, GitError> {
    let commit = walk.commit(found.oid)?;
    Ok(LineCommit {
        oid: found.oid,
        author: commit.author.name.clone(),
        email: commit.author.email.clone(),
        at: Timestamp::from_micros(commit.author.seconds.saturating_mul(1_000_000)),
        subject: commit.subject(),
        path: String::from_utf8_lossy(&found.path).into_owned(),
        or_older: found.or_older,
    })
}

fn open_walk(dir: &std::path::Path, limits: WalkLimits) -> Result<(GitRepository, CommitWalk), CommitRule> {
    let refused = |error: GitError| match error {
        GitError::NoRepository(_) => CommitRule::NoRepository,
        error => CommitRule::Unreadable(error.to_string()),
    };
    let repository = GitRepository::open(dir).map_err(refused)?;
    let walk = CommitWalk::new(&repository, limits).map_err(refused)?;
    Ok((repository, walk))
}

/// Whether the commit that is checked out at a step is another one than at the step before it.
fn has_new_commit(workspace: &Workspace, step: &StepRow, path: &RelPath) -> Result<bool, ProvenanceError> {
    let Some(parent) = step.step.parent else { return Ok(false) };
    let Some(before) = workspace.store().step(parent)?.filter(|before| !before.purged) else {
        return Ok(false);
    };
    let now = find_start(workspace, step, path)?.commit;
    Ok(now.is_some() && now != find_start(workspace, &before, path)?.commit)
}

/// The repository that a file belongs to, its path there, and the commit that was checked out at a step.
fn find_start(workspace: &Workspace, step: &StepRow, path: &RelPath) -> Result<StartCommit, ProvenanceError> {
    let state = WorkspaceState::load(workspace.store(), step.step.state)?;
    let git = match state.git {
        Some(git) => GitState::load(workspace.store(), git)?,
        None => GitState::default(),
    };
    // The innermost repository that the file is in.
    let below = git.repositories.iter().filter_map(|repository| {
        let root = repository.path.strip_suffix(b".git")?;
        path.as_bytes().starts_with(root).then_some((root, repository))
    });
    if let Some((root, repository)) = below.max_by_key(|(root, _)| root.len()) {
        let commit = repository.summary.commit.as_ref().and_then(|commit| GitOid::parse(commit.as_bytes()));
        return Ok(StartCommit {
            repository: workspace.root.join(OsStr::from_bytes(root)),
            path: path.as_bytes()[root.len()..].to_vec(),
            commit,
        });
    }
    // The workspace may be a directory inside a repository, or its git directory may not be recorded.
    let around = GitRepository::discover(&workspace.root).ok().and_then(|repository| repository.work_dir);
    let root = around.unwrap_or_else(|| workspace.root.clone());
    let inside = workspace.root.strip_prefix(&root).map(|inside| inside.as_os_str().as_bytes().to_vec());
    let mut full = inside.unwrap_or_default();
    if !full.is_empty() {
        full.push(b'/');
    }
    full.extend_from_slice(path.as_bytes());
    Ok(StartCommit { repository: root, path: full, commit: None })
}

/// The text of a file at a checkpoint.
fn text_at(
    workspace: &Workspace,
    step: &StepRow,
    path: &RelPath,
) -> Result<Option<Vec<u8>>, ProvenanceError> {
    let state = WorkspaceState::load(workspace.store(), step.step.state)?;
    let Some(mut tree) = state.files else { return Ok(None) };
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let node = Tree::load(workspace.store(), tree)?.get(name).cloned();
        match (node, names.peek()) {
            (Some(TreeNode::Dir { tree: inner, .. }), Some(_)) => tree = inner,
            (Some(node @ TreeNode::File { .. }), None) => {
                let bytes = workspace.read_node(&node)?;
                return Ok(is_text(&bytes).then_some(bytes));
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}
