//! What the user does: checkpoints, rewinds, undos, branches and switches.

use stepback_engine::rewind::RewindRequest;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepRow;
use stepback_model::record::{Operation, OperationAction, StateTransition, StepKind};
use stepback_testkit::line_model::LineEffect;

use crate::oracle::Scan;
use crate::script::Script;
use crate::world::{Files, PATHS, text};

/// A rewind that can be undone.
pub struct DoneRewind {
    tick: u64,
    /// The number of the step it led to.
    reached: u64,
    before: Files,
    after: Files,
}

impl Script {
    pub fn create_checkpoint(&mut self) -> Result<(), String> {
        self.note("checkpoint".into());
        self.counts.checkpoints += 1;
        self.world.create_checkpoint()?;
        self.settle(None, true)?;
        self.check_conversation_of_checkpoint()
    }

    pub fn rewind(&mut self) -> Result<(), String> {
        // Where no agent has worked yet, a rewind is about what the user did.
        if self.oracle.scans.is_empty() || self.heard.is_none() {
            return Ok(());
        }
        self.check_authors()?;
        let before = self.world.files();
        let changes = self.world.with(|workspace| workspace.numbered_changes(None).map_err(text))?;
        let mut request = RewindRequest::default();
        let mut since = 0;
        let what = match self.draw.below(6) {
            0 => {
                request.all = true;
                "all".to_owned()
            }
            1 => {
                request.last = Some(1 + self.draw.below(4));
                format!("last {:?}", request.last)
            }
            2 => {
                let at = self.draw.below(self.sessions.len());
                let session = self.session_id(at);
                if !changes.iter().any(|change| change.who.session() == Some(session)) {
                    return Ok(());
                }
                request.all = true;
                request.session = Some(session);
                format!("all of {at}")
            }
            3 => {
                let listed = changes.iter().filter(|change| !change.taken_back && change.step.is_some());
                let listed: Vec<_> = listed.collect();
                if listed.is_empty() {
                    return Ok(());
                }
                let change = *self.draw.pick(&listed);
                request.changes = vec![change.number];
                format!("change {} of {}", change.number, change.change.path)
            }
            _ => {
                let Some((target, tick)) = self.draw_target()? else { return Ok(()) };
                since = tick;
                let what = format!("to #{}", target.step.number);
                request.target = Some(target);
                what
            }
        };
        self.note(format!("rewind {what}"));
        self.counts.rewinds += 1;
        let head = self.world.with(|workspace| workspace.head_id().map_err(text))?;
        let known = self.newest_operation()?.map(|operation| operation.number);
        let outcome = self.world.rewind(&request)?;
        self.note(format!("  {outcome}"));
        let after = self.world.files();
        match request.changes.first() {
            Some(number) => self.check_only_change_went(*number, (&before, &after), &changes)?,
            // Where no agent was at work since a step of the user, the user's own changes are meant.
            None if since > self.last_event && self.is_step_of_user(&request) => {}
            None => self.check_only_agents_went(since, request.session, (&before, &after), &changes)?,
        }
        let operation = self.newest_operation()?.filter(|operation| Some(operation.number) != known);
        let Some(operation) = operation else {
            // A command that finds nothing to do records nothing.
            return match before == after {
                true => self.settle(None, false),
                false => Err("a rewind changed files and is on no record".into()),
            };
        };
        let (reached, effect) = self.effect_of_rewind(&operation, &request, head)?;
        let done = DoneRewind { tick: self.tick, reached, before: before.clone(), after: after.clone() };
        self.rewinds.insert(operation.id, done);
        self.after_move(
            before,
            after,
            |number| if number == reached { effect.clone() } else { LineEffect::Append },
        )
    }

    fn is_step_of_user(&self, request: &RewindRequest) -> bool {
        let target = request.target.as_ref().map(|target| target.step.session);
        target == Some(self.world.with(|workspace| workspace.session.id))
    }

    /// A step on the present line, and when it was: the start of a call, or a step that found something changed.
    fn draw_target(&mut self) -> Result<Option<(StepRow, u64)>, String> {
        let started = self.oracle.calls.iter().filter_map(|call| call.start_step.zip(call.start));
        let scanned = self.oracle.scans.iter().filter_map(|scan| Some((scan.step?, scan.tick)));
        let targets: Vec<(StepId, u64)> = started.chain(scanned).collect();
        if targets.is_empty() {
            return Ok(None);
        }
        let (step, tick) = *self.draw.pick(&targets);
        self.world.with(|workspace| {
            let target = workspace.store().step(step).unwrap().unwrap();
            let base = workspace.nearest_checkpoint(&target).map_err(text)?;
            let line = workspace.ancestry(&workspace.head().map_err(text)?).map_err(text)?;
            let is_on_line = line.iter().any(|stored| stored.step.id == base.step.id);
            Ok(is_on_line.then_some((target, tick)))
        })
    }

