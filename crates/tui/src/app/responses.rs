//! Handles the responses of the source.

use stepback_api::page::Page;
use stepback_api::plans::{AppliedPlanDocument, PlanDocument};
use stepback_api::sessions::SessionDocument;
use stepback_api::steps::StepDocument;
use stepback_api::timeline::BranchLinesDocument;

use super::pager::{Mood, Pager, RowBuilder};
use super::window::{Window, WindowSide};
use super::{App, FileTree, Opened, Overlay, PlanView, SearchHits, View};
use crate::effect::{AppEffect, Around, SourceResponse};
use crate::source::{SourceResult, Trouble};

impl App {
    pub(super) fn receive(&mut self, came: Box<SourceResponse>) -> Vec<AppEffect> {
        match *came {
            SourceResponse::Sessions(sessions, after) => self.take_sessions(sessions, after.is_some()),
            SourceResponse::Session(Ok((session, around))) => return self.take_session(session, around),
            SourceResponse::Session(Err(trouble)) => {
                if self.open.is_none() {
                    self.view = View::Sessions;
                }
                self.trouble(&trouble);
            }
            SourceResponse::Around(session, around) => return self.take_around(&session, around),
            SourceResponse::More(session, side, page) => return self.take_more(&session, side, page),
            SourceResponse::Found(Ok(step)) => return self.go_to(&step.session, step.number),
            SourceResponse::Found(Err(trouble)) => self.trouble(&trouble),
            SourceResponse::Step(key, rows) => self.step.take(&key, rows.map(Pager::new)),
            SourceResponse::State(key, state) => {
                let files = state.map(|(state, changed)| {
                    FileTree::new(state.items, state.next_cursor, state.git, &changed)
                });
                self.take_state(&key, files);
            }
            SourceResponse::Files(key, page) => self.take_files(&key, page),
            SourceResponse::Part(key, rows) => self.inspector.text.take(&key, rows.map(Pager::new)),
            SourceResponse::File(key, rows) => {
                if let Some((_, content)) = &mut self.inspector.file {
                    content.take(&key, rows.map(Pager::new));
                }
            }
            SourceResponse::Board(key, board) => return self.take_board(&key, board).into_iter().collect(),
            SourceResponse::Confidence(key, confidence) => self.take_confidence(&key, confidence),
            SourceResponse::Diff(key, rows) => self.diff.take(&key, rows.map(Pager::new)),
            SourceResponse::Stops(Ok(page)) => self.live.stops = page.items,
            SourceResponse::Breakpoints(Ok(page)) => self.live.breakpoints = page.items,
            SourceResponse::Stops(Err(trouble)) | SourceResponse::Breakpoints(Err(trouble)) => {
                self.trouble(&trouble)
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
            SourceResponse::Branches(Err(trouble)) | SourceResponse::Lines(_, Err(trouble)) => {
                self.trouble(&trouble)
            }
            SourceResponse::Plan(plan, point) => self.take_plan(plan, point),
            SourceResponse::Applied(applied) => return self.take_applied(applied),
            SourceResponse::Paused(Ok(now)) => {
                if let Some(open) = &mut self.open {
                    open.paused = now.paused;
                }
                self.say(if now.paused { "it stops at its next call" } else { "it continues" });
                return self.load_live();
            }
            SourceResponse::Paused(Err(trouble)) => self.trouble(&trouble),
            SourceResponse::Hits(text, Ok(hits)) => {
                if hits.items.is_empty() {
                    self.say(&format!("no matches for {text}"));
                } else {
                    self.notice = None;
                    self.overlay = Overlay::Found(Box::new(SearchHits { text, hits, at: 0 }));
                }
            }
            SourceResponse::Hits(_, Err(trouble)) => self.trouble(&trouble),
            SourceResponse::Done(Ok(told)) => {
                self.say(&told);
                let mut effects = self.load_live();
                effects.extend(self.catch_up());
                effects.extend(self.load_branches());
                return effects;
            }
            SourceResponse::Done(Err(trouble)) => {
                self.trouble(&trouble);
                return self.load_live();
            }
        }
        Vec::new()
    }

    fn trouble(&mut self, trouble: &Trouble) {
        match trouble {
            // The status line already shows the error for as long as it lasts.
            Trouble::Gone(why) if self.gone.is_some() => self.gone = Some(why.clone()),
            _ => self.complain(&trouble.line()),
        }
    }

    fn take_sessions(&mut self, came: SourceResult<Page<SessionDocument>>, more: bool) {
        let page = match came {
            Ok(page) => page,
            Err(trouble) => return self.trouble(&trouble),
        };
        self.sessions_known = true;
        if more {
            self.sessions.extend(page.items);
            self.more_sessions = page.next_cursor;
        } else {
            let selected = self.sessions.get(self.selected.0).map(|session| session.id.clone());
            // Sessions of later pages stay, unless they moved to the first page.
            let known: std::collections::HashSet<&str> =
                page.items.iter().map(|one| one.id.as_str()).collect();
            let mut rest: Vec<SessionDocument> =
                self.sessions.drain(..).filter(|one| !known.contains(one.id.as_str())).collect();
            match page.next_cursor {
                None => rest.clear(),
                Some(cursor) if rest.is_empty() => self.more_sessions = Some(cursor),
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

    fn take_session(&mut self, session: SessionDocument, around: Around) -> Vec<AppEffect> {
        self.playing = None;
        self.inspector.file = None;
        let window = Window::new(around.steps, around.number, around.begins, around.ends);
        let (branches, lines) = (Vec::new(), BranchLinesDocument::default());
        self.open = Some(Opened { session, window, paused: false, branches, lines });
        if self.view == View::Sessions {
            self.view = View::Timeline;
        }
        let mut effects = self.refresh();
        effects.extend(self.load_live());
        effects.extend(self.load_branches());
        effects
    }

    fn take_around(&mut self, session: &str, came: SourceResult<Around>) -> Vec<AppEffect> {
        let around = match came {
            Ok(around) => around,
            Err(trouble) => {
                self.trouble(&trouble);
                return Vec::new();
            }
        };
        if let Some(open) = self.open.as_mut().filter(|open| open.session.id == session) {
            open.window = Window::new(around.steps, around.number, around.begins, around.ends);
        }
        self.refresh()
    }

    fn take_more(
        &mut self,
        session: &str,
        side: WindowSide,
        came: SourceResult<Page<StepDocument>>,
    ) -> Vec<AppEffect> {
        let Some(open) = self.open.as_mut().filter(|open| open.session.id == session) else {
            return Vec::new();
        };
        match came {
            Ok(mut page) => {
                let whole = page.next_cursor.is_none();
                let before = open.window.current().map(|step| step.number);
                match side {
                    WindowSide::After => open.window.append(page.items, whole),
                    WindowSide::Before => {
                        page.items.reverse();
                        open.window.prepend(page.items, whole);
                    }
                }
                if open.window.current().map(|step| step.number) != before {
                    self.refresh()
                } else {
                    Vec::new()
                }
            }
            Err(trouble) => {
                open.window.give_up();
                if trouble.is_missing() {
                    self.complain("this session no longer exists; the last known state is shown");
                } else {
                    self.trouble(&trouble);
                }
                Vec::new()
            }
        }
    }

    /// Moves to a step of any session.
    pub(super) fn go_to(&mut self, session: &str, number: u64) -> Vec<AppEffect> {
        let session = session.to_owned();
        match &mut self.open {
            Some(open) if open.session.id == session => {
                if open.window.jump(number) {
                    return self.refresh();
                }
                vec![AppEffect::Around { session, number }]
            }
            _ => {
                self.say("this step belongs to another session");
                vec![AppEffect::Open { session, number: Some(number) }]
            }
        }
    }

    fn take_plan(&mut self, came: SourceResult<PlanDocument>, point: Option<String>) {
        match came {
            Ok(plan) => {
                self.notice = None;
                let pager = Pager::new(rows(&plan));
                self.overlay = Overlay::Plan(Box::new(PlanView { plan, pager, point }));
            }
            Err(trouble) => self.trouble(&trouble),
        }
    }

    fn take_applied(&mut self, came: SourceResult<AppliedPlanDocument>) -> Vec<AppEffect> {
        match came {
            Ok(applied) => {
                let done = applied.items.iter().filter(|item| item.done).count();
                let left = applied.items.len() - done;
                let mut told = applied.operation.summary.clone();
                if !applied.items.is_empty() {
                    told = format!("{told}: {done} path{} done", if done == 1 { "" } else { "s" });
                }
                if left > 0 || applied.partial {
                    told = format!("{told}, {left} left alone");
                }
                self.say(&format!("{told}; press u to undo"));
                self.diff = crate::effect::Loaded::No;
                let mut effects: Vec<AppEffect> = self.catch_up().into_iter().collect();
                effects.extend(self.load_branches());
                effects.extend(self.refresh());
                effects
            }
            // The confirmed plan is out of date: the new plan is shown, and nothing was done.
            Err(Trouble::Refused(problem)) if problem.plan.is_some() => {
                let detail = problem.detail.clone();
                if let Some(plan) = problem.plan {
                    self.take_plan(Ok(*plan), None);
                }
                self.complain(&detail);
                Vec::new()
            }
            Err(trouble) => {
                self.trouble(&trouble);
                Vec::new()
            }
        }
    }
}

/// Returns a plan as rows of text.
fn rows(plan: &PlanDocument) -> Vec<super::pager::PagerRow> {
    let mut rows = RowBuilder::default();
    rows.text("", &plan.summary, Mood::Head);
    for warning in &plan.warnings {
        rows.text("! ", warning, Mood::Bad);
    }
    if plan.items.is_empty() {
        let because = plan.unchanged_because.as_deref().map(|because| format!(": {because}"));
        rows.text("", &format!("No file changes{}.", because.unwrap_or_default()), Mood::Plain);
    }
    for item in &plan.items {
        let mood = match item.action.as_str() {
            "create" => Mood::Added,
            "delete" => Mood::Removed,
            _ => Mood::Plain,
        };
        rows.line("", &format!("{:<12} {}", item.action, item.path), mood);
    }
    if !plan.left_alone.is_empty() {
        rows.head("Left alone");
        for item in &plan.left_alone {
            rows.line("", &format!("{}: {}", item.path, item.reason), Mood::Quiet);
        }
    }
    if !plan.kept.is_empty() {
        rows.head("Kept");
        for item in &plan.kept {
            rows.line("", &format!("{} ({})", item.path, item.by), Mood::Quiet);
        }
    }
    if !plan.everything_changes.is_empty() {
        rows.head("Press a to plan these, too");
        for path in &plan.everything_changes {
            rows.line("", path, Mood::Quiet);
        }
    }
    rows.done()
}
