//! The user's decisions while a session was recorded, to be repeated when it is rerun.
//!
//! At a breakpoint, the user lets a call run, refuses it, or changes its input; between calls, the user leaves messages for
//! the model. All of that shaped what came after, so a rerun repeats it instead of stopping: a call that was refused is
//! refused for the same reason and never runs.
//!
//! A decision belongs to a call. If the agent takes the ids of calls from its model, the recorded answer brings the same id;
//! otherwise calls with the same tool and input are matched in the order they were made. A call whose input was changed for
//! the rerun is a different call, without a decision.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_engine::control::{BreakSide, StopAnswer};
use stepback_model::event::AgentEvent;

use crate::breakpoints::StopDecision;

/// The decision and messages at the start or the end of a call.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedReply {
    /// The decision, if the agent was stopped there.
    pub decision: Option<RecordedDecision>,
    /// Messages that the model got there.
    pub told: Vec<String>,
    /// What the model was told about a call that the agent itself, or its user, did not let run.
    pub refused: Option<String>,
}

/// The decision about a call that was stopped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordedDecision {
    /// Summary of the recorded step.
    pub summary: String,
    /// The step's input: the call's original input, and the user's answer.
    pub input: Value,
    /// Why the call was refused, if the user did not answer in time.
    pub timeout: Option<String>,
}

impl RecordedDecision {
    /// Returns what the decision means for the call.
    pub fn stop_decision(&self) -> StopDecision {
        match serde_json::from_value(self.input["answer"].clone()) {
            Ok(StopAnswer::Resume) => StopDecision::Proceed,
            Ok(StopAnswer::Deny { reason }) => StopDecision::Refused(reason),
            Ok(StopAnswer::Edit { input }) => StopDecision::Edited(input),
            // Without an answer, the call did not run.
            Err(_) => StopDecision::Refused(self.timeout.clone().unwrap_or_else(|| self.summary.clone())),
        }
    }
}

/// A recorded call, and the user's decisions about it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DecidedCall {
    /// The number of the step at which the call began.
    pub number: u64,
    /// The agent's id of the call, if it has one.
    pub id: Option<String>,
    /// Name of the tool.
    pub tool: String,
    /// The input that the model gave it.
    pub input: Value,
    /// Decision and messages before the call ran.
    #[serde(default)]
    pub before: RecordedReply,
    /// Decision and messages after the call ran.
    #[serde(default)]
    pub after: RecordedReply,
}

impl DecidedCall {
    /// Returns the decision and messages at this end of the call.
    pub fn reply_at(&self, side: BreakSide) -> &RecordedReply {
        match side {
            BreakSide::Start => &self.before,
            BreakSide::End => &self.after,
        }
    }

    fn is_decided(&self) -> bool {
        [&self.before, &self.after].iter().any(|reply| **reply != RecordedReply::default())
    }
}

/// A recorded call that was matched with a call of the rerun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepeatedCall {
    /// The number of the step at which the recorded call began.
    pub number: u64,
    /// The id of the call in the rerun.
    pub call: Option<String>,
}

/// The calls of a recorded session that the user decided about.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DecidedCalls(Vec<DecidedCall>);

impl DecidedCalls {
    /// Keeps the calls that were decided about, and those that could be mistaken for one of them.
    pub fn from_calls(calls: Vec<DecidedCall>) -> Self {
        let decided: Vec<(String, Value)> =
            calls.iter().filter(|call| call.is_decided()).map(DecidedCall::tool_and_input).collect();
        Self(calls.into_iter().filter(|call| decided.contains(&call.tool_and_input())).collect())
    }

    /// Whether there are no decisions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the recorded call that the call of `event` repeats. `repeated` are the calls matched so far: at its end, a
    /// call keeps the match from its start.
    pub fn find(
        &self,
        event: &AgentEvent,
        side: BreakSide,
        repeated: &[RepeatedCall],
    ) -> Option<&DecidedCall> {
        let known = repeated.iter().rev().find(|known| known.call == event.call);
        if side == BreakSide::End {
            return self.0.iter().find(|call| known.is_some_and(|known| known.number == call.number));
        }
        let tool = event.tool.as_deref().unwrap_or_default();
        let input = event.input.as_ref().unwrap_or(&Value::Null);
        let same = |call: &&DecidedCall| call.tool == tool && call.input == *input;
        let mut by_id = self.0.iter().filter(|call| call.id.is_some() && call.id == event.call);
        let is_new = |call: &&DecidedCall| !repeated.iter().any(|known| known.number == call.number);
        match (by_id.next(), by_id.next()) {
            (Some(call), None) => Some(call).filter(same),
            // If an agent gives its calls no ids, equal calls share one.
            _ => self.0.iter().filter(same).find(is_new),
        }
    }
}

