//! Writes and reads the authorship notes of commits.
//!
//! Which session wrote a line that a commit added is known if a recorded checkpoint has the same content of the file: the
//! lines are blamed there. Lines of a file that no checkpoint has with this content are unknown, and are not in the note.
//! Lines that no call of an agent wrote are the committer's, as far as the record tells.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;

use stepback_api::git_export::{
    AuthorshipRangeDocument, CommitAuthorshipDocument, CommitNoteDocument, LeftOutPathDocument,
    NotesWrittenDocument,
};
use stepback_engine::Workspace;
use stepback_engine::authorship::Attribution;
use stepback_git::{
    GitCommit, GitEntry, GitError, GitObjectKind, GitOid, GitRepository, GitSignature, ObjectReader,
};
use stepback_model::path::{RelPath, display_bytes};
use stepback_model::record::{Session, StepRow};
use stepback_model::tree::TreeNode;
use stepback_provenance::blame::{self, OriginKind};
use stepback_provenance::line_map::{map_lines, split_lines};
use stepback_provenance::{BlameRequest, FileVersions};

use crate::authorship_note::{
    AuthorshipNote, NoteAuthor, NoteEntry, human_key, is_writable_path, session_key, trace_key,
};
use crate::error::GitExportError;
use crate::note_tree::{find_note, put_note};

/// The reference with the notes.
pub const NOTES_REFERENCE: &str = "refs/notes/ai";
/// The most commits of a range.
const MAX_COMMITS: usize = 1000;
/// The largest file whose lines are attributed, in bytes.
const MAX_FILE_BYTES: usize = 32 << 20;

/// The commits whose notes are written.
#[derive(Clone, Debug)]
pub struct NotesRequest {
    /// A commit, or `A..B`: what B has and A has not.
    pub commits: String,
    /// Only find out what would be written.
    pub is_dry_run: bool,
}

/// Writes the notes of some commits.
pub fn write_notes(
    workspace: &Workspace,
    request: &NotesRequest,
) -> Result<NotesWrittenDocument, GitExportError> {
    let repository = GitRepository::discover(&workspace.root)?;
    let reader = ObjectReader::open(&repository)?;
    let commits = list_commits(&repository, &reader, &request.commits)?;
    let current = repository.read_reference(NOTES_REFERENCE)?;
    let mut tree = current.map(|current| reader.commit(current)).transpose()?.map(|commit| commit.tree);
    let before = tree;
    let mut anchor = match request.is_dry_run {
        true => None,
        false => Some(repository.open_for_writing()?),
    };
    let attributor = NoteAttributor::new(workspace, &repository)?;
    let mut documents = Vec::new();
    for commit in commits {
        let existing = match tree {
            Some(tree) => find_note(&reader, tree, commit)?,
            None => None,
        };
        let (document, note) = attributor.describe(&reader, commit, existing.as_deref())?;
        if let (Some(note), Some(anchor)) = (note, anchor.as_mut()) {
            let blob = repository.write_object(anchor, GitObjectKind::Blob, note.as_bytes())?;
            tree = Some(put_note(&repository, &reader, anchor, tree, commit, blob)?);
        }
        documents.push(document);
    }
    let mut written = None;
    if let (Some(anchor), Some(tree)) = (anchor.as_mut(), tree.filter(|tree| Some(*tree) != before)) {
        let at = workspace.engine.env.now().as_micros().div_euclid(1_000_000);
        let signature =
            GitSignature { name: "stepback".to_owned(), email: "stepback@localhost".to_owned(), seconds: at };
        let commit = GitCommit {
            tree,
            parents: current.into_iter().collect(),
            author: signature.clone(),
            committer: signature,
            message: b"Authorship notes by stepback\n".to_vec(),
        };
        let commit = repository.write_object(anchor, GitObjectKind::Commit, &commit.encode())?;
        repository.move_reference(anchor, NOTES_REFERENCE, current, commit)?;
        written = Some(commit.to_string());
    }
    let undo = written.as_ref().map(|_| match current {
        Some(current) => format!("git update-ref {NOTES_REFERENCE} {current}"),
        None => format!("git update-ref -d {NOTES_REFERENCE}"),
    });
    Ok(NotesWrittenDocument {
        reference: NOTES_REFERENCE.to_owned(),
        commit: written,
        commits: documents,
        undo,
    })
}

