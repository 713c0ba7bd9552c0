//! The tools: their names, schemas and implementations.

mod anomalies;
mod apply;
mod belief;
mod board;
mod check;
mod cost;
mod experiment;
mod files;
mod gap;
mod history;
mod hypothesis;
mod lines;
mod profile;
mod rewind;
mod why;

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use stepback_engine::board::{BoardEdit, BoardEditor, BoardMoment};
use stepback_model::clip;
use stepback_model::page_cursor;
use stepback_model::record::StepRow;
use stepback_model::time::Timestamp;
use stepback_reasoning::{BoardMutation, MindError};

use crate::schema;
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The result of a tool call.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolReply {
    /// The result as text, for a model.
    pub text: String,
    /// The same result for programs.
    pub structured: Value,
}

/// What a client may assume about a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToolHints {
    /// It changes nothing.
    pub read_only: bool,
    /// It may remove or overwrite something, not only add.
    pub destructive: bool,
    /// A second call with the same arguments has no further effect.
    pub idempotent: bool,
    /// It may reach beyond this workspace and its record.
    pub open_world: bool,
}

/// The most characters of a summary in a list.
const MAX_SUMMARY_CHARS: usize = 160;

/// For a tool that only reads.
const READ_ONLY: ToolHints =
    ToolHints { read_only: true, destructive: false, idempotent: true, open_world: false };
/// For a tool that adds something to the record, which can be taken back.
const ADDITIVE: ToolHints =
    ToolHints { read_only: false, destructive: false, idempotent: false, open_world: false };

/// A tool.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name that clients call.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// What it is for, written for a model.
    pub description: &'static str,
    /// The schema of its arguments.
    pub input: Value,
    /// The schema of its structured result.
    pub output: Value,
    /// What a client may assume about it.
    pub hints: ToolHints,
    /// Whether a call may take minutes.
    pub is_slow: bool,
    /// Whether a call may register a workspace that is not known yet.
    pub creates_workspace: bool,
    /// The implementation.
    pub run: fn(&ToolContext<'_>, &Args) -> Result<ToolReply, ToolError>,
}

impl Tool {
    /// The tool as it is listed to clients.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "outputSchema": self.output,
            "annotations": {
                "readOnlyHint": self.hints.read_only,
                "destructiveHint": self.hints.destructive,
                "idempotentHint": self.hints.idempotent,
                "openWorldHint": self.hints.open_world,
            },
        })
    }
}

/// Every tool, in the order they are listed.
pub fn list_tools(allow_others: bool) -> Vec<Tool> {
    let mut tools = vec![
        board::recover_tool(),
        board::mind_tool(),
        board::next_tool(),
        hypothesis::hypothesis_tool(),
        hypothesis::evidence_tool(),
        gap::gap_tool(),
        gap::note_tool(),
        belief::belief_tool(),
        belief::impact_tool(),
        hypothesis::contradiction_tool(),
        check::add_tool(),
        check::run_tool(),
        experiment::experiment_tool(),
        experiment::merge_tool(),
        board::undo_tool(),
        history::timeline_tool(),
        history::show_tool(),
        history::search_tool(),
        why::why_tool(),
        profile::profile_tool(),
        anomalies::anomalies_tool(),
        cost::cost_tool(),
        lines::blame_tool(),
        files::diff_tool(),
        files::checkpoint_tool(),
        rewind::rewind_tool(),
        rewind::switch_tool(),
        rewind::merge_plan_tool(),
        rewind::undo_tool(),
        apply::apply_tool(),
        files::branch_tool(),
        files::compare_tool(),
    ];
    for tool in &mut tools {
        if (tool.hints.read_only || allow_others)
            && let Some(properties) = tool.input["properties"].as_object_mut()
        {
            let session_description = "Another session: the beginning of its id";
            properties.insert("session".into(), schema::string(session_description));
        }
    }
    tools
}

/// The arguments of a call, already checked against the schema of the tool.
#[derive(Clone, Debug)]
pub struct Args {
    tool: &'static str,
    values: Map<String, Value>,
}

