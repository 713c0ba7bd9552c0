//! Waiting agents, breakpoints, and the commands sent to agents.

use serde_json::{Value, json};

use super::App;
use super::prompt::Purpose;
use crate::documents::{Breakpoint, Stop};
use crate::effect::{AppEffect, Method, TuiCommand};
use crate::source::part;

/// Waiting agents and breakpoints, as one list.
#[derive(Clone, Debug, Default)]
pub struct LiveList {
    /// Agents that wait, in every workspace.
    pub stops: Vec<Stop>,
    /// Breakpoints of this workspace.
    pub breakpoints: Vec<Breakpoint>,
    /// The index of the selected row: agents come first, then breakpoints.
    pub at: usize,
}

/// The selected row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Chosen<'l> {
    /// An agent that waits.
    Stop(&'l Stop),
    /// A breakpoint.
    Breakpoint(&'l Breakpoint),
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

    fn stop(&self) -> Option<Stop> {
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

    pub(super) fn answer_stop(&mut self, say: impl FnOnce(&Stop) -> Value, told: &str) -> Vec<AppEffect> {
        match self.live.stop() {
            Some(stop) => vec![answer(&stop, say(&stop), told)],
            None => self.nobody_waits(),
        }
    }

    pub(super) fn ask_about_stop(&mut self, ask: impl FnOnce(Stop) -> (Purpose, String)) -> Vec<AppEffect> {
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
                vec![answer(&stop, json!({ "answer": "deny", "reason": reason }), "the call is refused")]
            }
            Purpose::EditInput(stop) => match serde_json::from_str::<Value>(&text) {
                Ok(input) if input.is_object() => {
                    let told = match stop.can_edit_input {
                        true => "it runs with the new input",
                        false => {
                            "its input cannot be changed: it is refused, and the model is asked to call again"
                        }
                    };
                    vec![answer(&stop, json!({ "answer": "edit", "input": input }), told)]
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
                let path = format!("/sessions/{}/inject", part(&session));
                let told = "sent with its next call".to_owned();
                vec![AppEffect::Do(TuiCommand {
                    method: Method::Post,
                    path,
                    body: json!({ "text": text }),
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
                let path = format!("/workspaces/{}/breakpoints/{}", part(&workspace), one.id);
                let told = format!("breakpoint {} is {}", one.id, if one.enabled { "off" } else { "on" });
                let body = json!({ "enabled": !one.enabled });
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
                let path = format!("/workspaces/{}/breakpoints/{}", part(&workspace), one.id);
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
            Ok(body) => {
                let path = format!("/workspaces/{}/breakpoints", part(workspace));
                let told = format!("agents stop at {text}");
                vec![AppEffect::Do(TuiCommand { method: Method::Post, path, body, told })]
            }
            Err(why) => {
                self.complain(&why);
                self.ask(Purpose::Breakpoint, text)
            }
        }
    }
}

fn answer(stop: &Stop, body: Value, told: &str) -> AppEffect {
    let path = format!("/stops/{}/answer", part(&stop.id));
    AppEffect::Do(TuiCommand { method: Method::Post, path, body, told: told.to_owned() })
}

/// Parses a breakpoint as the user types it: `tool NAME`, `error`, …
fn breakpoint(text: &str) -> Result<Value, String> {
    let (on, value) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let value = value.trim();
    if value.is_empty() && on != "error" {
        return Err("use tool NAME, path GLOB, pattern REGEX, iteration N, cost USD or error".into());
    }
    Ok(match on {
        "tool" => json!({ "on": on, "name": value }),
        "path" => json!({ "on": on, "glob": value }),
        "pattern" => json!({ "on": on, "pattern": value }),
        "error" => json!({ "on": on }),
        "iteration" => {
            let number: u64 = value.parse().map_err(|_| format!("{value} is not a turn number"))?;
            json!({ "on": on, "number": number })
        }
        "cost" => {
            let usd: f64 =
                value.trim_start_matches('$').parse().map_err(|_| format!("{value} is not an amount"))?;
            json!({ "on": on, "usd": usd })
        }
        _ => {
            return Err(format!("unknown condition {on}; use tool, path, pattern, iteration, cost or error"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_are_read_and_mistakes_named() {
        assert_eq!(breakpoint("tool bash"), Ok(json!({ "on": "tool", "name": "bash" })));
        assert_eq!(breakpoint(" pattern rm -rf "), Ok(json!({ "on": "pattern", "pattern": "rm -rf" })));
        assert_eq!(breakpoint("error"), Ok(json!({ "on": "error" })));
        assert_eq!(breakpoint("cost $1.5"), Ok(json!({ "on": "cost", "usd": 1.5 })));
        assert_eq!(breakpoint("iteration 3"), Ok(json!({ "on": "iteration", "number": 3 })));
        for wrong in ["", "tool", "iteration x", "cost much", "moon full"] {
            assert!(breakpoint(wrong).is_err(), "{wrong}");
        }
    }
}