/// Reads the note of a commit; `None` if it has none.
pub fn read_notes(
    workspace: &Workspace,
    commit: &str,
) -> Result<Option<CommitAuthorshipDocument>, GitExportError> {
    let repository = GitRepository::discover(&workspace.root)?;
    let reader = ObjectReader::open(&repository)?;
    let commit = resolve(&repository, &reader, commit)?;
    let Some(notes) = repository.read_reference(NOTES_REFERENCE)? else { return Ok(None) };
    let Some(text) = find_note(&reader, reader.commit(notes)?.tree, commit)? else { return Ok(None) };
    let unreadable = |reason: String| {
        GitExportError::Git(GitError::Damaged { what: format!("the note of {commit}"), reason })
    };
    let note = AuthorshipNote::parse(&String::from_utf8_lossy(&text)).map_err(unreadable)?;
    let mut known: HashMap<String, Session> = HashMap::new();
    for session in workspace.store().sessions(workspace.record.id)? {
        known.insert(key_of(&session), session);
    }
    let mut ranges = Vec::new();
    for file in &note.files {
        for entry in &file.entries {
            let author = note.author(entry.author_key());
            let session = known.get(entry.author_key());
            let kind = match (entry.key.starts_with("h_"), &author.agent) {
                (true, _) => "human",
                (false, Some(_)) => "session",
                (false, None) => "unknown",
            };
            ranges.extend(entry.ranges.iter().map(|(first, last)| AuthorshipRangeDocument {
                path: file.path.clone(),
                first: *first,
                last: *last,
                key: entry.key.clone(),
                kind: kind.to_owned(),
                agent: author.agent.clone(),
                agent_session: author.conversation.clone(),
                model: author.model.clone(),
                human: author.human.clone(),
                session: session.map(|session| session.id.to_string()),
                started_at: session.map(|session| session.started_at),
            }));
        }
    }
    Ok(Some(CommitAuthorshipDocument { commit: commit.to_string(), ranges }))
}

/// The key of a recorded session in a note.
fn key_of(session: &Session) -> String {
    session_key(&session.agent, &conversation_of(session))
}

/// The id of the conversation of a session: the agent's own, or else ours.
fn conversation_of(session: &Session) -> String {
    session.info.external.clone().unwrap_or_else(|| session.id.to_string())
}

fn resolve(repository: &GitRepository, reader: &ObjectReader, text: &str) -> Result<GitOid, GitExportError> {
    let found = repository.resolve_commit(reader, text)?;
    found.ok_or_else(|| GitExportError::NoCommit(text.to_owned()))
}

/// The commits that the user named, oldest first.
fn list_commits(
    repository: &GitRepository,
    reader: &ObjectReader,
    text: &str,
) -> Result<Vec<GitOid>, GitExportError> {
    let Some((from, to)) = text.split_once("..") else {
        return Ok(vec![resolve(repository, reader, text)?]);
    };
    let or_head = |name: &str| if name.is_empty() { "HEAD".to_owned() } else { name.to_owned() };
    let (from, to) =
        (resolve(repository, reader, &or_head(from))?, resolve(repository, reader, &or_head(to))?);
    let excluded = reachable(reader, from, &HashSet::new(), usize::MAX)?.unwrap_or_default();
    let excluded: HashSet<GitOid> = excluded.into_iter().collect();
    let mut commits = reachable(reader, to, &excluded, MAX_COMMITS)?
        .ok_or_else(|| GitExportError::TooManyCommits { range: text.to_owned(), limit: MAX_COMMITS })?;
    commits.reverse();
    Ok(commits)
}

/// The commits that can be reached and are not excluded; `None` if there are more than `limit`. Missing ones, in a shallow
/// clone, are left out.
fn reachable(
    reader: &ObjectReader,
    from: GitOid,
    excluded: &HashSet<GitOid>,
    limit: usize,
) -> Result<Option<Vec<GitOid>>, GitExportError> {
    let (mut found, mut seen, mut rest) = (Vec::new(), HashSet::new(), vec![from]);
    while let Some(oid) = rest.pop() {
        if excluded.contains(&oid) || !seen.insert(oid) {
            continue;
        }
        let commit = match reader.commit(oid) {
            Ok(commit) => commit,
            Err(GitError::NoObject(_)) if oid != from => continue,
            Err(error) => return Err(error.into()),
        };
        found.push(oid);
        if found.len() > limit {
            return Ok(None);
        }
        rest.extend(commit.parents);
    }
    Ok(Some(found))
}

/// Finds out who wrote the lines that commits added.
struct NoteAttributor<'w> {
    workspace: &'w Workspace,
    /// The checkpoints of the present line, newest first.
    versions: Option<FileVersions<'w>>,
    /// The path of the workspace in the repository, with a slash at the end; empty if it is its root.
    inside: Vec<u8>,
}

