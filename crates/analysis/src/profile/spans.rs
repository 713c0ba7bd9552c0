//! From the facts of steps to intervals: which tool ran when, which model answered, and who waited.

use std::collections::HashMap;

use super::calls::running_call;
use super::lane::{Interval, Lane, PendingStop, merge_intervals, without_intervals};
use super::statistics::{CallResult, MeasuredCall};
use super::{
    AgentLane, IDLE_AFTER, MAX_REPORTED_DURATION, ProfileCaveats, ProfileSpan, SpanBasis, TimeCategory,
};
use crate::facts::{NameIndex, SessionFacts, StepFact, UsageSource};
use crate::marks::StepMark;
use stepback_model::record::StepKind;

/// A step that is this much older than the one before it shows that the clock went back, in microseconds.
const CLOCK_TOLERANCE: i64 = 1_000_000;

/// What was read from the facts.
pub(super) struct ReadSpans {
    pub spans: Vec<ProfileSpan>,
    pub lanes: Vec<AgentLane>,
    pub outcomes: Vec<MeasuredCall>,
    pub caveats: ProfileCaveats,
}

/// Reads the spans of a session, sorted by their start.
pub(super) fn read_spans(facts: &SessionFacts) -> ReadSpans {
    let mut reader = SpanReader::new(facts);
    let mut previous = None;
    for (index, step) in (0..).zip(&facts.steps) {
        let at = step.at.as_micros();
        if previous.is_some_and(|previous: i64| at.saturating_add(CLOCK_TOLERANCE) < previous) {
            reader.caveats.clock_went_back += 1;
        }
        previous = Some(at);
        // Steps of stepback itself say nothing about the agent.
        if !step.kind.is_own() {
            reader.read_step(index, step);
        }
    }
    reader.finish()
}

/// Reads steps one after the other.
pub(super) struct SpanReader<'a> {
    pub(super) facts: &'a SessionFacts,
    pub(super) spans: Vec<ProfileSpan>,
    lanes: Vec<AgentLane>,
    pub(super) states: Vec<Lane>,
    by_worker: HashMap<Option<NameIndex>, usize>,
    pub(super) outcomes: Vec<MeasuredCall>,
    pub(super) caveats: ProfileCaveats,
    /// The time of the newest event of any agent.
    last: i64,
    /// Calls in which sub-agents may work: their first step.
    pub(super) delegating: Vec<u32>,
}

impl<'a> SpanReader<'a> {
    fn new(facts: &'a SessionFacts) -> Self {
        let mut reader = Self {
            facts,
            spans: Vec::with_capacity(facts.steps.len()),
            lanes: Vec::new(),
            states: Vec::new(),
            by_worker: HashMap::new(),
            outcomes: Vec::new(),
            caveats: ProfileCaveats::default(),
            last: facts.steps.first().map_or(0, |step| step.at.as_micros()),
            delegating: Vec::new(),
        };
        reader.lane(None);
        reader
    }

    /// Returns the lane of a sub-agent. A new one was started by the newest call that can start one.
    fn lane(&mut self, worker: Option<NameIndex>) -> usize {
        if let Some(&lane) = self.by_worker.get(&worker) {
            return lane;
        }
        let lane = self.lanes.len();
        let started_by = worker.and_then(|_| self.delegating.last().copied());
        self.lanes.push(AgentLane { worker, started_by });
        self.states.push(Lane::default());
        self.by_worker.insert(worker, lane);
        lane
    }

    fn read_step(&mut self, index: u32, step: &StepFact) {
        let lane = self.lane(step.worker);
        let at = step.at.as_micros();
        match step.kind {
            StepKind::UserInput => self.begin_turn(lane, index, at),
            StepKind::ToolStart => self.begin_call(lane, index, step),
            StepKind::ToolEnd => self.end_call(lane, index, step),
            StepKind::ModelStart => {
                self.work_since(lane, at);
                self.states[lane].model_calls.begin(running_call(index, step));
            }
            StepKind::ModelEnd => self.end_model_call(lane, index, step),
            // While a call runs, the turn goes on.
            StepKind::Error if self.states[lane].calls.is_empty() => self.end_turn(lane, index, at),
            _ => self.read_mark(lane, index, step),
        }
        self.states[lane].last = Some(at);
        self.last = at;
    }

    fn read_mark(&mut self, lane: usize, index: u32, step: &StepFact) {
        let at = step.at.as_micros();
        match step.mark {
            StepMark::SessionStarted => {
                self.abandon(index, at);
                for state in &mut self.states {
                    (state.quiet_since, state.waiting_since) = (None, None);
                }
                self.states[lane].waiting_since = Some(at);
            }
            StepMark::SessionEnded => {
                self.abandon(index, at);
                self.end_waiting(lane, index, at);
                for state in &mut self.states {
                    (state.quiet_since, state.waiting_since) = (None, None);
                }
            }
            StepMark::TurnDone | StepMark::WorkerDone => self.end_turn(lane, index, at),
            StepMark::WorkerStarted => self.work_since(lane, at),
            StepMark::PermissionAsked => {
                if let Some(call) = self.states[lane].calls.about(step.call, step.tool) {
                    call.permission_asked.get_or_insert(at);
                }
            }
            StepMark::Stopped => {
                self.states[lane].stops.push(PendingStop { step: index, since: at, tool: step.tool });
            }
            StepMark::Answered => self.end_stop(lane, step, at),
            StepMark::None | StepMark::PermissionDenied | StepMark::Refused | StepMark::Compacted => {}
        }
    }

    /// A prompt: whatever ran before it does not run any more.
    fn begin_turn(&mut self, lane: usize, index: u32, at: i64) {
        self.abandon(index, at);
        self.end_waiting(lane, index, at);
        let state = &mut self.states[lane];
        (state.quiet_since, state.waiting_since) = (Some(at), None);
    }

