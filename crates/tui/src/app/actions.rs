//! The actions of keys.

use serde_json::json;
use stepback_api::branches::{NewBranch, NewRerun};
use stepback_api::control::NewAnswer;

use super::pager::{Mood, Pager, RowBuilder};
use super::prompt::{InputLine, Purpose};
use super::window::WindowSide;
use super::{Against, App, Overlay, View, rows_of};
use crate::effect::{AppEffect, Method, TuiCommand};
use crate::keys::{self, KeyAction};
use crate::source::{session_path, workspace_path};

/// The slowest and the fastest speed.
const SPEEDS: (f64, f64) = (1.0 / 16.0, 64.0);

impl App {
    pub(super) fn act(&mut self, action: KeyAction) -> Vec<AppEffect> {
        if let Some(by) = rows_of(action, self.rows()) {
            return match (self.view, action) {
                (View::Timeline, KeyAction::First | KeyAction::Last) => {
                    self.go_to_end(action == KeyAction::Last)
                }
                _ => self.scroll(by),
            };
        }
        match action {
            KeyAction::Back => self.go(-1),
            KeyAction::Forward => self.go(1),
            KeyAction::Open => self.open_selected(),
            KeyAction::Leave => self.leave(),
            KeyAction::NextError => self.go_to_error(WindowSide::After),
            KeyAction::PreviousError => self.go_to_error(WindowSide::Before),
            KeyAction::Play => self.play(),
            KeyAction::Faster => self.speed(2.0),
            KeyAction::Slower => self.speed(0.5),
            KeyAction::NextView => self.show(self.view.beside(1)),
            KeyAction::PreviousView => self.show(self.view.beside(View::ALL.len() - 1)),
            KeyAction::Show(view) => self.show(view),
            KeyAction::NextPart => self.part(true),
            KeyAction::PreviousPart => self.part(false),
            KeyAction::Mark => self.compare_with_this(),
            KeyAction::Now => {
                self.against = if self.against == Against::Now { Against::Parent } else { Against::Now };
                self.refresh()
            }
            KeyAction::Search => self.ask(Purpose::Search, ""),
            KeyAction::Jump => self.ask_of_session(Purpose::Jump, ""),
            KeyAction::Rerun => self.ask_of_session(Purpose::Rerun, ""),
            KeyAction::Branch => self.ask_of_session(Purpose::Branch, ""),
            KeyAction::Checkpoint => self.ask_of_session(Purpose::Checkpoint, ""),
            KeyAction::Rewind => self.plan_rewind(false),
            KeyAction::Undo => match self.workspace() {
                Some(workspace) => vec![AppEffect::PlanUndo(workspace)],
                None => self.nothing_open(),
            },
            KeyAction::Pause => self.pause(),
            KeyAction::Help => {
                self.overlay = Overlay::Help(Pager::new(help()));
                Vec::new()
            }
            KeyAction::Quit => vec![AppEffect::Quit],
            KeyAction::GoOn => self.answer_stop(NewAnswer::Resume, "it continues"),
            KeyAction::StepOn => self.answer_stop(NewAnswer::Step, "it continues to its next call"),
            KeyAction::Deny => self.ask_about_stop(|stop| (Purpose::Deny(stop.into()), String::new())),
            KeyAction::EditInput => self.ask_about_stop(|stop| {
                let input = stop.input.to_string();
                (Purpose::EditInput(stop.into()), input)
            }),
            KeyAction::Tell => self.tell(),
            KeyAction::AddBreakpoint => self.ask_of_session(Purpose::Breakpoint, "tool "),
            KeyAction::RemoveBreakpoint => self.remove_breakpoint(),
            // These only apply while a plan is shown, or move rows.
            KeyAction::Agree | KeyAction::Everything => Vec::new(),
            KeyAction::Down
            | KeyAction::Up
            | KeyAction::PageDown
            | KeyAction::PageUp
            | KeyAction::First
            | KeyAction::Last => Vec::new(),
        }
    }

    /// Returns the workspace of the session that is open, or selected.
    pub(super) fn workspace(&self) -> Option<String> {
        let selected = self.sessions.get(self.selected.0).filter(|_| self.view == View::Sessions);
        let session = selected.or(self.open.as_ref().map(|open| &open.session));
        session.map(|session| session.workspace.clone())
    }

