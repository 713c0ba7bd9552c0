//! Points: expressions that name a moment. One grammar for the command line, HTTP, the TUI, MCP and DAP.
//!
//! This module parses and prints points; the resolver in the engine finds the step that a point names.
//!
//! | text | meaning |
//! |---|---|
//! | `@` | now |
//! | `@-3` | three steps before now |
//! | `#42`, `42`, `#42-3` | step 42 of the workspace; three steps before it |
//! | `ab12#42` | step 42 of the session whose id starts with `ab12` |
//! | `ab12#@`, `ab12#error:last`, … | the same selectors, in that session |
//! | `error:last`, `error:first`, `error:2` | an error step; `error:2` is the second |
//! | `tool:bash:last`, `tool:bash`, `tool:bash:2` | the start of a call of that tool; the last unless it says otherwise |
//! | `tag:q4_0:last`, `tag:q4_0` | a checkpoint with that tag; the last unless it says otherwise |
//! | `iteration:5` | a model turn |
//! | `label:NAME`, `id:4f2a`, `branch:NAME`, `time:TEXT` | exactly that, nothing else |
//! | anything else | a label, an id or its prefix, a branch, or a time such as `2 hours ago` |
//!
//! # Bare text
//!
//! `monday` may be a label, `2026-01-23` a branch, `4f2a` an id. Only the resolver knows which labels there are, so bare
//! text becomes [`Anchor::Text`], which says whether it also reads as a moment. The resolver tries, in this order: an
//! exact label, an id or its prefix ([`is_id_prefix`]), a branch, and then the moment, if
//! [`is_time`](Anchor::Text::is_time). A prefix (`label:`, `time:`, …) takes the guessing away.
//!
//! Digits alone are a step number and nothing else, however many ids start with them: `4047` is `#4047`. `id:4047` names
//! an id, `label:4047` a label.
//!
//! # Steps back
//!
//! `-N` after `@` and `#n` goes back along the history. It works on nothing else, because labels end in numbers
//! (`before-refactor-2`). `@-0` is `@`. There is no way forward: nothing comes after now.
//!
//! # Quotes
//!
//! A name with a colon, a quote or spaces at its ends, and a bare text that would mean something else, is written in double
//! quotes with `\"` and `\\` inside: `tag:"env:prod":last`, `"#42"` (a label that looks like a step). Quotes around a
//! whole expression make it bare text: `"2 hours ago"` is `2 hours ago`.

mod error;
mod parse;
#[cfg(test)]
mod tests;

pub use error::PointError;

use std::fmt;
use std::str::FromStr;

use crate::time_expr::TimeExpr;

/// Longest text of a point, in bytes.
pub const MAX_BYTES: usize = 1000;

/// Number of digits of a whole id.
pub const FULL_ID: usize = 32;

/// Fewest digits of an id that name it without `id:`.
const MIN_ID_PREFIX: usize = 4;

/// Whether bare text is a number and nothing else: digits alone, fewer than a whole id has.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < FULL_ID && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether bare text can be the prefix of an id: four or more hex digits, one of which is a letter, or a whole id. Digits
/// alone are a number.
pub fn is_id_prefix(text: &str) -> bool {
    text.len() >= MIN_ID_PREFIX
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        && (text.len() == FULL_ID || text.bytes().any(|byte| byte.is_ascii_alphabetic()))
}

/// An expression that names a moment.
///
/// Made by [`PointExpr::parse`]. Its [`Display`](fmt::Display) is the canonical text, which parses to the same value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PointExpr {
    /// The session it is about, as an id or a prefix of one; the current session if `None`. Only with anchors that are
    /// selected inside a session ([`Anchor::is_in_session`]).
    pub session: Option<String>,
    /// The starting point.
    pub anchor: Anchor,
    /// How many steps before the anchor. Only for [`Anchor::Now`] and [`Anchor::Step`], otherwise 0.
    pub back: u64,
}

/// The starting point of an expression.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Anchor {
    /// `@`: now.
    Now,
    /// `#42`: a step by number, from 1.
    Step(u64),
    /// Bare text: a label, an id or id prefix, a branch or, if `is_time`, a moment; tried in that order.
    Text {
        /// The text, without quotes.
        name: String,
        /// Whether it reads as a moment ([`crate::time_expr`]).
        is_time: bool,
    },
    /// `label:NAME`: the checkpoint with this label.
    Label(String),
    /// `id:4f2a`: the step with this id or the only one whose id starts with it. Lower-case hex digits.
    Id(String),
    /// `branch:NAME`: the head of a branch.
    Branch(String),
    /// `time:TEXT`: the last step up to a moment. The text is known to read as one ([`crate::time_expr::TimeExpr::parse`]).
    Time(String),
    /// `error:last`: an error step.
    Error(Nth),
    /// `tool:NAME:last`: the start of a call of a tool, which is the moment before its effect.
    Tool {
        /// The tool's name.
        name: String,
        /// Which of its calls.
        nth: Nth,
    },
    /// `iteration:5`: a model turn by number, from 1.
    Iteration(u64),
    /// `tag:NAME:last`: a checkpoint with a tag.
    Tag {
        /// The tag.
        tag: String,
        /// Which of the checkpoints with this tag.
        nth: Nth,
    },
}

