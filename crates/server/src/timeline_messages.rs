//! Messages between agents as lines between the lanes of a timeline.

use std::collections::HashMap;

use serde_json::Value;
use stepback_api::timeline::TimelineMessageDocument;
use stepback_engine::branch_graph::LaneLayout;
use stepback_engine::{EngineError, Workspace};
use stepback_model::message::AgentMessage;
use stepback_model::record::{StepKind, StepRow};

/// Most messages that are drawn, the newest: each is in the detail of its step.
const MAX_MESSAGES: usize = 2000;

/// Returns the messages among the steps of a session, oldest first, whose receivers have lanes.
///
/// An agent may give a task to an agent whose id is not known yet; the sender of the answer is the receiver then.
pub fn list_timeline_messages(
    workspace: &Workspace,
    agent: &str,
    layout: &LaneLayout<'_>,
    steps: &[StepRow],
) -> Result<Vec<TimelineMessageDocument>, EngineError> {
    let mut found: Vec<(&StepRow, AgentMessage)> = Vec::new();
    let newest = steps.iter().rev().filter(|stored| stored.step.kind == StepKind::Message).take(MAX_MESSAGES);
    for stored in newest {
        let detail = workspace.load_detail(&stored.step)?.unwrap_or_default();
        let message = detail.get("message").cloned().unwrap_or(Value::Null);
        found.extend(serde_json::from_value(message).ok().map(|message| (stored, message)));
    }
    found.reverse();
    let senders: HashMap<&str, Option<&str>> = (found.iter())
        .filter_map(|(_, message)| Some((message.answers.as_deref()?, message.sender.as_deref())))
        .collect();
    // An agent may call itself by its name.
    let lane = |stored: &StepRow, worker: Option<&str>| {
        layout.lane_of_worker(stored, worker.filter(|worker| *worker != agent))
    };
    let drawn = found.iter().filter_map(|(stored, message)| {
        let named = lane(stored, message.receiver.as_deref());
        let answered = || lane(stored, *senders.get(message.id.as_deref()?)?);
        let to = named.or_else(answered).filter(|to| *to != layout.lane_of(stored))?;
        let performative = message.performative.clone();
        Some(TimelineMessageDocument { number: stored.step.number, to: to as u64, performative })
    });
    Ok(drawn.collect())
}
