//! The commands `stepback search` and `stepback query`.

use std::collections::HashMap;

use serde_json::{Value, json};
use stepback_api::search::SnippetDocument;
use stepback_engine::{Engine, EngineError};
use stepback_model::escape::safe;
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::path::display_bytes;
use stepback_model::record::Session;
use stepback_model::search::{Pattern, PatternError, TextSnippet};
use stepback_model::time_expr;
use stepback_store::port::{SearchRequest, StepQuery, StepRow};

use super::{CommandResult, DONE, documents, sessions, titles};
use crate::args::find::{self as args, StepFilterArgs};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The most snippets shown per step; the JSON document has all.
const MAX_SNIPPETS: usize = 2;

/// Runs `stepback search`.
pub fn search(context: &Context, arguments: &args::SearchArgs) -> CommandResult {
    let text = arguments.words.join(" ");
    let pattern = match (&text, arguments.substring) {
        (text, _) if text.is_empty() && arguments.reindex => None,
        (text, true) => Some(Pattern::substring(text).map_err(pattern_failure)?),
        (text, false) => Some(Pattern::words(text).map_err(pattern_failure)?),
    };
    let engine = context.engine();
    let (workspace, among) = build_step_query(context, engine, &arguments.among)?;
    if arguments.reindex {
        context.store().forget_index()?;
        let told = engine.update_index()?;
        output::print_unless_json(context.json, &format!("Indexed {}.", output::count(told, "step")));
    }
    let Some(pattern) = pattern else {
        if context.json {
            output::print_document(&json!({ "items": [], "total": 0, "total_is_exact": true, "next": null }));
        }
        return DONE;
    };
    let search = SearchRequest {
        pattern,
        workspace,
        among,
        ranked: !arguments.newest,
        skip: arguments.skip,
        limit: arguments.limit,
    };
    let found = engine.search(&search)?;
    let mut places = StepContextCache::default();
    if context.json {
        let mut items = Vec::new();
        for hit in &found.hits {
            let mut value = places.step_document(engine, hit.workspace, &hit.stored)?;
            value["score"] = json!(hit.score);
            value["snippets"] =
                hit.snippets.iter().map(|snippet| json!(SnippetDocument::from_snippet(snippet))).collect();
            items.push(value);
        }
        let (total, exact) = (found.total, !found.at_least);
        output::print_document(
            &json!({ "items": items, "total": total, "total_is_exact": exact, "next": found.next }),
        );
        return DONE;
    }
    let paint = Paint::stdout();
    for hit in &found.hits {
        output::print_line(places.format_step(
            context,
            engine,
            hit.workspace,
            &hit.stored,
            workspace.is_none(),
        )?);
        for snippet in hit.snippets.iter().take(MAX_SNIPPETS) {
            let name = paint.dim(format!("{}:", snippet.field.as_str()));
            output::print_line(format!("       {name} {}", highlight_matches(paint, snippet)));
        }
    }
    let shown = found.hits.len() as u64;
    match found.hits.first() {
        None if found.total == 0 => {
            output::print_unless_json(context.json, "No matches.");
        }
        None => output::print_unless_json(context.json, &format!("There are only {}.", found.total)),
        Some(first) => {
            let more = match found.next {
                Some(next) => format!("; --skip {next} shows the next ones"),
                None => String::new(),
            };
            let all = format_step_count(found.total, found.at_least);
            output::print_unless_json(context.json, &format!("{shown} of {all}{more}."));
            print_navigation_hint(context, &first.stored, workspace.is_some());
        }
    }
    DONE
}

