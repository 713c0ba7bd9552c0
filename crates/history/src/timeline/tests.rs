//! Tests that a cursor goes where it says and never off the list.

use proptest::prelude::*;
use serde_json::json;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Annotation, StepMeta};

use super::*;

fn step(number: u64, kind: StepKind, failed: bool) -> StepRow {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    let tool = (kind == StepKind::ToolStart).then(|| "Bash".to_string());
    let step = Step {
        id: StepId::from_bytes(id),
        session: SessionId::from_bytes([1; 16]),
        number,
        parent: None,
        kind,
        at: Timestamp::from_micros(1_000_000 * number as i64),
        state: Hash::of(ObjectKind::State, b""),
        summary: String::new(),
        meta: StepMeta { failed, tool, iteration: number / 2, ..StepMeta::default() },
    };
    StepRow { step, annotation: Annotation::default(), trigger: None, hidden_by: None, purged: false }
}

fn number(stored: Option<&StepRow>) -> Option<u64> {
    stored.map(|stored| stored.step.number)
}

/// A prompt, a call that succeeds, one that fails, and a gap; numbers of other sessions lie between.
fn session() -> TimelineCursor {
    TimelineCursor::new(vec![
        step(11, StepKind::ToolEnd, true),
        step(3, StepKind::UserInput, false),
        step(5, StepKind::ToolStart, false),
        step(6, StepKind::ToolEnd, false),
        step(9, StepKind::ToolStart, false),
        step(12, StepKind::Gap, true),
        step(20, StepKind::Error, false),
    ])
}

#[test]
fn it_goes_forward_and_back_and_stays_at_the_ends() {
    let mut cursor = session();
    assert_eq!(number(cursor.current()), Some(3), "steps come in order");
    assert_eq!(number(cursor.backward()), None);
    assert_eq!(number(cursor.forward()), Some(5));
    assert_eq!(number(cursor.backward()), Some(3));
    assert_eq!(number(cursor.last()), Some(20));
    assert!(cursor.is_at_end());
    assert_eq!(number(cursor.forward()), None);
    assert_eq!(number(cursor.current()), Some(20));
    assert_eq!(number(cursor.seek_first()), Some(3));
}

#[test]
fn it_jumps_to_a_number_or_what_comes_after_it() {
    let mut cursor = session();
    assert_eq!(number(cursor.jump(9)), Some(9));
    assert_eq!(number(cursor.jump(7)), Some(9));
    assert_eq!(number(cursor.jump(0)), Some(3));
    assert_eq!(number(cursor.jump(21)), None);
    assert_eq!(number(cursor.current()), Some(3), "it stays where it was");
}

#[test]
fn it_finds_errors_and_kinds() {
    let mut cursor = session();
    assert_eq!(number(cursor.next_error()), Some(11), "a gap is none");
    assert_eq!(number(cursor.next_error()), Some(20));
    assert_eq!(number(cursor.next_error()), None);
    assert_eq!(number(cursor.previous_error()), Some(11));
    assert_eq!(number(cursor.previous_of_kind(StepKind::ToolStart)), Some(9));
    assert_eq!(number(cursor.next_of_kind(StepKind::ToolEnd)), Some(11));
    assert_eq!(number(cursor.next_of_kind(StepKind::UserInput)), None);
    assert_eq!(cursor.errors().count(), 2);
    assert_eq!(cursor.steps_of_kind(StepKind::ToolEnd).count(), 2);
}

#[test]
fn it_tells_times_and_what_the_session_is_about() {
    let mut cursor = session();
    assert_eq!(cursor.time_to_next(), Some(Duration::from_secs(2)));
    assert_eq!(cursor.duration(), Duration::from_secs(17));
    let numbers = |range| cursor.range(range).iter().map(|stored| number(Some(stored)).unwrap_or(0));
    assert_eq!(numbers(5..=9).collect::<Vec<_>>(), [5, 6, 9]);
    assert_eq!(numbers(7..=8).count(), 0);
    #[expect(clippy::reversed_empty_ranges, reason = "callers may pass them in the wrong order")]
    let turned = numbers(9..=5).count();
    assert_eq!(turned, 0);
    let summary = cursor.summary();
    assert_eq!((summary.steps, summary.errors, summary.iterations), (7, 2, 10));
    assert_eq!(summary.numbers, Some((3, 20)));
    assert_eq!(summary.tools, BTreeMap::from([("Bash".to_string(), 2)]));
    assert_eq!(summary.kinds[&StepKind::ToolStart], 2);
    cursor.last();
    assert_eq!(cursor.time_to_next(), None);
    // It can be serialized: kinds become keys.
    assert_eq!(json!(summary)["kinds"]["tool-start"], 2);
}

#[test]
fn clocks_that_went_back_make_no_time() {
    let mut later = step(2, StepKind::ToolEnd, false);
    later.step.at = Timestamp::from_micros(0);
    let cursor = TimelineCursor::new(vec![step(1, StepKind::ToolStart, false), later]);
    assert_eq!(cursor.time_to_next(), Some(Duration::ZERO));
    assert_eq!(cursor.duration(), Duration::ZERO);
}

#[test]
fn nothing_is_a_session_too() {
    let mut cursor = TimelineCursor::new(Vec::new());
    assert!(cursor.is_empty() && cursor.is_at_end() && cursor.current().is_none());
    assert!(cursor.forward().is_none() && cursor.backward().is_none() && cursor.jump(1).is_none());
    assert!(cursor.seek_first().is_none() && cursor.last().is_none() && cursor.next_error().is_none());
    assert_eq!(cursor.summary(), Summary::default());
}

proptest! {
    /// After any sequence of moves the cursor is on a step, and returns it.
    #[test]
    fn it_always_stands_on_a_step(numbers in proptest::collection::btree_set(1u64..60, 1..20), moves in proptest::collection::vec((0u8..8, 0u64..70), 0..60)) {
        let kinds = [StepKind::ToolStart, StepKind::ToolEnd, StepKind::Error];
        let steps = numbers.iter().map(|n| step(*n, kinds[(*n % 3) as usize], *n % 5 == 0)).collect();
        let mut cursor = TimelineCursor::new(steps);
        for (what, to) in moves {
            let before = cursor.position();
            let said = match what {
                0 => cursor.forward(),
                1 => cursor.backward(),
                2 => cursor.jump(to),
                3 => cursor.next_error(),
                4 => cursor.previous_error(),
                5 => cursor.next_of_kind(StepKind::ToolEnd),
                6 => cursor.previous_of_kind(StepKind::ToolEnd),
                _ => cursor.last(),
            };
            let said = number(said);
            match said {
                Some(said) => prop_assert_eq!(Some(said), number(cursor.current())),
                None => prop_assert_eq!(before, cursor.position()),
            }
            match (what, said) {
                (2, Some(said)) => prop_assert!(said >= to && numbers.range(to..said).next().is_none()),
                (0 | 3 | 5, Some(_)) => prop_assert!(cursor.position() > before),
                (1 | 4 | 6, Some(_)) => prop_assert!(cursor.position() < before),
                _ => {}
            }
            prop_assert!(cursor.current().is_some());
        }
    }
}
