//! The tools: their names, schemas and implementations.

mod apply;
mod belief;
mod blame;
mod board;
mod check;
mod experiment;
mod files;
mod gap;
mod history;
mod hypothesis;
mod rewind;

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
const LOOKS: ToolHints =
    ToolHints { read_only: true, destructive: false, idempotent: true, open_world: false };
/// For a tool that adds something to the record, which can be taken back.
const ADDS: ToolHints =
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
    pub slow: bool,
    /// Whether a call may register a workspace that is not known yet.
    pub makes: bool,
    /// The implementation.
    pub run: fn(&ToolContext<'_>, &Args) -> Result<ToolReply, ToolError>,
}

impl Tool {
    /// The tool as it is listed to clients.
    pub fn document(&self) -> Value {
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
pub fn all(allow_others: bool) -> Vec<Tool> {
    let mut tools = vec![
        board::recover(),
        board::mind(),
        board::next(),
        hypothesis::hypothesis(),
        hypothesis::evidence(),
        gap::gap(),
        gap::note(),
        belief::belief(),
        belief::impact(),
        hypothesis::contradiction(),
        check::add(),
        check::run(),
        experiment::experiment(),
        experiment::merge(),
        board::undo(),
        history::timeline(),
        history::show(),
        history::search(),
        blame::why(),
        files::diff(),
        files::checkpoint(),
        rewind::rewind(),
        rewind::switch(),
        rewind::undo(),
        apply::apply(),
        files::branch(),
        files::compare(),
    ];
    for tool in &mut tools {
        if (tool.hints.read_only || allow_others)
            && let Some(properties) = tool.input["properties"].as_object_mut()
        {
            let whose = "Another session: the beginning of its id";
            properties.insert("session".into(), schema::text(whose));
        }
    }
    tools
}

/// The arguments of a call, already checked against the schema of the tool.
#[derive(Clone, Debug)]
pub struct Args {
    tool: &'static str,
    all: Map<String, Value>,
}

impl Args {
    /// Wraps arguments that were checked.
    pub fn new(tool: &'static str, all: Value) -> Self {
        match all {
            Value::Object(all) => Self { tool, all },
            _ => Self { tool, all: Map::new() },
        }
    }

    /// A string argument, if it is present and not blank.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.all.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    }

    /// The same, owned.
    pub fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A string argument that the requested action requires.
    pub fn need(&self, name: &str) -> Result<&str, ToolError> {
        self.text(name).ok_or_else(|| {
            let what = match self.all.get("do").and_then(Value::as_str) {
                Some(word) => format!("{} with do: {word}", self.tool),
                None => self.tool.to_owned(),
            };
            ToolError::new(format!("{what} needs \"{name}\""))
        })
    }

    /// A list of strings.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let items = self.all.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.all.get(name).and_then(Value::as_f64)
    }

    /// An integer.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.all.get(name).and_then(Value::as_u64)
    }

    /// A list of integers.
    pub fn counts(&self, name: &str) -> Vec<u64> {
        self.all.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    /// A boolean; false if absent.
    pub fn flag(&self, name: &str) -> bool {
        self.all.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Any value.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }

    /// A list of item names.
    pub fn names<T: std::str::FromStr<Err = MindError>>(&self, name: &str) -> Result<Vec<T>, ToolError> {
        self.texts(name).iter().map(|text| Ok(text.trim().parse()?)).collect()
    }

    /// The name of an item, if given.
    pub fn name<T: std::str::FromStr<Err = MindError>>(&self, name: &str) -> Result<Option<T>, ToolError> {
        Ok(self.text(name).map(|text| text.trim().parse()).transpose()?)
    }

    /// The name of an item that is required.
    pub fn item<T: std::str::FromStr<Err = MindError>>(&self, name: &str) -> Result<T, ToolError> {
        Ok(self.need(name)?.trim().parse()?)
    }

    /// What a cursor is bound to: all arguments except the position in the list.
    fn question(&self) -> String {
        let mut all = self.all.clone();
        all.remove("cursor");
        all.remove("limit");
        format!("{} {}", self.tool, Value::Object(all))
    }

    /// Where the page begins, from the cursor.
    pub fn place<T: std::str::FromStr>(&self) -> Result<Option<T>, ToolError> {
        let Some(cursor) = self.text("cursor") else { return Ok(None) };
        page_cursor::decode(cursor, &self.question()).map(Some).ok_or_else(|| {
            ToolError::new("the cursor does not belong to this list")
                .hint("use next_cursor of the page before, with the same arguments")
        })
    }

    /// How many items were on the pages before this one.
    pub fn seen(&self) -> Result<usize, ToolError> {
        Ok(self.place()?.unwrap_or(0))
    }

    /// The cursor of a page that ends at `place`.
    pub fn cursor(&self, place: impl std::fmt::Display) -> String {
        page_cursor::encode(place, &self.question())
    }
}

/// The number of items per page.
fn limit(args: &Args, usual: usize) -> usize {
    args.count("limit").map_or(usual, |limit| usize::try_from(limit).unwrap_or(usual))
}

fn limit_schema(usual: u64, most: u64) -> Value {
    schema::count(&format!("Maximum number of items (default {usual})"), 1, most)
}

fn cursor_schema() -> Value {
    schema::text("next_cursor of the page before")
}

fn point_schema(what: &str) -> Value {
    schema::text(what)
}

/// The step that a point names.
fn resolved(ground: &ToolContext<'_>, point: &str) -> Result<StepRow, ToolError> {
    Ok(ground.workspace.resolve(point, ground.now, &TimeZone::system)?)
}

/// The moment of a board that a point names; the present if there is no point.
fn moment(ground: &ToolContext<'_>, point: Option<&str>) -> Result<BoardMoment, ToolError> {
    match point {
        None => Ok(BoardMoment::Now),
        Some(point) => {
            Ok(stepback_board::resolve_moment(ground.workspace, point, ground.now, &TimeZone::system)?)
        }
    }
}

/// A point in time as a user writes it.
fn time(ground: &ToolContext<'_>, args: &Args, name: &str) -> Result<Option<Timestamp>, ToolError> {
    let parse = |text| {
        stepback_model::time_expr::parse(text, ground.now, &TimeZone::system()).map_err(|error| {
            ToolError::new(format!("{name}: {error}"))
                .hint("use 2 hours ago, yesterday 14:00 or 2026-01-23T12:00")
        })
    };
    args.text(name).map(parse).transpose()
}

/// The first line of a text, cut to `most` characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    clip::first(text.lines().next().unwrap_or_default(), most)
}