/// Runs `stepback query`.
pub fn query(context: &Context, arguments: &args::QueryArgs) -> CommandResult {
    let engine = context.engine();
    let (workspace, among) = build_step_query(context, engine, &arguments.among)?;
    let usage = |what: &str, why: &str| CommandFailure::new(FailureKind::Usage, format!("{what}: {why}"));
    let state = match &arguments.state {
        Some(text) => Some(Hash::from_hex(text).ok_or_else(|| {
            usage("--state", "a hash has 64 hex digits").with_hint("\"stepback query --json\" shows them")
        })?),
        None => None,
    };
    let from = match &arguments.cursor {
        Some(text) => Some(text.parse().map_err(|why| usage("--cursor", why))?),
        None => None,
    };
    let min_duration = match &arguments.min_duration {
        Some(text) => Some(time_expr::span_micros(text).ok_or_else(|| {
            usage(&format!("--min-duration {text}"), "not a duration").with_hint("500ms, 30s, 2m, 1h")
        })?),
        None => None,
    };
    let (by, oldest_first) = arguments.order.sort_key();
    let query = StepQuery {
        worker: arguments.worker.clone(),
        tool: arguments.tool.clone(),
        call: arguments.call.clone(),
        iteration: arguments.iteration,
        task: arguments.task.clone(),
        trace: arguments.trace.clone(),
        span: arguments.span.clone(),
        state,
        checkpoint: arguments.checkpoints.then_some(true),
        label: arguments.label.clone(),
        tag: arguments.tag.clone(),
        min_duration,
        by,
        oldest_first,
        from,
        limit: Some(if arguments.count { 0 } else { arguments.limit }),
        count_all: arguments.count,
        ..among
    };
    let page = context.store().find(workspace, &query)?;
    let mut places = StepContextCache::default();
    if context.json {
        let mut items = Vec::new();
        for placed in &page.steps {
            items.push(places.step_document(engine, placed.workspace, &placed.stored)?);
        }
        let next = page.next.map(|cursor| cursor.to_string());
        let exact = !page.at_least;
        output::print_document(
            &json!({ "items": items, "total": page.total, "total_is_exact": exact, "next": next }),
        );
        return DONE;
    }
    if arguments.count {
        output::print_line(page.total);
        return DONE;
    }
    for placed in &page.steps {
        output::print_line(places.format_step(
            context,
            engine,
            placed.workspace,
            &placed.stored,
            workspace.is_none(),
        )?);
    }
    let more = match page.next {
        Some(next) => format!("; --cursor {next} shows the next ones"),
        None => String::new(),
    };
    let (shown, all) = (page.steps.len(), format_step_count(page.total, page.at_least));
    output::print_unless_json(context.json, &format!("{shown} of {all}{more}."));
    DONE
}

/// Returns the number of steps as text, marked if it is only a lower bound.
fn format_step_count(total: u64, at_least: bool) -> String {
    let steps = output::count(total, "step");
    if at_least { format!("at least {steps}") } else { steps }
}

fn pattern_failure(error: PatternError) -> CommandFailure {
    let hint = match error {
        PatternError::NoWord { .. } => "--substring also matches punctuation",
        PatternError::Unclosed => "--substring matches quotation marks",
        _ => "word, \"a phrase\", begin*, -not; \"stepback search --help\" has examples",
    };
    let message = error.to_string();
    CommandFailure::new(FailureKind::Usage, safe(&message)).with_hint(hint)
}

/// Returns the workspace and the steps to search. Pending events of the workspace are recorded first.
fn build_step_query(
    context: &Context,
    engine: &Engine,
    among: &StepFilterArgs,
) -> Result<(Option<WorkspaceId>, StepQuery), CommandFailure> {
    let time = |name: &str, text: &Option<String>| {
        let parse = |text: &String| {
            time_expr::parse(text, context.now(), &jiff::tz::TimeZone::system())
                .map_err(|error| CommandFailure::new(FailureKind::Usage, format!("--{name} {text}: {error}")))
        };
        text.as_ref().map(parse).transpose()
    };
    let mut query = StepQuery {
        agent: among.agent.clone(),
        kinds: sessions::parse_kinds(&among.kinds)?,
        since: time("since", &among.since)?,
        until: time("until", &among.until)?,
        failed: among.errors.then_some(true),
        hidden: (!among.hidden).then_some(false),
        ..StepQuery::default()
    };
    if among.all_workspaces {
        query.session = match &among.session {
            Some(text) => Some(engine.find_session_in_store(text)?.id),
            None => None,
        };
        // Pending events of other workspaces are not recorded: opening a workspace finishes interrupted work in it, which
        // the user did not ask for.
        let _ = context.open_workspace();
        return Ok((None, query));
    }
    let workspace = context.open_workspace()?;
    query.session = match &among.session {
        Some(text) => Some(workspace.find_session(text)?.id),
        None => None,
    };
    Ok((Some(workspace.record.id), query))
}

