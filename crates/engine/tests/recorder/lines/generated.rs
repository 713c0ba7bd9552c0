//! Marks of rolled-back steps on generated histories, compared with a slow and simple reference that knows what was done.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stepback_engine::rewind::Report;
use stepback_engine::undo::Reversal;
use stepback_model::ids::{OpId, SessionId};
use stepback_model::record::{Action, StepKind};
use stepback_store::port::StoredCheckpoint;

use super::{Scene, scene};

/// What a step did to the line it is on, as the test knows it.
#[derive(Clone)]
enum Did {
    Step,
    /// Everything went to this step.
    Jump(u64),
    /// These sessions went to this step.
    Sessions(Vec<SessionId>, u64),
    /// What this move did counts no more.
    Reverse(u64),
}

/// The slow and simple answer: lists of step numbers, made anew for every question.
#[derive(Default)]
struct Reference {
    did: HashMap<u64, (Option<u64>, SessionId, Did)>,
    /// The newest step of every branch.
    tips: BTreeMap<String, u64>,
    /// Steps that led to where an operation went, and to where the last undo of it went.
    moves: HashMap<OpId, (u64, Option<u64>)>,
}

impl Reference {
    fn line(&self, of: u64, reversed: &BTreeSet<u64>) -> BTreeSet<u64> {
        let (before, _, did) = &self.did[&of];
        let line = |of: Option<u64>, reversed: &BTreeSet<u64>| match of {
            Some(of) => self.line(of, reversed),
            None => BTreeSet::new(),
        };
        if reversed.contains(&of) {
            return line(*before, reversed);
        }
        let mut found = match did {
            Did::Step => line(*before, reversed),
            Did::Jump(target) => line(Some(*target), reversed),
            Did::Reverse(moved) => line(*before, &reversed.iter().copied().chain([*moved]).collect()),
            Did::Sessions(sessions, target) => {
                let is_one = |number: &u64| sessions.contains(&self.did[number].1);
                let mut others = line(*before, reversed);
                others.retain(|number| !is_one(number));
                others.extend(line(Some(*target), reversed).into_iter().filter(is_one));
                others
            }
        };
        found.insert(of);
        found
    }

    fn is_on(&self, number: u64, branch: &str) -> bool {
        self.line(self.tips[branch], &BTreeSet::new()).contains(&number)
    }

    /// Takes in the steps that were recorded since the last time, all on one branch.
    fn take(&mut self, scene: &Scene<'_>, branch: &str, did: impl Fn(u64) -> Did) {
        for stored in scene.steps() {
            let step = &stored.checkpoint.step;
            // That a branch was made is on no line.
            if self.did.contains_key(&step.number) || step.kind == StepKind::BranchCreated {
                continue;
            }
            let before = self.tips.insert(branch.to_owned(), step.number);
            self.did.insert(step.number, (before, step.session, did(step.number)));
        }
    }

    fn rolled_back(&self, scene: &Scene<'_>) -> Vec<u64> {
        let none = BTreeSet::new();
        let on: BTreeSet<u64> = self.tips.values().flat_map(|tip| self.line(*tip, &none)).collect();
        let steps = scene.steps();
        let end_of = |stored: &StoredCheckpoint| {
            let step = &stored.checkpoint.step;
            let ends = |other: &&StoredCheckpoint| {
                let other = &other.checkpoint.step;
                other.kind == StepKind::ToolEnd
                    && (other.session, &other.facts.call) == (step.session, &step.facts.call)
            };
            steps.iter().filter(|_| step.kind == StepKind::ToolStart).find(ends)
        };
        let known = steps.iter().filter(|stored| stored.checkpoint.step.kind != StepKind::BranchCreated);
        known
            .filter(|stored| {
                let decides = end_of(stored).unwrap_or(stored);
                !on.contains(&decides.checkpoint.step.number)
            })
            .map(|stored| stored.checkpoint.step.number)
            .collect()
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most as u64) as usize
    }
}

/// Sessions that a rewind was about, as far as it says so; the person among them where nobody else had changed anything and
/// everything went back.
fn recorded_scope(scene: &Scene<'_>, report: &Report) -> Option<Vec<SessionId>> {
    let detail = scene.workspace.detail_of(&scene.step(report.after).checkpoint.step).unwrap()?;
    let listed = detail.get("sessions")?.as_array()?;
    let mut listed: Vec<_> = listed.iter().filter_map(|id| SessionId::from_hex(id.as_str()?)).collect();
    if detail.get("whole").and_then(|whole| whole.as_bool()) == Some(true) {
        listed.push(scene.workspace.session.id);
    }
    (!listed.is_empty()).then_some(listed)
}