    pub(super) fn nothing_open(&mut self) -> Vec<AppEffect> {
        self.complain("no session is open; select one and press enter");
        Vec::new()
    }

    pub(super) fn ask(&mut self, purpose: Purpose, text: &str) -> Vec<AppEffect> {
        self.overlay = Overlay::Prompt(InputLine::new(purpose, text));
        Vec::new()
    }

    fn ask_of_session(&mut self, purpose: Purpose, text: &str) -> Vec<AppEffect> {
        match self.open {
            Some(_) => self.ask(purpose, text),
            None => self.nothing_open(),
        }
    }

    /// Moves by a number of steps in time.
    pub(super) fn go(&mut self, by: i64) -> Vec<AppEffect> {
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
    fn go_to_end(&mut self, last: bool) -> Vec<AppEffect> {
        let Some(open) = &mut self.open else { return self.nothing_open() };
        if if last { open.window.ends } else { open.window.begins } {
            open.window.go(if last { i64::MAX / 2 } else { i64::MIN / 2 });
            return self.refresh();
        }
        let number = if last { u64::MAX >> 1 } else { 0 };
        vec![AppEffect::Around { session: open.session.id.clone(), number }]
    }

    pub(super) fn scroll(&mut self, by: i64) -> Vec<AppEffect> {
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
                        return vec![AppEffect::MoreSessions(cursor)];
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

    fn open_selected(&mut self) -> Vec<AppEffect> {
        match self.view {
            View::Sessions => match self.sessions.get(self.selected.0) {
                Some(session) => {
                    let session = session.id.clone();
                    self.view = View::Timeline;
                    vec![AppEffect::Open { session, number: None }]
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

    fn leave(&mut self) -> Vec<AppEffect> {
        match self.view {
            View::State if self.inspector.leave() => Vec::new(),
            View::Sessions => Vec::new(),
            View::Timeline => self.show(View::Sessions),
            View::Step | View::State | View::Diff | View::Live | View::Mind => self.show(View::Timeline),
        }
    }

    pub(super) fn show(&mut self, view: View) -> Vec<AppEffect> {
        self.view = view;
        let mut effects = self.refresh();
        match view {
            View::Sessions => effects.push(AppEffect::Sessions),
            View::Live => effects.extend(self.load_live()),
            _ => {}
        }
        effects
    }

    fn go_to_error(&mut self, side: WindowSide) -> Vec<AppEffect> {
        let Some(open) = &mut self.open else { return self.nothing_open() };
        let window = &mut open.window;
        if let Some(number) = window.error(side) {
            window.jump(number);
            return self.refresh();
        }
        let (whole, edge) = match side {
            WindowSide::After => (window.ends, window.numbers().map(|(_, last)| last)),
            WindowSide::Before => (window.begins, window.numbers().map(|(first, _)| first)),
        };
        match edge.filter(|_| !whole) {
            Some(number) => vec![AppEffect::Error { session: open.session.id.clone(), side, number }],
            None => {
                self.say(if side == WindowSide::After {
                    "no error after this step"
                } else {
                    "no error before this step"
                });
                Vec::new()
            }
        }
    }

    fn play(&mut self) -> Vec<AppEffect> {
        if self.open.is_none() {
            return self.nothing_open();
        }
        self.playing = match self.playing {
            Some(_) => None,
            None => Some((self.elapsed, 1.0)),
        };
        Vec::new()
    }

    fn speed(&mut self, by: f64) -> Vec<AppEffect> {
        if let Some((_, speed)) = &mut self.playing {
            *speed = (*speed * by).clamp(SPEEDS.0, SPEEDS.1);
        }
        Vec::new()
    }

    fn part(&mut self, onwards: bool) -> Vec<AppEffect> {
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

    fn compare_with_this(&mut self) -> Vec<AppEffect> {
        let Some(step) = self.current() else { return self.nothing_open() };
        self.against = match &self.against {
            Against::Marked(id, _) if *id == step.id => Against::Parent,
            _ => Against::Marked(step.id.clone(), step.number),
        };
        self.refresh()
    }

    fn plan_rewind(&mut self, everything: bool) -> Vec<AppEffect> {
        let (Some(workspace), Some(step)) = (self.workspace(), self.current()) else {
            return self.nothing_open();
        };
        let point = format!("#{}", step.number);
        self.say("planning …");
        vec![AppEffect::PlanRewind { workspace, point, everything }]
    }

    /// Handles an action while a plan is shown.
    pub(super) fn decide(&mut self, action: KeyAction) -> Vec<AppEffect> {
        let rows = self.rows();
        let Overlay::Plan(planned) = &mut self.overlay else { return Vec::new() };
        match action {
            KeyAction::Agree if planned.plan.items.is_empty() && planned.plan.operation.is_none() => {
                self.overlay = Overlay::None;
                self.say("nothing to do");
                Vec::new()
            }
            KeyAction::Agree => {
                let apply = planned.plan.apply.clone();
                self.overlay = Overlay::None;
                self.say("working …");
                vec![AppEffect::Apply(apply)]
            }
            KeyAction::Everything => match planned.point.clone().zip(self.workspace()) {
                Some((point, workspace)) => {
                    vec![AppEffect::PlanRewind { workspace, point, everything: true }]
                }
                None => Vec::new(),
            },
            KeyAction::Leave => {
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

    fn pause(&mut self) -> Vec<AppEffect> {
        let stop = self.waiting().is_none() && !self.open.as_ref().is_some_and(|open| open.paused);
        match &self.open {
            Some(open) => vec![AppEffect::Pause { session: open.session.id.clone(), stop }],
            None => self.nothing_open(),
        }
    }

    /// Handles the answer to a prompt.
    pub(super) fn answer(&mut self, prompt: InputLine) -> Vec<AppEffect> {
        let text = prompt.text().trim().to_owned();
        let Some(open) = &self.open else {
            return match prompt.purpose {
                Purpose::Search if !text.is_empty() => vec![AppEffect::Search(text)],
                Purpose::Deny(_) | Purpose::EditInput(_) | Purpose::Tell(_) => {
                    self.answer_about_stop(prompt.purpose, text)
                }
                _ => Vec::new(),
            };
        };
        let (session, workspace) = (open.session.id.clone(), open.session.workspace.clone());
        let number = open.window.current().map_or(0, |step| step.number);
        let post = |path: String, body, told: String| {
            vec![AppEffect::Do(TuiCommand { method: Method::Post, path, body, told })]
        };
        match prompt.purpose {
            Purpose::Jump | Purpose::Search | Purpose::Branch if text.is_empty() => Vec::new(),
            Purpose::Jump => match text.as_str() {
                "first" => self.go_to_end(false),
                "last" => self.go_to_end(true),
                _ => vec![AppEffect::Resolve { session, workspace, point: text }],
            },
            Purpose::Search => vec![AppEffect::Search(text)],
            Purpose::Branch => {
                let body = json!(NewBranch { name: text.clone(), from: Some(format!("#{number}")) });
                let told = format!(
                    "branch {text} starts at #{number}; \"stepback branch switch {text}\" switches to it"
                );
                post(workspace_path(&workspace, "/branches"), body, told)
            }
            Purpose::Checkpoint => {
                let label = Some(text).filter(|text| !text.is_empty());
                let told = "checkpoint created".to_owned();
                post(workspace_path(&workspace, "/checkpoints"), json!({ "label": label }), told)
            }
            Purpose::Rerun => {
                let set = Some(text).filter(|text| !text.is_empty()).into_iter().collect();
                let body = json!(NewRerun { set, ..NewRerun::default() });
                let told = "rerunning in its own directory; the result becomes a branch".to_owned();
                post(session_path(&session, "/reruns"), body, told)
            }
            Purpose::Breakpoint => self.add_breakpoint(&workspace, &text),
            Purpose::Deny(_) | Purpose::EditInput(_) | Purpose::Tell(_) => {
                self.answer_about_stop(prompt.purpose, text)
            }
        }
    }
}

/// Returns the keys as rows of text.
fn help() -> Vec<super::pager::PagerRow> {
    let mut rows = RowBuilder::default();
    for scope in keys::scopes() {
        rows.head(scope.title());
        for binding in keys::BINDINGS.iter().filter(|binding| binding.scope == scope) {
            rows.line("", &format!("{:<12} {}", keys::names(binding), binding.what), Mood::Plain);
        }
    }
    rows.done()
}
