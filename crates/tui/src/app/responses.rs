//! Handles the responses of the source.

use stepback_api::page::Page;
use stepback_api::plans::{AppliedPlanDocument, PlanDocument};
use stepback_api::sessions::SessionDocument;
use stepback_api::steps::StepDocument;
use stepback_api::timeline::BranchLinesDocument;

use super::pager::{Pager, RowBuilder, RowStyle};
use super::window::{StepWindow, WindowSide};
use super::{App, FileTree, OpenSession, Overlay, PlanView, SearchHits, View};
use crate::effect::{AppEffect, SourceResponse, StepsAround};
use crate::source::{SourceError, SourceResult};

impl App {
    pub(super) fn handle_response(&mut self, response: Box<SourceResponse>) -> Vec<AppEffect> {
        match *response {
            SourceResponse::Sessions(sessions, after) => self.store_sessions(sessions, after.is_some()),
            SourceResponse::Session(Ok((session, around))) => return self.open_session(session, around),
            SourceResponse::Session(Err(trouble)) => {
                if self.open.is_none() {
                    self.view = View::Sessions;
                }
                self.report_error(&trouble);
            }
            SourceResponse::StepsAround(session, around) => return self.store_steps_around(&session, around),
            SourceResponse::MoreSteps(session, side, page) => {
                return self.store_more_steps(&session, side, page);
            }
            SourceResponse::FoundStep(Ok(step)) => return self.go_to_step(&step.session, step.number),
            SourceResponse::FoundStep(Err(trouble)) => self.report_error(&trouble),
            SourceResponse::Step(key, rows) => self.step.store(&key, rows.map(Pager::new)),
            SourceResponse::State(key, state) => {
                let files = state.map(|(state, changed)| {
                    FileTree::new(state.items, state.next_cursor, state.git, &changed)
                });
                self.store_state(&key, files);
            }
            SourceResponse::Files(key, page) => self.append_files(&key, page),
            SourceResponse::Part(key, rows) => self.inspector.text.store(&key, rows.map(Pager::new)),
            SourceResponse::File(key, rows) => {
                if let Some((_, content)) = &mut self.inspector.file {
                    content.store(&key, rows.map(Pager::new));
                }
            }
            SourceResponse::Board(key, board) => return self.store_board(&key, board).into_iter().collect(),
            SourceResponse::Confidence(key, confidence) => self.store_confidence(&key, confidence),
            SourceResponse::Diff(key, rows) => self.diff.store(&key, rows.map(Pager::new)),
            SourceResponse::Stops(Ok(page)) => self.live.stops = page.items,
            SourceResponse::Breakpoints(Ok(page)) => self.live.breakpoints = page.items,
            SourceResponse::Stops(Err(trouble)) | SourceResponse::Breakpoints(Err(trouble)) => {
                self.report_error(&trouble)
            }
            SourceResponse::Branches(Ok(page)) => {
                if let Some(open) = &mut self.open {
                    open.branches = page.items;
                }
            }
            SourceResponse::Lines(session, Ok(lines)) => {
                if let Some(open) = self.open.as_mut().filter(|open| open.session.id == session) {
                    open.lines = lines;
                }
            }
            SourceResponse::Anomalies(session, Ok(found)) => {
                if let Some(open) = self.open.as_mut().filter(|open| open.session.id == session) {
                    open.anomalies = found.items;
                }
            }
            // Marks are extra: an older server has none.
            SourceResponse::Anomalies(_, Err(_)) => {}
            SourceResponse::Branches(Err(trouble)) | SourceResponse::Lines(_, Err(trouble)) => {
                self.report_error(&trouble)
            }
            SourceResponse::Plan(plan, point) => self.show_plan(plan, point),
            SourceResponse::Applied(applied) => return self.handle_applied(applied),
            SourceResponse::Paused(Ok(now)) => {
                if let Some(open) = &mut self.open {
                    open.paused = now.paused;
                }
                self.show_notice(if now.paused { "it stops at its next call" } else { "it continues" });
                return self.load_live();
            }
            SourceResponse::Paused(Err(trouble)) => self.report_error(&trouble),
            SourceResponse::SearchHits(text, Ok(hits)) => {
                if hits.items.is_empty() {
                    self.show_notice(&format!("no matches for {text}"));
                } else {
                    self.notice = None;
                    self.overlay =
                        Overlay::SearchResults(Box::new(SearchHits { text, hits, selected_index: 0 }));
                }
            }
            SourceResponse::SearchHits(_, Err(trouble)) => self.report_error(&trouble),
            SourceResponse::CommandDone(Ok(notice)) => {
                self.show_notice(&notice);
                let mut effects = self.load_live();
                effects.extend(self.load_new_steps());
                effects.extend(self.load_branches());
                return effects;
            }
            SourceResponse::CommandDone(Err(trouble)) => {
                self.report_error(&trouble);
                return self.load_live();
            }
        }
        Vec::new()
    }

