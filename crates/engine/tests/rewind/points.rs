//! Points: what they name, and what a person reads when they name nothing or too much.

use jiff::tz::TimeZone;
use stepback_engine::undo::UndoDirection;
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::record::{Annotation, Trigger};
use stepback_model::time::Timestamp;

use crate::support::{START, TestWorkspace, Words};

fn now() -> Timestamp {
    Timestamp::from_micros(START + 10_000_000_000)
}

fn number(workspace: &Workspace, point: &str) -> u64 {
    let found = workspace.resolve(point, now(), &|| TimeZone::UTC);
    found.unwrap_or_else(|error| panic!("{point}: {error}")).step.number
}

#[track_caller]
fn refused(workspace: &Workspace, point: &str, words: &[&str]) {
    match workspace.resolve(point, now(), &|| TimeZone::UTC) {
        Ok(found) => panic!("{point} was taken for #{}", found.step.number),
        Err(error) => {
            let message = error.to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{point}: {message}");
        }
    }
}

#[test]
fn a_workspace_without_checkpoints_says_so() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let found = workspace.resolve("@", now(), &|| TimeZone::UTC);
    assert!(matches!(found, Err(EngineError::NothingRecorded { .. })));
}

#[test]
fn labels_ids_numbers_tags_and_now_name_checkpoints() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let first = workspace.checkpoint("before refactoring");
    place.write("a", "1");
    let annotation = Annotation { tags: vec!["good".into()], ..Annotation::default() };
    let second = workspace.create_checkpoint(annotation, Trigger::Manual).unwrap().stored;
    assert_eq!(number(&workspace, "@"), 2);
    assert_eq!(number(&workspace, "@-1"), 1);
    assert_eq!(number(&workspace, "#1"), 1);
    assert_eq!(number(&workspace, "before refactoring"), 1);
    assert_eq!(number(&workspace, "label:before refactoring"), 1);
    assert_eq!(number(&workspace, "tag:good"), 2);
    assert_eq!(number(&workspace, &first.step.id.to_string()), 1);
    assert_eq!(number(&workspace, &second.step.id.short()), 2);
    assert_eq!(number(&workspace, "main"), 2);
}

#[test]
fn names_for_nothing_are_refused_with_what_exists() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("before refactoring");
    refused(&workspace, "before refactorin", &["before refactoring"]);
    refused(&workspace, "#9", &["#9", "#1"]);
    refused(&workspace, "@-4", &["only 0"]);
    refused(&workspace, "tag:none", &["none"]);
    refused(&workspace, "#", &[]);
    refused(&workspace, "", &[]);
    refused(&workspace, "@+1", &[]);
    refused(&workspace, "error:last", &["error"]);
}

#[test]
fn a_label_used_twice_or_a_short_prefix_is_refused_with_the_candidates() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    for round in 0..20 {
        place.write("a", &round.to_string());
        workspace.checkpoint(if round < 2 { "twice" } else { "other" });
    }
    refused(&workspace, "twice", &["2 checkpoints", "#1", "#2"]);
    // Twenty ids cannot all begin with different digits.
    let mut digits: Vec<char> = workspace
        .checkpoints()
        .unwrap()
        .iter()
        .map(|stored| stored.step.id.to_string().chars().next().unwrap())
        .collect();
    digits.sort_unstable();
    let shared = digits.windows(2).find(|pair| pair[0] == pair[1]).unwrap()[0];
    refused(&workspace, &format!("id:{shared}"), &["checkpoints have an id starting with"]);
}

#[test]
fn deleted_checkpoints_are_named_as_deleted_and_come_back_with_undo() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let one = workspace.checkpoint("one");
    place.write("a", "1");
    workspace.checkpoint("two");
    workspace.delete_checkpoint(&one).unwrap();
    refused(&workspace, "#1", &["deleted"]);
    refused(&workspace, "one", &["one"]);
    let reversal = workspace.prepare_undo(None).unwrap();
    assert!(
        workspace.apply_reversal(reversal, UndoDirection::Undo).unwrap().into_files().is_none(),
        "no file changes"
    );
    assert_eq!(number(&workspace, "one"), 1);
}

#[test]
fn a_time_names_the_last_checkpoint_up_to_it() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let one = workspace.checkpoint("one");
    place.write("a", "1");
    let two = workspace.checkpoint("two");
    assert_eq!(number(&workspace, &format!("time:{}", one.step.at)), 1);
    assert_eq!(number(&workspace, &two.step.at.to_string()), 2);
    assert_eq!(number(&workspace, "2 hours ago"), 2);
    refused(&workspace, "3 days ago", &["nothing was recorded", "#1"]);
}