impl Args {
    /// Wraps arguments that were checked.
    pub fn new(tool: &'static str, arguments: Value) -> Self {
        match arguments {
            Value::Object(arguments) => Self { tool, values: arguments },
            _ => Self { tool, values: Map::new() },
        }
    }

    /// A string argument, if it is present and not blank.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    }

    /// The same, owned.
    pub fn owned_text(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A string argument that the requested action requires.
    pub fn require_text(&self, name: &str) -> Result<&str, ToolError> {
        self.text(name).ok_or_else(|| {
            let action = match self.values.get("do").and_then(Value::as_str) {
                Some(word) => format!("{} with do: {word}", self.tool),
                None => self.tool.to_owned(),
            };
            ToolError::new(format!("{action} needs \"{name}\""))
        })
    }

    /// A list of strings.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let items = self.values.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.values.get(name).and_then(Value::as_f64)
    }

    /// An integer.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.values.get(name).and_then(Value::as_u64)
    }

    /// A list of integers.
    pub fn counts(&self, name: &str) -> Vec<u64> {
        self.values
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .collect()
    }

    /// A boolean; false if absent.
    pub fn flag(&self, name: &str) -> bool {
        self.values.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Any value.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// A list of item names.
    pub fn item_ids<T: std::str::FromStr<Err = MindError>>(&self, name: &str) -> Result<Vec<T>, ToolError> {
        self.texts(name).iter().map(|text| Ok(text.trim().parse()?)).collect()
    }

    /// The name of an item, if given.
    pub fn optional_item<T: std::str::FromStr<Err = MindError>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, ToolError> {
        Ok(self.text(name).map(|text| text.trim().parse()).transpose()?)
    }

    /// The name of an item that is required.
    pub fn required_item<T: std::str::FromStr<Err = MindError>>(&self, name: &str) -> Result<T, ToolError> {
        Ok(self.require_text(name)?.trim().parse()?)
    }

    /// What a cursor is bound to: all arguments except the position in the list.
    fn cursor_scope(&self) -> String {
        let mut bound_arguments = self.values.clone();
        bound_arguments.remove("cursor");
        bound_arguments.remove("limit");
        format!("{} {}", self.tool, Value::Object(bound_arguments))
    }

    /// Where the page begins, from the cursor.
    pub fn page_start<T: std::str::FromStr>(&self) -> Result<Option<T>, ToolError> {
        let Some(cursor) = self.text("cursor") else { return Ok(None) };
        page_cursor::decode(cursor, &self.cursor_scope()).map(Some).ok_or_else(|| {
            ToolError::new("the cursor does not belong to this list")
                .with_hint("use next_cursor of the page before, with the same arguments")
        })
    }

    /// How many items were on the pages before this one.
    pub fn page_offset(&self) -> Result<usize, ToolError> {
        Ok(self.page_start()?.unwrap_or(0))
    }

    /// The cursor of a page that ends at `position`.
    pub fn cursor(&self, position: impl std::fmt::Display) -> String {
        page_cursor::encode(position, &self.cursor_scope())
    }
}

/// The number of items per page.
fn page_limit(args: &Args, usual: usize) -> usize {
    args.count("limit").map_or(usual, |limit| usize::try_from(limit).unwrap_or(usual))
}

fn limit_schema(default: u64, maximum: u64) -> Value {
    schema::bounded_integer(&format!("Maximum number of items (default {default})"), 1, maximum)
}

fn cursor_schema() -> Value {
    schema::string("next_cursor of the page before")
}

fn point_schema(purpose: &str) -> Value {
    schema::string(purpose)
}

/// The step that a point names.
fn resolve_step(context: &ToolContext<'_>, point: &str) -> Result<StepRow, ToolError> {
    Ok(context.workspace.resolve(point, context.now, &TimeZone::system)?)
}

/// The moment of a board that a point names; the present if there is no point.
fn resolve_moment(context: &ToolContext<'_>, point: Option<&str>) -> Result<BoardMoment, ToolError> {
    match point {
        None => Ok(BoardMoment::Now),
        Some(point) => {
            Ok(stepback_board::resolve_moment(context.workspace, point, context.now, &TimeZone::system)?)
        }
    }
}

