//! The state of the interface as a plain value: [`App::update`] takes a message and returns the effects to carry out, and
//! nothing else changes the state.
//!
//! It uses no terminal, no clock and no source, so that almost all of it can be tested without them.

mod actions;
mod board;
mod graph;
mod inspect;
mod live;
pub mod pager;
pub mod prompt;
mod responses;
#[cfg(test)]
mod tests;
pub mod window;

use std::time::Duration;

use crossterm::event::KeyCode;
use stepback_model::time::Timestamp;

use crate::effect::{AppEffect, AppMessage, LoadState, SourceEvent};
use crate::keys::{self, KeyAction};

pub use board::{BoardView, list_height};
pub use inspect::{FileTree, Inspector, StatePart};
pub use live::{LiveList, LiveRow};
use pager::Pager;
use prompt::{InputLine, PromptResult};
use stepback_api::anomalies::AnomalyDocument;
use stepback_api::branches::BranchDocument;
use stepback_api::control::StopDocument;
use stepback_api::plans::PlanDocument;
use stepback_api::reasoning::ConfidenceDocument;
use stepback_api::search::SearchResultsDocument;
use stepback_api::sessions::SessionDocument;
use stepback_api::steps::StepDocument;
use stepback_api::timeline::BranchLinesDocument;
use window::StepWindow;

/// The longest pause before the next step while playing, however long the agent thought.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Rows that one turn of the wheel scrolls.
const WHEEL: i64 = 3;
/// The fewest columns at which the step is shown beside the timeline.
pub const WIDE: u16 = 100;

/// The views of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum View {
    /// All sessions.
    #[default]
    Sessions,
    /// The steps of one session.
    Timeline,
    /// One step.
    Step,
    /// The state at the step: files, conversation, memory, task list, git.
    State,
    /// The changes between two states.
    Diff,
    /// Breakpoints, and agents that wait.
    Live,
    /// The agent's board at the step.
    Board,
}

impl View {
    /// All views, in order.
    pub const ALL: [Self; 7] =
        [Self::Sessions, Self::Timeline, Self::Step, Self::State, Self::Diff, Self::Live, Self::Board];

    fn cycle_by(self, offset: usize) -> Self {
        let index = Self::ALL.iter().position(|view| *view == self).unwrap_or(0);
        Self::ALL[(index + offset) % Self::ALL.len()]
    }
}

/// What is drawn over the view.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The list of keys.
    Help(Pager),
    /// A line of input that the user is asked for.
    Prompt(InputLine),
    /// A plan that waits for confirmation.
    Plan(Box<PlanView>),
    /// The results of a search.
    SearchResults(Box<SearchHits>),
}

/// A plan that is shown.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanView {
    /// The plan as the server returned it.
    pub plan: PlanDocument,
    /// The plan as rows of text.
    pub pager: Pager,
    /// The point to rewind to; `None` if the plan is not a rewind.
    pub point: Option<String>,
}

/// The results of a search.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SearchHits {
    /// The text that was searched for.
    pub text: String,
    /// The steps that matched.
    pub hits: SearchResultsDocument,
    /// The index of the selected result.
    pub selected_index: usize,
}

/// A notice in the status line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The text of the notice.
    pub text: String,
    /// Whether it reports a failure.
    pub is_error: bool,
}

/// The session that is open.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// The session itself.
    pub session: SessionDocument,
    /// The steps that are in memory.
    pub window: StepWindow,
    /// Whether it was asked to stop at its next call.
    pub paused: bool,
    /// The branches of its workspace.
    pub branches: Vec<BranchDocument>,
    /// On which branches its steps are, and which steps were rolled back.
    pub lines: BranchLinesDocument,
    /// What is unusual in it.
    pub anomalies: Vec<AnomalyDocument>,
}

impl OpenSession {
    /// Returns the kinds of the incidents that begin at the step with this number, and marks those that go on there.
    pub fn anomaly_labels(&self, number: u64) -> String {
        let mut labels = String::new();
        for anomaly in self.anomalies.iter().filter(|anomaly| anomaly.steps.contains(&number)) {
            match anomaly.steps.first() == Some(&number) {
                true => labels.push_str(&format!("[! {}] ", anomaly.kind)),
                false => labels.push_str("[!] "),
            }
        }
        labels
    }

