//! Waiting agents, breakpoints, and the commands sent to agents.

use serde_json::{Value, json};
use stepback_api::address::encode_segment;
use stepback_api::control::{
    BreakpointDocument, BreakpointKind, BreakpointSwitch, NewAnswer, NewBreakpoint, NewMessage, StopDocument,
};

use super::App;
use super::prompt::PromptPurpose;
use crate::effect::{AppEffect, CommandMethod, TuiCommand};
use crate::source::{session_path, workspace_path};

/// Waiting agents and breakpoints, as one list.
#[derive(Clone, Debug, Default)]
pub struct LiveList {
    /// Agents that wait, in every workspace.
    pub stops: Vec<StopDocument>,
    /// Breakpoints of this workspace.
    pub breakpoints: Vec<BreakpointDocument>,
    /// The index of the selected row: agents come first, then breakpoints.
    pub selected_index: usize,
}

/// The selected row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LiveRow<'l> {
    /// An agent that waits.
    Stop(&'l StopDocument),
    /// A breakpoint.
    Breakpoint(&'l BreakpointDocument),
}

impl LiveList {
    /// Returns the selected row.
    pub fn selected_row(&self) -> Option<LiveRow<'_>> {
        let stop = self.stops.get(self.selected_index).map(LiveRow::Stop);
        stop.or_else(|| {
            self.breakpoints.get(self.selected_index.checked_sub(self.stops.len())?).map(LiveRow::Breakpoint)
        })
    }

    pub(super) fn move_by(&mut self, by: i64) {
        let last = (self.stops.len() + self.breakpoints.len()).saturating_sub(1) as i64;
        self.selected_index = (self.selected_index as i64).saturating_add(by).clamp(0, last) as usize;
    }

    /// Selects the clicked row. There is a heading above the agents, and two rows above the breakpoints.
    pub(super) fn click_row(&mut self, row: usize) -> bool {
        let count = self.stops.len().max(1);
        let index = match row {
            row if (1..=self.stops.len()).contains(&row) => row - 1,
            row if row >= count + 3 => self.stops.len() + row - count - 3,
            _ => return true,
        };
        index >= self.stops.len() + self.breakpoints.len()
            || std::mem::replace(&mut self.selected_index, index) != index
    }

    fn selected_stop(&self) -> Option<StopDocument> {
        match self.selected_row() {
            Some(LiveRow::Stop(stop)) => Some(stop.clone()),
            _ => None,
        }
    }
}

impl App {
    pub(super) fn load_live(&self) -> Vec<AppEffect> {
        let breakpoints = self.current_workspace().map(AppEffect::Breakpoints);
        std::iter::once(AppEffect::Stops).chain(breakpoints).collect()
    }

    fn report_no_stop(&mut self) -> Vec<AppEffect> {
        self.show_error("select a stopped agent; there is none, or a breakpoint is selected");
        Vec::new()
    }

    pub(super) fn answer_stop(&mut self, new_answer: NewAnswer, notice: &str) -> Vec<AppEffect> {
        match self.live.selected_stop() {
            Some(stop) => vec![answer_effect(&stop, &new_answer, notice)],
            None => self.report_no_stop(),
        }
    }

    pub(super) fn open_stop_prompt(
        &mut self,
        prompt_for: impl FnOnce(StopDocument) -> (PromptPurpose, String),
    ) -> Vec<AppEffect> {
        match self.live.selected_stop() {
            Some(stop) => {
                let (purpose, text) = prompt_for(stop);
                self.open_prompt(purpose, &text)
            }
            None => self.report_no_stop(),
        }
    }

    /// Asks for a message to the selected agent, or to that of the open session.
    pub(super) fn open_message_prompt(&mut self) -> Vec<AppEffect> {
        let open = self.open.as_ref().map(|open| open.session.id.clone());
        match self.live.selected_stop().map(|stop| stop.session).or(open) {
            Some(session) => self.open_prompt(PromptPurpose::Message(session), ""),
            None => self.report_no_stop(),
        }
    }

    pub(super) fn submit_stop_prompt(&mut self, purpose: PromptPurpose, text: String) -> Vec<AppEffect> {
        match purpose {
            PromptPurpose::Deny(stop) => {
                let reason = Some(text).filter(|text| !text.is_empty());
                vec![answer_effect(&stop, &NewAnswer::Deny { reason }, "the call is refused")]
            }
            PromptPurpose::EditInput(stop) => match serde_json::from_str::<Value>(&text) {
                Ok(input) if input.is_object() => {
                    let notice = match stop.can_edit_input {
                        true => "it runs with the new input",
                        false => {
                            "its input cannot be changed: it is refused, and the model is asked to call again"
                        }
                    };
                    vec![answer_effect(&stop, &NewAnswer::Edit { input }, notice)]
                }
                invalid => {
                    let why = invalid
                        .err()
                        .map_or_else(|| "it is not an object".to_owned(), |error| error.to_string());
                    // The typed text is kept.
                    self.show_error(&format!("invalid input: {why}"));
                    self.open_prompt(PromptPurpose::EditInput(stop), &text)
                }
            },
            PromptPurpose::Message(session) if !text.is_empty() => {
                let path = session_path(&session, "/inject");
                let notice = "sent with its next call".to_owned();
                vec![AppEffect::RunCommand(TuiCommand {
                    method: CommandMethod::Post,
                    path,
                    body: json!(NewMessage { text }),
                    notice,
                })]
            }
            _ => Vec::new(),
        }
    }

