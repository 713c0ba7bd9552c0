//! `cargo xtask tidy`: checks the architecture and the project's conventions.
//!
//! ARCHITECTURE.md names every crate and its layer; this task reads that table and fails when the code
//! disagrees, so the document cannot drift. All problems are listed, not only the first. The rules are
//! in [`layers`] (edges between crates), [`source`] (files, functions, names), [`writers`] (who writes files), [`doc_names`] (names in
//! documents) and [`deny`] (dependencies).

mod deny;
mod doc_names;
mod layers;
mod source;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace;
use layers::Layers;
use source::SourceFile;

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
    problems.extend(files.iter().flat_map(SourceFile::check));
    problems.extend(source::check_type_names(&files));
    problems.extend(writers::check(&files));
    for document in ["ARCHITECTURE.md", "AGENTS.md"] {
        let text = fs::read_to_string(workspace.root.join(document));
        let text = text.with_context(|| format!("cannot read {document}"))?;
        problems.extend(doc_names::check(document, &text, &files));
    }
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

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", directory.display())),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