    /// Returns the branches whose newest step has this number; `*` marks the workspace's current one.
    pub fn tip_labels(&self, number: u64) -> String {
        let is_tip = |branch: &&BranchDocument| branch.tip.as_ref().is_some_and(|tip| tip.number == number);
        let name =
            |branch: &BranchDocument| format!("<{}{}> ", branch.name, if branch.present { "*" } else { "" });
        self.branches.iter().filter(is_tip).map(name).collect()
    }
}

/// What the current step is compared with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CompareTarget {
    /// Its parent step.
    #[default]
    Parent,
    /// A step that the user marked: its id and number.
    Marked(String, u64),
    /// The files as they are now.
    Now,
}

/// The whole state of the interface.
#[derive(Debug, Default)]
pub struct App {
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// The current time.
    pub now: Timestamp,
    /// How long the program has been running.
    pub elapsed: Duration,
    /// The current view.
    pub view: View,
    /// What is drawn over the view.
    pub overlay: Overlay,
    /// The notice in the status line.
    pub notice: Option<Notice>,
    /// Why the source does not answer; `None` while it does.
    pub source_error: Option<String>,
    /// The sessions loaded so far.
    pub sessions: Vec<SessionDocument>,
    /// Whether the first page of sessions has arrived.
    pub sessions_loaded: bool,
    /// The cursor of the next page of sessions; `None` on the last page.
    pub next_sessions_cursor: Option<String>,
    /// The index of the selected session, and of the first one that is shown.
    pub selected: (usize, usize),
    /// The session that is open.
    pub open: Option<OpenSession>,
    /// The current step, as text.
    pub step: LoadState<Pager>,
    /// The state at the current step.
    pub inspector: Inspector,
    /// The difference, as text.
    pub diff: LoadState<Pager>,
    /// What the current step is compared with.
    pub compare_target: CompareTarget,
    /// The agent's board at the current step.
    pub board: LoadState<BoardView>,
    /// The agent's confidence over time.
    pub confidence: LoadState<ConfidenceDocument>,
    /// Breakpoints and agents that wait.
    pub live: LiveList,
    /// While playing: since when the current step is shown, and the speed.
    pub playing: Option<(Duration, f64)>,
}

impl App {
    /// Creates the state before anything is loaded.
    pub fn new(size: (u16, u16), now: Timestamp) -> Self {
        Self { size, now, ..Self::default() }
    }

    /// Returns the first effects. A session that is named is opened.
    pub fn start(&mut self, session: Option<String>) -> Vec<AppEffect> {
        let mut effects = vec![AppEffect::Sessions, AppEffect::Stops];
        if let Some(session) = session {
            self.view = View::Timeline;
            effects.push(AppEffect::Open { session, number: None });
        }
        effects
    }

    /// Returns the number of rows that a view has.
    pub fn view_rows(&self) -> usize {
        usize::from(self.size.1).saturating_sub(3).max(1)
    }

    /// Returns the current step.
    pub fn current_step(&self) -> Option<&StepDocument> {
        self.open.as_ref()?.window.current()
    }

    /// Returns how long to wait until something changes by itself; `None` if nothing will.
    pub fn time_until_next_step(&self) -> Option<Duration> {
        let (since, speed) = self.playing?;
        let window = &self.open.as_ref()?.window;
        let (now, next) = (window.current()?.at.as_micros(), window.next()?.at.as_micros());
        let gap = Duration::from_micros(u64::try_from(next.saturating_sub(now)).unwrap_or(0));
        let pause = gap.min(MAX_PAUSE).div_f64(speed.max(0.001));
        Some((since + pause).saturating_sub(self.elapsed))
    }

