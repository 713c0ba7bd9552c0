//! `cargo xtask tidy`: the architecture as a check instead of a promise.
//!
//! ARCHITECTURE.md names every crate and its layer; this task reads that table and fails when the code
//! disagrees, so the document cannot drift. It also keeps modules documented and small. All problems are
//! listed, not only the first. The layer rules themselves are in [`layers`].

mod layers;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;
use layers::Layers;

/// Files longer than this are split; a reader should be able to hold a module in mind.
const MAX_LINES: usize = 600;

/// Checks the workspace and lists every problem found.
pub fn run() -> Result<()> {
    let workspace = workspace::load()?;
    let mut problems = Vec::new();

    let architecture = workspace.root.join("ARCHITECTURE.md");
    match fs::read_to_string(&architecture) {
        Err(error) => problems.push(format!("ARCHITECTURE.md: cannot be read ({error}); write it")),
        Ok(text) => match Layers::parse(&text) {
            Err(problem) => problems.push(format!("ARCHITECTURE.md: {problem}")),
            Ok(layers) => problems.extend(layers.check(&workspace.crates)),
        },
    }

    let mut files = Vec::new();
    for member in &workspace.crates {
        rust_files(&member.directory.join("src"), &mut files)?;
    }
    files.sort();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let shown = file.strip_prefix(&workspace.root).unwrap_or(file);
        problems.extend(check_source(shown, &text));
    }

    if problems.is_empty() {
        eprintln!("tidy: {} crates and {} source files are in order.", workspace.crates.len(), files.len());
        return Ok(());
    }
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    let plural = if problems.len() == 1 { "problem" } else { "problems" };
    bail!("tidy found {} {plural}", problems.len())
}

fn check_source(file: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let documented = text
        .lines()
        .next()
        .is_some_and(|line| line.strip_prefix("//!").is_some_and(|doc| !doc.trim().is_empty()));
    if !documented {
        problems.push(format!(
            "{}:1: no module doc; open the file with `//!` and say what the module is for",
            file.display()
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!(
            "{}: {lines} lines, more than {MAX_LINES}; split the module by concern",
            file.display()
        ));
    }
    problems
}

fn rust_files(directory: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", directory.display())),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            rust_files(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        check_source(Path::new("a.rs"), text)
    }

    #[test]
    fn a_documented_short_file_passes() {
        assert!(problems("//! Counts things.\nfn main() {}\n").is_empty());
    }

    #[test]
    fn a_missing_or_empty_module_doc_is_reported() {
        assert!(problems("fn main() {}\n")[0].starts_with("a.rs:1: no module doc"));
        assert_eq!(problems("//!\nfn main() {}\n").len(), 1);
        assert_eq!(problems("// Not a doc.\n").len(), 1);
        assert_eq!(problems("").len(), 1);
    }

    #[test]
    fn a_file_over_the_limit_is_reported_and_one_at_the_limit_is_not() {
        let at_limit = format!("//! Long.\n{}", "\n".repeat(MAX_LINES - 1));
        assert!(problems(&at_limit).is_empty());
        assert!(problems(&format!("{at_limit}\n"))[0].contains("601 lines"));
    }
}
