//! The actions of keys.

use serde_json::json;
use stepback_api::branches::{NewBranch, NewRerun};
use stepback_api::control::NewAnswer;

use super::pager::{Pager, RowBuilder, RowStyle};
use super::prompt::{InputLine, PromptPurpose};
use super::window::WindowSide;
use super::{App, CompareTarget, Overlay, View, row_delta};
use crate::effect::{AppEffect, CommandMethod, TuiCommand};
use crate::keys::{self, KeyAction};
use crate::source::{session_path, workspace_path};

/// The slowest and the fastest speed.
const SPEEDS: (f64, f64) = (1.0 / 16.0, 64.0);

impl App {
    pub(super) fn perform_action(&mut self, action: KeyAction) -> Vec<AppEffect> {
        if let Some(delta) = row_delta(action, self.view_rows()) {
            return match (self.view, action) {
                (View::Timeline, KeyAction::First | KeyAction::Last) => {
                    self.go_to_end(action == KeyAction::Last)
                }
                _ => self.scroll(delta),
            };
        }
        match action {
            KeyAction::Back => self.move_by(-1),
            KeyAction::Forward => self.move_by(1),
            KeyAction::Open => self.open_selected(),
            KeyAction::Leave => self.leave_view(),
            KeyAction::NextError => self.go_to_error(WindowSide::After),
            KeyAction::PreviousError => self.go_to_error(WindowSide::Before),
            KeyAction::Play => self.toggle_playing(),
            KeyAction::Faster => self.change_speed(2.0),
            KeyAction::Slower => self.change_speed(0.5),
            KeyAction::NextView => self.show_view(self.view.cycle_by(1)),
            KeyAction::PreviousView => self.show_view(self.view.cycle_by(View::ALL.len() - 1)),
            KeyAction::Show(view) => self.show_view(view),
            KeyAction::NextPart => self.change_part(true),
            KeyAction::PreviousPart => self.change_part(false),
            KeyAction::ToggleOrigins => self.toggle_origins(),
            KeyAction::CompareWithStep => self.toggle_compare_step(),
            KeyAction::CompareWithNow => {
                self.compare_target = if self.compare_target == CompareTarget::Now {
                    CompareTarget::Parent
                } else {
                    CompareTarget::Now
                };
                self.refresh()
            }
            KeyAction::Search => self.open_prompt(PromptPurpose::Search, ""),
            KeyAction::Jump => self.open_session_prompt(PromptPurpose::Jump, ""),
            KeyAction::Rerun => self.open_session_prompt(PromptPurpose::Rerun, ""),
            KeyAction::Branch => self.open_session_prompt(PromptPurpose::Branch, ""),
            KeyAction::Checkpoint => self.open_session_prompt(PromptPurpose::Checkpoint, ""),
            KeyAction::Rewind => self.plan_rewind(false),
            KeyAction::Undo => match self.current_workspace() {
                Some(workspace) => vec![AppEffect::PlanUndo(workspace)],
                None => self.report_no_session(),
            },
            KeyAction::Pause => self.toggle_pause(),
            KeyAction::Help => {
                self.overlay = Overlay::Help(Pager::new(help_rows()));
                Vec::new()
            }
            KeyAction::Quit => vec![AppEffect::Quit],
            KeyAction::Resume => self.answer_stop(NewAnswer::Resume, "it continues"),
            KeyAction::ResumeOneCall => self.answer_stop(NewAnswer::Step, "it continues to its next call"),
            KeyAction::Deny => {
                self.open_stop_prompt(|stop| (PromptPurpose::Deny(stop.into()), String::new()))
            }
            KeyAction::EditInput => self.open_stop_prompt(|stop| {
                let input = stop.input.to_string();
                (PromptPurpose::EditInput(stop.into()), input)
            }),
            KeyAction::SendMessage => self.open_message_prompt(),
            KeyAction::AddBreakpoint => self.open_session_prompt(PromptPurpose::Breakpoint, "tool "),
            KeyAction::RemoveBreakpoint => self.remove_breakpoint(),
            // These only apply while a plan is shown, or move rows.
            KeyAction::Confirm | KeyAction::PlanEverything => Vec::new(),
            KeyAction::Down
            | KeyAction::Up
            | KeyAction::PageDown
            | KeyAction::PageUp
            | KeyAction::First
            | KeyAction::Last => Vec::new(),
        }
    }