impl DecidedCall {
    fn tool_and_input(&self) -> (String, Value) {
        (self.tool.clone(), self.input.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepback_model::record::StepKind;

    use super::*;

    fn call(number: u64, id: Option<&str>, command: &str, answer: Option<Value>) -> DecidedCall {
        let decision = answer.map(|answer| RecordedDecision {
            summary: "denied".into(),
            input: json!({ "before": null, "answer": answer }),
            timeout: Some("too late".into()),
        });
        DecidedCall {
            number,
            id: id.map(str::to_owned),
            tool: "Bash".into(),
            input: json!({ "command": command }),
            before: RecordedReply { decision, ..RecordedReply::default() },
            after: RecordedReply::default(),
        }
    }

    fn event(id: &str, command: &str) -> AgentEvent {
        let mut event = AgentEvent::new("claude", "s", StepKind::ToolStart, "");
        event.call = Some(id.into());
        event.tool = Some("Bash".into());
        event.input = Some(json!({ "command": command }));
        event
    }

    fn deny() -> Value {
        json!({ "answer": "deny", "reason": "no" })
    }

    #[test]
    fn a_decision_is_found_by_the_id_of_its_call_and_only_for_the_same_input() {
        let calls = DecidedCalls::from_calls(vec![
            call(1, Some("a"), "make test", None),
            call(5, Some("b"), "make test", Some(deny())),
            call(9, Some("c"), "ls", None),
        ]);
        let decision =
            |id, command| calls.find(&event(id, command), BreakSide::Start, &[])?.before.decision.clone();
        assert_eq!(decision("a", "make test"), None, "the first one was let go");
        assert_eq!(decision("b", "make test").unwrap().stop_decision(), StopDecision::Refused("no".into()));
        assert_eq!(decision("b", "make all"), None, "its input was changed: another call");
        assert_eq!(decision("c", "ls"), None);
    }

    #[test]
    fn without_known_ids_the_order_tells_equal_calls_apart() {
        let calls = DecidedCalls::from_calls(vec![
            call(1, None, "make test", None),
            call(5, None, "make test", Some(deny())),
        ]);
        let found = |id: &str, side, repeated: &[RepeatedCall]| {
            calls.find(&event(id, "make test"), side, repeated).map(|call| call.number)
        };
        let (one, two) = (
            RepeatedCall { number: 1, call: Some("x".into()) },
            RepeatedCall { number: 5, call: Some("y".into()) },
        );
        let both = [one.clone(), two];
        assert_eq!(found("x", BreakSide::Start, &[]), Some(1));
        assert_eq!(found("y", BreakSide::Start, &[one]), Some(5));
        assert_eq!(found("z", BreakSide::Start, &both), None);
        assert_eq!(
            (found("x", BreakSide::End, &both), found("y", BreakSide::End, &both)),
            (Some(1), Some(5))
        );
    }

    #[test]
    fn equal_calls_of_an_agent_without_ids_are_told_apart_by_their_order() {
        let same = |number, answer| call(number, Some("Bash#0123456789ab"), "make test", answer);
        let calls = DecidedCalls::from_calls(vec![same(1, None), same(5, Some(deny()))]);
        let event = event("Bash#0123456789ab", "make test");
        let first = calls.find(&event, BreakSide::Start, &[]).unwrap();
        assert_eq!(first.number, 1);
        let known = [RepeatedCall { number: 1, call: event.call.clone() }];
        assert_eq!(calls.find(&event, BreakSide::Start, &known).unwrap().number, 5);
    }

    #[test]
    fn an_answer_that_never_came_refuses_for_the_reason_of_then() {
        let calls = DecidedCalls::from_calls(vec![call(1, None, "ls", Some(Value::Null))]);
        let found = calls.find(&event("x", "ls"), BreakSide::Start, &[]).unwrap();
        assert_eq!(
            found.before.decision.clone().unwrap().stop_decision(),
            StopDecision::Refused("too late".into())
        );
    }
}
