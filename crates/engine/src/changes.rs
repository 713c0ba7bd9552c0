//! The list of changes: what happened to each file, step by step, numbered so that single changes can be taken back.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;
use stepback_model::change::PathChange;
use stepback_model::hash::Hash;
use stepback_model::hex;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::path::RelPath;
use stepback_model::record::StepRow;
use stepback_model::record::{Operation, OperationAction, SessionInfo, Step};
use stepback_model::state::{GitState, RepositorySummary, WorkspaceState};
use stepback_model::time::Timestamp;
use stepback_store::Mutation;

use crate::authorship::{Attribution, Authors};
use crate::calls;
use crate::diff;
use crate::error::EngineError;
use crate::workspace::{StoreSource, Workspace};

/// Why changes cannot be listed or selected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectionError {
    /// The list begins at a step that is not on the current line.
    #[error("{0} is not on the current line, so there is no list of changes since then")]
    OtherLine(String),
    /// The second point of a range is before the first.
    #[error("#{to} is before #{from}: write the earlier point first")]
    ReversedRange {
        /// The number of the first step.
        from: u64,
        /// The number of the second step.
        to: u64,
    },
    /// No change has this number.
    #[error("there is no change {number}: {}", match listed {
        Some((first, last)) => format!("changes {first} to {last} are listed"),
        None => "no changes are recorded".to_owned(),
    })]
    NoSuchChange {
        /// The number.
        number: usize,
        /// The first and the last number in the list, if it is not empty.
        listed: Option<(usize, usize)>,
    },
    /// The change was not made by the session it was expected from.
    #[error("change {number} ({path}) was made by {author}, not by {expected}")]
    OtherAuthor {
        /// The number of the change.
        number: usize,
        /// The path that it changed.
        path: RelPath,
        /// Who made it.
        author: String,
        /// Who was expected to have made it.
        expected: String,
    },
    /// Hunks were named, but not exactly one change.
    #[error("hunks can be named only together with exactly one change")]
    HunksOfMany,
    /// The change is not one of a text.
    #[error("{0} has no hunks: it is not a text file that was modified")]
    NoHunks(RelPath),
    /// No hunk has this number.
    #[error("there is no hunk {number}: the change of {path} has {count} of them")]
    NoSuchHunk {
        /// The path of the file.
        path: RelPath,
        /// The number.
        number: usize,
        /// How many hunks there are.
        count: usize,
    },
}

/// A change with its number in the list.
#[derive(Clone, Debug)]
pub struct NumberedChange {
    /// Position in the list, from 1, oldest first. New changes get new numbers.
    pub number: usize,
    /// The change itself: path and content before and after.
    pub change: PathChange,
    /// Id and number of the step that first recorded it; `None` if no checkpoint contains it yet.
    pub step: Option<(StepId, u64)>,
    /// Time of that step; the current time if there is none.
    pub at: Timestamp,
    /// The tree before the change, which contains the parent directories that taking it back must recreate.
    pub before: Option<Hash>,
    /// Who made the change.
    pub who: Attribution,
    /// Whether a later rewind took it back. It stays in the list.
    pub taken_back: bool,
}

impl NumberedChange {
    /// Whether it is still in effect, and the list was not cleared after it. `cleared` is the last step before the list was
    /// cleared.
    pub fn is_open(&self, cleared: u64) -> bool {
        !self.taken_back && self.step.is_none_or(|(_, number)| number > cleared)
    }
}

impl Workspace {
    /// Returns all changes on the present line, oldest first; with `since`, only those after it. Numbers are not affected.
    pub fn numbered_changes(&self, since: Option<&StepRow>) -> Result<Vec<NumberedChange>, EngineError> {
        let present = self.scan_for_display()?;
        self.numbered_changes_against(&present.state, since)
    }