    fn report_error(&mut self, trouble: &SourceError) {
        match trouble {
            // The status line already shows the error for as long as it lasts.
            SourceError::NoResponse(reason) if self.source_error.is_some() => {
                self.source_error = Some(reason.clone())
            }
            _ => self.show_error(&trouble.to_line()),
        }
    }

    fn store_sessions(&mut self, result: SourceResult<Page<SessionDocument>>, is_next_page: bool) {
        let page = match result {
            Ok(page) => page,
            Err(trouble) => return self.report_error(&trouble),
        };
        self.sessions_loaded = true;
        if is_next_page {
            self.sessions.extend(page.items);
            self.next_sessions_cursor = page.next_cursor;
        } else {
            let selected = self.sessions.get(self.selected.0).map(|session| session.id.clone());
            // Sessions of later pages stay, unless they moved to the first page.
            let ids: std::collections::HashSet<&str> = page.items.iter().map(|one| one.id.as_str()).collect();
            let mut rest: Vec<SessionDocument> =
                self.sessions.drain(..).filter(|one| !ids.contains(one.id.as_str())).collect();
            match page.next_cursor {
                None => rest.clear(),
                Some(cursor) if rest.is_empty() => self.next_sessions_cursor = Some(cursor),
                Some(_) => {}
            }
            self.sessions = page.items;
            self.sessions.append(&mut rest);
            let stays = selected.and_then(|id| self.sessions.iter().position(|session| session.id == id));
            self.selected.0 = stays.unwrap_or(self.selected.0);
        }
        if let Some(open) = &mut self.open
            && let Some(now) = self.sessions.iter().find(|session| session.id == open.session.id)
        {
            open.session.clone_from(now);
        }
    }

    fn open_session(&mut self, session: SessionDocument, steps: StepsAround) -> Vec<AppEffect> {
        self.playing = None;
        self.inspector.file = None;
        let window = StepWindow::new(steps.steps, steps.number, steps.has_first, steps.has_last);
        let (branches, lines) = (Vec::new(), BranchLinesDocument::default());
        self.open =
            Some(OpenSession { session, window, paused: false, branches, lines, anomalies: Vec::new() });
        if self.view == View::Sessions {
            self.view = View::Timeline;
        }
        let mut effects = self.refresh();
        effects.extend(self.load_live());
        effects.extend(self.load_branches());
        effects
    }

    fn store_steps_around(&mut self, session: &str, result: SourceResult<StepsAround>) -> Vec<AppEffect> {
        let steps = match result {
            Ok(steps) => steps,
            Err(trouble) => {
                self.report_error(&trouble);
                return Vec::new();
            }
        };
        if let Some(open) = self.open.as_mut().filter(|open| open.session.id == session) {
            open.window = StepWindow::new(steps.steps, steps.number, steps.has_first, steps.has_last);
        }
        self.refresh()
    }

    fn store_more_steps(
        &mut self,
        session: &str,
        side: WindowSide,
        result: SourceResult<Page<StepDocument>>,
    ) -> Vec<AppEffect> {
        let Some(open) = self.open.as_mut().filter(|open| open.session.id == session) else {
            return Vec::new();
        };
        match result {
            Ok(mut page) => {
                let is_complete = page.next_cursor.is_none();
                let number_before = open.window.current().map(|step| step.number);
                match side {
                    WindowSide::After => open.window.append(page.items, is_complete),
                    WindowSide::Before => {
                        page.items.reverse();
                        open.window.prepend(page.items, is_complete);
                    }
                }
                if open.window.current().map(|step| step.number) != number_before {
                    self.refresh()
                } else {
                    Vec::new()
                }
            }
            Err(trouble) => {
                open.window.clear_request();
                if trouble.is_not_found() {
                    self.show_error("this session no longer exists; the last known state is shown");
                } else {
                    self.report_error(&trouble);
                }
                Vec::new()
            }
        }
    }

