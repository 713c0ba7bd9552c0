//! The actions of keys.

use serde_json::json;

use super::pager::{Mood, Pager, Rows};
use super::prompt::{Prompt, Purpose};
use super::window::Side;
use super::{Against, App, Overlay, View, rows_of};
use crate::effect::{Effect, Method, TuiCommand};
use crate::keys::{self, Action};
use crate::source::part;

/// The slowest and the fastest speed.
const SPEEDS: (f64, f64) = (1.0 / 16.0, 64.0);

impl App {
    pub(super) fn act(&mut self, action: Action) -> Vec<Effect> {
        if let Some(by) = rows_of(action, self.rows()) {
            return match (self.view, action) {
                (View::Timeline, Action::First | Action::Last) => self.go_to_end(action == Action::Last),
                _ => self.scroll(by),
            };
        }
        match action {
            Action::Back => self.go(-1),
            Action::Forward => self.go(1),
            Action::Open => self.open_selected(),
            Action::Leave => self.leave(),
            Action::NextError => self.go_to_error(Side::After),
            Action::PreviousError => self.go_to_error(Side::Before),
            Action::Play => self.play(),
            Action::Faster => self.speed(2.0),
            Action::Slower => self.speed(0.5),
            Action::NextView => self.show(self.view.beside(1)),
            Action::PreviousView => self.show(self.view.beside(View::ALL.len() - 1)),
            Action::Show(view) => self.show(view),
            Action::NextPart => self.part(true),
            Action::PreviousPart => self.part(false),
            Action::Mark => self.compare_with_this(),
            Action::Now => {
                self.against = if self.against == Against::Now { Against::Parent } else { Against::Now };
                self.refresh()
            }
            Action::Search => self.ask(Purpose::Search, ""),
            Action::Jump => self.ask_of_session(Purpose::Jump, ""),
            Action::Rerun => self.ask_of_session(Purpose::Rerun, ""),
            Action::Branch => self.ask_of_session(Purpose::Branch, ""),
            Action::Checkpoint => self.ask_of_session(Purpose::Checkpoint, ""),
            Action::Rewind => self.plan_rewind(false),
            Action::Undo => match self.workspace() {
                Some(workspace) => vec![Effect::PlanUndo(workspace)],
                None => self.nothing_open(),
            },
            Action::Pause => self.pause(),
            Action::Help => {
                self.overlay = Overlay::Help(Pager::new(help()));
                Vec::new()
            }
            Action::Quit => vec![Effect::Quit],
            Action::GoOn => self.answer_stop(|_| json!({ "answer": "resume" }), "it goes on"),
            Action::StepOn => {
                self.answer_stop(|_| json!({ "answer": "step" }), "it goes on to its next call")
            }
            Action::Deny => self.ask_about_stop(|stop| (Purpose::Deny(stop.into()), String::new())),
            Action::EditInput => self.ask_about_stop(|stop| {
                let input = stop.input.to_string();
                (Purpose::EditInput(stop.into()), input)
            }),
            Action::Tell => self.tell(),
            Action::AddBreakpoint => self.ask_of_session(Purpose::Breakpoint, "tool "),
            Action::RemoveBreakpoint => self.remove_breakpoint(),
            // These only apply while a plan is shown, or move rows.
            Action::Agree | Action::Everything => Vec::new(),
            Action::Down | Action::Up | Action::PageDown | Action::PageUp | Action::First | Action::Last => {
                Vec::new()
            }
        }
    }

    /// Returns the workspace of the session that is open, or selected.
    pub(super) fn workspace(&self) -> Option<String> {
        let selected = self.sessions.get(self.selected.0).filter(|_| self.view == View::Sessions);
        let session = selected.or(self.open.as_ref().map(|open| &open.session));
        session.map(|session| session.workspace.clone())
    }

    pub(super) fn nothing_open(&mut self) -> Vec<Effect> {
        self.complain("no session is open; select one and press enter");
        Vec::new()
    }

    pub(super) fn ask(&mut self, purpose: Purpose, text: &str) -> Vec<Effect> {
        self.overlay = Overlay::Prompt(Prompt::new(purpose, text));
        Vec::new()
    }

    fn ask_of_session(&mut self, purpose: Purpose, text: &str) -> Vec<Effect> {
        match self.open {
            Some(_) => self.ask(purpose, text),
            None => self.nothing_open(),
        }
    }

    /// Moves by a number of steps in time.
    pub(super) fn go(&mut self, by: i64) -> Vec<Effect> {
        let Some(open) = &mut self.open else { return self.nothing_open() };
        let moved = open.window.go(by);
        let window = &open.window;
        let at_an_end = if by > 0 { window.ends && window.is_last() } else { window.begins };
        if !moved && at_an_end {
            self.say(if by > 0 { "this is the last step" } else { "this is the first step" });
        }
        if by > 0 && at_an_end && self.open.as_ref().is_some_and(|open| open.session.status == "ended") {
            self.playing = None;
        }
        self.refresh()
    }

