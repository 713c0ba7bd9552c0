//! Finds rules in `.stepbackignore` files that are invalid or match nothing, for a report.
//!
//! A scan ignores invalid lines, as git does, so a typing error excludes nothing without a message. This walks the directory
//! by itself, because what an excluded directory contains is in no stored tree.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::rules::RULE_FILE;

/// At most this many entries are visited.
const MAX_ENTRIES: usize = 200_000;
/// A rule file is not longer than this, in bytes; a scan reads no more of it either.
const MAX_RULE_BYTES: u64 = 1 << 20;

/// What is wrong with a line of a rule file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleProblem {
    /// It is not a valid pattern, with the reason; a scan ignores it.
    Invalid(String),
    /// It matches nothing at present.
    MatchesNothing,
}

/// A line that does nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdleRule {
    /// The rule file, relative to the workspace.
    pub file: PathBuf,
    /// The number of the line, from 1.
    pub line: usize,
    /// The pattern.
    pub pattern: String,
    /// Why it does nothing.
    pub problem: RuleProblem,
}

/// The result of [`check_rules`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleReport {
    /// Number of rule files.
    pub files: usize,
    /// Number of patterns in them.
    pub patterns: usize,
    /// Lines that do nothing.
    pub idle: Vec<IdleRule>,
    /// Rule files that cannot be read, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Whether everything was visited. If not, lines without a match are not listed.
    pub is_complete: bool,
}

/// A pattern whose matches are being searched for.
struct PatternSearch {
    /// The directory of the rule file, relative to the root.
    dir: PathBuf,
    file: PathBuf,
    line: usize,
    pattern: String,
    matcher: Gitignore,
    has_match: bool,
}

/// Checks every `.stepbackignore` below `root`.
pub fn check_rules(root: &Path) -> RuleReport {
    let mut report = RuleReport { is_complete: true, ..RuleReport::default() };
    let mut patterns: Vec<PatternSearch> = Vec::new();
    let mut rest = vec![PathBuf::new()];
    let mut visited = 0;
    while let Some(dir) = rest.pop() {
        if !read_rules(root, &dir, &mut patterns, &mut report) && patterns.is_empty() && dir == Path::new("")
        {
            // Without rules at the root there may still be some below; but only the root is searched for the first ones,
            // because a walk of a large tree for nothing takes long.
            return report;
        }
        // What cannot be listed is reported by the scan.
        let Ok(entries) = fs::read_dir(root.join(&dir)) else { continue };
        for entry in entries.flatten() {
            visited += 1;
            if visited > MAX_ENTRIES {
                report.is_complete = false;
                rest.clear();
                break;
            }
            let path = dir.join(entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            for pattern in patterns.iter_mut().filter(|pattern| !pattern.has_match) {
                let Ok(inside) = path.strip_prefix(&pattern.dir) else { continue };
                pattern.has_match = !pattern.matcher.matched(inside, is_dir).is_none();
            }
            if is_dir && entry.file_name() != ".git" {
                rest.push(path);
            }
        }
    }
    report.patterns += patterns.len();
    let silent = patterns.into_iter().filter(|pattern| !pattern.has_match);
    let silent = silent.map(|pattern| IdleRule {
        file: pattern.file,
        line: pattern.line,
        pattern: pattern.pattern,
        problem: RuleProblem::MatchesNothing,
    });
    if report.is_complete {
        report.idle.extend(silent);
    }
    report.idle.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    report
}

/// Reads the rule file of a directory, if there is one.
fn read_rules(root: &Path, dir: &Path, patterns: &mut Vec<PatternSearch>, report: &mut RuleReport) -> bool {
    let file = dir.join(OsStr::from_bytes(RULE_FILE));
    let path = root.join(&file);
    let Ok(metadata) = fs::symlink_metadata(&path) else { return false };
    report.files += 1;
    if !metadata.is_file() || metadata.len() > MAX_RULE_BYTES {
        let why = if metadata.is_file() { "it is longer than 1 MiB" } else { "it is not a regular file" };
        report.unreadable.push((file, why.to_owned()));
        return true;
    }
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) => {
            report.unreadable.push((file, error.to_string()));
            return true;
        }
    };
    for (at, line) in String::from_utf8_lossy(&text).lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut builder = GitignoreBuilder::new("");
        let built = builder.add_line(None, line).map(|_| ()).and_then(|()| builder.build());
        match built {
            Ok(matcher) => patterns.push(PatternSearch {
                dir: dir.to_owned(),
                file: file.clone(),
                line: at + 1,
                pattern: line.to_owned(),
                matcher,
                has_match: false,
            }),
            Err(error) => {
                report.patterns += 1;
                report.idle.push(IdleRule {
                    file: file.clone(),
                    line: at + 1,
                    pattern: line.to_owned(),
                    problem: RuleProblem::Invalid(error.to_string()),
                });
            }
        }
    }
    true
}