    /// Turns a breakpoint on or off, or moves to the step where an agent waits.
    pub(super) fn open_selected_row(&mut self) -> Vec<AppEffect> {
        let Some(workspace) = self.current_workspace() else { return self.report_no_session() };
        match self.live.selected_row() {
            Some(LiveRow::Breakpoint(breakpoint)) => {
                let path = workspace_path(&workspace, &format!("/breakpoints/{}", breakpoint.id));
                let notice = format!(
                    "breakpoint {} is {}",
                    breakpoint.id,
                    if breakpoint.enabled { "off" } else { "on" }
                );
                let body = json!(BreakpointSwitch { enabled: !breakpoint.enabled });
                vec![AppEffect::RunCommand(TuiCommand { method: CommandMethod::Patch, path, body, notice })]
            }
            Some(LiveRow::Stop(stop)) => {
                let open = AppEffect::Open { session: stop.session.clone(), number: Some(stop.step) };
                self.view = super::View::Timeline;
                vec![open]
            }
            None => Vec::new(),
        }
    }

    pub(super) fn remove_breakpoint(&mut self) -> Vec<AppEffect> {
        let Some(workspace) = self.current_workspace() else { return self.report_no_session() };
        match self.live.selected_row() {
            Some(LiveRow::Breakpoint(breakpoint)) => {
                let path = workspace_path(&workspace, &format!("/breakpoints/{}", breakpoint.id));
                let notice = format!("breakpoint {} was removed", breakpoint.id);
                vec![AppEffect::RunCommand(TuiCommand {
                    method: CommandMethod::Delete,
                    path,
                    body: Value::Null,
                    notice,
                })]
            }
            _ => {
                self.show_error("select a breakpoint");
                Vec::new()
            }
        }
    }

    pub(super) fn add_breakpoint(&mut self, workspace: &str, text: &str) -> Vec<AppEffect> {
        match parse_breakpoint(text) {
            Ok(new) => {
                let path = workspace_path(workspace, "/breakpoints");
                let notice = format!("agents stop at {text}");
                vec![AppEffect::RunCommand(TuiCommand {
                    method: CommandMethod::Post,
                    path,
                    body: json!(new),
                    notice,
                })]
            }
            Err(reason) => {
                self.show_error(&reason);
                self.open_prompt(PromptPurpose::Breakpoint, text)
            }
        }
    }
}

fn answer_effect(stop: &StopDocument, new_answer: &NewAnswer, notice: &str) -> AppEffect {
    let path = format!("/stops/{}/answer", encode_segment(&stop.id));
    AppEffect::RunCommand(TuiCommand {
        method: CommandMethod::Post,
        path,
        body: json!(new_answer),
        notice: notice.to_owned(),
    })
}

/// Parses a breakpoint as the user types it: `tool NAME`, `error`, …
fn parse_breakpoint(text: &str) -> Result<NewBreakpoint, String> {
    let (condition, value) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let value = value.trim();
    if value.is_empty() && !matches!(condition, "error" | "anomaly") {
        return Err(
            "use tool NAME, path GLOB, pattern REGEX, iteration N, cost USD, anomaly [KIND] or error".into(),
        );
    }
    let text = || Some(value.to_owned());
    Ok(match condition {
        "tool" => NewBreakpoint { name: text(), ..NewBreakpoint::new(BreakpointKind::Tool) },
        "path" => NewBreakpoint { glob: text(), ..NewBreakpoint::new(BreakpointKind::Path) },
        "pattern" => NewBreakpoint { pattern: text(), ..NewBreakpoint::new(BreakpointKind::Pattern) },
        "error" => NewBreakpoint::new(BreakpointKind::Error),
        "anomaly" => NewBreakpoint {
            name: text().filter(|kind| !kind.is_empty()),
            ..NewBreakpoint::new(BreakpointKind::Anomaly)
        },
        "iteration" => {
            let number = value.parse().map_err(|_| format!("{value} is not a turn number"))?;
            NewBreakpoint { number: Some(number), ..NewBreakpoint::new(BreakpointKind::Iteration) }
        }
        "cost" => {
            let amount = value.trim_start_matches('$').parse();
            let usd = amount.map_err(|_| format!("{value} is not an amount"))?;
            NewBreakpoint { usd: Some(usd), ..NewBreakpoint::new(BreakpointKind::Cost) }
        }
        _ => {
            return Err(format!(
                "unknown condition {condition}; use tool, path, pattern, iteration, cost, anomaly or error"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Result<Value, String> {
        parse_breakpoint(text).map(|new| json!(new))
    }

    #[test]
    fn breakpoints_are_read_and_mistakes_named() {
        assert_eq!(body("tool bash"), Ok(json!({ "on": "tool", "name": "bash" })));
        assert_eq!(body(" pattern rm -rf "), Ok(json!({ "on": "pattern", "pattern": "rm -rf" })));
        assert_eq!(body("error"), Ok(json!({ "on": "error" })));
        assert_eq!(body("cost $1.5"), Ok(json!({ "on": "cost", "usd": 1.5 })));
        assert_eq!(body("iteration 3"), Ok(json!({ "on": "iteration", "number": 3 })));
        for wrong in ["", "tool", "iteration x", "cost much", "moon full"] {
            assert!(parse_breakpoint(wrong).is_err(), "{wrong}");
        }
    }
}
