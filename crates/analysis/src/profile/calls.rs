//! The calls of an agent: when each ran, and when it waited.

use stepback_model::record::StepKind;

use super::lane::{Interval, RunningCall, merge_intervals, without_intervals};
use super::spans::SpanReader;
use super::statistics::{CallResult, MeasuredCall};
use super::{MAX_REPORTED_DURATION, ProfileSpan, SpanBasis, TimeCategory};
use crate::facts::StepFact;
use crate::marks::StepMark;

/// Tools in which sub-agents work, by the names that agents give them.
const DELEGATING_TOOLS: [&str; 8] =
    ["Task", "Agent", "task", "agent", "delegate", "delegate_task", "spawn_agent", "invoke_agent"];
/// Tools that wait for an answer of the user.
const ASKING_TOOLS: [&str; 7] = [
    "AskUserQuestion",
    "ExitPlanMode",
    "request_user_input",
    "ask_user",
    "exit_plan_mode",
    "question",
    "ask_followup_question",
];

impl SpanReader<'_> {
    pub(super) fn begin_call(&mut self, lane: usize, index: u32, step: &StepFact) {
        let at = step.at.as_micros();
        let state = &mut self.states[lane];
        if step.iteration > 0 {
            let earlier = state.calls.take_before_turn(step.iteration);
            if !earlier.is_empty() && state.calls.is_empty() {
                state.quiet_since = state.last;
            }
            state.overtaken.add(earlier, at);
        }
        if let Some(since) = state.waiting_since.take() {
            state.quiet_since.get_or_insert(since);
        }
        self.end_gap(lane, index, at);
        let state = &mut self.states[lane];
        state.quiet_since = None;
        state.calls.begin(running_call(index, step));
        if DELEGATING_TOOLS.contains(&self.facts.name(step.tool)) {
            self.delegating.push(index);
        }
    }

    pub(super) fn end_call(&mut self, lane: usize, index: u32, step: &StepFact) {
        let end = step.at.as_micros();
        let state = &mut self.states[lane];
        let call = state.calls.end(step.call, step.tool).or_else(|| state.overtaken.take(step.call));
        let mut outcome = MeasuredCall {
            category: TimeCategory::Tool,
            name: step.tool,
            step: index,
            result: if step.failed { CallResult::Failed } else { CallResult::Succeeded },
            duration: None,
            waited: 0,
        };
        match call {
            Some(call) => self.end_known_call(lane, index, step, &call, &mut outcome),
            None => {
                let duration = self.checked_duration(step);
                self.caveats.starts_missing += u64::from(duration.is_none());
                outcome.duration = duration;
                let start = end.saturating_sub_unsigned(duration.unwrap_or_default());
                self.push_run(lane, index, None, step, (start, end), SpanBasis::Recorded);
            }
        }
        if step.mark == StepMark::Refused {
            (outcome.result, outcome.duration) = (CallResult::Refused, None);
        }
        self.outcomes.push(outcome);
        let state = &mut self.states[lane];
        if state.calls.is_empty() {
            state.quiet_since = Some(end);
        }
    }

    /// Divides the time of a call: waiting at breakpoints, then hooks and permissions, then the run itself, which comes last.
    fn end_known_call(
        &mut self,
        lane: usize,
        index: u32,
        step: &StepFact,
        call: &RunningCall,
        outcome: &mut MeasuredCall,
    ) {
        let (start, end) = (call.start, step.at.as_micros());
        if end < start {
            self.caveats.ends_before_start += 1;
            self.push_run(lane, index, Some(call), step, (start, start), SpanBasis::Recorded);
            return;
        }
        let mut stops: Vec<Interval> = call
            .stops
            .iter()
            .map(|(from, to)| ((*from).clamp(start, end), (*to).clamp(start, end)))
            .collect();
        let known = total_length(&stops);
        if let Some(missing) = step.waited.checked_sub(known).filter(|missing| *missing > 0) {
            // The steps of the stop are not recorded, only how long it took. A call waits before it runs.
            stops.push((start, start.saturating_add_unsigned(missing).min(end)));
        }
        let stops = merge_intervals(stops);
        for &stop in &stops {
            self.push(TimeCategory::Breakpoint, SpanBasis::Recorded, stop, lane, index);
        }
        outcome.waited = total_length(&stops);
        if step.mark == StepMark::Refused {
            return;
        }
        let after_stops = stops.last().map_or(start, |stop| stop.1);
        let begun = match step.duration {
            Some(duration) => end.saturating_sub_unsigned(duration).max(after_stops),
            None => after_stops,
        };
        if ASKING_TOOLS.contains(&self.facts.name(step.tool)) {
            outcome.waited = outcome.waited.saturating_add(end.abs_diff(begun));
        } else {
            outcome.duration = Some(end.abs_diff(begun));
        }
        self.push_run(lane, index, Some(call), step, (begun, end), SpanBasis::Recorded);
        let asked = call.permission_asked.map(|asked| asked.clamp(start, end));
        if asked.is_some_and(|asked| begun <= asked) {
            self.caveats.permissions_unmeasured += 1;
        }
        for part in without_intervals((start, begun), &stops) {
            let asked = asked.map_or(part.1, |asked| asked.clamp(part.0, part.1));
            self.push(TimeCategory::Hook, SpanBasis::AroundCall, (part.0, asked), lane, index);
            self.push(TimeCategory::User, SpanBasis::PermissionBeforeCall, (asked, part.1), lane, index);
            outcome.waited = outcome.waited.saturating_add(part.1.abs_diff(asked));
        }
    }

    /// The reported duration, unless it is absurd.
    fn checked_duration(&mut self, step: &StepFact) -> Option<u64> {
        let duration = step.duration?;
        let absurd = duration > MAX_REPORTED_DURATION.unsigned_abs();
        self.caveats.absurd_durations += u64::from(absurd);
        (!absurd).then_some(duration)
    }

    pub(super) fn end_model_call(&mut self, lane: usize, index: u32, step: &StepFact) {
        let end = step.at.as_micros();
        let running = &mut self.states[lane].model_calls;
        let begun = running.end(step.call, step.tool).or_else(|| running.end(None, step.tool));
        let duration = match &begun {
            Some(call) if end < call.start => {
                self.caveats.ends_before_start += 1;
                None
            }
            // What was reported is more exact than when the steps were recorded.
            Some(call) => Some(step.duration.unwrap_or(u64::MAX).min(end.abs_diff(call.start))),
            None => self.checked_duration(step),
        };
        self.outcomes.push(MeasuredCall {
            category: TimeCategory::Model,
            name: step.tool,
            step: index,
            result: if step.failed { CallResult::Failed } else { CallResult::Succeeded },
            duration,
            waited: 0,
        });
        let start = end.saturating_sub_unsigned(duration.unwrap_or_default());
        self.work_since(lane, start);
        if duration.is_some() {
            self.states[lane].answers.push((start, end));
            self.push_run(lane, index, begun.as_ref(), step, (start, end), SpanBasis::Recorded);
        }
    }

    pub(super) fn end_stop(&mut self, lane: usize, step: &StepFact, at: i64) {
        let state = &mut self.states[lane];
        let same_tool = state.stops.iter().position(|stop| stop.tool == step.tool);
        if state.stops.is_empty() {
            return;
        }
        let stop = state.stops.remove(same_tool.unwrap_or(0));
        let interval = (stop.since, at.max(stop.since));
        match state.calls.about(step.call, step.tool).filter(|call| call.start <= stop.since) {
            Some(call) => call.stops.push(interval),
            None => {
                state.other_stops.push(interval);
                self.push(TimeCategory::Breakpoint, SpanBasis::Recorded, interval, lane, stop.step);
            }
        }
    }

    pub(super) fn leave_unfinished(&mut self, lane: usize, call: RunningCall, end: i64) {
        self.caveats.unfinished_calls += 1;
        let start = call.start;
        let end = end.max(start);
        let step = &self.facts.steps[call.step as usize];
        let stops = merge_intervals(call.stops.clone());
        for &stop in &stops {
            self.push(TimeCategory::Breakpoint, SpanBasis::Recorded, stop, lane, call.step);
        }
        self.outcomes.push(MeasuredCall {
            category: TimeCategory::Tool,
            name: step.tool,
            step: call.step,
            result: CallResult::Unfinished,
            duration: None,
            waited: total_length(&stops),
        });
        let begun = stops.last().map_or(start, |stop| stop.1).min(end);
        let asked = call.permission_asked.map_or(end, |asked| asked.clamp(begun, end));
        self.push_run(lane, call.step, Some(&call), step, (begun, asked), SpanBasis::EndMissing);
        self.push(TimeCategory::User, SpanBasis::EndMissing, (asked, end), lane, call.step);
    }

    fn push_run(
        &mut self,
        lane: usize,
        index: u32,
        call: Option<&RunningCall>,
        step: &StepFact,
        (start, end): Interval,
        basis: SpanBasis,
    ) {
        let tool = self.facts.name(step.tool);
        let category = match step.kind {
            StepKind::ModelStart | StepKind::ModelEnd => TimeCategory::Model,
            _ if ASKING_TOOLS.contains(&tool) => TimeCategory::User,
            _ => TimeCategory::Tool,
        };
        self.spans.push(ProfileSpan {
            category,
            basis,
            start,
            end,
            lane,
            name: step.tool,
            subject: step.subject.or_else(|| self.facts.steps[call?.step as usize].subject),
            step: index,
            first_step: call.map(|call| call.step),
            failed: step.failed,
            delegates: category == TimeCategory::Tool && DELEGATING_TOOLS.contains(&tool),
        });
    }
}

/// The sum of the lengths, in microseconds.
fn total_length(intervals: &[Interval]) -> u64 {
    intervals.iter().fold(0, |sum, (start, end)| sum.saturating_add(end.abs_diff(*start)))
}

/// The call that a step begins.
pub(super) fn running_call(index: u32, step: &StepFact) -> RunningCall {
    RunningCall {
        step: index,
        start: step.at.as_micros(),
        id: step.call,
        name: step.tool,
        stops: Vec::new(),
        permission_asked: None,
        iteration: step.iteration,
    }
}
