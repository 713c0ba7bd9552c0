//! Parses text to a [`PointExpr`].

use std::ops::Range;

use super::{Anchor, MAX_BYTES, Nth, PointError, PointExpr, is_number};
use crate::nearest::edit_distance;
use crate::time_expr::TimeExpr;

/// The words that can stand before a colon, each with a complete example.
const KINDS: [(&str, &str); 8] = [
    ("error", "error:last"),
    ("tool", "tool:bash:last"),
    ("tag", "tag:release:last"),
    ("iteration", "iteration:5"),
    ("label", "label:before-refactor"),
    ("id", "id:4f2a"),
    ("branch", "branch:main"),
    ("time", "time:yesterday 14:00"),
];

/// Examples shown in error messages.
const EXAMPLES: [&str; 5] = ["@", "@-1", "#42", "error:last", "2 hours ago"];

/// Longest id or session id, in characters.
const MAX_ID: usize = 64;

pub(super) fn parse(text: &str) -> Result<PointExpr, PointError> {
    if text.len() > MAX_BYTES {
        let end = text.floor_char_boundary(60);
        let what = format!("it has {} bytes, more than {MAX_BYTES}", text.len());
        return Err(PointError::new(format!("{}…", &text[..end]), end..end, what));
    }
    if let Some((offset, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
        let what = "it contains a control character";
        return Err(PointError::new(text, offset..offset + c.len_utf8(), what));
    }
    let start = text.len() - text.trim_start().len();
    let input = PointCursor { text, offset: start, end: start + text.trim().len() };
    if input.remaining().is_empty() {
        return Err(PointError::new(text, 0..text.len(), "it is empty").suggest(EXAMPLES));
    }
    input.parse_point()
}

/// A cursor: the whole text of the point, and the offset of the part that is still to be parsed.
#[derive(Clone, Copy)]
struct PointCursor<'a> {
    text: &'a str,
    offset: usize,
    end: usize,
}