    /// Moves to the first or the last step of the session, loaded or not.
    fn go_to_end(&mut self, last: bool) -> Vec<Effect> {
        let Some(open) = &mut self.open else { return self.nothing_open() };
        if if last { open.window.ends } else { open.window.begins } {
            open.window.go(if last { i64::MAX / 2 } else { i64::MIN / 2 });
            return self.refresh();
        }
        let number = if last { u64::MAX >> 1 } else { 0 };
        vec![Effect::Around { session: open.session.id.clone(), number }]
    }

    pub(super) fn scroll(&mut self, by: i64) -> Vec<Effect> {
        match &mut self.overlay {
            Overlay::Help(pager) => pager.scroll(by),
            Overlay::Plan(planned) => planned.pager.scroll(by),
            Overlay::Found(found) => {
                let last = found.hits.items.len().saturating_sub(1) as i64;
                found.at = (found.at as i64).saturating_add(by).clamp(0, last) as usize;
            }
            Overlay::Prompt(_) => {}
            Overlay::None => match self.view {
                View::Sessions => {
                    let last = self.sessions.len().saturating_sub(1) as i64;
                    let at = (self.selected.0 as i64).saturating_add(by).clamp(0, last) as usize;
                    self.selected.0 = at;
                    if at as i64 == last
                        && let Some(cursor) = self.more_sessions.take()
                    {
                        return vec![Effect::MoreSessions(cursor)];
                    }
                }
                View::Timeline => {
                    let Some(open) = &mut self.open else { return Vec::new() };
                    open.window.go(by);
                    return self.refresh();
                }
                View::Step => self.step.ready_mut().into_iter().for_each(|pager| pager.scroll(by)),
                View::Diff => self.diff.ready_mut().into_iter().for_each(|pager| pager.scroll(by)),
                View::State => return self.scroll_state(by),
                View::Live => self.live.go(by),
                View::Mind => self.scroll_board(by),
            },
        }
        Vec::new()
    }

    fn open_selected(&mut self) -> Vec<Effect> {
        match self.view {
            View::Sessions => match self.sessions.get(self.selected.0) {
                Some(session) => {
                    let session = session.id.clone();
                    self.view = View::Timeline;
                    vec![Effect::Open { session, number: None }]
                }
                None => Vec::new(),
            },
            View::Timeline => self.show(View::Step),
            View::Step => self.show(View::State),
            View::State => self.open_entry(),
            View::Diff => Vec::new(),
            View::Live => self.open_chosen(),
            View::Mind => self.open_item(),
        }
    }

    fn leave(&mut self) -> Vec<Effect> {
        match self.view {
            View::State if self.inspector.leave() => Vec::new(),
            View::Sessions => Vec::new(),
            View::Timeline => self.show(View::Sessions),
            View::Step | View::State | View::Diff | View::Live | View::Mind => self.show(View::Timeline),
        }
    }

    pub(super) fn show(&mut self, view: View) -> Vec<Effect> {
        self.view = view;
        let mut effects = self.refresh();
        match view {
            View::Sessions => effects.push(Effect::Sessions),
            View::Live => effects.extend(self.load_live()),
            _ => {}
        }
        effects
    }

    fn go_to_error(&mut self, side: Side) -> Vec<Effect> {
        let Some(open) = &mut self.open else { return self.nothing_open() };
        let window = &mut open.window;
        if let Some(number) = window.error(side) {
            window.jump(number);
            return self.refresh();
        }
        let (whole, edge) = match side {
            Side::After => (window.ends, window.numbers().map(|(_, last)| last)),
            Side::Before => (window.begins, window.numbers().map(|(first, _)| first)),
        };
        match edge.filter(|_| !whole) {
            Some(number) => vec![Effect::Error { session: open.session.id.clone(), side, number }],
            None => {
                self.say(if side == Side::After {
                    "no error after this step"
                } else {
                    "no error before this step"
                });
                Vec::new()
            }
        }
    }

    fn play(&mut self) -> Vec<Effect> {
        if self.open.is_none() {
            return self.nothing_open();
        }
        self.playing = match self.playing {
            Some(_) => None,
            None => Some((self.elapsed, 1.0)),
        };
        Vec::new()
    }

    fn speed(&mut self, by: f64) -> Vec<Effect> {
        if let Some((_, speed)) = &mut self.playing {
            *speed = (*speed * by).clamp(SPEEDS.0, SPEEDS.1);
        }
        Vec::new()
    }

    fn part(&mut self, onwards: bool) -> Vec<Effect> {
        match self.view {
            View::Diff => self.diff.ready_mut().into_iter().for_each(|pager| pager.go_to_head(onwards)),
            View::Mind => self.turn_board(onwards),
            View::State => {
                self.inspector.turn(onwards);
                return self.refresh();
            }
            _ => {}
        }
        Vec::new()
    }