    /// Returns the workspace of the session that is open, or selected.
    pub(super) fn current_workspace(&self) -> Option<String> {
        let selected = self.sessions.get(self.selected.0).filter(|_| self.view == View::Sessions);
        let session = selected.or(self.open.as_ref().map(|open| &open.session));
        session.map(|session| session.workspace.clone())
    }

    pub(super) fn report_no_session(&mut self) -> Vec<AppEffect> {
        self.show_error("no session is open; select one and press enter");
        Vec::new()
    }

    pub(super) fn open_prompt(&mut self, purpose: PromptPurpose, text: &str) -> Vec<AppEffect> {
        self.overlay = Overlay::Prompt(InputLine::new(purpose, text));
        Vec::new()
    }

    fn open_session_prompt(&mut self, purpose: PromptPurpose, text: &str) -> Vec<AppEffect> {
        match self.open {
            Some(_) => self.open_prompt(purpose, text),
            None => self.report_no_session(),
        }
    }

    /// Moves by a number of steps in time.
    pub(super) fn move_by(&mut self, by: i64) -> Vec<AppEffect> {
        let Some(open) = &mut self.open else { return self.report_no_session() };
        let moved = open.window.move_by(by);
        let window = &open.window;
        let at_an_end = if by > 0 { window.has_last && window.is_last() } else { window.has_first };
        if !moved && at_an_end {
            self.show_notice(if by > 0 { "this is the last step" } else { "this is the first step" });
        }
        if by > 0 && at_an_end && self.open.as_ref().is_some_and(|open| open.session.status == "ended") {
            self.playing = None;
        }
        self.refresh()
    }

    /// Moves to the first or the last step of the session, loaded or not.
    fn go_to_end(&mut self, last: bool) -> Vec<AppEffect> {
        let Some(open) = &mut self.open else { return self.report_no_session() };
        if if last { open.window.has_last } else { open.window.has_first } {
            open.window.move_by(if last { i64::MAX / 2 } else { i64::MIN / 2 });
            return self.refresh();
        }
        let number = if last { u64::MAX >> 1 } else { 0 };
        vec![AppEffect::StepsAround { session: open.session.id.clone(), number }]
    }