impl<'a> PointCursor<'a> {
    fn remaining(self) -> &'a str {
        &self.text[self.offset..self.end]
    }

    /// The input after its first `bytes` bytes.
    fn skip(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }

    fn error(self, span: Range<usize>, what: impl Into<String>) -> PointError {
        PointError::new(self.text, span, what)
    }

    /// An error about everything that is left.
    fn rest_error(self, what: impl Into<String>) -> PointError {
        self.error(self.offset..self.end, what)
    }

    /// An error about what follows a complete point.
    fn trailing_error(self) -> PointError {
        let complete_point = self.text[..self.offset].trim();
        self.rest_error(format!("{:?} does not belong after {complete_point:?}", self.remaining()))
            .suggest([complete_point])
    }

    fn parse_point(self) -> Result<PointExpr, PointError> {
        if self.remaining().starts_with('"') {
            let (name, cursor) = self.parse_quoted()?;
            return if cursor.remaining().is_empty() {
                Ok(Anchor::text(name).into())
            } else {
                Err(cursor.trailing_error())
            };
        }
        if let Some(point) = self.parse_selector(None)? {
            return Ok(point);
        }
        if let Some((session, _)) = self.remaining().split_once('#')
            && is_session(session)
        {
            let selected = self.skip(session.len());
            let number = selected.skip(1);
            if number.remaining().is_empty() {
                return Err(number
                    .rest_error("a step number is missing after \"#\"")
                    .suggest([format!("{session}#1")]));
            }
            // A second `#`, as in `ab12##42`, is not allowed.
            let point = if number.remaining().starts_with('#') {
                None
            } else {
                number.parse_selector(Some(session))?
            };
            return match point {
                Some(point) => Ok(point),
                None => selected.parse_step(Some(session)),
            };
        }
        self.parse_bare_text()
    }

    /// Parses everything but bare text: `@`, `#n` and `kind:…`. With a session, only anchors that are searched within one.
    fn parse_selector(self, session: Option<&str>) -> Result<Option<PointExpr>, PointError> {
        match self.remaining().as_bytes().first() {
            Some(b'@') => {
                let back = self.skip(1).parse_steps_back("now")?;
                return Ok(Some(PointExpr {
                    session: session.map(str::to_owned),
                    anchor: Anchor::Now,
                    back,
                }));
            }
            Some(b'#') => return self.parse_step(session).map(Some),
            _ => {}
        }
        let Some((kind, _)) = self.remaining().split_once(':') else { return Ok(None) };
        let Some((kind, example)) = KINDS.iter().find(|(name, _)| *name == kind) else { return Ok(None) };
        let anchor = self.skip(kind.len() + 1).parse_anchor(kind, example)?;
        if session.is_some() && !anchor.is_in_session() {
            let what = format!("\"{kind}:\" does not depend on a session");
            return Err(self
                .error(self.offset..self.offset + kind.len() + 1, what)
                .suggest([self.remaining()]));
        }
        Ok(Some(PointExpr { session: session.map(str::to_owned), anchor, back: 0 }))
    }

    /// Parses `#42` or `#42-3`.
    fn parse_step(self, session: Option<&str>) -> Result<PointExpr, PointError> {
        let input = self.skip(1);
        let prefix = session.unwrap_or("");
        if input.remaining().is_empty() {
            return Err(input.rest_error("a step number is missing after \"#\"").suggest(["#42"]));
        }
        let digits = input.count_digits();
        if digits == 0 {
            let word =
                input.remaining().find('-').filter(|offset| *offset > 0).unwrap_or(input.remaining().len());
            let span = input.offset..input.offset + word;
            let what = format!("{:?} is not a step number", &self.text[span.clone()]);
            return Err(input.error(span, what).suggest([format!("{prefix}#42")]));
        }
        let number = input.parse_number(digits, "steps are numbered from 1", &format!("{prefix}#1"))?;
        let back = input.skip(digits).parse_steps_back(&format!("#{number}"))?;
        Ok(PointExpr { session: session.map(str::to_owned), anchor: Anchor::Step(number), back })
    }

    /// Parses `-N`, how many steps before `origin`; 0 if nothing follows. As in git and jj, `-` and `~` alone are one step, and so
    /// is every `^`.
    fn parse_steps_back(self, origin: &str) -> Result<u64, PointError> {
        let prefix = self.text[..self.offset].trim();
        let remaining = self.remaining();
        if matches!(remaining, "-" | "~") {
            return Ok(1);
        }
        if !remaining.is_empty() && remaining.bytes().all(|byte| byte == b'^') {
            return Ok(remaining.len() as u64);
        }
        let Some(input) = remaining.strip_prefix(['-', '~']).map(|_| self.skip(1)) else {
            return if self.remaining().is_empty() {
                Ok(0)
            } else if self.remaining().starts_with('+') {
                let example = format!("{prefix}-1");
                Err(self
                    .rest_error(format!("a point goes back from {origin}, never forward"))
                    .suggest([example]))
            } else {
                Err(self.trailing_error())
            };
        };
        let digits = input.count_digits();
        if digits == 0 {
            let what = format!("a number of steps is missing after \"{}\"", &remaining[..1]);
            return Err(input.rest_error(what).suggest([format!("{prefix}-1")]));
        }
        if digits < input.remaining().len() {
            return Err(input.skip(digits).trailing_error());
        }
        let too_large = |_| input.rest_error("this number is too large").suggest([format!("{prefix}-1")]);
        input.remaining().parse().map_err(too_large)
    }

    /// Number of ASCII digits at the start of the remaining text.
    fn count_digits(self) -> usize {
        self.remaining().bytes().take_while(u8::is_ascii_digit).count()
    }

    /// The first `digits` digits as a number from 1.
    fn parse_number(self, digits: usize, from_one: &str, example: &str) -> Result<u64, PointError> {
        let span = self.offset..self.offset + digits;
        match self.text[span.clone()].parse() {
            Ok(0) => Err(self.error(span, from_one).suggest([example])),
            Ok(number) => Ok(number),
            Err(_) => Err(self.error(span, "this number is too large").suggest([example])),
        }
    }

    /// Parses what follows `kind:`.
    fn parse_anchor(self, kind: &str, example: &str) -> Result<Anchor, PointError> {
        match kind {
            "error" => Ok(Anchor::Error(self.parse_nth(kind, example)?)),
            "tool" => self.parse_named(kind, example).map(|(name, nth)| Anchor::Tool { name, nth }),
            "tag" => self.parse_named(kind, example).map(|(tag, nth)| Anchor::Tag { tag, nth }),
            "iteration" => {
                let digits = self.count_digits();
                if digits == 0 || digits < self.remaining().len() {
                    let what = if self.remaining().is_empty() {
                        "a number is missing after \"iteration:\"".to_owned()
                    } else {
                        format!("{:?} is not the number of an iteration", self.remaining())
                    };
                    return Err(self.rest_error(what).suggest([example]));
                }
                Ok(Anchor::Iteration(self.parse_number(
                    digits,
                    "iterations are numbered from 1",
                    "iteration:1",
                )?))
            }
            "id" => {
                let id = self.remaining().to_ascii_lowercase();
                if id.is_empty() {
                    return Err(self.rest_error("an id is missing after \"id:\"").suggest([example]));
                }
                if id.len() > MAX_ID || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    let what = "an id consists of the digits 0-9 and a-f";
                    return Err(self.rest_error(what).suggest([example]));
                }
                Ok(Anchor::Id(id))
            }
            _ => {
                let (name, start) = self.parse_whole_name(kind, example)?;
                Ok(match kind {
                    "label" => Anchor::Label(name),
                    "branch" => Anchor::Branch(name),
                    _ => {
                        if let Err(error) = TimeExpr::parse(&name) {
                            // Escapes shift the positions after them; then the error marks the whole text.
                            let literal = self.text[start..].starts_with(&name);
                            let mut error = error;
                            if !literal {
                                error.span = 0..self.end - start;
                            }
                            error.suggestions =
                                error.suggestions.iter().map(|s| format!("time:{s}")).collect();
                            return Err(PointError::from_time(self.text, start, error));
                        }
                        Anchor::Time(name)
                    }
                })
            }
        }
    }

    /// A name that takes all the remaining text, quoted or not, and where it starts.
    fn parse_whole_name(self, kind: &str, example: &str) -> Result<(String, usize), PointError> {
        let input = self.skip(self.remaining().len() - self.remaining().trim_start().len());
        let (name, cursor) = if input.remaining().starts_with('"') {
            let (name, cursor) = input.parse_quoted()?;
            (name, cursor)
        } else {
            (input.remaining().to_owned(), input.skip(input.remaining().len()))
        };
        if name.is_empty() {
            let what = format!(
                "a {} is missing after \"{kind}:\"",
                if kind == "branch" { "branch name" } else { kind }
            );
            return Err(self.rest_error(what).suggest([example]));
        }
        if !cursor.remaining().is_empty() {
            return Err(cursor.trailing_error());
        }
        let start = input.offset + usize::from(input.remaining().starts_with('"'));
        Ok((name, start))
    }

    /// Parses `NAME` or `NAME:nth`, which follows `kind:`. Without `nth` it is the last.
    fn parse_named(self, kind: &str, example: &str) -> Result<(String, Nth), PointError> {
        let (name, cursor) = if self.remaining().starts_with('"') {
            self.parse_quoted()?
        } else {
            let len = self.remaining().find(':').unwrap_or(self.remaining().len());
            (self.remaining()[..len].trim().to_owned(), self.skip(len))
        };
        if name.is_empty() {
            let what =
                format!("a {} is missing after \"{kind}:\"", if kind == "tool" { "tool name" } else { kind });
            return Err(self.error(self.offset..cursor.offset, what).suggest([example]));
        }
        if cursor.remaining().is_empty() {
            return Ok((name, Nth::Last));
        }
        if !cursor.remaining().starts_with(':') {
            return Err(cursor.trailing_error());
        }
        let prefix = cursor.text[..cursor.offset].trim();
        let nth = cursor.skip(1).parse_nth(kind, &format!("{prefix}:last"))?;
        Ok((name, nth))
    }

    /// Parses what follows `NAME:`: `first`, `last` or a number from 1.
    fn parse_nth(self, kind: &str, example: &str) -> Result<Nth, PointError> {
        let digits = self.count_digits();
        match self.remaining() {
            "first" => Ok(Nth::First),
            "last" => Ok(Nth::Last),
            remaining if digits > 0 && digits == remaining.len() => {
                let prefix = self.text[..self.offset].trim();
                Ok(Nth::Number(self.parse_number(
                    digits,
                    "calls, errors and tags are numbered from 1",
                    &format!("{prefix}first"),
                )?))
            }
            "" => Err(self.rest_error("\"first\", \"last\" or a number is missing").suggest([example])),
            remaining => {
                let mut error =
                    self.rest_error(format!("{remaining:?} is neither \"first\" nor \"last\" nor a number"));
                error.suggestions.push(example.to_owned());
                if kind != "error" && remaining.contains(':') {
                    error.what = "a name with a colon is written in quotes".into();
                    error.suggestions = vec![format!("{kind}:\"a:b\":last")];
                }
                Err(error)
            }
        }
    }

    /// A text in double quotes, and the input after it.
    fn parse_quoted(self) -> Result<(String, Self), PointError> {
        let mut name = String::new();
        let mut chars = self.remaining().char_indices().skip(1);
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' if name.is_empty() => {
                    return Err(self
                        .error(self.offset..self.offset + offset + 1, "there is nothing between the quotes")
                        .suggest(EXAMPLES));
                }
                '"' => return Ok((name, self.skip(offset + 1))),
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => name.push(c),
                    _ => {
                        let what = "in quotes, \"\\\" must be followed by a quote or another \"\\\"";
                        return Err(self.error(self.offset + offset..self.offset + offset + 1, what));
                    }
                },
                c => name.push(c),
            }
        }
        Err(self.error(self.offset..self.offset + 1, "the quote is not closed"))
    }

    /// Bare text: anything that does not look like a mistyped other form.
    fn parse_bare_text(self) -> Result<PointExpr, PointError> {
        let text = self.remaining();
        if is_number(text) {
            let number =
                self.parse_number(text.len(), "steps are numbered from 1", "#1").map_err(|mut error| {
                    error.suggestions.push(format!("id:{text}"));
                    error
                })?;
            return Ok(Anchor::Step(number).into());
        }
        let anchor = Anchor::text(text);
        if matches!(anchor, Anchor::Text { is_time: true, .. }) {
            return Ok(anchor.into());
        }
        if let Some(number) = text.strip_prefix('-')
            && number.parse::<u64>().is_ok()
        {
            return Err(self.rest_error("steps back start from somewhere").suggest([format!("@{text}")]));
        }
        if let Some((kind, remaining)) = text.split_once(':') {
            let nearest =
                KINDS.iter().map(|(name, _)| (edit_distance(&kind.to_ascii_lowercase(), name), name)).min();
            if let Some((distance, name)) = nearest
                && distance <= if name.len() > 3 { 2 } else { 1 }
                && distance < kind.len()
            {
                let span = self.offset..self.offset + kind.len();
                let what = format!("\"{kind}:\" is not a kind of point");
                let suggestions = [format!("{name}:{remaining}"), format!("label:{text}")];
                return Err(self.error(span, what).suggest(suggestions));
            }
        }
        Ok(anchor.into())
    }
}

/// Whether this can be the id of a session or a prefix of one.
fn is_session(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_ID
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
