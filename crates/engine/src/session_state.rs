//! Which agent session was at work at a step, and the conversation it had at that step.
//!
//! A state holds what is true after its step: files, and the conversation, memory, task list and reasoning of the session at
//! work. A step that an agent reported has its own session. A step of the user (a checkpoint, a rewind, a switch) belongs to
//! no agent, so it takes over the slots of the session that was active last. A session that was only prepared, as the
//! continuation of an earlier conversation, has no step yet and is not at work.

use std::collections::HashMap;

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{OpStatus, Operation, Session, StateTransition, StepKind, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_store::Mutation;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::EngineError;
use crate::moves::SessionPart;
use crate::session::IDLE_AFTER_MICROS;
use crate::workspace::Workspace;

/// How many steps the first query reads to find the last one of an agent.
const FIRST_STEPS: u64 = 32;

impl Workspace {
    /// Returns the agent session that was active last before the step numbered `before`, or now.
    pub fn last_active_session(&self, before: Option<u64>) -> Result<Option<Session>, EngineError> {
        Ok(self.last_agent_step(before)?.map(|(session, _)| session))
    }

    /// Returns the last step of an agent before the one numbered `before`, or now, and its session.
    fn last_agent_step(&self, before: Option<u64>) -> Result<Option<(Session, StepRow)>, EngineError> {
        let sessions = self.agent_sessions()?.into_iter().filter(|session| !session.info.imported);
        let sessions: HashMap<SessionId, Session> = sessions.map(|session| (session.id, session)).collect();
        let (mut before, mut limit) = (before, FIRST_STEPS);
        while !sessions.is_empty() {
            let query = StepQuery { before, limit: Some(limit), ..StepQuery::default() };
            let steps = self.store().steps(self.record.id, &query)?;
            let session = |stored: &StepRow| sessions.get(&stored.step.session).cloned();
            let mut match_found = steps.iter().filter_map(|stored| session(stored).zip(Some(stored.clone())));
            if let Some(match_found) = match_found.next() {
                return Ok(Some(match_found));
            }
            let Some(oldest) = steps.last() else { break };
            before = Some(oldest.step.number);
            limit *= 4;
        }
        Ok(None)
    }

    /// Returns the agent sessions that were at work at a step: its own first, then the most recently active.
    pub fn sessions_at_work(&self, at: &StepRow) -> Result<Vec<Session>, EngineError> {
        let mut at_work: Vec<(u64, Session)> = Vec::new();
        for session in self.agent_sessions()? {
            let last = match session.id == at.step.session {
                true => Some(u64::MAX),
                false => self.last_step_at_work(&session, at)?,
            };
            at_work.extend(last.map(|last| (last, session)));
        }
        at_work.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(at_work.into_iter().map(|(_, session)| session).collect())
    }

    /// Returns the number of the last step of a session before a step of another one, if the session was at work then: it had
    /// begun, had not ended, and either had an event within the hour before or went on later.
    fn last_step_at_work(&self, session: &Session, at: &StepRow) -> Result<Option<u64>, EngineError> {
        let has_ended = session.info.ended_at.is_some_and(|ended| ended < at.step.at);
        if session.info.imported || has_ended || session.started_at > at.step.at {
            return Ok(None);
        }
        let before = Some(at.step.number);
        let query = StepQuery { session: Some(session.id), before, limit: Some(1), ..StepQuery::default() };
        let Some(last) = self.store().steps(self.record.id, &query)?.pop() else { return Ok(None) };
        let silence = at.step.at.as_micros().saturating_sub(last.step.at.as_micros());
        let went_on = session.info.seen_at.is_some_and(|seen| seen > at.step.at);
        Ok((silence <= IDLE_AFTER_MICROS || went_on).then_some(last.step.number))
    }

    /// Returns the checkpoints that the user made by hand while a session was at work, newest first.
    pub fn manual_checkpoints_during(&self, session: &Session) -> Result<Vec<StepRow>, EngineError> {
        let mut during = Vec::new();
        if session.id == self.session.id {
            return Ok(during);
        }
        for stored in self.checkpoints()? {
            if self.is_manual_checkpoint(&stored) && self.last_step_at_work(session, &stored)?.is_some() {
                during.push(stored);
            }
        }
        Ok(during)
    }

    /// Adds to the steps of a session the checkpoints that the user made by hand while it was at work, and sorts all by number.
    pub fn with_manual_checkpoints(
        &self,
        session: &Session,
        mut steps: Vec<StepRow>,
    ) -> Result<Vec<StepRow>, EngineError> {
        steps.extend(self.manual_checkpoints_during(session)?);
        steps.sort_by_key(|stored| stored.step.number);
        Ok(steps)
    }

    /// Whether a step is a checkpoint that the user made by hand, which belongs to the timeline of every session at work.
    pub fn is_manual_checkpoint(&self, stored: &StepRow) -> bool {
        stored.step.session == self.session.id
            && stored.step.kind == StepKind::Checkpoint
            && stored.trigger == Some(Trigger::Manual)
    }

    /// Returns the mutation that stores which conversation a branch has when it is left: that of the session at work.
    pub(crate) fn conversation_ref_mutation(&self, branch: &str) -> Result<Option<Mutation>, EngineError> {
        let name = self.conversation_ref(branch);
        let expected = self.store().reference(&name)?;
        let last = self.last_agent_step(None)?.map(|(_, stored)| stored.step.id);
        Ok(last.map(|value| Mutation::SetRef { name, expected, value }))
    }

    /// Returns the step whose conversation a branch has: the one stored when it was left, or its newest checkpoint.
    pub(crate) fn branch_conversation_step(
        &self,
        branch: &str,
        tip: &StepRow,
    ) -> Result<StepId, EngineError> {
        let noted = self.store().reference(&self.conversation_ref(branch))?;
        let noted = noted.map(|id| self.store().step(id)).transpose()?.flatten();
        let newer = noted.filter(|noted| noted.step.number > tip.step.number);
        Ok(newer.map_or(tip.step.id, |noted| noted.step.id))
    }

    /// Returns the step at which the conversation of a branch was when the branch was left.
    pub fn branch_conversation(&self, branch: &str) -> Result<StepRow, EngineError> {
        let tip = self.require_branch_tip(branch)?;
        let step = self.branch_conversation_step(branch, &tip)?;
        Ok(self.store().step(step)?.unwrap_or(tip))
    }

    fn conversation_ref(&self, branch: &str) -> String {
        format!("conversation/{}/{branch}", self.record.id)
    }

    /// Fills in the slots of the session at work (everything but files) in a state that is about to be recorded for the user.
    pub(crate) fn fill_session_slots(&self, state: &mut WorkspaceState) -> Result<(), EngineError> {
        if let Some(session) = self.last_active_session(None)? {
            state.conversation = session.info.tip;
            state.memory = session.info.slots.memory;
            state.task = session.info.slots.task;
            state.env = session.info.slots.env;
            state.reasoning = session.info.slots.reasoning;
        }
        Ok(())
    }

    /// Sets the slots that these steps moved, each a step of a session that took one back, to what the steps made of them. A
    /// board of the user is in no other state than those of its own steps.
    pub(crate) fn fill_moved_slots(
        &self,
        state: &mut WorkspaceState,
        steps: &[StepId],
    ) -> Result<(), EngineError> {
        for id in steps {
            let Some(stored) = self.store().step(*id)? else { continue };
            let session = self.store().session(stored.step.session)?;
            if session.is_none_or(|session| session.agent == Session::PERSON) {
                continue;
            }
            let moved = WorkspaceState::load(self.store(), stored.step.state)?;
            if stored.step.kind == StepKind::Reasoning {
                state.reasoning = moved.reasoning;
                continue;
            }
            match self.part_of_step(&stored)? {
                Some(SessionPart::Memory) => state.memory = moved.memory,
                Some(SessionPart::Task) => state.task = moved.task,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the step whose conversation there was before a move: the last one that had taken the conversation elsewhere,
    /// if the agent did nothing since, else the state that was saved before the move.
    pub(crate) fn conversation_before(
        &self,
        moved: &StateTransition,
        operations: &[Operation],
    ) -> Result<StepId, EngineError> {
        let number = |id: StepId| -> Result<Option<u64>, EngineError> {
            Ok(self.store().step(id)?.map(|stored| stored.step.number))
        };
        let began = moved.parts.first().copied().unwrap_or(moved.after);
        let Some(began) = number(began)? else { return Ok(moved.before) };
        let earlier = operations.iter().filter(|op| op.status == OpStatus::Done);
        let earlier = earlier.filter_map(|op| op.action.moved()).filter(|op| op.conversation_from.is_some());
        let mut last = None;
        for candidate in earlier {
            let reached = number(candidate.after)?.filter(|reached| *reached < began);
            last = last.max(reached.map(|reached| (reached, candidate.after)));
        }
        let Some((reached, after)) = last else { return Ok(moved.before) };
        // A checkpoint says nothing: one is made before a board goes back.
        let query = StepQuery { after: Some(reached), before: Some(began), ..StepQuery::default() };
        let agents: Vec<SessionId> = self.agent_sessions()?.iter().map(|session| session.id).collect();
        let is_by_agent =
            |row: &StepRow| agents.contains(&row.step.session) && row.step.kind != StepKind::Checkpoint;
        let went_on = self.store().steps(self.record.id, &query)?.iter().any(is_by_agent);
        Ok(if went_on { moved.before } else { after })
    }

    /// Returns the session whose conversation the state of a step has; `None` if no agent had been recorded by then.
    pub fn conversation_session(&self, at: &StepRow) -> Result<Option<Session>, EngineError> {
        let source = self.conversation_source(at)?;
        let own = self.store().session(source.step.session)?;
        match own.filter(|session| session.agent != Session::PERSON) {
            Some(session) => Ok(Some(session)),
            None => self.last_active_session(Some(source.step.number)),
        }
    }

    /// Returns the last message of the conversation that `session` had at a step, regardless of the step's own session.
    pub fn conversation_tip_at(&self, session: &Session, at: &StepRow) -> Result<Option<Hash>, EngineError> {
        let source = self.conversation_source(at)?;
        let tip = |stored: &StepRow| -> Result<Option<Hash>, EngineError> {
            Ok(WorkspaceState::load(self.store(), stored.step.state)?.conversation)
        };
        let holder = self.conversation_session(&source)?;
        if holder.is_some_and(|holder| holder.id == session.id)
            && let Some(tip) = tip(&source)?
        {
            return Ok(Some(tip));
        }
        let query = StepQuery {
            session: Some(session.id),
            before: Some(source.step.number.saturating_add(1)),
            limit: Some(1),
            ..StepQuery::default()
        };
        match self.store().steps(self.record.id, &query)?.first() {
            Some(last) => tip(last),
            None => Ok(None),
        }
    }

    /// Returns the step that a step of the user has its conversation from: a rewind that takes the conversation back has that
    /// of its target, and a switch that of the branch.
    fn conversation_source(&self, at: &StepRow) -> Result<StepRow, EngineError> {
        let mut source = at.clone();
        // This ends because each step refers to an earlier one.
        loop {
            let step = &source.step;
            let from = match step.kind {
                StepKind::BranchSwitched => step.parent,
                StepKind::Rewind => {
                    let detail = self.load_detail(step)?;
                    let from = detail.as_ref().and_then(|detail| detail.get("conversation_from")?.as_str());
                    from.and_then(StepId::from_hex)
                }
                _ => None,
            };
            match from.map(|id| self.store().step(id)).transpose()?.flatten() {
                Some(earlier) if earlier.step.number < step.number => source = earlier,
                _ => return Ok(source),
            }
        }
    }
}