/// The text of a file and the numbers of the lines that a commit added to it.
type AddedLines = (Vec<u8>, Vec<u64>);
/// An author and the numbers of the lines.
type AuthoredLines = (LineAuthor, Vec<u64>);

/// The lines of one author in a file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum LineAuthor {
    Session { key: String, trace: String },
    Human,
}

impl<'w> NoteAttributor<'w> {
    fn new(workspace: &'w Workspace, repository: &GitRepository) -> Result<Self, GitExportError> {
        let inside = repository.work_dir.as_ref().and_then(|root| workspace.root.strip_prefix(root).ok());
        let mut inside = inside.map(|inside| inside.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        if !inside.is_empty() {
            inside.push(b'/');
        }
        let versions = match workspace.head_id()? {
            Some(_) => Some(FileVersions::new(workspace, &workspace.head()?)?),
            None => None,
        };
        Ok(Self { workspace, versions, inside })
    }

    /// What is known about a commit, and its new note, if there is something to write.
    fn describe(
        &self,
        reader: &ObjectReader,
        oid: GitOid,
        existing: Option<&[u8]>,
    ) -> Result<(CommitNoteDocument, Option<String>), GitExportError> {
        let mut document = CommitNoteDocument { commit: oid.to_string(), ..CommitNoteDocument::default() };
        let parsed = existing.map(|bytes| AuthorshipNote::parse(&String::from_utf8_lossy(bytes)));
        let mut note = match parsed {
            None => AuthorshipNote::new(&oid.to_string()),
            Some(Ok(note)) => note,
            Some(Err(reason)) => {
                document.result = "refused".to_owned();
                document.reason = Some(format!("the commit has a note in another format: {reason}"));
                return Ok((document, None));
            }
        };
        note.remove_own();
        let has_foreign = note.has_entries();
        let commit = reader.commit(oid)?;
        let person = format!("{} <{}>", commit.author.name, commit.author.email);
        let parent = commit.parents.first().map(|parent| reader.commit(*parent)).transpose()?;
        let mut files = Vec::new();
        collect_changed(reader, parent.map(|parent| parent.tree), commit.tree, Vec::new(), &mut files)?;
        let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
        let mut has_human = false;
        for (path, old, new) in files {
            let lines = added_lines(reader, old, new)?;
            let Some((text, lines)) = lines else { continue };
            if lines.is_empty() {
                continue;
            }
            if !is_writable_path(&path) {
                document.unknown_lines += lines.len() as u64;
                document.left_out.push(left_out(&path, "a note cannot have this path"));
                continue;
            }
            let path_text = String::from_utf8_lossy(&path).into_owned();
            let is_free = |line: &&u64| !note.covers(&path_text, **line);
            let free: Vec<u64> = lines.iter().filter(is_free).copied().collect();
            document.foreign_lines += (lines.len() - free.len()) as u64;
            let Some(authors) = self.attribute(&path, &text, &free, &mut sessions)? else {
                document.unknown_lines += free.len() as u64;
                document.left_out.push(left_out(&path, "no recorded state has this content"));
                continue;
            };
            document.unknown_lines += free.len() as u64;
            for (author, lines) in authors {
                document.unknown_lines -= lines.len() as u64;
                let key = match author {
                    LineAuthor::Session { key, trace } => {
                        document.session_lines += lines.len() as u64;
                        format!("{key}::{trace}")
                    }
                    LineAuthor::Human => {
                        document.human_lines += lines.len() as u64;
                        has_human = true;
                        human_key(&person)
                    }
                };
                note.add(&path_text, NoteEntry::new(key, &lines));
            }
        }
        for (key, session) in &sessions {
            let author = NoteAuthor {
                agent: Some(session.agent.clone()),
                conversation: Some(conversation_of(session)),
                model: session.info.model.clone(),
                human: Some(person.clone()),
            };
            note.describe_session(key, &author, &session.id.to_string());
        }
        if has_human {
            note.describe_human(&human_key(&person), &person);
        }
        if document.session_lines + document.human_lines == 0 {
            document.result = "nothing".to_owned();
            return Ok((document, None));
        }
        let text = note.encode();
        let is_same = existing.is_some_and(|existing| existing.trim_ascii() == text.trim().as_bytes());
        document.result = match (is_same, has_foreign) {
            (true, _) => "unchanged",
            (false, true) => "merged",
            (false, false) => "written",
        }
        .to_owned();
        document.note = Some(text.clone());
        Ok((document, (!is_same).then_some(text)))
    }

    /// Who wrote some lines of a file; `None` if no recorded state has its content.
    fn attribute(
        &self,
        path: &[u8],
        text: &[u8],
        lines: &[u64],
        sessions: &mut BTreeMap<String, Session>,
    ) -> Result<Option<Vec<AuthoredLines>>, GitExportError> {
        let Some(path) = path.strip_prefix(self.inside.as_slice()) else { return Ok(None) };
        let Ok(path) = RelPath::parse(path) else { return Ok(None) };
        let Some(step) = self.find_recorded(&path, text)? else { return Ok(None) };
        let request = BlameRequest { path, at: Some(step), lines: None };
        let found = blame::blame(self.workspace, &request)?;
        let mut authors: BTreeMap<LineAuthor, Vec<u64>> = BTreeMap::new();
        for line in lines {
            let Some(blamed) = usize::try_from(*line - 1).ok().and_then(|index| found.lines.get(index))
            else {
                continue;
            };
            let origin = &found.origins[blamed.origin];
            let author = match (&origin.kind, &origin.who, &origin.step) {
                (OriginKind::Change, Attribution::Call(author), Some(step)) => {
                    let Some(session) = self.workspace.store().session(author.session)? else { continue };
                    let key = key_of(&session);
                    let trace = trace_key(&step.step.id.to_string());
                    sessions.insert(key.clone(), session);
                    LineAuthor::Session { key, trace }
                }
                (OriginKind::Change, Attribution::Unreported, _) => LineAuthor::Human,
                // Older than the recording, brought back, or by one of several sessions.
                _ => continue,
            };
            authors.entry(author).or_default().push(*line);
        }
        Ok(Some(authors.into_iter().collect()))
    }

    /// The newest checkpoint that has a file with this content.
    fn find_recorded(&self, path: &RelPath, text: &[u8]) -> Result<Option<StepRow>, GitExportError> {
        let Some(versions) = &self.versions else { return Ok(None) };
        let mut compared = None;
        for index in 0..versions.len() {
            let node = versions.node(index, path)?;
            if node == compared {
                continue;
            }
            if let Some(node @ TreeNode::File { size, .. }) = &node
                && *size == text.len() as u64
                && self.workspace.read_node(node)? == text
            {
                return Ok(Some(versions.step(index).clone()));
            }
            compared = node;
        }
        Ok(None)
    }
}

fn left_out(path: &[u8], reason: &str) -> LeftOutPathDocument {
    LeftOutPathDocument { path: display_bytes(path).into_owned(), reason: reason.to_owned() }
}

/// A changed file: its path, its old content and its new one.
type ChangedFile = (Vec<u8>, Option<GitOid>, GitOid);

/// Collects the files of `newer` that `older` has not, or has with another content.
fn collect_changed(
    reader: &ObjectReader,
    older: Option<GitOid>,
    newer: GitOid,
    prefix: Vec<u8>,
    files: &mut Vec<ChangedFile>,
) -> Result<(), GitExportError> {
    if older == Some(newer) {
        return Ok(());
    }
    let old_entries = older.map(|older| reader.tree(older)).transpose()?.unwrap_or_default();
    let old_entries: HashMap<&[u8], &GitEntry> =
        old_entries.iter().map(|entry| (entry.name.as_slice(), entry)).collect();
    for entry in reader.tree(newer)? {
        let old = old_entries.get(entry.name.as_slice());
        let mut path = prefix.clone();
        path.extend_from_slice(&entry.name);
        if entry.is_dir() {
            path.push(b'/');
            let old = old.filter(|old| old.is_dir()).map(|old| old.oid);
            collect_changed(reader, old, entry.oid, path, files)?;
        } else if entry.is_file() {
            let old = old.filter(|old| old.is_file()).map(|old| old.oid);
            if old != Some(entry.oid) {
                files.push((path, old, entry.oid));
            }
        }
    }
    Ok(())
}

/// The new text of a file and the numbers of the lines that were added; `None` if it is not text.
fn added_lines(
    reader: &ObjectReader,
    old: Option<GitOid>,
    new: GitOid,
) -> Result<Option<AddedLines>, GitExportError> {
    let text = reader.blob(new)?;
    let is_text = |bytes: &[u8]| bytes.len() <= MAX_FILE_BYTES && !bytes.contains(&0);
    if !is_text(&text) {
        return Ok(None);
    }
    let old = old.map(|old| reader.blob(old)).transpose()?.filter(|old| is_text(old)).unwrap_or_default();
    let sources = map_lines(&split_lines(&old), &split_lines(&text));
    let added = sources.iter().zip(1u64..).filter(|(source, _)| source.is_none()).map(|(_, line)| line);
    let added = added.collect();
    Ok(Some((text, added)))
}