/// Sessions and workspace roots, each looked up once.
#[derive(Default)]
struct StepContextCache {
    sessions: HashMap<SessionId, Option<Session>>,
    roots: HashMap<WorkspaceId, String>,
}

impl StepContextCache {
    fn session(&mut self, engine: &Engine, id: SessionId) -> Result<Option<&Session>, CommandFailure> {
        if let std::collections::hash_map::Entry::Vacant(place) = self.sessions.entry(id) {
            place.insert(engine.store.session(id).map_err(EngineError::from)?);
        }
        Ok(self.sessions.get(&id).and_then(Option::as_ref))
    }

    fn root(&mut self, engine: &Engine, id: WorkspaceId) -> Result<String, CommandFailure> {
        if self.roots.is_empty() {
            let all = engine.store.workspaces().map_err(EngineError::from)?;
            let shown = |root: &[u8]| display_bytes(root).into_owned();
            self.roots = all.iter().map(|workspace| (workspace.id, shown(&workspace.root))).collect();
        }
        Ok(self.roots.get(&id).cloned().unwrap_or_default())
    }

    fn step_document(
        &mut self,
        engine: &Engine,
        workspace: WorkspaceId,
        stored: &StepRow,
    ) -> Result<Value, CommandFailure> {
        let mut value = documents::step(stored);
        value["workspace"] = json!(self.root(engine, workspace)?);
        let session = self.session(engine, stored.step.session)?;
        value["agent"] = json!(session.map(|session| &session.agent));
        value["hidden"] = json!(stored.hidden_by.is_some());
        Ok(value)
    }

    fn format_step(
        &mut self,
        context: &Context,
        engine: &Engine,
        workspace: WorkspaceId,
        stored: &StepRow,
        with_root: bool,
    ) -> Result<String, CommandFailure> {
        let paint = Paint::stdout();
        let step = &stored.step;
        let session = self.session(engine, step.session)?.map_or(String::new(), sessions::display_name);
        let root = match with_root {
            true => format!("  {}", paint.dim(self.root(engine, workspace)?)),
            false => String::new(),
        };
        let took = match step.meta.duration {
            Some(micros) => format!("  {}", output::duration(std::time::Duration::from_micros(micros))),
            None => String::new(),
        };
        let failed = if step.meta.failed { paint.bad("  failed") } else { String::new() };
        let gone = if stored.hidden_by.is_some() { paint.note("  (deleted)") } else { String::new() };
        Ok(format!(
            "{:>6}  {}  {}  {}  {}{}{failed}{gone}{root}",
            paint.strong(format!("#{}", step.number)),
            paint.dim(step.kind.as_str()),
            safe(&titles::step_title(stored)),
            paint.name(session),
            paint.dim(step.at.ago(context.now())),
            paint.dim(took),
        ))
    }
}

/// Returns a snippet on one line, with the matches highlighted.
fn highlight_matches(paint: Paint, snippet: &TextSnippet) -> String {
    // Line breaks and control characters are shown as visible escapes and never reach the terminal.
    let shown = |text: &str| {
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let blank = |c: Option<char>| if c.is_some_and(char::is_whitespace) { " " } else { "" };
        let (before, after) = (blank(text.chars().next()), blank(text.chars().next_back()));
        match joined.is_empty() {
            true => before.to_string(),
            false => format!("{before}{}{after}", safe(&joined)),
        }
    };
    let mut out = String::new();
    let mut at = 0;
    for (from, to) in &snippet.marks {
        out.push_str(&shown(&snippet.text[at..*from]));
        out.push_str(&paint.note(paint.strong(shown(&snippet.text[*from..*to]))));
        at = *to;
    }
    out.push_str(&shown(&snippet.text[at..]));
    let cut = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}{}", cut(snippet.cut.0), out.trim(), cut(snippet.cut.1))
}

/// Prints how to get to a step.
fn print_navigation_hint(context: &Context, stored: &StepRow, here: bool) {
    let step = &stored.step;
    let (number, session) = (step.number, step.session.short());
    let text = match here {
        true => format!(
            "\"stepback at '#{number}'\" shows the first one, \"stepback replay {session} --until '#{number}'\" how it came about, \"stepback rewind '#{number}'\" goes back to it."
        ),
        false => format!("\"stepback replay {session}\" replays the session of the first one."),
    };
    output::print_unless_json(context.json, &text);
}