/// Selects one of several, in the order they happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nth {
    /// The first.
    First,
    /// The last.
    Last,
    /// By number from the first, which is 1. Number 1 is written `1` and means the same as [`Nth::First`].
    Number(u64),
}

impl Anchor {
    /// Bare text; determines whether it also reads as a moment.
    pub fn text(name: impl Into<String>) -> Self {
        let name = name.into();
        let is_time = TimeExpr::parse(&name).is_ok();
        Self::Text { name, is_time }
    }

    /// Whether it is searched within one session, so that a session can be named before it.
    pub fn is_in_session(&self) -> bool {
        match self {
            Self::Now
            | Self::Step(_)
            | Self::Error(_)
            | Self::Tool { .. }
            | Self::Iteration(_)
            | Self::Tag { .. } => true,
            Self::Text { .. } | Self::Label(_) | Self::Id(_) | Self::Branch(_) | Self::Time(_) => false,
        }
    }
}

impl From<Anchor> for PointExpr {
    fn from(anchor: Anchor) -> Self {
        Self { session: None, anchor, back: 0 }
    }
}

/// Qualifies a point for a view of one session: an error, a call or a turn then refers to that session.
pub fn in_session(point: &str, session: &str) -> String {
    let of_session = PointExpr::parse(point).is_ok_and(|parsed| {
        parsed.session.is_none()
            && matches!(parsed.anchor, Anchor::Error(_) | Anchor::Tool { .. } | Anchor::Iteration(_))
    });
    if of_session { format!("{session}#{point}") } else { point.to_owned() }
}

impl PointExpr {
    /// The point `@`.
    pub const NOW: PointExpr = PointExpr { session: None, anchor: Anchor::Now, back: 0 };

    /// Parses the text of a point.
    pub fn parse(text: &str) -> Result<Self, PointError> {
        parse::parse(text)
    }
}

impl FromStr for PointExpr {
    type Err = PointError;

    fn from_str(text: &str) -> Result<Self, PointError> {
        Self::parse(text)
    }
}

impl fmt::Display for PointExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.session, &self.anchor) {
            (session, Anchor::Step(number)) => write!(f, "{}#{number}", session.as_deref().unwrap_or(""))?,
            (Some(session), anchor) => write!(f, "{session}#{anchor}")?,
            (None, anchor) => write!(f, "{anchor}")?,
        }
        if self.back > 0 { write!(f, "-{}", self.back) } else { Ok(()) }
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("@"),
            Self::Step(number) => write!(f, "#{number}"),
            Self::Text { name, .. } => {
                let needs_no_prefix = matches!(parse::parse(name), Ok(point) if point.anchor == *self);
                if needs_no_prefix { f.write_str(name) } else { write_quoted(f, name) }
            }
            Self::Label(name) => write_name(f, "label", name, false),
            Self::Id(id) => write!(f, "id:{id}"),
            Self::Branch(name) => write_name(f, "branch", name, false),
            Self::Time(text) => write_name(f, "time", text, false),
            Self::Error(nth) => write!(f, "error:{nth}"),
            Self::Tool { name, nth } => {
                write_name(f, "tool", name, true)?;
                write!(f, ":{nth}")
            }
            Self::Iteration(number) => write!(f, "iteration:{number}"),
            Self::Tag { tag, nth } => {
                write_name(f, "tag", tag, true)?;
                write!(f, ":{nth}")
            }
        }
    }
}

impl fmt::Display for Nth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Last => f.write_str("last"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Writes `kind:name`, quoted if needed. A name that is followed by more ends at a colon.
fn write_name(f: &mut fmt::Formatter<'_>, kind: &str, name: &str, followed: bool) -> fmt::Result {
    write!(f, "{kind}:")?;
    let needs_no_quotes = name.trim() == name && !name.starts_with('"') && !(followed && name.contains(':'));
    if needs_no_quotes { f.write_str(name) } else { write_quoted(f, name) }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

impl serde::Serialize for PointExpr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for PointExpr {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::from_text::from_text(deserializer, Self::parse)
    }
}