    /// Handles a message and returns the effects to carry out.
    pub fn update(&mut self, message: AppMessage) -> Vec<AppEffect> {
        let mut effects = match message {
            AppMessage::Key(key, control) => self.handle_key(key, control),
            AppMessage::Paste(text) => {
                if let Overlay::Prompt(prompt) = &mut self.overlay {
                    prompt.paste(&text);
                }
                Vec::new()
            }
            AppMessage::Click(column, row) => self.handle_click(column, row),
            AppMessage::Wheel(down) => self.scroll(if down { WHEEL } else { -WHEEL }),
            AppMessage::Resize(columns, rows) => {
                self.size = (columns, rows);
                self.refresh()
            }
            AppMessage::Tick(now, elapsed) => {
                (self.now, self.elapsed) = (now, elapsed);
                self.tick()
            }
            AppMessage::SourceEvent(news) => self.handle_source_event(news),
            AppMessage::Response(response) => self.handle_response(response),
        };
        let rows = self.view_rows();
        if let Some(open) = &mut self.open {
            open.window.scroll_into_view(rows);
            if let Some((side, number)) = open.window.next_request() {
                effects.push(AppEffect::MoreSteps { session: open.session.id.clone(), side, number });
            }
        }
        self.scroll_to_selected_session();
        effects
    }

    fn scroll_to_selected_session(&mut self) {
        let rows = self.view_rows();
        let (selected, top) = &mut self.selected;
        *selected = (*selected).min(self.sessions.len().saturating_sub(1));
        *top = (*top).clamp((*selected + 1).saturating_sub(rows), *selected);
    }

    fn tick(&mut self) -> Vec<AppEffect> {
        if self.time_until_next_step() != Some(Duration::ZERO) {
            return Vec::new();
        }
        let speed = self.playing.map_or(1.0, |(_, speed)| speed);
        self.playing = Some((self.elapsed, speed));
        self.move_by(1)
    }

    fn handle_source_event(&mut self, event: SourceEvent) -> Vec<AppEffect> {
        match event {
            SourceEvent::Connected => {
                if self.source_error.take().is_some() {
                    self.show_notice("connected again");
                }
                // Events were missed while the connection was down.
                let mut effects = vec![AppEffect::Sessions, AppEffect::Stops];
                effects.extend(self.load_new_steps());
                effects
            }
            SourceEvent::Disconnected(reason) => {
                self.source_error = Some(reason);
                Vec::new()
            }
            SourceEvent::Step { session } => match &self.open {
                Some(open) if open.session.id == session => self.load_new_steps().into_iter().collect(),
                _ if self.view == View::Sessions => vec![AppEffect::Sessions],
                _ => Vec::new(),
            },
            SourceEvent::Stops => vec![AppEffect::Stops, AppEffect::Sessions],
            SourceEvent::Changed => {
                let mut effects = vec![AppEffect::Sessions];
                effects.extend(self.load_new_steps());
                effects.extend(self.load_branches());
                if self.view == View::Live {
                    effects.extend(self.load_live());
                }
                effects
            }
        }
    }

    /// Requests steps that may have been added.
    fn load_new_steps(&mut self) -> Option<AppEffect> {
        let open = self.open.as_ref().filter(|open| open.window.has_last)?;
        let number = open.window.number_range().map_or(0, |(_, last)| last);
        Some(AppEffect::MoreSteps {
            session: open.session.id.clone(),
            side: window::WindowSide::After,
            number,
        })
    }

    /// Requests the branches of the open session's workspace, and where its steps are on them.
    fn load_branches(&self) -> Vec<AppEffect> {
        let request_for = |open: &OpenSession| {
            let session = &open.session;
            vec![
                AppEffect::Branches(session.workspace.clone()),
                AppEffect::Lines(session.id.clone()),
                AppEffect::Anomalies(session.id.clone()),
            ]
        };
        self.open.as_ref().map(request_for).unwrap_or_default()
    }

    fn handle_key(&mut self, key: KeyCode, control: bool) -> Vec<AppEffect> {
        if let Overlay::Prompt(prompt) = &mut self.overlay {
            return match prompt.handle_key(key, control) {
                PromptResult::Pending => Vec::new(),
                PromptResult::Cancelled => {
                    self.overlay = Overlay::None;
                    Vec::new()
                }
                PromptResult::Submitted => {
                    let prompt = prompt.clone();
                    self.overlay = Overlay::None;
                    self.submit_prompt(prompt)
                }
            };
        }
        if control {
            return if matches!(key, KeyCode::Char('c' | 'd')) { vec![AppEffect::Quit] } else { Vec::new() };
        }
        self.notice = None;
        match &mut self.overlay {
            Overlay::Plan(_) => {
                keys::action_in_plan(key).map_or_else(Vec::new, |action| self.handle_plan_action(action))
            }
            Overlay::Help(pager) => {
                match keys::action_in_view(self.view, key)
                    .and_then(|action| row_delta(action, usize::from(self.size.1)))
                {
                    Some(rows) => pager.scroll(rows),
                    None => self.overlay = Overlay::None,
                }
                Vec::new()
            }
            Overlay::SearchResults(_) => self.handle_key_in_results(key),
            Overlay::None | Overlay::Prompt(_) => match keys::action_in_view(self.view, key) {
                Some(action) => self.perform_action(action),
                None => {
                    self.show_notice(&format!("{} does nothing here; ? shows the keys", keys::name(key)));
                    Vec::new()
                }
            },
        }
    }