    pub(crate) fn numbered_changes_against(
        &self,
        present: &WorkspaceState,
        since: Option<&StepRow>,
    ) -> Result<Vec<NumberedChange>, EngineError> {
        let head = self.head()?;
        let mut line = self.ancestry(&head)?;
        line.reverse();
        // The list begins after the newest state that a prune freed.
        let first = line.iter().rposition(|stored| stored.purged).map_or(0, |index| index + 1);
        let line = &line[first.min(line.len())..];
        let mut numbered = self.attribute_changes(line, present)?;
        if let Some(since) = since {
            let later_steps: HashSet<StepId> = line
                .iter()
                .map(|stored| stored.step.id)
                .skip_while(|id| *id != since.step.id)
                .skip(1)
                .collect();
            let on_line = line.iter().any(|stored| stored.step.id == since.step.id);
            if !on_line {
                return Err(SelectionError::OtherLine(crate::workspace::describe_checkpoint(since)).into());
            }
            numbered.retain(|numbered| numbered.step.is_none_or(|(id, _)| later_steps.contains(&id)));
        }
        Ok(numbered)
    }

    /// Returns the changes along `line` (checkpoints, oldest first, the last of them the head) and on to the present state,
    /// numbered from 1, each with its author.
    pub(crate) fn attribute_changes(
        &self,
        line: &[StepRow],
        present: &WorkspaceState,
    ) -> Result<Vec<NumberedChange>, EngineError> {
        let source = StoreSource(self.store());
        let mut sessions: HashMap<SessionId, SessionInfo> = HashMap::new();
        let mut numbered: Vec<NumberedChange> = Vec::new();
        let mut taken_back: HashSet<(StepId, Vec<u8>)> = HashSet::new();
        let mut add = |changes: Vec<PathChange>,
                       step: Option<(StepId, u64)>,
                       at: Timestamp,
                       state_before,
                       authors: &Authors| {
            for change in changes {
                let author = authors.attribute_path(&change.path);
                let number = numbered.len() + 1;
                numbered.push(NumberedChange {
                    number,
                    change,
                    step,
                    at,
                    before: state_before,
                    who: author,
                    taken_back: false,
                });
            }
        };
        for pair in line.windows(2) {
            let step = &pair[1].step;
            let detail = self.load_detail(step)?;
            // A rewind that took back single changes adds none of its own: the changes it took back are marked instead.
            if let Some(list) = detail.as_ref().and_then(|detail| detail.get("took_back")) {
                taken_back.extend(decode_taken_back_marks(list));
                continue;
            }
            let (state_before, state_after) = (self.load_state(&pair[0])?, self.load_state(&pair[1])?);
            let changes = diff::compare_visible_files(&source, &state_before, &state_after)?;
            let mut authors = parse_authors(detail.as_ref());
            for call in &authors.calls {
                if let Entry::Vacant(entry) = sessions.entry(call.session) {
                    let session = self.store().session(call.session)?;
                    entry.insert(session.map(|session| session.info).unwrap_or_default());
                }
            }
            authors.update_uncertain(|call| calls::late_end_status(&sessions[&call.session], call.step));
            add(changes, Some((step.id, step.number)), step.at, state_before.files, &authors);
        }
        let Some(head) = line.last() else { return Ok(numbered) };
        let last = self.load_state(head)?;
        let changes = diff::compare_visible_files(&source, &last, present)?;
        let now = self.engine.env.now();
        let at_work = if changes.is_empty() { Authors::default() } else { self.collect_active_authors(now)? };
        add(changes, None, now, last.files, &at_work);
        for numbered in &mut numbered {
            let key = numbered.step.map(|(id, _)| (id, numbered.change.path.as_bytes().to_vec()));
            numbered.taken_back = key.is_some_and(|key| taken_back.contains(&key));
        }
        Ok(numbered)
    }

    /// Returns the paths that a session changed on the line to a step, as far as its checkpoints were not freed; each once.
    pub fn paths_changed_by(&self, session: SessionId, at: &StepRow) -> Result<Vec<RelPath>, EngineError> {
        let Ok(reached) = self.nearest_checkpoint(at) else { return Ok(Vec::new()) };
        let mut line: Vec<StepRow> =
            self.ancestry(&reached)?.into_iter().take_while(|stored| !stored.purged).collect();
        line.reverse();
        let Some(last) = line.last() else { return Ok(Vec::new()) };
        let mut paths: Vec<RelPath> = (self.attribute_changes(&line, &self.load_state(last)?)?.into_iter())
            .filter(|numbered| !numbered.taken_back && numbered.who.session() == Some(session))
            .map(|numbered| numbered.change.path)
            .collect();
        paths.sort_by(|a, b| a.cmp_by_components(b));
        paths.dedup();
        Ok(paths)
    }

