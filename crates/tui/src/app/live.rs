//! Waiting agents, breakpoints, and the commands sent to agents.

use serde_json::{Value, json};
use stepback_api::address::encode_segment;
use stepback_api::control::{
    BreakpointDocument, BreakpointKind, BreakpointSwitch, NewAnswer, NewBreakpoint, NewMessage, StopDocument,
};

use super::App;
use super::prompt::Purpose;
use crate::effect::{AppEffect, Method, TuiCommand};
use crate::source::{session_path, workspace_path};

/// Waiting agents and breakpoints, as one list.
#[derive(Clone, Debug, Default)]
pub struct LiveList {
    /// Agents that wait, in every workspace.
    pub stops: Vec<StopDocument>,
    /// Breakpoints of this workspace.
    pub breakpoints: Vec<BreakpointDocument>,
    /// The index of the selected row: agents come first, then breakpoints.
    pub at: usize,
}

/// The selected row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Chosen<'l> {
    /// An agent that waits.
    Stop(&'l StopDocument),
    /// A breakpoint.
    Breakpoint(&'l BreakpointDocument),
}

impl LiveList {
    /// Returns the selected row.
    pub fn chosen(&self) -> Option<Chosen<'_>> {
        let stop = self.stops.get(self.at).map(Chosen::Stop);
        stop.or_else(|| self.breakpoints.get(self.at.checked_sub(self.stops.len())?).map(Chosen::Breakpoint))
    }

    pub(super) fn go(&mut self, by: i64) {
        let last = (self.stops.len() + self.breakpoints.len()).saturating_sub(1) as i64;
        self.at = (self.at as i64).saturating_add(by).clamp(0, last) as usize;
    }

    /// Selects the clicked row. There is a heading above the agents, and two rows above the breakpoints.
    pub(super) fn click(&mut self, row: usize) -> bool {
        let count = self.stops.len().max(1);
        let to = match row {
            row if (1..=self.stops.len()).contains(&row) => row - 1,
            row if row >= count + 3 => self.stops.len() + row - count - 3,
            _ => return true,
        };
        to >= self.stops.len() + self.breakpoints.len() || std::mem::replace(&mut self.at, to) != to
    }

    fn stop(&self) -> Option<StopDocument> {
        match self.chosen() {
            Some(Chosen::Stop(stop)) => Some(stop.clone()),
            _ => None,
        }
    }
}

impl App {
    pub(super) fn load_live(&self) -> Vec<AppEffect> {
        let breakpoints = self.workspace().map(AppEffect::Breakpoints);
        std::iter::once(AppEffect::Stops).chain(breakpoints).collect()
    }

    fn nobody_waits(&mut self) -> Vec<AppEffect> {
        self.complain("select a stopped agent; there is none, or a breakpoint is selected");
        Vec::new()
    }

    pub(super) fn answer_stop(&mut self, say: NewAnswer, told: &str) -> Vec<AppEffect> {
        match self.live.stop() {
            Some(stop) => vec![answer(&stop, &say, told)],
            None => self.nobody_waits(),
        }
    }

    pub(super) fn ask_about_stop(
        &mut self,
        ask: impl FnOnce(StopDocument) -> (Purpose, String),
    ) -> Vec<AppEffect> {
        match self.live.stop() {
            Some(stop) => {
                let (purpose, text) = ask(stop);
                self.ask(purpose, &text)
            }
            None => self.nobody_waits(),
        }
    }

    /// Asks for a message to the selected agent, or to that of the open session.
    pub(super) fn tell(&mut self) -> Vec<AppEffect> {
        let open = self.open.as_ref().map(|open| open.session.id.clone());
        match self.live.stop().map(|stop| stop.session).or(open) {
            Some(session) => self.ask(Purpose::Tell(session), ""),
            None => self.nobody_waits(),
        }
    }

    pub(super) fn answer_about_stop(&mut self, purpose: Purpose, text: String) -> Vec<AppEffect> {
        match purpose {
            Purpose::Deny(stop) => {
                let reason = Some(text).filter(|text| !text.is_empty());
                vec![answer(&stop, &NewAnswer::Deny { reason }, "the call is refused")]
            }
            Purpose::EditInput(stop) => match serde_json::from_str::<Value>(&text) {
                Ok(input) if input.is_object() => {
                    let told = match stop.can_edit_input {
                        true => "it runs with the new input",
                        false => {
                            "its input cannot be changed: it is refused, and the model is asked to call again"
                        }
                    };
                    vec![answer(&stop, &NewAnswer::Edit { input }, told)]
                }
                wrong => {
                    let why = wrong
                        .err()
                        .map_or_else(|| "it is not an object".to_owned(), |error| error.to_string());
                    // The typed text is kept.
                    self.complain(&format!("invalid input: {why}"));
                    self.ask(Purpose::EditInput(stop), &text)
                }
            },
            Purpose::Tell(session) if !text.is_empty() => {
                let path = session_path(&session, "/inject");
                let told = "sent with its next call".to_owned();
                vec![AppEffect::Do(TuiCommand {
                    method: Method::Post,
                    path,
                    body: json!(NewMessage { text }),
                    told,
                })]
            }
            _ => Vec::new(),
        }
    }

