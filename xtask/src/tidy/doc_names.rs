//! Functions, modules and files that ARCHITECTURE.md and AGENTS.md name must exist.
//!
//! A newcomer follows these names into the code, and a renamed function leaves no error behind in prose. Checked are words in
//! backticks: paths that end in `.rs`, paths of modules and functions (`Hook::handle`, `store::step_chain`), and a word after
//! an arrow that follows a file (`crates/x/src/y.rs` → `open`).

use std::collections::HashSet;

use super::source::SourceFile;

/// Returns a problem for each name in `text` that the source does not define. `document` is the file that contains `text`.
pub fn check(document: &str, text: &str, files: &[SourceFile]) -> Vec<String> {
    let files: Vec<DefinedNames> = files.iter().map(DefinedNames::of).collect();
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut previous_file = None;
        // Every second part of a line is between backticks.
        let mut parts = line.split('`');
        while let Some(before) = parts.next() {
            let Some(word) = parts.next() else { break };
            let file_before_arrow = previous_file.filter(|_| before.trim() == "→");
            previous_file = Some(word).filter(|word| word.ends_with(".rs"));
            let is_known = match (file_before_arrow, word.rsplit_once("::")) {
                _ if !is_name(word) => true,
                _ if word.ends_with(".rs") => files.iter().any(|file| file.is_at(word)),
                (Some(path), None) => files.iter().any(|file| file.is_at(path) && file.defines(word)),
                (_, Some((scope, name))) => files.iter().any(|file| file.has_in_scope(scope, name)),
                (None, None) => true,
            };
            if !is_known {
                problems.push(format!("{document}:{}: `{word}` does not exist in the source", index + 1));
            }
        }
    }
    problems
}

/// Whether a word is the path of a file, module, type or function, and not a command or a pattern.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '/' | '.' | '-'))
}

/// What a source file defines.
struct DefinedNames<'a> {
    path: &'a str,
    /// Functions, types and modules.
    definitions: HashSet<&'a str>,
    /// Types with an `impl` block, and those that are defined here.
    types: HashSet<&'a str>,
}

impl<'a> DefinedNames<'a> {
    fn of(file: &'a SourceFile) -> Self {
        let (mut definitions, mut types) = (HashSet::new(), HashSet::new());
        for line in file.text.lines() {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            if words.first() == Some(&"impl") {
                types.extend(&words[1..]);
            }
            for pair in words.windows(2) {
                match pair[0] {
                    "fn" | "mod" => definitions.insert(pair[1]),
                    "struct" | "enum" | "trait" | "type" => {
                        definitions.insert(pair[1]) | types.insert(pair[1])
                    }
                    _ => false,
                };
            }
        }
        Self { path: &file.path, definitions, types }
    }

    fn is_at(&self, path: &str) -> bool {
        self.path.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    }

    fn defines(&self, path: &str) -> bool {
        path.rsplit("::").next().is_some_and(|name| self.definitions.contains(name))
    }

    /// Whether `name` is defined here and `scope` ends in a type of this file or in a module or crate that the file is in.
    fn has_in_scope(&self, scope: &str, name: &str) -> bool {
        let scope = scope.rsplit("::").next().unwrap_or(scope);
        let mut modules = self.path.split('/').map(|segment| segment.trim_end_matches(".rs"));
        match scope.starts_with(|first: char| first.is_ascii_uppercase()) {
            true => self.types.contains(scope) && self.definitions.contains(name),
            false => {
                modules.clone().any(|module| module.replace('-', "_") == scope)
                    && (self.definitions.contains(name) || modules.any(|module| module == name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { package: "store".into(), path: path.into(), text: text.into() }
    }

    #[test]
    fn names_without_a_definition_are_found_and_prose_is_left_alone() {
        let files = [
            file("crates/store/src/pack.rs", "pub struct Pack;\nimpl Pack { pub fn open() {} }"),
            file("crates/store/src/lib.rs", "mod pack;"),
        ];
        let good = "`crates/store/src/pack.rs` → `open`, `Pack::open`, `store::pack`, `pack.rs`, `INDEX`, `git status`, `a::*`.";
        assert_eq!(check("A.md", good, &files), Vec::<String>::new());
        let bad = "one\n`pack.rs` → `close`; `Pack::shut`; `unpack.rs`; `ack.rs`; `open::store`";
        let found = check("A.md", bad, &files);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found[0].starts_with("A.md:2: `close`"), "{found:?}");
    }
}