fn history(seed: u64, actions: usize) {
    scene!(scene);
    let (mut dice, mut reference) = (Dice(seed), Reference::default());
    let (mut branch, mut made) = ("main".to_owned(), 0);
    let mut open: HashMap<&str, String> = HashMap::new();
    let sessions = ["a", "b"];
    let mut story = Vec::new();
    scene.call("a", "first", "a0", "first");
    reference.take(&scene, &branch, |_| Did::Step);
    for turn in 0..actions {
        let session = sessions[dice.below(2)];
        let name = format!("n{turn}");
        let file = format!("{session}{}", dice.below(3));
        match dice.below(14) {
            0..=3 => {
                story.push(format!("call {session}"));
                scene.call(session, &name, &file, &name);
                reference.take(&scene, &branch, |_| Did::Step);
            }
            4 | 5 => {
                story.push(format!("prompt {session}"));
                scene.prompt(session, &name);
                open.remove(session);
                reference.take(&scene, &branch, |_| Did::Step);
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
                reference.take(&scene, &branch, |_| Did::Step);
            }
            7 => {
                story.push("the person".into());
                scene.place.write("p", &name);
                scene.checkpoint();
                reference.take(&scene, &branch, |_| Did::Step);
            }
            8 | 9 => {
                let steps = scene.steps();
                let agents = steps.iter().filter(|stored| stored.checkpoint.step.facts.call.is_some());
                let Some(target) = agents.clone().nth(dice.below(agents.count().max(1))) else { continue };
                let number = target.checkpoint.step.number;
                let everything = dice.below(3) == 0;
                story.push(format!("rewind to #{number}, everything {everything}"));
                let stays = scene.workspace.head_id().unwrap() == Some(target.checkpoint.step.id);
                let tip = reference.tips[&branch];
                let report = scene.rewind(number, everything);
                let Action::Rewind { moved } = &report.operation.action else { panic!("no rewind") };
                let did = match recorded_scope(&scene, &report) {
                    _ if report.outcomes.is_empty() => Did::Step,
                    // To where the workspace stands: only what was not recorded yet goes.
                    _ if stays && moved.onto == moved.before => Did::Step,
                    _ if stays => Did::Jump(tip),
                    Some(scope) => {
                        assert!(!everything);
                        assert_eq!(scope[0], target.checkpoint.step.session);
                        Did::Sessions(scope, number)
                    }
                    None => Did::Jump(number),
                };
                let after = report.after;
                reference.take(
                    &scene,
                    &branch,
                    |number| if number == after { did.clone() } else { Did::Step },
                );
                reference.moves.insert(report.operation.id, (after, None));
            }
            10 => {
                let operations = scene.workspace.operations().unwrap();
                let rewinds = operations.iter().filter(|op| {
                    let moved = op.action.moved();
                    !op.undone
                        && matches!(op.action, Action::Rewind { .. })
                        && moved.is_some_and(|moved| moved.branches.is_none())
                });
                let Some(op) = rewinds.clone().next().map(|op| op.id) else { continue };
                let (moved, _) = reference.moves[&op];
                if !reference.is_on(moved, &branch) {
                    continue;
                }
                story.push(format!("undo #{moved}"));
                let after = scene.undo(op).after;
                let did = |number| if number == after { Did::Reverse(moved) } else { Did::Step };
                reference.take(&scene, &branch, did);
                reference.moves.insert(op, (moved, Some(after)));
            }
            11 => {
                let Ok(Reversal::Files { prepared, operation }) = scene.workspace.prepare_redo() else {
                    continue;
                };
                drop(prepared);
                let Some((_, Some(undone))) = reference.moves.get(&operation.id).copied() else { continue };
                // A redo after another move takes part of that back; which of the two counts is not for a list to say.
                let newest = scene.workspace.operations().unwrap();
                let newest = newest.iter().find_map(|op| op.action.moved()).unwrap().after;
                if scene.step(undone).checkpoint.step.id != newest {
                    continue;
                }
                story.push(format!("redo #{undone}"));
                let after = scene.redo().after;
                let did = |number| if number == after { Did::Reverse(undone) } else { Did::Step };
                reference.take(&scene, &branch, did);
                reference.moves.insert(operation.id, (after, None));
            }
            12 => {
                let steps = scene.steps();
                let from = &steps[dice.below(steps.len())];
                made += 1;
                story.push(format!("branch b{made} from #{}", from.checkpoint.step.number));
                let begins = match &from.checkpoint {
                    begin if begin.step.kind == StepKind::BranchCreated => continue,
                    begin if scene.workspace.head_id().unwrap() == Some(begin.step.id) => {
                        reference.tips[&branch]
                    }
                    begin => begin.step.number,
                };
                scene.workspace.create_branch(&format!("b{made}"), from).unwrap();
                reference.tips.insert(format!("b{made}"), begins);
            }
            _ => {
                let names: Vec<String> =
                    reference.tips.keys().filter(|name| **name != branch).cloned().collect();
                if names.is_empty() {
                    continue;
                }
                let to = names[dice.below(names.len())].clone();
                story.push(format!("switch to {to}"));
                let prepared = scene.workspace.prepare_switch(&to).unwrap();
                let report = scene.workspace.switch(&to, prepared).unwrap();
                // What was there is saved on the branch that is left.
                let saved = scene
                    .steps()
                    .iter()
                    .map(|stored| stored.checkpoint.step.number)
                    .find(|number| *number == report.before && !reference.did.contains_key(number));
                if let Some(saved) = saved {
                    let before = reference.tips.insert(branch.clone(), saved);
                    let person = scene.workspace.session.id;
                    reference.did.insert(saved, (before, person, Did::Step));
                }
                branch = to;
                let (tip, after) = (reference.tips[&branch], report.after);
                let did = |number| if number == after { Did::Jump(tip) } else { Did::Step };
                reference.take(&scene, &branch, did);
            }
        }
        assert_eq!(
            scene.rolled_back(),
            reference.rolled_back(&scene),
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
