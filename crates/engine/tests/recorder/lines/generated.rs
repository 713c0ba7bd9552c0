//! Marks of rolled-back steps on generated histories, compared with a slow and simple reference that knows what was done.

use std::collections::HashMap;

use stepback_engine::rewind::RewindReport;
use stepback_engine::undo::Reversal;
use stepback_model::ids::{OpId, SessionId};
use stepback_model::record::{OperationAction, StepKind};
use stepback_testkit::line_model::{LineEffect, LineModel};

use super::{StepScript, scene};

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most as u64) as usize
    }
}

/// Sessions that a rewind was about, as far as it says so; the person among them where nobody else had changed anything and
/// everything went back.
fn recorded_scope(scene: &StepScript<'_>, report: &RewindReport) -> Option<Vec<SessionId>> {
    let detail = scene.workspace.detail_of(&scene.step(report.after).step).unwrap()?;
    let listed = detail.get("sessions")?.as_array()?;
    let mut listed: Vec<_> = listed.iter().filter_map(|id| SessionId::from_hex(id.as_str()?)).collect();
    if detail.get("whole").and_then(|whole| whole.as_bool()) == Some(true) {
        listed.push(scene.workspace.session.id);
    }
    (!listed.is_empty()).then_some(listed)
}

fn history(seed: u64, actions: usize) {
    scene!(scene);
    let (mut dice, mut reference) = (Dice(seed), LineModel::default());
    // Steps that led to where an operation went, and to where the last undo of it went.
    let mut moves: HashMap<OpId, (u64, Option<u64>)> = HashMap::new();
    let (mut branch, mut made) = ("main".to_owned(), 0);
    let mut open: HashMap<&str, String> = HashMap::new();
    let sessions = ["a", "b"];
    let mut story = Vec::new();
    scene.call("a", "first", "a0", "first");
    reference.append(&branch, &scene.steps(), |_| LineEffect::Append);
    for turn in 0..actions {
        let session = sessions[dice.below(2)];
        let name = format!("n{turn}");
        let file = format!("{session}{}", dice.below(3));
        match dice.below(14) {
            0..=3 => {
                story.push(format!("call {session}"));
                scene.call(session, &name, &file, &name);
                reference.append(&branch, &scene.steps(), |_| LineEffect::Append);
            }
            4 | 5 => {
                story.push(format!("prompt {session}"));
                scene.prompt(session, &name);
                open.remove(session);
                reference.append(&branch, &scene.steps(), |_| LineEffect::Append);
            }
            6 => {
                story.push(format!("half a call {session}"));
                match open.remove(session) {
                    None => {
                        scene.record(session, StepKind::ToolStart, &name);
                        open.insert(session, name);
                    }
                    Some(name) => {
                        scene.place.write(&file, &name);
                        scene.record(session, StepKind::ToolEnd, &name);
                    }
                }
                reference.append(&branch, &scene.steps(), |_| LineEffect::Append);
            }
            7 => {
                story.push("the person".into());
                scene.place.write("p", &name);
                scene.checkpoint();
                reference.append(&branch, &scene.steps(), |_| LineEffect::Append);
            }
            8 | 9 => {
                let steps = scene.steps();
                let agents = steps.iter().filter(|stored| stored.step.meta.call.is_some());
                let Some(target) = agents.clone().nth(dice.below(agents.count().max(1))) else { continue };
                let number = target.step.number;
                let everything = dice.below(3) == 0;
                story.push(format!("rewind to #{number}, everything {everything}"));
                let stays = scene.workspace.head_id().unwrap() == Some(target.step.id);
                let tip = reference.tip(&branch).unwrap();
                let report = scene.rewind(number, everything);
                let OperationAction::Rewind { moved } = &report.operation.action else { panic!("no rewind") };
                let did = match recorded_scope(&scene, &report) {
                    _ if report.outcomes.is_empty() => LineEffect::Append,
                    // To where the workspace stands: only what was not recorded yet goes.
                    _ if stays && moved.onto == moved.before => LineEffect::Append,
                    _ if stays => LineEffect::Jump(tip),
                    Some(scope) => {
                        assert!(!everything);
                        assert_eq!(scope[0], target.step.session);
                        LineEffect::JumpSessions(scope, number)
                    }
                    None => LineEffect::Jump(number),
                };
                let after = report.after;
                let did = |number| if number == after { did.clone() } else { LineEffect::Append };
                reference.append(&branch, &scene.steps(), did);
                moves.insert(report.operation.id, (after, None));
            }
            10 => {
                let operations = scene.workspace.operations().unwrap();
                let rewinds = operations.iter().filter(|op| {
                    let moved = op.action.moved();
                    !op.undone
                        && matches!(op.action, OperationAction::Rewind { .. })
                        && moved.is_some_and(|moved| moved.branches.is_none())
                });
                let Some(op) = rewinds.clone().next().map(|op| op.id) else { continue };
                let (moved, _) = moves[&op];
                if !reference.is_on(moved, &branch) {
                    continue;
                }
                story.push(format!("undo #{moved}"));
                let after = scene.undo(op).after;
                let did =
                    |number| if number == after { LineEffect::Reverse(moved) } else { LineEffect::Append };
                reference.append(&branch, &scene.steps(), did);
                moves.insert(op, (moved, Some(after)));
            }
            11 => {
                let Ok(Reversal::Files { prepared, operation }) = scene.workspace.prepare_redo() else {
                    continue;
                };
                drop(prepared);
                let Some((_, Some(undone))) = moves.get(&operation.id).copied() else { continue };
                // A redo after another move takes part of that back; which of the two counts is not for a list to say.
                let newest = scene.workspace.operations().unwrap();
                let newest = newest.iter().find_map(|op| op.action.moved()).unwrap().after;
                if scene.step(undone).step.id != newest {
                    continue;
                }
                story.push(format!("redo #{undone}"));
                let after = scene.redo().after;
                let did =
                    |number| if number == after { LineEffect::Reverse(undone) } else { LineEffect::Append };
                reference.append(&branch, &scene.steps(), did);
                moves.insert(operation.id, (after, None));
            }
            12 => {
                let steps = scene.steps();
                let from = &steps[dice.below(steps.len())];
                made += 1;
                story.push(format!("branch b{made} from #{}", from.step.number));
                let begins = match from {
                    begin if begin.step.kind == StepKind::BranchCreated => continue,
                    begin if scene.workspace.head_id().unwrap() == Some(begin.step.id) => {
                        reference.tip(&branch).unwrap()
                    }
                    begin => begin.step.number,
                };
                scene.workspace.create_branch(&format!("b{made}"), from).unwrap();
                reference.create_branch(&format!("b{made}"), begins);
            }
            _ => {
                let names: Vec<String> =
                    reference.branches().filter(|name| *name != branch).map(str::to_owned).collect();
                if names.is_empty() {
                    continue;
                }
                let to = names[dice.below(names.len())].clone();
                story.push(format!("switch to {to}"));
                let prepared = scene.workspace.prepare_switch(&to).unwrap();
                let report = scene.workspace.switch(&to, prepared).unwrap();
                // What was there is saved on the branch that is left.
                if !reference.contains(report.before) {
                    let saved = scene.step(report.before);
                    reference.append_step(&branch, &saved.step, LineEffect::Append);
                }
                branch = to;
                let (tip, after) = (reference.tip(&branch).unwrap(), report.after);
                let did = |number| if number == after { LineEffect::Jump(tip) } else { LineEffect::Append };
                reference.append(&branch, &scene.steps(), did);
            }
        }
        assert_eq!(
            scene.rolled_back(),
            reference.rolled_back(&scene.steps()),
            "seed {seed}, after turn {turn}: {story:#?}"
        );
    }
}

#[test]
fn generated_histories_have_the_marks_of_the_reference() {
    for seed in 2000..2050 {
        history(seed, 40);
    }
}