    fn handle_key_in_results(&mut self, key: KeyCode) -> Vec<AppEffect> {
        let rows = self.view_rows();
        let Overlay::SearchResults(results) = &mut self.overlay else { return Vec::new() };
        match keys::action_in_view(View::Timeline, key) {
            Some(KeyAction::Leave | KeyAction::Quit) => self.overlay = Overlay::None,
            Some(KeyAction::Search) => return self.perform_action(KeyAction::Search),
            Some(KeyAction::Open) => {
                let Some(hit) = results.hits.items.get(results.selected_index) else { return Vec::new() };
                let step = &hit.found.step;
                let open = AppEffect::Open { session: step.session.clone(), number: Some(step.number) };
                self.overlay = Overlay::None;
                self.view = View::Timeline;
                return vec![open];
            }
            Some(action) => {
                if let Some(by) = row_delta(action, rows) {
                    let last = results.hits.items.len().saturating_sub(1) as i64;
                    results.selected_index =
                        (results.selected_index as i64).saturating_add(by).clamp(0, last) as usize;
                }
            }
            None => {}
        }
        Vec::new()
    }

    fn handle_click(&mut self, column: u16, row: u16) -> Vec<AppEffect> {
        if row == 0 {
            let tab = crate::draw::tab_at(self.size.0, column);
            return tab.map_or_else(Vec::new, |view| self.perform_action(KeyAction::Show(view)));
        }
        let Some(row) = row.checked_sub(2).map(usize::from).filter(|row| *row < self.view_rows()) else {
            return Vec::new();
        };
        if let Overlay::SearchResults(results) = &mut self.overlay {
            results.selected_index = row.min(results.hits.items.len().saturating_sub(1));
            return Vec::new();
        }
        if self.overlay != Overlay::None {
            return Vec::new();
        }
        // A click on the selected row opens it.
        let moved = match self.view {
            View::Sessions => {
                let index = self.selected.1 + row;
                index < self.sessions.len() && std::mem::replace(&mut self.selected.0, index) != index
            }
            View::Timeline => self.open.as_mut().is_some_and(|open| open.window.move_to_row(row)),
            View::State => self.inspector.click_row(row),
            View::Live => self.live.click_row(row),
            View::Board => self.board.value_mut().is_none_or(|board| board.click_row(row)),
            View::Step | View::Diff => return Vec::new(),
        };
        if moved { self.refresh() } else { self.perform_action(KeyAction::Open) }
    }

    /// Shows a notice.
    pub(crate) fn show_notice(&mut self, text: &str) {
        self.notice = Some(Notice { text: stepback_model::escape::safe(text), is_error: false });
    }

    /// Shows a notice about a failure.
    pub(crate) fn show_error(&mut self, text: &str) {
        self.notice = Some(Notice { text: stepback_model::escape::safe(text), is_error: true });
    }

    /// Returns the waiting agent of the open session, if it waits.
    pub fn current_stop(&self) -> Option<&StopDocument> {
        let id = &self.open.as_ref()?.session.id;
        self.live.stops.iter().find(|stop| stop.session == *id)
    }
}

/// Returns how many rows an action moves, if it is a movement.
fn row_delta(action: KeyAction, rows: usize) -> Option<i64> {
    let page = rows.saturating_sub(1).max(1) as i64;
    Some(match action {
        KeyAction::Down => 1,
        KeyAction::Up => -1,
        KeyAction::PageDown => page,
        KeyAction::PageUp => -page,
        KeyAction::First => i64::MIN / 2,
        KeyAction::Last => i64::MAX / 2,
        _ => return None,
    })
}
