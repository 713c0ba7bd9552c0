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

/// The sessions that a rewind affected, as far as its step records them; the user's session if no other author had changed
/// anything and everything went back.
fn recorded_scope(scene: &StepScript<'_>, report: &RewindReport) -> Option<Vec<SessionId>> {
    let detail = scene.workspace.load_detail(&scene.step(report.after).step).unwrap()?;
    let listed = detail.get("sessions")?.as_array()?;
    let mut listed: Vec<_> = listed.iter().filter_map(|id| SessionId::from_hex(id.as_str()?)).collect();
    if detail.get("whole").and_then(|whole| whole.as_bool()) == Some(true) {
        listed.push(scene.workspace.session.id);
    }
    (!listed.is_empty()).then_some(listed)
}

/// A history that is made at random, beside the reference that follows it.
struct GeneratedHistory<'p> {
    scene: StepScript<'p>,
    dice: Dice,
    reference: LineModel,
    /// Steps that led to where an operation went, and to where the last undo of it went.
    moves: HashMap<OpId, (u64, Option<u64>)>,
    branch: String,
    branches: usize,
    /// Calls that began and did not end, by session.
    open: HashMap<&'static str, String>,
    story: Vec<String>,
}

impl GeneratedHistory<'_> {
    fn act(&mut self, turn: usize) {
        let session = ["a", "b"][self.dice.below(2)];
        let name = format!("n{turn}");
        let file = format!("{session}{}", self.dice.below(3));
        match self.dice.below(14) {
            0..=3 => {
                self.story.push(format!("call {session}"));
                self.scene.call(session, &name, &file, &name);
                self.follow(0, LineEffect::Append);
            }
            4 | 5 => {
                self.story.push(format!("prompt {session}"));
                self.scene.prompt(session, &name);
                self.open.remove(session);
                self.follow(0, LineEffect::Append);
            }
            6 => self.half_a_call(session, name, &file),
            7 => {
                self.story.push("the person".into());
                self.scene.place.write("p", &name);
                self.scene.checkpoint();
                self.follow(0, LineEffect::Append);
            }
            8 | 9 => self.rewind(),
            10 => self.undo(),
            11 => self.redo(),
            12 => self.create_branch(),
            _ => self.switch(),
        }
    }

    /// Tells the reference about new steps. The one with number `after` has `effect`; the others only follow.
    fn follow(&mut self, after: u64, effect: LineEffect) {
        let did = |number| if number == after { effect.clone() } else { LineEffect::Append };
        self.reference.append(&self.branch, &self.scene.steps(), did);
    }

    fn half_a_call(&mut self, session: &'static str, name: String, file: &str) {
        self.story.push(format!("half a call {session}"));
        match self.open.remove(session) {
            None => {
                self.scene.record(session, StepKind::ToolStart, &name);
                self.open.insert(session, name);
            }
            Some(name) => {
                self.scene.place.write(file, &name);
                self.scene.record(session, StepKind::ToolEnd, &name);
            }
        }
        self.follow(0, LineEffect::Append);
    }

    fn rewind(&mut self) {
        let steps = self.scene.steps();
        let agents = steps.iter().filter(|stored| stored.step.meta.call.is_some());
        let Some(target) = agents.clone().nth(self.dice.below(agents.count().max(1))) else { return };
        let number = target.step.number;
        let everything = self.dice.below(3) == 0;
        self.story.push(format!("rewind to #{number}, everything {everything}"));
        let stays = self.scene.workspace.head_id().unwrap() == Some(target.step.id);
        let tip = self.reference.tip(&self.branch).unwrap();
        let report = self.scene.rewind(number, everything);
        let OperationAction::Rewind { moved } = &report.operation.action else { panic!("no rewind") };
        let effect = match recorded_scope(&self.scene, &report) {
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
        self.follow(report.after, effect);
        self.moves.insert(report.operation.id, (report.after, None));
    }

    fn undo(&mut self) {
        let operations = self.scene.workspace.operations().unwrap();
        let mut rewinds = operations.iter().filter(|op| {
            let moved = op.action.moved();
            !op.undone
                && matches!(op.action, OperationAction::Rewind { .. })
                && moved.is_some_and(|moved| moved.branches.is_none())
        });
        let Some(op) = rewinds.next().map(|op| op.id) else { return };
        let (moved, _) = self.moves[&op];
        if !self.reference.is_on(moved, &self.branch) {
            return;
        }
        self.story.push(format!("undo #{moved}"));
        let after = self.scene.undo(op).after;
        self.follow(after, LineEffect::Reverse(moved));
        self.moves.insert(op, (moved, Some(after)));
    }

    fn redo(&mut self) {
        let Ok(Reversal::Files { prepared, operation }) = self.scene.workspace.prepare_redo() else { return };
        drop(prepared);
        let Some((_, Some(undone))) = self.moves.get(&operation.id).copied() else { return };
        // A redo after another move takes part of that back; which of the two counts is not for a list to say.
        let newest = self.scene.workspace.operations().unwrap();
        let newest = newest.iter().find_map(|op| op.action.moved()).unwrap().after;
        if self.scene.step(undone).step.id != newest {
            return;
        }
        self.story.push(format!("redo #{undone}"));
        let after = self.scene.redo().after;
        self.follow(after, LineEffect::Reverse(undone));
        self.moves.insert(operation.id, (after, None));
    }

    fn create_branch(&mut self) {
        let steps = self.scene.steps();
        let from = &steps[self.dice.below(steps.len())];
        self.branches += 1;
        let name = format!("b{}", self.branches);
        self.story.push(format!("branch {name} from #{}", from.step.number));
        let begins = match from {
            begin if begin.step.kind == StepKind::BranchCreated => return,
            begin if self.scene.workspace.head_id().unwrap() == Some(begin.step.id) => {
                self.reference.tip(&self.branch).unwrap()
            }
            begin => begin.step.number,
        };
        self.scene.workspace.create_branch(&name, from).unwrap();
        self.reference.create_branch(&name, begins);
    }

    fn switch(&mut self) {
        let others = self.reference.branches().filter(|name| *name != self.branch);
        let names: Vec<String> = others.map(str::to_owned).collect();
        if names.is_empty() {
            return;
        }
        let to = names[self.dice.below(names.len())].clone();
        self.story.push(format!("switch to {to}"));
        let prepared = self.scene.workspace.prepare_switch(&to).unwrap();
        let report = self.scene.workspace.switch(&to, prepared).unwrap();
        // What was there is saved on the branch that is left.
        if !self.reference.contains(report.before) {
            let saved = self.scene.step(report.before);
            self.reference.append_step(&self.branch, &saved.step, LineEffect::Append);
        }
        self.branch = to;
        let tip = self.reference.tip(&self.branch).unwrap();
        self.follow(report.after, LineEffect::Jump(tip));
    }
}

fn generate(seed: u64, actions: usize) {
    scene!(scene);
    scene.call("a", "first", "a0", "first");
    let mut history = GeneratedHistory {
        scene,
        dice: Dice(seed),
        reference: LineModel::default(),
        moves: HashMap::new(),
        branch: "main".to_owned(),
        branches: 0,
        open: HashMap::new(),
        story: Vec::new(),
    };
    history.follow(0, LineEffect::Append);
    for turn in 0..actions {
        history.act(turn);
        assert_eq!(
            history.scene.rolled_back(),
            history.reference.rolled_back(&history.scene.steps()),
            "seed {seed}, after turn {turn}: {:#?}",
            history.story
        );
    }
}

#[test]
fn generated_histories_have_the_marks_of_the_reference() {
    for seed in 2000..2050 {
        generate(seed, 40);
    }
}
