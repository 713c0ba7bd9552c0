//! `cargo xtask tidy`: the architecture and the house rules as a check instead of a promise.
//!
//! ARCHITECTURE.md names every crate and its layer; this task reads that table and fails when the code
//! disagrees, so the document cannot drift. All problems are listed, not only the first. The rules are
//! in [`layers`] (edges between crates), [`source`] (files, functions, names) and [`deny`] (dependencies).

mod deny;
mod layers;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;
use layers::Layers;
use source::SourceFile;

/// Files whose types may be called like those of other crates: what the server answers, read back under its own names.
const EXEMPT_FROM_UNIQUE_NAMES: &[&str] = &["crates/tui/src/documents"];

/// Problems that are known, by file and words of the message. One that is solved has to leave this list.
const KNOWN: &[(&str, &str)] = &[];

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
        let mut paths = Vec::new();
        for folder in ["src", "tests", "examples"] {
            rust_files(&member.directory.join(folder), &mut paths)?;
        }
        for path in paths {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let path = path.strip_prefix(&workspace.root).unwrap_or(&path).to_string_lossy().into_owned();
            files.push(SourceFile { package: member.folder.clone(), path, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    problems.extend(without_known(files.iter().flat_map(SourceFile::check).collect(), KNOWN));
    problems.extend(source::check_type_names(&files, EXEMPT_FROM_UNIQUE_NAMES));
    problems.extend(deny::check(&workspace.root)?);

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

/// Takes known problems out, and reports those that are known and not there.
fn without_known(mut problems: Vec<String>, known: &[(&str, &str)]) -> Vec<String> {
    for (file, words) in known {
        let before = problems.len();
        problems.retain(|problem| !(problem.starts_with(file) && problem.contains(words)));
        if problems.len() == before {
            problems.push(format!(
                "{file}: no problem with {words} any more; remove it from KNOWN in xtask/src/tidy.rs"
            ));
        }
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

    #[test]
    fn a_known_problem_is_left_out_until_it_is_solved() {
        let problems =
            || vec!["a.rs:1: function `long` has".to_owned(), "b.rs:1: function `long` has".to_owned()];
        assert_eq!(without_known(problems(), &[("a.rs", "function `long`")]), [problems()[1].clone()]);
        let solved = without_known(Vec::new(), &[("a.rs", "function `long`")]);
        assert!(solved[0].contains("remove it from KNOWN"), "{solved:?}");
    }
}