#[test]
fn steps_back_are_counted_along_the_line_that_led_here() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let mut made = Vec::new();
    for round in 1..=4 {
        place.write("a", &round.to_string());
        made.push(workspace.checkpoint(&format!("c{round}")));
    }
    // Back to #2: one step before now is then #1, not what was rewound.
    workspace.rewind(&made[1]);
    assert_eq!(place.read("a"), "2");
    assert_eq!(number(&workspace, "@-1"), 1);
    // New work grows from there.
    place.write("a", "new");
    let grown = workspace.checkpoint("grown").step.number;
    assert_eq!(number(&workspace, "@"), grown);
    assert_eq!(number(&workspace, "@-1"), 2);
    assert_eq!(number(&workspace, "@-2"), 1);
    // What was rewound is still there by name and number.
    assert_eq!(number(&workspace, "c4"), 4);
    assert_eq!(number(&workspace, "#4-1"), 3);
}

#[test]
fn steps_back_after_a_rewind_are_the_same_when_git_moved_meanwhile() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = crate::git::Git::init(&place.root);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    place.write("a", "1");
    git.commit("1");
    workspace.checkpoint("c1");
    place.write("a", "2");
    let two = workspace.checkpoint("c2");
    git.commit("2");
    place.write("a", "3");
    workspace.checkpoint("c3");
    workspace.rewind(&two);
    assert_eq!(place.read("a"), "2");
    assert_eq!(number(&workspace, "@-1"), 1, "the files are those of #2, so one step back is #1");
}

#[test]
fn undo_of_a_rewind_goes_back_to_where_the_line_was() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let mut made = Vec::new();
    for round in 1..=3 {
        place.write("a", &round.to_string());
        made.push(workspace.checkpoint(&format!("c{round}")));
    }
    workspace.rewind(&made[0]);
    workspace.undo();
    assert_eq!(place.read("a"), "3");
    assert_eq!(number(&workspace, "@-1"), 2);
}

#[test]
fn digits_alone_are_a_step_number_however_many_ids_start_with_them() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    // Until some id starts with four digits and no letter among them.
    let mut found = None;
    for round in 0..200 {
        place.write("a", &round.to_string());
        let stored = workspace.checkpoint("x");
        let id = stored.step.id.to_string();
        if id.bytes().take(4).all(|byte| byte.is_ascii_digit()) && !id.starts_with('0') {
            found = Some(stored);
            break;
        }
    }
    let stored = found.unwrap();
    let (own, id) = (stored.step.number, stored.step.id.to_string());
    let digits: String = id.chars().take_while(char::is_ascii_digit).collect();
    let last = format!("(the last is {own})");
    refused(&workspace, &digits, &["there is no step", &last, &format!("id:{digits}")]);
    refused(&workspace, &format!("#{digits}"), &["there is no step", &last]);
    assert_eq!(number(&workspace, &format!("id:{digits}")), own);
    let with_letter: String = id.chars().take(digits.len() + 1).collect();
    assert_eq!(number(&workspace, &with_letter), own);
    assert_eq!(number(&workspace, &id), own);
    assert_eq!(number(&workspace, "1"), 1);
    assert_eq!(number(&workspace, &own.to_string()), own);
    // A label made of digits is named as one.
    place.write("a", "labelled");
    let labelled = workspace.checkpoint("1").step.number;
    assert_eq!(number(&workspace, "1"), 1);
    assert_eq!(number(&workspace, "label:1"), labelled);
    assert_eq!(number(&workspace, "\"1\""), labelled);
}

#[test]
fn an_operation_is_named_by_its_number_or_by_an_id_with_a_letter() {
    let place = TestWorkspace::new();
    let engine = Engine { max_manual: None, ..place.engine() };
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    for round in 0..200 {
        place.write("a", &round.to_string());
        workspace.checkpoint("x");
    }
    let operations = workspace.operations().unwrap();
    let only_digits = |op: &&stepback_model::record::Operation| {
        let id = op.id.to_string();
        id.bytes().take(4).all(|byte| byte.is_ascii_digit()) && !id.starts_with('0')
    };
    let operation = operations.iter().find(only_digits).unwrap();
    let digits = operation.id.to_string()[..4].to_owned();
    let refused = workspace.find_operation(&digits).unwrap_err().to_string();
    assert_eq!(refused, format!("there is no operation {digits} (the last is 200)"));
    assert_eq!(workspace.find_operation(&format!("id:{digits}")).unwrap(), operation.id);
    assert_eq!(workspace.find_operation("200").unwrap(), operations[0].id);
    assert_eq!(workspace.find_operation("#200").unwrap(), operations[0].id);
    assert_eq!(workspace.find_operation(&operation.id.to_string()).unwrap(), operation.id);
}