    /// The number of the step that a rewind led to, and what that did to the line.
    fn effect_of_rewind(
        &self,
        operation: &Operation,
        request: &RewindRequest,
        head: Option<StepId>,
    ) -> Result<(u64, LineEffect), String> {
        let OperationAction::Rewind { moved } = &operation.action else {
            return Err(format!("the newest operation is no rewind: {operation:?}"));
        };
        self.world.with(|workspace| {
            let step = |id: StepId| workspace.store().step(id).unwrap().unwrap();
            let (saved, reached) = (step(moved.before), step(moved.after));
            let number = reached.step.number;
            let unchanged =
                self.world.files_at(workspace, &saved)? == self.world.files_at(workspace, &reached)?;
            let Some(target) = request.target.as_ref().filter(|_| !unchanged) else {
                return Ok((number, LineEffect::Append));
            };
            let target = &target.step;
            let stays = head == Some(target.id);
            let detail = workspace.load_detail(&reached.step).map_err(text)?.unwrap_or_default();
            let listed = detail.get("sessions").and_then(|sessions| sessions.as_array());
            let mut scope: Vec<SessionId> =
                (listed.into_iter().flatten()).filter_map(|id| SessionId::from_hex(id.as_str()?)).collect();
            if !scope.is_empty() && detail.get("whole").and_then(|whole| whole.as_bool()) == Some(true) {
                scope.push(workspace.session.id);
            }
            // A branch that something was recorded on has a tip.
            let tip = self.lines.tip(&self.branch).unwrap();
            let effect = match () {
                () if stays && moved.onto == moved.before => LineEffect::Append,
                () if stays => LineEffect::Jump(tip),
                () if scope.is_empty() => LineEffect::Jump(target.number),
                () => LineEffect::JumpSessions(scope, target.number),
            };
            Ok((number, effect))
        })
    }

    pub fn undo(&mut self) -> Result<(), String> {
        let operations = self.world.with(|workspace| workspace.operations().map_err(text))?;
        let Some(operation) = operations.iter().find(|op| !op.undone && self.rewinds.contains_key(&op.id))
        else {
            return Ok(());
        };
        let DoneRewind { tick: since, reached, .. } = self.rewinds[&operation.id];
        if !self.lines.is_on(reached, &self.branch) {
            return Ok(());
        }
        self.note(format!("undo of the rewind that led to #{reached}"));
        self.counts.undos += 1;
        let before = self.world.files();
        self.world.undo(operation)?;
        let after = self.world.files();
        // The map holds it: it was found above.
        let done = self.rewinds.remove(&operation.id).unwrap();
        for path in PATHS {
            let is = after.get(path);
            if before.get(path) == done.after.get(path) && is != done.before.get(path) {
                let was = done.before.get(path);
                return Err(format!("an undo makes {path} {is:?}; before the rewind it was {was:?}"));
            }
        }
        let edits = self.oracle.edits.iter().filter(|edit| edit.tick > since && !edit.token.is_empty());
        for edit in edits {
            if edit.is_in(&before) && !edit.is_in(&after) {
                return Err(format!("an undo removed {:?} from {}", edit.token, edit.path));
            }
        }
        let undone = self.number_of(self.newest_move()?.after);
        let effect =
            |number| if number == undone { LineEffect::Reverse(reached) } else { LineEffect::Append };
        self.after_move(before, after, effect)
    }

