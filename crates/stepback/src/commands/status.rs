//! The commands `stepback status` and `stepback changes`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_api::changes::ChangeAuthorDocument;
use stepback_api::steps::StepDocument;
use stepback_engine::authorship::{Attribution, Author};
use stepback_engine::changes::NumberedChange;
use stepback_engine::control::Stop;
use stepback_engine::path_filter::PathFilter;
use stepback_engine::workspace::{PresentState, describe_checkpoint};
use stepback_engine::{EngineError, Workspace, diff};
use stepback_model::change::{ChangeKind, PathChange};
use stepback_model::escape::safe;
use stepback_model::ids::StepId;
use stepback_model::path::RelPath;
use stepback_model::record::{Session, StepKind};
use stepback_model::state::GitState;
use stepback_model::tree::{SkipReason, TreeNode};

use stepback_store::port::{StepQuery, StepRow};
use stepback_watcher::client::SLOW_SCAN;

use super::mirror;
use super::watcher::WatcherState;
use super::{CommandResult, DONE, documents, titles};
use crate::args::ChangesArgs;
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Runs `stepback status`.
pub fn status(context: &Context, show_excluded: bool) -> CommandResult {
    let workspace = context.open_workspace()?;
    // The lock keeps a prune from freeing objects that are being read.
    let lock = workspace.lock_shared()?;
    let head = workspace.head()?;
    let started = Instant::now();
    let present = workspace.scan_for_display()?;
    let is_slow = started.elapsed() > SLOW_SCAN;
    let last = workspace.load_state(&head)?;
    let changes = diff::compare_visible_files(workspace.store(), &last, &present.state)?;
    let mut skipped: Vec<(RelPath, SkipReason)> = Vec::new();
    if show_excluded {
        for change in diff::compare_trees(workspace.store(), None, present.state.files)? {
            if let Some(TreeNode::Skipped { reason }) = change.after
                && reason != SkipReason::GitDir
            {
                skipped.push((change.path, reason));
            }
        }
    }
    let git = match present.state.git {
        Some(hash) => GitState::load(workspace.store(), hash).map_err(EngineError::from)?,
        None => GitState::default(),
    };
    drop(lock);
    let moves = workspace.git_head_warnings(&present.state, &last)?;
    let excluded = show_excluded.then_some(skipped);
    let watcher = WatcherState::find(context);
    let stops = workspace.control()?.list_stops()?;
    let report = StatusReport {
        workspace,
        stops,
        head,
        present,
        is_slow,
        changes,
        excluded,
        git,
        head_warnings: moves,
        watcher,
    };
    match context.json {
        true => output::print_document(&report.document(context)),
        false => report.print(context)?,
    }
    DONE
}

/// What `stepback status` found.
struct StatusReport {
    workspace: Workspace,
    /// The agents that wait for an answer of the user.
    stops: Vec<Stop>,
    head: StepRow,
    present: PresentState,
    /// Whether the scan was slow enough for a watcher to help.
    is_slow: bool,
    changes: Vec<PathChange>,
    /// What is not covered and why, if that was asked for.
    excluded: Option<Vec<(RelPath, SkipReason)>>,
    git: GitState,
    /// Warnings about repositories whose HEAD moved.
    head_warnings: Vec<String>,
    watcher: WatcherState,
}

impl StatusReport {
    fn document(&self, context: &Context) -> Value {
        let repositories = self.git.repositories.iter().map(|repository| {
            json!({ "id": stepback_model::path::display_bytes(&repository.path), "head": repository.summary })
        });
        let mut value = json!({
            "id": self.workspace.record.id,
            "workspace": self.workspace.root.display().to_string(),
            "store": context.store_path(),
            "head": json!(StepDocument::from_row(&self.head)),
            "items": self.changes.iter().map(documents::change).collect::<Vec<_>>(),
            "not_covered": self.present.skipped_paths.iter().map(documents::skipped_path).collect::<Vec<_>>(),
            "git": repositories.collect::<Vec<_>>(),
            "warnings": self.head_warnings,
            "stops": self.stops,
            "watcher": self.watcher.document(Some(&self.workspace.root)),
            "not_watched": self.watcher.unavailable_reason(),
            "mirrors": mirror::overview_document(context),
        });
        if let Some(excluded) = &self.excluded {
            let excluded = excluded.iter();
            let excluded =
                excluded.map(|(path, reason)| json!({ "id": path, "path": path, "reason": reason }));
            value["excluded"] = excluded.collect();
        }
        value
    }