    pub(super) fn scroll(&mut self, by: i64) -> Vec<AppEffect> {
        match &mut self.overlay {
            Overlay::Help(pager) => pager.scroll(by),
            Overlay::Plan(planned) => planned.pager.scroll(by),
            Overlay::SearchResults(results) => {
                let last = results.hits.items.len().saturating_sub(1) as i64;
                results.selected_index =
                    (results.selected_index as i64).saturating_add(by).clamp(0, last) as usize;
            }
            Overlay::Prompt(_) => {}
            Overlay::None => match self.view {
                View::Sessions => {
                    let last = self.sessions.len().saturating_sub(1) as i64;
                    let index = (self.selected.0 as i64).saturating_add(by).clamp(0, last) as usize;
                    self.selected.0 = index;
                    if index as i64 == last
                        && let Some(cursor) = self.next_sessions_cursor.take()
                    {
                        return vec![AppEffect::MoreSessions(cursor)];
                    }
                }
                View::Timeline => {
                    let Some(open) = &mut self.open else { return Vec::new() };
                    open.window.move_by(by);
                    return self.refresh();
                }
                View::Step => self.step.value_mut().into_iter().for_each(|pager| pager.scroll(by)),
                View::Diff => self.diff.value_mut().into_iter().for_each(|pager| pager.scroll(by)),
                View::State => return self.scroll_state(by),
                View::Live => self.live.move_by(by),
                View::Board => self.scroll_board(by),
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
            View::Timeline => self.show_view(View::Step),
            View::Step => self.show_view(View::State),
            View::State => self.open_entry(),
            View::Diff => Vec::new(),
            View::Live => self.open_selected_row(),
            View::Board => self.open_item_step(),
        }
    }

    fn leave_view(&mut self) -> Vec<AppEffect> {
        match self.view {
            View::State if self.inspector.close_file() => Vec::new(),
            View::Sessions => Vec::new(),
            View::Timeline => self.show_view(View::Sessions),
            View::Step | View::State | View::Diff | View::Live | View::Board => {
                self.show_view(View::Timeline)
            }
        }
    }

    pub(super) fn show_view(&mut self, view: View) -> Vec<AppEffect> {
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
        let Some(open) = &mut self.open else { return self.report_no_session() };
        let window = &mut open.window;
        if let Some(number) = window.nearest_error(side) {
            window.move_to(number);
            return self.refresh();
        }
        let (is_complete, edge) = match side {
            WindowSide::After => (window.has_last, window.number_range().map(|(_, last)| last)),
            WindowSide::Before => (window.has_first, window.number_range().map(|(first, _)| first)),
        };
        match edge.filter(|_| !is_complete) {
            Some(number) => vec![AppEffect::FindError { session: open.session.id.clone(), side, number }],
            None => {
                self.show_notice(if side == WindowSide::After {
                    "no error after this step"
                } else {
                    "no error before this step"
                });
                Vec::new()
            }
        }
    }

    fn toggle_playing(&mut self) -> Vec<AppEffect> {
        if self.open.is_none() {
            return self.report_no_session();
        }
        self.playing = match self.playing {
            Some(_) => None,
            None => Some((self.elapsed, 1.0)),
        };
        Vec::new()
    }

    fn change_speed(&mut self, factor: f64) -> Vec<AppEffect> {
        if let Some((_, speed)) = &mut self.playing {
            *speed = (*speed * factor).clamp(SPEEDS.0, SPEEDS.1);
        }
        Vec::new()
    }

    fn change_part(&mut self, forward: bool) -> Vec<AppEffect> {
        match self.view {
            View::Diff => {
                self.diff.value_mut().into_iter().for_each(|pager| pager.scroll_to_heading(forward))
            }
            View::Board => self.move_board_heading(forward),
            View::State => {
                self.inspector.change_part(forward);
                return self.refresh();
            }
            _ => {}
        }
        Vec::new()
    }

    fn toggle_compare_step(&mut self) -> Vec<AppEffect> {
        let Some(step) = self.current_step() else { return self.report_no_session() };
        self.compare_target = match &self.compare_target {
            CompareTarget::Marked(id, _) if *id == step.id => CompareTarget::Parent,
            _ => CompareTarget::Marked(step.id.clone(), step.number),
        };
        self.refresh()
    }

    fn plan_rewind(&mut self, everything: bool) -> Vec<AppEffect> {
        let (Some(workspace), Some(step)) = (self.current_workspace(), self.current_step()) else {
            return self.report_no_session();
        };
        let point = format!("#{}", step.number);
        self.show_notice("planning …");
        vec![AppEffect::PlanRewind { workspace, point, everything }]
    }

    /// Handles an action while a plan is shown.
    pub(super) fn handle_plan_action(&mut self, action: KeyAction) -> Vec<AppEffect> {
        let rows = self.view_rows();
        let Overlay::Plan(planned) = &mut self.overlay else { return Vec::new() };
        match action {
            KeyAction::Confirm if planned.plan.items.is_empty() && planned.plan.operation.is_none() => {
                self.overlay = Overlay::None;
                self.show_notice("nothing to do");
                Vec::new()
            }
            KeyAction::Confirm => {
                let apply = planned.plan.apply.clone();
                self.overlay = Overlay::None;
                self.show_notice("working …");
                vec![AppEffect::Apply(apply)]
            }
            KeyAction::PlanEverything => match planned.point.clone().zip(self.current_workspace()) {
                Some((point, workspace)) => {
                    vec![AppEffect::PlanRewind { workspace, point, everything: true }]
                }
                None => Vec::new(),
            },
            KeyAction::Leave => {
                self.overlay = Overlay::None;
                self.show_notice("nothing was changed");
                Vec::new()
            }
            other => {
                planned.pager.scroll(row_delta(other, rows).unwrap_or(0));
                Vec::new()
            }
        }
    }

    fn toggle_pause(&mut self) -> Vec<AppEffect> {
        let stop = self.current_stop().is_none() && !self.open.as_ref().is_some_and(|open| open.paused);
        match &self.open {
            Some(open) => vec![AppEffect::Pause { session: open.session.id.clone(), stop }],
            None => self.report_no_session(),
        }
    }

    /// Handles the answer to a prompt.
    pub(super) fn submit_prompt(&mut self, prompt: InputLine) -> Vec<AppEffect> {
        let text = prompt.text().trim().to_owned();
        let Some(open) = &self.open else {
            return match prompt.purpose {
                PromptPurpose::Search if !text.is_empty() => vec![AppEffect::Search(text)],
                PromptPurpose::Deny(_) | PromptPurpose::EditInput(_) | PromptPurpose::Message(_) => {
                    self.submit_stop_prompt(prompt.purpose, text)
                }
                _ => Vec::new(),
            };
        };
        let (session, workspace) = (open.session.id.clone(), open.session.workspace.clone());
        let number = open.window.current().map_or(0, |step| step.number);
        let post = |path: String, body, notice: String| {
            vec![AppEffect::RunCommand(TuiCommand { method: CommandMethod::Post, path, body, notice })]
        };
        match prompt.purpose {
            PromptPurpose::Jump | PromptPurpose::Search | PromptPurpose::Branch if text.is_empty() => {
                Vec::new()
            }
            PromptPurpose::Jump => match text.as_str() {
                "first" => self.go_to_end(false),
                "last" => self.go_to_end(true),
                _ => vec![AppEffect::Resolve { session, workspace, point: text }],
            },
            PromptPurpose::Search => vec![AppEffect::Search(text)],
            PromptPurpose::Branch => {
                let body = json!(NewBranch { name: text.clone(), from: Some(format!("#{number}")) });
                let notice = format!(
                    "branch {text} starts at #{number}; \"stepback branch switch {text}\" switches to it"
                );
                post(workspace_path(&workspace, "/branches"), body, notice)
            }
            PromptPurpose::Checkpoint => {
                let label = Some(text).filter(|text| !text.is_empty());
                let notice = "checkpoint created".to_owned();
                post(workspace_path(&workspace, "/checkpoints"), json!({ "label": label }), notice)
            }
            PromptPurpose::Rerun => {
                let set = Some(text).filter(|text| !text.is_empty()).into_iter().collect();
                let body = json!(NewRerun { set, ..NewRerun::default() });
                let notice = "rerunning in its own directory; the result becomes a branch".to_owned();
                post(session_path(&session, "/reruns"), body, notice)
            }
            PromptPurpose::Breakpoint => self.add_breakpoint(&workspace, &text),
            PromptPurpose::Deny(_) | PromptPurpose::EditInput(_) | PromptPurpose::Message(_) => {
                self.submit_stop_prompt(prompt.purpose, text)
            }
        }
    }
}

/// Returns the keys as rows of text.
fn help_rows() -> Vec<super::pager::PagerRow> {
    let mut rows = RowBuilder::default();
    for scope in keys::scopes() {
        rows.add_heading(scope.title());
        for binding in keys::BINDINGS.iter().filter(|binding| binding.scope == scope) {
            rows.add_line(
                "",
                &format!("{:<12} {}", keys::key_names(binding), binding.description),
                RowStyle::Plain,
            );
        }
    }
    rows.finish()
}