    fn end_turn(&mut self, lane: usize, index: u32, at: i64) {
        self.end_gap(lane, index, at);
        let state = &mut self.states[lane];
        let calls = state.calls.take_all();
        state.overtaken.add(calls, at);
        state.quiet_since = None;
        if self.lanes[lane].worker.is_none() {
            state.waiting_since = Some(at);
        }
    }

    /// The agent works from now on, if it did not work before. Without a prompt it went on by itself since it was done.
    pub(super) fn work_since(&mut self, lane: usize, at: i64) {
        let state = &mut self.states[lane];
        let since = state.waiting_since.take().unwrap_or(at);
        if state.calls.is_empty() {
            state.quiet_since.get_or_insert(since);
        }
    }

    fn end_waiting(&mut self, lane: usize, index: u32, at: i64) {
        if let Some(since) = self.states[lane].waiting_since.take()
            && at > since
            && at.saturating_sub(since) <= IDLE_AFTER
        {
            self.push(TimeCategory::User, SpanBasis::UntilNextPrompt, (since, at), lane, index);
        }
    }

    pub(super) fn end_gap(&mut self, lane: usize, index: u32, at: i64) {
        let state = &mut self.states[lane];
        if let Some(since) = state.quiet_since.filter(|since| at > *since) {
            state.gaps.push(((since, at), index));
        }
    }

    /// Ends whatever all agents were doing: none of it is running any more. When it ended is not known, but not after the last event.
    fn abandon(&mut self, index: u32, at: i64) {
        let last = self.last.min(at);
        for lane in 0..self.states.len() {
            for (call, end) in self.states[lane].overtaken.take_all() {
                self.leave_unfinished(lane, call, end);
            }
            for call in self.states[lane].calls.take_all() {
                self.leave_unfinished(lane, call, last);
            }
            let model_calls = self.states[lane].model_calls.take_all();
            self.caveats.unfinished_calls += model_calls.len() as u64;
            self.states[lane].stops.clear();
            // The agent worked until its last event at least.
            if let Some(seen) = self.states[lane].last {
                self.end_gap(lane, index, seen);
            }
            self.states[lane].quiet_since = None;
        }
    }

    pub(super) fn push(
        &mut self,
        category: TimeCategory,
        basis: SpanBasis,
        (start, end): Interval,
        lane: usize,
        step: u32,
    ) {
        if start < end {
            let (name, subject) = match category {
                TimeCategory::Breakpoint | TimeCategory::Hook | TimeCategory::User => {
                    (self.facts.steps[step as usize].tool, None)
                }
                _ => (None, None),
            };
            let (first_step, failed, delegates) = (None, false, false);
            let span = ProfileSpan {
                category,
                basis,
                start,
                end,
                lane,
                name,
                subject,
                step,
                first_step,
                failed,
                delegates,
            };
            self.spans.push(span);
        }
    }

    fn finish(mut self) -> ReadSpans {
        let last = self.last;
        if !self.facts.steps.is_empty() {
            let index = u32::try_from(self.facts.steps.len() - 1).unwrap_or(u32::MAX);
            self.abandon(index, last);
        }
        self.add_answers_of_conversation();
        for lane in 0..self.states.len() {
            self.fill_gaps(lane);
        }
        self.spans.sort_by_key(|span| (span.start, span.end, span.lane));
        ReadSpans { spans: self.spans, lanes: self.lanes, outcomes: self.outcomes, caveats: self.caveats }
    }

    /// Answers that only the conversation of the agent has, and whose duration is known.
    fn add_answers_of_conversation(&mut self) {
        for call in self.facts.model_calls.iter().filter(|call| call.source == UsageSource::Conversation) {
            let absurd = |duration: &u64| *duration > MAX_REPORTED_DURATION.unsigned_abs();
            let Some(duration) = call.duration.filter(|duration| !absurd(duration)) else { continue };
            if self.facts.steps.get(call.step as usize).is_none() {
                continue;
            }
            let lane = self.lane(call.worker);
            let end = call.at.as_micros();
            let interval = (end.saturating_sub_unsigned(duration), end);
            self.states[lane].answers.push(interval);
            self.outcomes.push(MeasuredCall {
                category: TimeCategory::Model,
                name: call.model,
                step: call.step,
                result: CallResult::Succeeded,
                duration: Some(duration),
                waited: 0,
            });
            self.spans.push(ProfileSpan {
                category: TimeCategory::Model,
                basis: SpanBasis::Recorded,
                start: interval.0,
                end: interval.1,
                lane,
                name: call.model,
                subject: None,
                step: call.step,
                first_step: None,
                failed: false,
                delegates: false,
            });
        }
    }

    /// What an agent did while it worked and no call ran: its model answered, if no answer is recorded for that time.
    fn fill_gaps(&mut self, lane: usize) {
        let state = std::mem::take(&mut self.states[lane]);
        let answers = merge_intervals(state.answers);
        let stops = merge_intervals(state.other_stops);
        for (gap, step) in state.gaps {
            for part in without_intervals(gap, &stops) {
                let others = without_intervals(part, &answers);
                let has_answer = others != [part];
                for other in others {
                    let length = other.1.saturating_sub(other.0);
                    match (has_answer, length > IDLE_AFTER) {
                        (_, true) => {}
                        (true, false) => {
                            self.push(TimeCategory::Hook, SpanBasis::BetweenCalls, other, lane, step)
                        }
                        (false, false) => {
                            self.push(TimeCategory::Model, SpanBasis::ModelBetweenEvents, other, lane, step);
                        }
                    }
                }
            }
        }
    }
}