    fn compare_with_this(&mut self) -> Vec<Effect> {
        let Some(step) = self.current() else { return self.nothing_open() };
        self.against = match &self.against {
            Against::Marked(id, _) if *id == step.id => Against::Parent,
            _ => Against::Marked(step.id.clone(), step.number),
        };
        self.refresh()
    }

    fn plan_rewind(&mut self, everything: bool) -> Vec<Effect> {
        let (Some(workspace), Some(step)) = (self.workspace(), self.current()) else {
            return self.nothing_open();
        };
        let point = format!("#{}", step.number);
        self.say("planning …");
        vec![Effect::PlanRewind { workspace, point, everything }]
    }

    /// Handles an action while a plan is shown.
    pub(super) fn decide(&mut self, action: Action) -> Vec<Effect> {
        let rows = self.rows();
        let Overlay::Plan(planned) = &mut self.overlay else { return Vec::new() };
        match action {
            Action::Agree if planned.plan.items.is_empty() && planned.plan.operation.is_none() => {
                self.overlay = Overlay::None;
                self.say("nothing was to be done");
                Vec::new()
            }
            Action::Agree => {
                let apply = planned.plan.apply.clone();
                self.overlay = Overlay::None;
                self.say("working …");
                vec![Effect::Apply(apply)]
            }
            Action::Everything => match planned.point.clone().zip(self.workspace()) {
                Some((point, workspace)) => {
                    vec![Effect::PlanRewind { workspace, point, everything: true }]
                }
                None => Vec::new(),
            },
            Action::Leave => {
                self.overlay = Overlay::None;
                self.say("nothing was changed");
                Vec::new()
            }
            other => {
                planned.pager.scroll(rows_of(other, rows).unwrap_or(0));
                Vec::new()
            }
        }
    }

    fn pause(&mut self) -> Vec<Effect> {
        let stop = self.waiting().is_none() && !self.open.as_ref().is_some_and(|open| open.paused);
        match &self.open {
            Some(open) => vec![Effect::Pause { session: open.session.id.clone(), stop }],
            None => self.nothing_open(),
        }
    }

    /// Handles the answer to a prompt.
    pub(super) fn answer(&mut self, prompt: Prompt) -> Vec<Effect> {
        let text = prompt.text().trim().to_owned();
        let Some(open) = &self.open else {
            return match prompt.purpose {
                Purpose::Search if !text.is_empty() => vec![Effect::Search(text)],
                Purpose::Deny(_) | Purpose::EditInput(_) | Purpose::Tell(_) => {
                    self.answer_about_stop(prompt.purpose, text)
                }
                _ => Vec::new(),
            };
        };
        let (session, workspace) = (open.session.id.clone(), open.session.workspace.clone());
        let number = open.window.current().map_or(0, |step| step.number);
        let post = |path: String, body, told: String| {
            vec![Effect::Do(TuiCommand { method: Method::Post, path, body, told })]
        };
        match prompt.purpose {
            Purpose::Jump | Purpose::Search | Purpose::Branch if text.is_empty() => Vec::new(),
            Purpose::Jump => match text.as_str() {
                "first" => self.go_to_end(false),
                "last" => self.go_to_end(true),
                _ => vec![Effect::Resolve { session, workspace, point: text }],
            },
            Purpose::Search => vec![Effect::Search(text)],
            Purpose::Branch => {
                let body = json!({ "name": text, "from": format!("#{number}") });
                let told = format!(
                    "branch {text} begins at #{number}; \"stepback branch switch {text}\" goes there"
                );
                post(format!("/workspaces/{}/branches", part(&workspace)), body, told)
            }
            Purpose::Checkpoint => {
                let label = Some(text).filter(|text| !text.is_empty());
                let told = "the workspace is kept as it is now".to_owned();
                post(format!("/workspaces/{}/checkpoints", part(&workspace)), json!({ "label": label }), told)
            }
            Purpose::Rerun => {
                let set: Vec<&str> =
                    Some(text.as_str()).filter(|text| !text.is_empty()).into_iter().collect();
                let told = "it runs again, in a directory of its own; it comes to a branch".to_owned();
                post(format!("/sessions/{}/reruns", part(&session)), json!({ "set": set }), told)
            }
            Purpose::Breakpoint => self.add_breakpoint(&workspace, &text),
            Purpose::Deny(_) | Purpose::EditInput(_) | Purpose::Tell(_) => {
                self.answer_about_stop(prompt.purpose, text)
            }
        }
    }
}

/// Returns the keys as rows of text.
fn help() -> Vec<super::pager::Row> {
    let mut rows = Rows::default();
    for scope in keys::scopes() {
        rows.head(scope.title());
        for binding in keys::BINDINGS.iter().filter(|binding| binding.scope == scope) {
            rows.line("", &format!("{:<12} {}", keys::names(binding), binding.what), Mood::Plain);
        }
    }
    rows.done()
}