    /// Turns a breakpoint on or off, or moves to the step where an agent waits.
    pub(super) fn open_chosen(&mut self) -> Vec<AppEffect> {
        let Some(workspace) = self.workspace() else { return self.nothing_open() };
        match self.live.chosen() {
            Some(Chosen::Breakpoint(one)) => {
                let path = workspace_path(&workspace, &format!("/breakpoints/{}", one.id));
                let told = format!("breakpoint {} is {}", one.id, if one.enabled { "off" } else { "on" });
                let body = json!(BreakpointSwitch { enabled: !one.enabled });
                vec![AppEffect::Do(TuiCommand { method: Method::Patch, path, body, told })]
            }
            Some(Chosen::Stop(stop)) => {
                let open = AppEffect::Open { session: stop.session.clone(), number: Some(stop.step) };
                self.view = super::View::Timeline;
                vec![open]
            }
            None => Vec::new(),
        }
    }

    pub(super) fn remove_breakpoint(&mut self) -> Vec<AppEffect> {
        let Some(workspace) = self.workspace() else { return self.nothing_open() };
        match self.live.chosen() {
            Some(Chosen::Breakpoint(one)) => {
                let path = workspace_path(&workspace, &format!("/breakpoints/{}", one.id));
                let told = format!("breakpoint {} was removed", one.id);
                vec![AppEffect::Do(TuiCommand { method: Method::Delete, path, body: Value::Null, told })]
            }
            _ => {
                self.complain("select a breakpoint");
                Vec::new()
            }
        }
    }

    pub(super) fn add_breakpoint(&mut self, workspace: &str, text: &str) -> Vec<AppEffect> {
        match breakpoint(text) {
            Ok(new) => {
                let path = workspace_path(workspace, "/breakpoints");
                let told = format!("agents stop at {text}");
                vec![AppEffect::Do(TuiCommand { method: Method::Post, path, body: json!(new), told })]
            }
            Err(why) => {
                self.complain(&why);
                self.ask(Purpose::Breakpoint, text)
            }
        }
    }
}

fn answer(stop: &StopDocument, say: &NewAnswer, told: &str) -> AppEffect {
    let path = format!("/stops/{}/answer", encode_segment(&stop.id));
    AppEffect::Do(TuiCommand { method: Method::Post, path, body: json!(say), told: told.to_owned() })
}

/// Parses a breakpoint as the user types it: `tool NAME`, `error`, …
fn breakpoint(text: &str) -> Result<NewBreakpoint, String> {
    let (on, value) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let value = value.trim();
    if value.is_empty() && on != "error" {
        return Err("use tool NAME, path GLOB, pattern REGEX, iteration N, cost USD or error".into());
    }
    let text = || Some(value.to_owned());
    Ok(match on {
        "tool" => NewBreakpoint { name: text(), ..NewBreakpoint::on(BreakpointKind::Tool) },
        "path" => NewBreakpoint { glob: text(), ..NewBreakpoint::on(BreakpointKind::Path) },
        "pattern" => NewBreakpoint { pattern: text(), ..NewBreakpoint::on(BreakpointKind::Pattern) },
        "error" => NewBreakpoint::on(BreakpointKind::Error),
        "iteration" => {
            let number = value.parse().map_err(|_| format!("{value} is not a turn number"))?;
            NewBreakpoint { number: Some(number), ..NewBreakpoint::on(BreakpointKind::Iteration) }
        }
        "cost" => {
            let amount = value.trim_start_matches('$').parse();
            let usd = amount.map_err(|_| format!("{value} is not an amount"))?;
            NewBreakpoint { usd: Some(usd), ..NewBreakpoint::on(BreakpointKind::Cost) }
        }
        _ => {
            return Err(format!("unknown condition {on}; use tool, path, pattern, iteration, cost or error"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Result<Value, String> {
        breakpoint(text).map(|new| json!(new))
    }

    #[test]
    fn breakpoints_are_read_and_mistakes_named() {
        assert_eq!(body("tool bash"), Ok(json!({ "on": "tool", "name": "bash" })));
        assert_eq!(body(" pattern rm -rf "), Ok(json!({ "on": "pattern", "pattern": "rm -rf" })));
        assert_eq!(body("error"), Ok(json!({ "on": "error" })));
        assert_eq!(body("cost $1.5"), Ok(json!({ "on": "cost", "usd": 1.5 })));
        assert_eq!(body("iteration 3"), Ok(json!({ "on": "iteration", "number": 3 })));
        for wrong in ["", "tool", "iteration x", "cost much", "moon full"] {
            assert!(breakpoint(wrong).is_err(), "{wrong}");
        }
    }
}