/// A point in time as a user writes it.
fn parse_time(context: &ToolContext<'_>, args: &Args, name: &str) -> Result<Option<Timestamp>, ToolError> {
    let parse = |text| {
        stepback_model::time_expr::parse(text, context.now, &TimeZone::system()).map_err(|error| {
            ToolError::new(format!("{name}: {error}"))
                .with_hint("use 2 hours ago, yesterday 14:00 or 2026-01-23T12:00")
        })
    };
    args.text(name).map(parse).transpose()
}

/// The first line of a text, cut to `max_chars` characters.
pub(crate) fn first_line(text: &str, max_chars: usize) -> String {
    clip::first(text.lines().next().unwrap_or_default(), max_chars)
}

/// A step as one entry of a list.
pub(crate) fn step_summary(stored: &StepRow) -> Value {
    let (checkpoint, step) = (&stored, &stored.step);
    let mut brief = json!({
        "step": step.number,
        "kind": step.kind.as_str(),
        "at": step.at,
        "summary": first_line(&step.summary, MAX_SUMMARY_CHARS),
    });
    if let Some(tool) = &step.meta.tool {
        brief["tool"] = json!(tool);
    }
    if step.meta.failed {
        brief["failed"] = json!(true);
    }
    if checkpoint.trigger.is_some() {
        brief["checkpoint"] = json!(true);
    }
    if let Some(label) = &checkpoint.annotation.label {
        brief["label"] = json!(label);
    }
    brief
}

/// The schema of [`brief`].
fn step_summary_schema() -> Value {
    schema::object(
        &[
            ("step", schema::integer("")),
            ("kind", schema::string("")),
            ("at", schema::string("")),
            ("summary", schema::string("")),
            ("tool", schema::string("The tool or model")),
            ("failed", schema::boolean("")),
            ("checkpoint", schema::boolean("Its files are kept")),
            ("label", schema::string("")),
        ],
        &["step", "kind", "at", "summary"],
    )
}

/// [`brief`] as a line of text.
pub(crate) fn step_line(stored: &StepRow, now: Timestamp) -> String {
    let (checkpoint, step) = (&stored, &stored.step);
    let summary = first_line(&step.summary, MAX_SUMMARY_CHARS);
    let tool = step.meta.tool.as_ref().map_or(String::new(), |tool| format!(" {tool}"));
    let failed = if step.meta.failed { " FAILED" } else { "" };
    let label = checkpoint.annotation.label.as_ref().map_or(String::new(), |label| format!(" \"{label}\""));
    format!("#{} {} {}{tool}{failed}{label}: {summary}", step.number, step.at.ago(now), step.kind.as_str())
}

/// Changes the board of the session that a call is about.
fn change_board(context: &ToolContext<'_>, mutation: &BoardMutation) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    Ok(edit_reply(&BoardEditor::new(context.workspace, &session).apply(mutation)?))
}

/// The reply to a change of a board.
fn edit_reply(edit: &BoardEdit) -> ToolReply {
    let mut structured = json!({
        "item": edit.effect.item,
        "said": edit.effect.messages,
        "step": edit.step,
    });
    if let Some(checkpoint) = edit.checkpoint {
        structured["checkpoint"] = json!(checkpoint);
    }
    ToolReply { text: edit.effect.messages.join("\n"), structured }
}

/// The schema of [`edit_reply`].
fn edit_schema() -> Value {
    schema::object(
        &[
            ("item", schema::string("What was created or changed")),
            ("said", schema::string_array("")),
            ("step", schema::integer("For mind_undo")),
            ("checkpoint", schema::integer("Made for it")),
        ],
        &["item", "said", "step"],
    )
}

/// The value of a word; the schema has already checked that it is one of those allowed.
fn require_known<T>(value: Option<T>, name: &str) -> Result<T, ToolError> {
    value.ok_or_else(|| ToolError::new(format!("\"{name}\" has an unknown value")))
}

/// All words of a kind, for a schema.
fn enum_names<T: Copy>(values: &[T], text: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    values.iter().map(|word| text(*word)).collect()
}