    /// Clears the list: changes up to now are no longer listed, but stay recorded.
    pub fn clear_changes(&self) -> Result<Operation, EngineError> {
        let head = self.head()?;
        let cleared_up_to = head.step.number;
        let cleared_before = self.session.info.cleared;
        let operation = self.new_operation(
            format!("clear changes up to #{cleared_up_to}"),
            OperationAction::ChangesClear { before: cleared_before, after: cleared_up_to },
        );
        let info = SessionInfo { cleared: Some(cleared_up_to), ..self.session.info.clone() };
        let mutations = [
            Mutation::SetSessionInfo { session: self.session.id, info: Box::new(info) },
            Mutation::AppendOp(operation.clone()),
        ];
        self.store().commit(None, &mutations)?;
        Ok(operation)
    }

    /// Clears the list if the checkpoint `step` found a new commit in the workspace's own repository. Returns whether it did.
    pub fn clear_changes_after_commit(&self, step: StepId) -> Result<bool, EngineError> {
        let Some(stored) = self.store().step(step)? else { return Ok(false) };
        let Some(before) = stored.step.parent.map(|parent| self.store().step(parent)).transpose()?.flatten()
        else {
            return Ok(false);
        };
        let head = |stored: &StepRow| -> Result<Option<RepositorySummary>, EngineError> {
            let Some(hash) = self.load_state(stored)?.git else { return Ok(None) };
            let git = GitState::load(&StoreSource(self.store()), hash)?;
            Ok(git.get(b".git").map(|repository| repository.summary.clone()))
        };
        let (before, after) = (head(&before)?, head(&stored)?);
        let is_moved = before
            .zip(after)
            .is_some_and(|(before, after)| before.branch == after.branch && before.commit != after.commit);
        if !is_moved || !last_git_action(&self.root).is_some_and(|action| action.starts_with("commit")) {
            return Ok(false);
        }
        self.clear_changes()?;
        Ok(true)
    }

    /// Loads the detail record of a step: its input, output and other facts.
    pub fn load_detail(&self, step: &Step) -> Result<Option<Value>, EngineError> {
        let Some(hash) = step.meta.detail else { return Ok(None) };
        Ok(Some(stepback_model::json::load(self.store(), hash)?))
    }
}

/// Returns what last moved HEAD, as git's log of HEAD says: `commit: message`, `reset: moving to …`.
fn last_git_action(root: &Path) -> Option<String> {
    /// Longer lines are cut; the action is at the beginning of the message.
    const TAIL: u64 = 64 << 10;
    let path = root.join(".git/logs/HEAD");
    // Opening anything else could block.
    fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (_, message) = text.lines().next_back()?.split_once('\t')?;
    Some(message.to_owned())
}

/// Returns the calls that were running when a step was made, from its detail record.
pub(crate) fn parse_authors(detail: Option<&Value>) -> Authors {
    let authors = detail.and_then(|detail| detail.get("authors"));
    authors.and_then(|authors| serde_json::from_value(authors.clone()).ok()).unwrap_or_default()
}

/// Encodes a change that a rewind took back: the id of the step that recorded it, and the path in hex.
pub(crate) fn encode_taken_back_mark(step: StepId, path: &[u8]) -> Value {
    serde_json::json!([step, hex::encode(path)])
}

/// Removes the marks of paths for which `is_left_alone` returns true: the rewind left them alone.
pub(crate) fn remove_taken_back_marks(detail: &mut Value, is_left_alone: impl Fn(&[u8]) -> bool) {
    if let Some(list) = detail.get_mut("took_back") {
        let remaining = decode_taken_back_marks(list).into_iter().filter(|(_, path)| !is_left_alone(path));
        *list = remaining.map(|(step, path)| encode_taken_back_mark(step, &path)).collect();
    }
}

fn decode_taken_back_marks(list: &Value) -> Vec<(StepId, Vec<u8>)> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |item: &Value| {
        let step = StepId::from_hex(item.get(0)?.as_str()?)?;
        Some((step, hex::decode(item.get(1)?.as_str()?)?))
    };
    items.iter().filter_map(read).collect()
}
