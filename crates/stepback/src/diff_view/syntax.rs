//! Syntax colours for the lines of a diff.
//!
//! Grammars are loaded on first use only, because that takes longer than most diffs. Context lines use the sixteen
//! colours of the terminal's own theme; changed lines have a dark background of ours and use a dark theme on it.
//!
//! A grammar has to read a file from its first line to know whether line 900 is inside a comment. So the work is bounded
//! by bytes, per file and per rendering; beyond that, lines are shown without syntax colours.

use std::sync::OnceLock;

use anstyle::{Ansi256Color, AnsiColor, Color};
use syntect::highlighting::{Color as Rgb, HighlightIterator, HighlightState, Highlighter, Theme};
use syntect::parsing::{ParseState, ScopeStack, SyntaxSet};
use two_face::theme::EmbeddedThemeName;

use super::paint::LineKind;

/// Bytes highlighted in one file.
const MAX_FILE_BYTES: usize = 160 << 10;

/// Bytes highlighted in one rendering: about a second.
const MAX_RENDERING_BYTES: usize = 320 << 10;

/// A longer line is generated code, on which grammars are slow.
const MAX_LINE_BYTES: usize = 2000;

struct SyntaxAssets {
    syntaxes: SyntaxSet,
    terminal: Theme,
    dark: Theme,
}

fn load_assets() -> &'static SyntaxAssets {
    static ASSETS: OnceLock<SyntaxAssets> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let themes = two_face::theme::extra();
        SyntaxAssets {
            syntaxes: two_face::syntax::extra_newlines(),
            terminal: themes.get(EmbeddedThemeName::Ansi).clone(),
            dark: themes.get(EmbeddedThemeName::MonokaiExtended).clone(),
        }
    })
}

type ColorRuns = Vec<(usize, Option<Color>)>;

/// The colours of the lines of one file.
#[derive(Default)]
pub(super) struct FileColors {
    context: Vec<ColorRuns>,
    changed: Vec<ColorRuns>,
}

impl FileColors {
    /// The colours of a line; none if it was not highlighted.
    pub fn line_colors(&self, at: usize, kind: LineKind) -> &[(usize, Option<Color>)] {
        let lines = if kind == LineKind::Context { &self.context } else { &self.changed };
        lines.get(at).map_or(&[], Vec::as_slice)
    }
}

/// The number of bytes that may still be highlighted.
pub(super) struct HighlightBudget(usize);

impl HighlightBudget {
    /// Starts a rendering. With `on` false nothing is highlighted, and nothing is loaded.
    pub fn new(enabled: bool) -> Self {
        Self(if enabled { MAX_RENDERING_BYTES } else { 0 })
    }

    /// Highlights `lines` of the file called `path`, if they fit.
    pub fn highlight(&mut self, path: &str, lines: &[&[u8]]) -> FileColors {
        let size: usize = lines.iter().map(|line| line.len()).sum();
        if lines.is_empty() || size > MAX_FILE_BYTES || size > self.0 {
            return FileColors::default();
        }
        let Some(colored) = highlight_lines(load_assets(), path, lines) else { return FileColors::default() };
        self.0 -= size;
        colored
    }
}

fn highlight_lines(assets: &SyntaxAssets, path: &str, lines: &[&[u8]]) -> Option<FileColors> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let syntaxes = &assets.syntaxes;
    let syntax = syntaxes
        .find_syntax_by_extension(name)
        .or_else(|| syntaxes.find_syntax_by_extension(extension))
        .or_else(|| syntaxes.find_syntax_by_first_line(std::str::from_utf8(lines.first()?).ok()?))?;
    if syntax.name == "Plain Text" {
        return None;
    }
    let mut parser = ParseState::new(syntax);
    let themes = [&assets.terminal, &assets.dark].map(Highlighter::new);
    let mut states = themes.each_ref().map(|theme| HighlightState::new(theme, ScopeStack::new()));
    let mut colored = FileColors::default();
    for line in lines {
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= MAX_LINE_BYTES);
        // A grammar that fails, or a line it cannot read, costs the colours of that line only.
        let ops = text.and_then(|text| parser.parse_line(text, syntaxes).ok()).unwrap_or_default();
        let [terminal, dark] = &mut states;
        for (state, theme, runs) in
            [(terminal, &themes[0], &mut colored.context), (dark, &themes[1], &mut colored.changed)]
        {
            let mut end = 0;
            runs.push(
                HighlightIterator::new(state, &ops, text.unwrap_or(""), theme)
                    .map(|(style, piece)| {
                        end += piece.len();
                        (end, to_terminal_color(style.foreground))
                    })
                    .collect(),
            );
        }
    }
    Some(colored)
}

/// The colour for a terminal. Themes from `bat` mark the colours of the terminal's palette by their alpha: 0 is the
/// palette colour in `r`, 1 the default colour.
fn to_terminal_color(rgb: Rgb) -> Option<Color> {
    const PALETTE: [AnsiColor; 8] = [
        AnsiColor::Black,
        AnsiColor::Red,
        AnsiColor::Green,
        AnsiColor::Yellow,
        AnsiColor::Blue,
        AnsiColor::Magenta,
        AnsiColor::Cyan,
        AnsiColor::White,
    ];
    match rgb.a {
        0 => {
            Some(PALETTE.get(usize::from(rgb.r)).map_or(Ansi256Color(rgb.r).into(), |color| (*color).into()))
        }
        1 => None,
        // The colour cube of 256-colour terminals: more of them understand it than 24-bit colours.
        _ => {
            let step = |value: u8| (u16::from(value) * 5 + 127) / 255;
            let index = 16 + 36 * step(rgb.r) + 6 * step(rgb.g) + step(rgb.b);
            u8::try_from(index).ok().map(|index| Ansi256Color(index).into())
        }
    }
}