    fn print(&self, context: &Context) -> Result<(), CommandFailure> {
        let paint = Paint::stdout();
        output::print_line(format!("Workspace {}", self.workspace.root.display()));
        output::print_line(format!(
            "Last checkpoint {} {}, {}",
            paint.strong(describe_checkpoint(&self.head)),
            paint.name(self.head.step.id.short()),
            self.head.step.at.ago(context.now())
        ));
        self.print_repositories(&paint);
        self.print_watcher(context, &paint);
        for stop in &self.stops {
            let left = (stop.until.as_micros() - context.now().as_micros()).max(0).unsigned_abs();
            output::print_line(format!(
                "{} {} {} waits before {}: {} ({} left; \"stepback inspect\" shows it)",
                paint.note("Stopped:"),
                stop.agent,
                stop.session.short(),
                safe(&stop.tool),
                safe(&stop.reason),
                output::duration(Duration::from_micros(left)),
            ));
        }
        if self.changes.is_empty() {
            output::print_line("Nothing changed since.");
        } else {
            output::print_line("Changed since:");
            for change in &self.changes {
                output::print_line(format!(
                    "  {:<12} {}",
                    paint.change_kind(change),
                    titles::change_path(change)
                ));
            }
            output::print_status(
                paint.dim("\"stepback diff\" shows the lines; \"stepback rewind @\" reverts all of it."),
            );
        }
        let gaps = count_recent_gaps(context, &self.workspace)?;
        if gaps > 0 {
            output::print_status(format!(
                "{} {} could not be recorded in the last day; \"stepback log --kind gap\" shows why.",
                paint.note("Warning:"),
                output::count(gaps, "event")
            ));
        }
        mirror::print_warnings(context);
        for warning in &self.head_warnings {
            output::print_status(format!("{} {warning}.", paint.note("Warning:")));
        }
        for trouble in &self.present.skipped_paths {
            let (path, reason) = (&trouble.path, &trouble.reason);
            output::print_status(format!("{} {path} is not covered: {reason}.", paint.note("Warning:")));
        }
        if let Some(excluded) = &self.excluded {
            output::print_line(if excluded.is_empty() { "Nothing is excluded." } else { "Not covered:" });
            for (path, reason) in excluded {
                output::print_line(format!("  {path}  {}", paint.dim(format!("({})", reason.describe()))));
            }
        }
        Ok(())
    }

    fn print_repositories(&self, paint: &Paint) {
        for repository in &self.git.repositories {
            let summary = &repository.summary;
            let branch = summary.branch.as_deref().unwrap_or("detached HEAD");
            let commit =
                summary.commit.as_deref().map_or("no commit yet", |commit| &commit[..commit.len().min(10)]);
            let progress =
                summary.in_progress.as_ref().map_or(String::new(), |what| format!(", {what} in progress"));
            let path = stepback_model::path::display_bytes(&repository.path);
            output::print_line(paint.dim(format!("Git {path}: {branch} at {commit}{progress}")));
        }
    }

    fn print_watcher(&self, context: &Context, paint: &Paint) {
        let watcher = &self.watcher;
        match watcher.report().map(|report| report.sight_of(&self.workspace.root)) {
            Some(Ok(directories)) => {
                let process = watcher.process_summary(context.now()).unwrap_or_default();
                let directories = output::grouped(directories);
                output::print_line(paint.dim(format!("Watched: {directories} directories, by {process}")));
            }
            Some(Err(reason)) => output::print_line(paint.dim(format!("Not watched: {reason}"))),
            None if watcher.is_failing() || (self.is_slow && watcher.can_start()) => {
                output::print_line(
                    paint.dim(format!("Not watched: {}", watcher.unavailable_reason().unwrap_or_default())),
                );
            }
            None => {}
        }
    }
}

