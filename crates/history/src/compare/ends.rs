//! Compares how two runs end: files, memory, conversation.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use stepback_engine::diff;
use stepback_model::change::PathChange;
use stepback_model::hash::Hash;
use stepback_model::json as value;
use stepback_model::object::ObjectSource;
use stepback_model::state::WorkspaceState;
use stepback_reasoning::ReasoningBoard;

use super::side::ComparedRun;
use super::speech;
use crate::error::HistoryError;

/// The differences between the states that two runs end with.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ends {
    /// Changes from the files of the first side to those of the second; `None` if the files of one side are unknown.
    #[serde(serialize_with = "changes")]
    pub files: Option<Vec<PathChange>>,
    /// Number of files in which they differed at the start; `None` if that is unknown.
    pub files_at_start: Option<u64>,
    /// How the reasoning boards differ, each item in a sentence.
    pub board: Vec<String>,
    /// Slots that differ: memory, task and the like.
    pub slots: Vec<SlotDifference>,
    /// How far the conversations are the same.
    pub conversation: Conversations,
}

/// How the values of one slot differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SlotDifference {
    /// `memory`, `task`, `reasoning` or `env`.
    pub slot: &'static str,
    /// Parts that only the second side has.
    pub added: u64,
    /// Parts that only the first side has.
    pub removed: u64,
    /// Parts that both have, with another value.
    pub changed: u64,
    /// All of these parts, each with its JSON pointer.
    pub differences: Vec<value::ValueDifference>,
}

/// How far two conversations are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Conversations {
    /// Number of equal messages that both begin with. Ids, times and the directories they ran in are ignored.
    pub shared: u64,
    /// Number of messages of the first side, including the shared ones.
    pub a: u64,
    /// Number of messages of the second side, including the shared ones.
    pub b: u64,
}

fn changes<S: Serializer>(changes: &Option<Vec<PathChange>>, serializer: S) -> Result<S::Ok, S::Error> {
    let listed = changes.as_ref().map(|changes| {
        let item =
            |change: &PathChange| json!({ "path": change.path, "kind": change.kind(), "from": change.from });
        changes.iter().map(item).collect::<Vec<_>>()
    });
    listed.serialize(serializer)
}

/// Compares the ends of two runs, without regard to their steps.
pub fn compare_ends(
    source: &dyn ObjectSource,
    a: &ComparedRun,
    b: &ComparedRun,
) -> Result<Ends, HistoryError> {
    let compare_slots = |a: Option<WorkspaceState>,
                         b: Option<WorkspaceState>|
     -> Result<Option<Vec<PathChange>>, HistoryError> {
        match (a, b) {
            (Some(a), Some(b)) if a.files.is_some() && b.files.is_some() => {
                Ok(Some(diff::compare_visible_files(source, &a, &b)?))
            }
            _ => Ok(None),
        }
    };
    let state = |side: &ComparedRun| side.end.unwrap_or_default();
    let (left, right) = (state(a), state(b));
    let (mut slots, mut board) = (Vec::new(), Vec::new());
    for (slot, before, after) in [
        ("memory", left.memory, right.memory),
        ("task", left.task, right.task),
        ("reasoning", left.reasoning, right.reasoning),
        ("env", left.env, right.env),
    ] {
        let differences = match slot {
            "reasoning" => {
                let (differences, sentences) = diff_boards(source, before, after)?;
                board = sentences;
                differences
            }
            _ => diff_values(source, before, after)?,
        };
        slots.extend(SlotDifference::from_differences(slot, differences));
    }
    Ok(Ends {
        files: compare_slots(a.end, b.end)?,
        board,
        files_at_start: compare_slots(a.start, b.start)?.map(|changes| changes.len() as u64),
        slots,
        conversation: speech::compare_conversations(source, a, b)?,
    })
}

/// Returns the differences between two values.
fn diff_values(
    source: &dyn ObjectSource,
    old: Option<Hash>,
    new: Option<Hash>,
) -> Result<Vec<value::ValueDifference>, HistoryError> {
    let load_whole =
        |hash: Hash| -> Result<Option<Value>, HistoryError> { Ok(Some(value::load(source, hash)?)) };
    Ok(match (old, new) {
        (None, None) => Vec::new(),
        (Some(old), Some(new)) => value::diff(source, old, new)?,
        (old, new) => {
            let old = old.map_or(Ok(None), load_whole)?;
            let new = new.map_or(Ok(None), load_whole)?;
            vec![value::ValueDifference { pointer: String::new(), before: old, after: new }]
        }
    })
}

/// Returns the differences between two reasoning slots, item by item, independent of their layout in the store, and each in a
/// sentence.
fn diff_boards(
    source: &dyn ObjectSource,
    old: Option<Hash>,
    new: Option<Hash>,
) -> Result<(Vec<value::ValueDifference>, Vec<String>), HistoryError> {
    if old == new {
        return Ok(Default::default());
    }
    let load = |root: Option<Hash>| match root {
        Some(root) => Ok(ReasoningBoard::load(source, root)?.0),
        None => Ok::<_, HistoryError>(ReasoningBoard::default()),
    };
    let changes = load(old)?.diff(&load(new)?).changes;
    let sentences = changes.iter().map(|change| change.sentence.clone()).collect();
    let listed = changes.into_iter().map(|change| value::ValueDifference {
        pointer: format!("/{}/{}", change.item.kind.plural(), change.item),
        before: change.before,
        after: change.after,
    });
    Ok((listed.collect(), sentences))
}

impl SlotDifference {
    /// Counts the differences; `None` if there are none.
    fn from_differences(slot: &'static str, differences: Vec<value::ValueDifference>) -> Option<Self> {
        let count = |filter: fn(&value::ValueDifference) -> bool| {
            differences.iter().filter(|part| filter(part)).count() as u64
        };
        let added = count(|part| part.before.is_none());
        let removed = count(|part| part.after.is_none());
        let changed = count(|part| part.before.is_some() && part.after.is_some());
        let differs = !differences.is_empty();
        differs.then_some(Self { slot, added, removed, changed, differences })
    }
}