    /// Moves to a step of any session.
    pub(super) fn go_to_step(&mut self, session: &str, number: u64) -> Vec<AppEffect> {
        let session = session.to_owned();
        match &mut self.open {
            Some(open) if open.session.id == session => {
                if open.window.move_to(number) {
                    return self.refresh();
                }
                vec![AppEffect::StepsAround { session, number }]
            }
            _ => {
                self.show_notice("this step belongs to another session");
                vec![AppEffect::Open { session, number: Some(number) }]
            }
        }
    }

    fn show_plan(&mut self, result: SourceResult<PlanDocument>, point: Option<String>) {
        match result {
            Ok(plan) => {
                self.notice = None;
                let pager = Pager::new(plan_rows(&plan));
                self.overlay = Overlay::Plan(Box::new(PlanView { plan, pager, point }));
            }
            Err(trouble) => self.report_error(&trouble),
        }
    }

    fn handle_applied(&mut self, result: SourceResult<AppliedPlanDocument>) -> Vec<AppEffect> {
        match result {
            Ok(applied) => {
                let applied_count = applied.items.iter().filter(|item| item.done).count();
                let skipped_count = applied.items.len() - applied_count;
                let mut message = applied.operation.summary.clone();
                if !applied.items.is_empty() {
                    message = format!(
                        "{message}: {applied_count} path{} done",
                        if applied_count == 1 { "" } else { "s" }
                    );
                }
                if skipped_count > 0 || applied.partial {
                    message = format!("{message}, {skipped_count} left alone");
                }
                self.show_notice(&format!("{message}; press u to undo"));
                self.diff = crate::effect::LoadState::NotRequested;
                let mut effects: Vec<AppEffect> = self.load_new_steps().into_iter().collect();
                effects.extend(self.load_branches());
                effects.extend(self.refresh());
                effects
            }
            // The confirmed plan is out of date: the new plan is shown, and nothing was done.
            Err(SourceError::Refused(problem)) if problem.plan.is_some() => {
                let detail = problem.detail.clone();
                if let Some(plan) = problem.plan {
                    self.show_plan(Ok(*plan), None);
                }
                self.show_error(&detail);
                Vec::new()
            }
            Err(trouble) => {
                self.report_error(&trouble);
                Vec::new()
            }
        }
    }
}

/// Returns a plan as rows of text.
fn plan_rows(plan: &PlanDocument) -> Vec<super::pager::PagerRow> {
    let mut rows = RowBuilder::default();
    rows.add_text("", &plan.summary, RowStyle::Heading);
    for warning in &plan.warnings {
        rows.add_text("! ", warning, RowStyle::Error);
    }
    if plan.items.is_empty() {
        let reason = plan.unchanged_because.as_deref().map(|reason| format!(": {reason}"));
        rows.add_text("", &format!("No file changes{}.", reason.unwrap_or_default()), RowStyle::Plain);
    }
    for item in &plan.items {
        let mood = match item.action.as_str() {
            "create" => RowStyle::Added,
            "delete" => RowStyle::Removed,
            _ => RowStyle::Plain,
        };
        rows.add_line("", &format!("{:<12} {}", item.action, item.path), mood);
    }
    if !plan.left_alone.is_empty() {
        rows.add_heading("Left alone");
        for item in &plan.left_alone {
            rows.add_line("", &format!("{}: {}", item.path, item.reason), RowStyle::Quiet);
        }
    }
    if !plan.kept.is_empty() {
        rows.add_heading("Kept");
        for item in &plan.kept {
            rows.add_line("", &format!("{} ({})", item.path, item.by), RowStyle::Quiet);
        }
    }
    if !plan.everything_changes.is_empty() {
        rows.add_heading("Press a to plan these, too");
        for path in &plan.everything_changes {
            rows.add_line("", path, RowStyle::Quiet);
        }
    }
    rows.finish()
}