/// Returns how many agent events could not be recorded in the last day.
pub fn count_recent_gaps(context: &Context, workspace: &Workspace) -> Result<u64, CommandFailure> {
    const DAY: i64 = 86_400_000_000;
    let query = StepQuery { kinds: vec![StepKind::Gap], limit: Some(1000), ..StepQuery::default() };
    let gaps = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?;
    let since = context.now().as_micros() - DAY;
    Ok(gaps.iter().filter(|stored| stored.step.at.as_micros() > since).count() as u64)
}

/// Which changes to list.
struct ChangeListQuery<'a> {
    /// Only changes after this point.
    point: Option<&'a str>,
    /// Only changes of these paths; all paths if empty.
    paths: &'a [String],
    /// Only changes made by this session.
    session: Option<&'a str>,
    /// Also changes that were undone or cleared.
    all: bool,
}

/// Runs `stepback changes`.
pub fn changes(context: &Context, arguments: &ChangesArgs) -> CommandResult {
    let wanted = &ChangeListQuery {
        point: arguments.point.as_deref(),
        paths: &arguments.paths,
        session: arguments.session.as_deref(),
        all: arguments.all,
    };
    let workspace = context.open_workspace()?;
    if wanted.point == Some("clear") {
        let operation = workspace.clear_changes()?;
        match context.json {
            true => output::print_document(&documents::operation(&operation)),
            false => {
                output::print_line(
                    "Started a new list of changes; earlier changes can still be taken back by point.",
                );
                output::print_status(Paint::stderr().dim("\"stepback undo\" restores the list."));
            }
        }
        return DONE;
    }
    let session = wanted.session.map(|text| workspace.find_session(text)).transpose()?;
    let since = wanted.point.map(|point| context.resolve_in_session(&workspace, point, session.as_ref()));
    let since = match (since, wanted.point) {
        // No point has this name, but a file has.
        (Some(Err(_)), Some(name)) if context.directory.join(name).symlink_metadata().is_ok() => {
            let paths = [wanted.paths, &[name.to_owned()]].concat();
            let wanted = ChangeListQuery { point: None, paths: &paths, ..*wanted };
            return list_changes(context, &workspace, None, session.as_ref(), &wanted);
        }
        (since, _) => since.transpose()?,
    };
    let since = since.map(|stored| workspace.nearest_checkpoint(&stored)).transpose()?;
    list_changes(context, &workspace, since.as_ref(), session.as_ref(), wanted)
}

/// Prints the changes one session made.
pub fn list_session_changes(context: &Context, workspace: &Workspace, session: &Session) -> CommandResult {
    let wanted = ChangeListQuery { point: None, paths: &[], session: None, all: false };
    list_changes(context, workspace, None, Some(session), &wanted)
}