/// A step as one entry of a list.
pub(crate) fn brief(stored: &StepRow) -> Value {
    let (checkpoint, step) = (&stored, &stored.step);
    let mut brief = json!({
        "step": step.number,
        "kind": step.kind.as_str(),
        "at": step.at,
        "summary": short(&step.summary, MAX_SUMMARY_CHARS),
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
fn brief_schema() -> Value {
    schema::object(
        &[
            ("step", schema::whole("")),
            ("kind", schema::text("")),
            ("at", schema::text("")),
            ("summary", schema::text("")),
            ("tool", schema::text("The tool or model")),
            ("failed", schema::flag("")),
            ("checkpoint", schema::flag("Its files are kept")),
            ("label", schema::text("")),
        ],
        &["step", "kind", "at", "summary"],
    )
}

/// [`brief`] as a line of text.
pub(crate) fn brief_line(stored: &StepRow, now: Timestamp) -> String {
    let (checkpoint, step) = (&stored, &stored.step);
    let summary = short(&step.summary, MAX_SUMMARY_CHARS);
    let tool = step.meta.tool.as_ref().map_or(String::new(), |tool| format!(" {tool}"));
    let failed = if step.meta.failed { " FAILED" } else { "" };
    let label = checkpoint.annotation.label.as_ref().map_or(String::new(), |label| format!(" \"{label}\""));
    format!("#{} {} {}{tool}{failed}{label}: {summary}", step.number, step.at.ago(now), step.kind.as_str())
}

/// Changes the board of the session that a call is about.
fn change_board(ground: &ToolContext<'_>, mutation: &BoardMutation) -> Result<ToolReply, ToolError> {
    let session = ground.session()?;
    Ok(edit_reply(&BoardEditor::new(ground.workspace, &session).apply(mutation)?))
}

/// The reply to a change of a board.
fn edit_reply(edit: &BoardEdit) -> ToolReply {
    let mut structured = json!({
        "item": edit.effect.item,
        "said": edit.effect.said,
        "step": edit.step,
    });
    if let Some(checkpoint) = edit.checkpoint {
        structured["checkpoint"] = json!(checkpoint);
    }
    ToolReply { text: edit.effect.said.join("\n"), structured }
}

/// The schema of [`edit_reply`].
fn edit_schema() -> Value {
    schema::object(
        &[
            ("item", schema::text("What was created or changed")),
            ("said", schema::texts("")),
            ("step", schema::whole("For mind_undo")),
            ("checkpoint", schema::whole("Made for it")),
        ],
        &["item", "said", "step"],
    )
}

/// The value of a word; the schema has already checked that it is one of those allowed.
fn parsed<T>(what: Option<T>, name: &str) -> Result<T, ToolError> {
    what.ok_or_else(|| ToolError::new(format!("\"{name}\" has an unknown value")))
}

/// All words of a kind, for a schema.
fn words<T: Copy>(all: &[T], text: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|word| text(*word)).collect()
}
