//! Turns bytes of a line into characters with colours that are safe to print.
//!
//! This is the only way content reaches a terminal: every control character, direction override and invisible character
//! becomes a visible escape here, and bytes that are not UTF-8 become `\xff`.

use std::io::{self, Write};
use std::ops::Range;

use anstyle::{Ansi256Color, AnsiColor, Color, Style as Paint};
use stepback_model::escape::{escape, is_hidden};
use unicode_width::UnicodeWidthChar;

use super::DiffStyle;

/// The role of a line in a diff.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// The line is unchanged.
    Context,
    /// The line exists only after the change.
    Added,
    /// The line existed only before the change.
    Removed,
}

impl LineKind {
    /// The character in front of the line.
    pub fn sign(self) -> char {
        match self {
            Self::Context => ' ',
            Self::Added => '+',
            Self::Removed => '-',
        }
    }
}

/// Runs of syntax colours: each ends at a byte of the line; `None` is the default colour.
pub(super) type Colors = [(usize, Option<Color>)];

/// What a line looks like besides its text.
#[derive(Clone, Copy, Default)]
pub(super) struct LineMarks<'a> {
    /// Syntax colours.
    pub colors: &'a Colors,
    /// Ranges of changed words, in order.
    pub words: &'a [Range<usize>],
}

/// The colours. Each is plain if colours are off.
pub(super) struct Palette;

impl Palette {
    /// The lines above the hunks.
    pub fn header(style: &DiffStyle) -> Paint {
        if style.color { Paint::new().bold() } else { Paint::new() }
    }

    /// The `@@` lines.
    pub fn hunk(style: &DiffStyle) -> Paint {
        if style.color { AnsiColor::Cyan.on_default() } else { Paint::new() }
    }

    /// Line numbers and marks that are not content.
    pub fn dimmed(style: &DiffStyle) -> Paint {
        if style.color { Paint::new().dimmed() } else { Paint::new() }
    }

    /// Returns the style of a line's text.
    ///
    /// Highlighted syntax uses the foreground colours, so changes are shown by a background. Since the background is
    /// ours, the foreground must be ours too: a theme of the terminal could be unreadable on it.
    pub fn line(kind: LineKind, word: bool, style: &DiffStyle) -> Paint {
        if !style.color {
            return Paint::new();
        }
        let back = |plain: u8, word_back: u8| {
            let back = Ansi256Color(if word { word_back } else { plain });
            Paint::new().fg_color(Some(Ansi256Color(255).into())).bg_color(Some(back.into()))
        };
        let front = |color: AnsiColor| {
            let paint = color.on_default();
            if word { paint.invert() } else { paint }
        };
        match (kind, style.highlight) {
            (LineKind::Context, _) => Paint::new(),
            (LineKind::Added, true) => back(22, 28),
            (LineKind::Removed, true) => back(52, 88),
            (LineKind::Added, false) => front(AnsiColor::Green),
            (LineKind::Removed, false) => front(AnsiColor::Red),
        }
    }
}

/// One printable unit with its colour.
pub(super) struct Glyph {
    pub text: GlyphText,
    pub paint: Paint,
}

/// What is printed.
pub(super) enum GlyphText {
    /// A character as it is.
    Char(char),
    /// An escape for something that must not be printed.
    Escape(String),
}

impl Glyph {
    /// Columns it takes; a tab counts as one.
    pub fn width(&self) -> usize {
        match &self.text {
            GlyphText::Char(c) => c.width().unwrap_or(1),
            GlyphText::Escape(text) => text.len(),
        }
    }
}

/// A line, without its `\n`, as glyphs.
///
/// The `\r` of a Windows line ending is shown on changed lines only: there it may be the change.
pub(super) fn to_glyphs(line: &[u8], kind: LineKind, marks: LineMarks<'_>, style: &DiffStyle) -> Vec<Glyph> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = if kind == LineKind::Context { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    let mut glyphs = Vec::with_capacity(line.len());
    let (mut at, mut color, mut word) = (0, 0, 0);
    let [plain, emphasised] = [false, true].map(|word| Palette::line(kind, word, style));
    let mut push = |shown: GlyphText, len: usize| {
        while marks.colors.get(color).is_some_and(|(end, _)| *end <= at) {
            color += 1;
        }
        while marks.words.get(word).is_some_and(|range| range.end <= at) {
            word += 1;
        }
        let in_word = marks.words.get(word).is_some_and(|range| range.contains(&at));
        let mut paint = if in_word { emphasised } else { plain };
        if let Some((_, Some(color))) = marks.colors.get(color) {
            paint = paint.fg_color(Some(*color));
        }
        if style.color && matches!(shown, GlyphText::Escape(_)) {
            paint |= anstyle::Effects::INVERT;
        }
        glyphs.push(Glyph { text: shown, paint });
        at += len;
    };
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            push(if is_hidden(c) { GlyphText::Escape(escape(c)) } else { GlyphText::Char(c) }, c.len_utf8());
        }
        for byte in chunk.invalid() {
            push(GlyphText::Escape(format!("\\x{byte:02x}")), 1);
        }
    }
    glyphs
}

/// Writes glyphs, changing the colour only where it changes.
pub(super) fn write_glyphs(out: &mut Vec<u8>, glyphs: &[Glyph]) {
    for run in glyphs.chunk_by(|a, b| a.paint == b.paint) {
        let paint = run[0].paint;
        // Writing into memory cannot fail.
        let _ = write!(out, "{paint}");
        for glyph in run {
            match &glyph.text {
                GlyphText::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                GlyphText::Escape(text) => out.extend_from_slice(text.as_bytes()),
            }
        }
        let _ = write!(out, "{paint:#}");
    }
}

/// Writes text in one colour.
pub(super) fn write_styled(out: &mut dyn Write, text: &str, paint: Paint) -> io::Result<()> {
    write!(out, "{paint}{text}{paint:#}")
}