fn list_changes(
    context: &Context,
    workspace: &Workspace,
    since: Option<&StepRow>,
    session: Option<&Session>,
    wanted: &ChangeListQuery<'_>,
) -> CommandResult {
    let filter = PathFilter::new(
        &wanted.paths.iter().map(|path| context.to_workspace_path(workspace, path)).collect::<Vec<_>>(),
    )?;
    let lock = workspace.lock_shared()?;
    let mut listed = workspace.numbered_changes(since)?;
    let cleared = workspace.session.info.cleared.unwrap_or(0);
    listed.retain(|numbered| {
        filter.matches(&numbered.change.path)
            && session.is_none_or(|session| numbered.who.is_certainly_by(session.id))
            && (wanted.all || numbered.is_open(cleared))
    });
    let totals = |kind: ChangeKind| listed.iter().filter(|numbered| numbered.change.kind() == kind).count();
    drop(lock);
    if context.json {
        let items: Vec<_> =
            listed.iter().rev().map(|numbered| change_document(workspace, numbered)).collect();
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for numbered in &listed {
        let step =
            numbered.step.map_or("not in a checkpoint yet".to_string(), |(_, number)| format!("#{number}"));
        let gone = if numbered.taken_back { ", taken back" } else { "" };
        output::print_line(format!(
            "{:>6} {} ({}) {}",
            paint.strong(format!("[{}]", numbered.number)),
            titles::change_path(&numbered.change),
            paint.change_kind(&numbered.change),
            paint.dim(format!("– {}, {step}{gone}", numbered.at.ago(now)))
        ));
        if let Some(behind) = describe_cause(workspace, &numbered.who, numbered.step.map(|(id, _)| id)) {
            output::print_line(paint.dim(format!("         {behind}")));
        }
    }
    if listed.is_empty() {
        output::print_line("No changes.");
        return DONE;
    }
    let of = |kind: ChangeKind| format!("{} {}", totals(kind), kind.as_str());
    let kinds = [ChangeKind::Created, ChangeKind::Modified, ChangeKind::Deleted, ChangeKind::Renamed];
    output::print_line(kinds.map(of).join(", "));
    output::print_status(
        paint.dim("Take one back with \"stepback rewind --change N\", the last two with \"--last 2\"."),
    );
    DONE
}

fn change_document(workspace: &Workspace, numbered: &NumberedChange) -> Value {
    let found = numbered.step.map(|(id, _)| id);
    let summary = |id: StepId| Some(workspace.store().step(id).ok().flatten()?.step.summary);
    let author = |author: &Author| {
        let mut value = json!(ChangeAuthorDocument::from_author(author));
        value["call"] = json!(call_summary(workspace, author, found));
        value["prompt"] = json!(author.prompt.and_then(summary));
        value
    };
    let mut value = documents::numbered_change(numbered);
    value["authors"] = numbered.who.candidates().iter().map(author).collect();
    value
}

/// Returns the call and the prompt that caused the changes a step found.
pub fn describe_step_cause(workspace: &Workspace, detail: Option<&Value>) -> Option<String> {
    let call = detail?.pointer("/authors/calls/0")?;
    let author = serde_json::from_value(call.clone()).ok()?;
    describe_cause(workspace, &Attribution::Call(author), None)
}

/// Returns a call as it ran, which differs from what the model asked for if its input was edited. `found` is the step
/// that found the change.
fn call_summary(workspace: &Workspace, author: &Author, found: Option<StepId>) -> Option<String> {
    let step = |id: StepId| Some(workspace.store().step(id).ok().flatten()?.step);
    let ended = found.and_then(step).filter(|end| {
        let detail = workspace.load_detail(end).ok().flatten();
        detail.is_some_and(|detail| detail["start"] == json!(author.step)) && !end.meta.failed
    });
    ended.or_else(|| step(author.step)).map(|step| step.summary)
}

/// Returns the call and the prompt that caused a change, on one line.
fn describe_cause(workspace: &Workspace, who: &Attribution, found: Option<StepId>) -> Option<String> {
    let summary = |id: StepId| {
        let stored = workspace.store().step(id).ok().flatten()?;
        Some((stored.step.number, stored.step.summary))
    };
    let author = match who {
        Attribution::Unreported => return None,
        Attribution::Call(author) => author,
        Attribution::OneOf(authors) if authors.iter().all(|author| author.session == authors[0].session) => {
            let session = workspace.store().session(authors[0].session).ok().flatten()?;
            let name = super::sessions::display_name(&session);
            return Some(format!("by {name}, whose call was interrupted, or by you since"));
        }
        Attribution::OneOf(authors) => {
            return Some(format!("by one of {} sessions that ran at the same time", authors.len()));
        }
    };
    let session = workspace.store().session(author.session).ok().flatten()?;
    let number = summary(author.step).map(|(number, _)| format!(" (#{number})")).unwrap_or_default();
    let call = call_summary(workspace, author, found).unwrap_or_default() + &number;
    let prompt =
        author.prompt.and_then(summary).map(|(_, text)| format!(" for \"{text}\"")).unwrap_or_default();
    Some(format!("{} {}: {call}{prompt}", session.agent, session.id.short()))
}
