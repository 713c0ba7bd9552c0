//! The tool `search`: a regular expression over the files of the workspace.

use std::fs;
use std::path::Path;

use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use regex::RegexBuilder;

use super::clip::clipped;
use super::path_guard;
use super::{ToolInput, ToolResult};

/// Largest file that is searched, in bytes.
const LARGEST: u64 = 4 << 20;
/// Most lines that are returned.
const MAX_MATCHES: usize = 500;
/// Longest part of a line that is returned, in characters.
const MAX_LINE_CHARS: usize = 300;
/// Largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Searches files, sorted by name. Files that git ignores are skipped.
pub fn search(root: &Path, given: &ToolInput<'_>) -> Result<ToolResult, String> {
    let pattern = given.text("pattern")?;
    let built =
        RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build();
    let regex = built.map_err(|error| format!("the pattern cannot be used: {error}"))?;
    let name = given.optional("path")?.unwrap_or(".");
    let below = path_guard::resolve_path(root, name)?;
    let root = root.canonicalize().map_err(|error| format!("cannot open the workspace: {error}"))?;
    let mut walk = WalkBuilder::new(&below);
    walk.hidden(false).require_git(false).follow_links(false).sort_by_file_name(Ord::cmp);
    let mut only = OverrideBuilder::new(&root);
    let globs = ["!.git"].into_iter().chain(given.optional("glob")?);
    for glob in globs {
        only.add(glob).map_err(|error| format!("the glob cannot be used: {error}"))?;
    }
    walk.overrides(only.build().map_err(|error| format!("the glob cannot be used: {error}"))?);
    let (mut found, mut more, mut passed_over) = (Vec::new(), 0, 0);
    for entry in walk.build().flatten() {
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        if entry.metadata().map_or(0, |facts| facts.len()) > LARGEST {
            passed_over += 1;
            continue;
        }
        let Ok(text) =
            fs::read(entry.path()).map_err(drop).and_then(|it| String::from_utf8(it).map_err(drop))
        else {
            passed_over += 1;
            continue;
        };
        let path = entry.path().strip_prefix(&root).unwrap_or(entry.path()).display();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| regex.is_match(line)) {
            if found.len() == MAX_MATCHES {
                more += 1;
                continue;
            }
            let line: String = line.chars().take(MAX_LINE_CHARS).collect();
            found.push(format!("{path}:{}: {line}", number + 1));
        }
    }
    if more > 0 {
        found.push(format!("[… {more} more lines left out …]"));
    }
    if found.is_empty() {
        found.push("[nothing found]".into());
    }
    if passed_over > 0 {
        found.push(format!("[not searched: {passed_over} files that are binary or too large]"));
    }
    Ok(ToolResult::good(clipped(&found.join("\n"))))
}