    pub fn create_branch(&mut self) -> Result<(), String> {
        if self.oracle.files.is_empty() {
            return Ok(());
        }
        let from = self.draw.below(self.oracle.files.len());
        let (from, _) = self.oracle.files[from];
        let (from, head) = self.world.with(|workspace| {
            let head = workspace.head_id().map_err(text)?;
            Ok::<_, String>((workspace.store().step(from).unwrap().unwrap(), head))
        })?;
        let step = &from.step;
        let begins = match head == Some(step.id) {
            true => self.lines.tip(&self.branch).unwrap_or(step.number),
            false => step.number,
        };
        if !self.lines.contains(begins) || step.kind == StepKind::BranchCreated {
            return Ok(());
        }
        self.counts.branches += 1;
        let name = format!("branch-{}", self.counts.branches);
        self.note(format!("create {name} from #{}", step.number));
        self.world.create_branch(&name, &from)?;
        self.lines.create_branch(&name, begins);
        let steps = self.world.with(|workspace| self.world.steps_after(workspace, self.last_number));
        for stored in steps {
            self.last_number = stored.step.number;
        }
        Ok(())
    }

    pub fn switch(&mut self) -> Result<(), String> {
        let others: Vec<String> =
            self.lines.branches().filter(|name| *name != self.branch).map(str::to_owned).collect();
        if others.is_empty() || self.oracle.scans.is_empty() {
            return Ok(());
        }
        let to = self.draw.pick(&others).clone();
        self.note(format!("switch from {} to {to}", self.branch));
        self.counts.switches += 1;
        let tip_files = |name: &str| {
            self.world.with(|workspace| {
                let tip = workspace.branch_tip(name).map_err(text)?.ok_or("a branch is gone")?;
                self.world.files_at(workspace, &tip)
            })
        };
        let wanted = tip_files(&to)?;
        let before = self.world.files();
        self.world.switch(&to)?;
        let after = self.world.files();
        if after != wanted {
            return Err(format!("{to} has {after:?} instead of {wanted:?}"));
        }
        let left = tip_files(&self.branch)?;
        if left != before {
            return Err(format!("{} was left with {left:?} instead of {before:?}", self.branch));
        }
        let moved = self.newest_move()?;
        let saved = self.number_of(moved.before);
        if !self.lines.contains(saved) {
            let stored = self.world.with(|workspace| workspace.store().step(moved.before).unwrap().unwrap());
            self.lines.append_step(&self.branch, &stored.step, LineEffect::Append);
        }
        self.branch = to;
        let (tip, reached) = (self.lines.tip(&self.branch).unwrap(), self.number_of(moved.after));
        let effect = |number| if number == reached { LineEffect::Jump(tip) } else { LineEffect::Append };
        self.after_move(before, after, effect)
    }

    fn newest_operation(&self) -> Result<Option<Operation>, String> {
        let operations = self.world.with(|workspace| workspace.operations().map_err(text))?;
        Ok(operations.into_iter().max_by_key(|operation| operation.number))
    }

    fn newest_move(&self) -> Result<StateTransition, String> {
        let operation = self.newest_operation()?;
        operation.and_then(|operation| operation.action.moved().cloned()).ok_or("nothing was moved".into())
    }

    fn number_of(&self, step: StepId) -> u64 {
        self.world.with(|workspace| workspace.store().step(step).unwrap().unwrap().step.number)
    }

    /// A move may have saved the present as a step, and has left one for what it reached. Files that it had no reason to look at
    /// are as they were scanned last.
    fn after_move(
        &mut self,
        before: Files,
        after: Files,
        effect: impl Fn(u64) -> LineEffect,
    ) -> Result<(), String> {
        let steps = self.world.with(|workspace| self.world.steps_after(workspace, self.last_number));
        let branch = self.branch.clone();
        self.lines.append(&branch, &steps, effect);
        let (mut reached, mut saved) = (self.scanned.clone(), None);
        for stored in steps {
            let step = &stored.step;
            let is_reached = matches!(step.kind, StepKind::Rewind | StepKind::BranchSwitched);
            let now = if is_reached { &after } else { &before };
            let found = self.world.with(|workspace| self.world.files_at(workspace, &stored))?;
            for path in PATHS {
                let (was, is) = (before.get(path), after.get(path));
                let unseen = was == is && found.get(path) == self.scanned.get(path);
                if found.get(path) != now.get(path) && !unseen {
                    return Err(format!("step #{} has {path} as {:?}", step.number, found.get(path)));
                }
            }
            self.last_number = step.number;
            self.oracle.files.push((step.id, found.clone()));
            match is_reached {
                true => reached = found,
                false => saved = Some(step.id),
            }
        }
        let left_out = PATHS.into_iter().filter(|path| reached.get(path) != after.get(path)).collect();
        self.oracle.scans.push(Scan { tick: self.tick, session: None, step: saved, left_out });
        self.scanned = reached;
        self.check_marks()
    }
}
