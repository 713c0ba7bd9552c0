//! Calls whose start and end are on different sides of a rewind or a switch. They belong together: the effect of a call is in
//! the state at its end, so the end decides for both.

use std::collections::HashMap;

use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Step, StepKind};
use stepback_store::port::{StepQuery, StepRow};

use super::BranchLines;
use crate::error::EngineError;
use crate::workspace::Workspace;

impl Workspace {
    /// Returns the starts of calls (of one session, or of all) whose end is on another line, each with whether the end is
    /// rolled back, and the branch of the end.
    pub(super) fn find_split_call_ends(
        &self,
        lines: &BranchLines,
        session: Option<SessionId>,
    ) -> Result<HashMap<StepId, (bool, usize)>, EngineError> {
        let mut ends = HashMap::new();
        if lines.is_linear() {
            return Ok(ends);
        }
        let boundary = lines.graph.first_boundary();
        let kinds = vec![StepKind::ToolStart, StepKind::ToolEnd, StepKind::ModelStart, StepKind::ModelEnd];
        // A call that ended before the first move cannot be split by any of them.
        let after = Some(boundary.saturating_sub(1));
        let query = StepQuery { session, kinds, after, oldest_first: true, ..StepQuery::default() };
        let mut starts: HashMap<(SessionId, StepKind, String), StepRow> = HashMap::new();
        for stored in self.store().steps(self.record.id, &query)? {
            let step = &stored.step;
            let Some(start_kind) = matching_start_kind(step.kind) else {
                if let Some(call) = step.meta.call.clone() {
                    starts.insert((step.session, step.kind, call), stored);
                }
                continue;
            };
            let key = step.meta.call.clone().map(|call| (step.session, start_kind, call));
            let start = match key.and_then(|key| starts.remove(&key)) {
                Some(start) => start,
                None => match self.find_call_start(step, start_kind)? {
                    Some(start) => start,
                    None => continue,
                },
            };
            let (rolled_back, branch) = (!lines.is_on_line(&stored), lines.own_branch_of(step));
            let start_position = (!lines.is_on_line(&start), lines.own_branch_of(&start.step));
            if start_position != (rolled_back, branch) {
                ends.insert(start.step.id, (rolled_back, branch));
            }
        }
        Ok(ends)
    }

    /// Returns the step at which the call that `end` ends began: the step it names, or the newest one before it with the same
    /// call id.
    fn find_call_start(&self, end: &Step, kind: StepKind) -> Result<Option<StepRow>, EngineError> {
        // A model answer without a call id is not paired.
        if end.meta.call.is_none() && end.kind != StepKind::ToolEnd {
            return Ok(None);
        }
        let detail = self.load_detail(end)?;
        let start_id = detail.as_ref().and_then(|detail| StepId::from_hex(detail.get("start")?.as_str()?));
        if let Some(start) = start_id {
            return Ok(self.store().step(start)?);
        }
        let Some(call) = end.meta.call.clone() else { return Ok(None) };
        let query = StepQuery {
            session: Some(end.session),
            kinds: vec![kind],
            call: Some(call),
            before: Some(end.number),
            limit: Some(1),
            ..StepQuery::default()
        };
        Ok(self.store().steps(self.record.id, &query)?.pop())
    }
}

/// Returns the kind of step that starts what a step of `kind` ends.
fn matching_start_kind(kind: StepKind) -> Option<StepKind> {
    match kind {
        StepKind::ToolEnd => Some(StepKind::ToolStart),
        StepKind::ModelEnd => Some(StepKind::ModelStart),
        _ => None,
    }
}
