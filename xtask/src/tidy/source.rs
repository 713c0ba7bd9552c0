//! Rules for source files: documented modules, short files and functions, and unique type names in the workspace.
//!
//! Pure: it takes text and returns problems. Files are read line by line, which is enough for code that rustfmt has
//! formatted: an item ends at the first `}` with the indentation of its first line.

use std::collections::BTreeMap;

/// Longer files have to be split.
const MAX_LINES: usize = 600;
/// The same without comments, empty lines and unit tests, below `src`.
const MAX_CODE_LINES: usize = 500;
/// Lines of a function, in code and tests.
const MAX_FUNCTION_LINES: usize = 100;
/// The most lines of documentation at the top of a crate.
const MIN_CRATE_DOC_LINES: usize = 3;

/// One file.
pub struct SourceFile {
    /// The folder of its crate.
    pub package: String,
    /// Relative to the workspace.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl SourceFile {
    fn is_in_src(&self) -> bool {
        self.path.contains("/src/")
    }

    fn is_crate_root(&self) -> bool {
        self.path.ends_with("/src/lib.rs") || self.path.ends_with("/src/main.rs")
    }

    /// Everything above the unit tests, with the number of each line. A single item for tests is left out.
    pub(super) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let holds_tests = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        let lines: Vec<&str> = self.text.lines().collect();
        let is_for_tests = |index: usize| lines.get(index) == Some(&"#[cfg(test)]");
        let opens_module = |index: &usize| {
            is_for_tests(*index)
                && lines.get(index + 1).is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
        };
        let end = if holds_tests { 0 } else { (0..lines.len()).find(opens_module).unwrap_or(lines.len()) };
        let counted_lines =
            (0..end).filter(|&index| !(is_for_tests(index) || index > 0 && is_for_tests(index - 1)));
        counted_lines.map(|index| (index + 1, lines[index])).collect::<Vec<_>>().into_iter()
    }

    /// Problems of this file alone.
    pub fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let path = &self.path;
        let docs = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        let documented = docs.filter(|line| !line.trim().is_empty()).count();
        if self.is_in_src() {
            if documented == 0 {
                problems.push(format!(
                    "{path}:1: no module doc; open the file with `//!` and say what it is for"
                ));
            } else if self.is_crate_root() && documented < MIN_CRATE_DOC_LINES {
                problems.push(format!(
                    "{path}:1: {documented} lines of doc; say in at least {MIN_CRATE_DOC_LINES} what the crate is \
                     for, what it must not do, and where to start reading"
                ));
            }
            let lines = self.text.lines().count();
            if lines > MAX_LINES {
                problems.push(format!(
                    "{path}: {lines} lines, more than {MAX_LINES}; split the module by concern"
                ));
            }
            let is_code =
                |(_, line): &(usize, &str)| !line.trim().is_empty() && !line.trim_start().starts_with("//");
            let lines = self.code_lines().filter(is_code).count();
            if lines > MAX_CODE_LINES {
                problems.push(format!(
                    "{path}: {lines} lines of code, more than {MAX_CODE_LINES}; split the module by concern"
                ));
            }
        }
        for function in
            find_functions(&self.text).into_iter().filter(|found| found.lines > MAX_FUNCTION_LINES)
        {
            let Function { line, name, lines } = function;
            problems.push(format!(
                "{path}:{line}: function `{name}` has {lines} lines, more than {MAX_FUNCTION_LINES}; split it"
            ));
        }
        problems
    }
}

struct Function<'a> {
    line: usize,
    name: &'a str,
    lines: usize,
}

fn find_functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        // The signature ends where the body opens; a declaration and a function of one line have no body to measure.
        let Some(open) = lines[start..].iter().position(|line| line.ends_with(['{', '}', ';'])) else {
            continue;
        };
        if !lines[start + open].ends_with('{') {
            continue;
        }
        let indentation = line.len() - line.trim_start().len();
        let closes_body = |line: &&str| line.trim_start() == "}" && line.len() == indentation + 1;
        let Some(end) = lines[start..].iter().position(closes_body) else { continue };
        functions.push(Function { line: start + 1, name, lines: end + 1 });
    }
    functions
}

fn function_name(line: &str) -> Option<&str> {
    let (qualifiers, signature) = line.split_once("fn ")?;
    let qualifiers = qualifiers.trim().trim_end_matches("\"C\"");
    let is_modifier = |word: &str| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "pub") || word.starts_with("pub(")
    };
    let name = signature.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (qualifiers.split_whitespace().all(is_modifier) && !name.is_empty()).then_some(name)
}

/// Public types that have the same name. Within one crate, too: they would share a schema in the description of the API.
pub fn check_type_names(files: &[SourceFile]) -> Vec<String> {
    let mut locations: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_in_src()) {
        for (number, line) in file.code_lines() {
            let Some(name) = type_name(line) else { continue };
            let location = (file.package.as_str(), format!("{}:{number}", file.path));
            locations.entry(name).or_default().push(location);
        }
    }
    let named = locations.into_iter().filter(|(_, locations)| locations.len() > 1);
    named
        .map(|(name, locations)| {
            let locations: Vec<String> = locations.into_iter().map(|(_, location)| location).collect();
            format!(
                "{}: `{name}` is the name of several types; name each after its subject",
                locations.join(", ")
            )
        })
        .collect()
}

fn type_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let (kind, rest) = rest.trim_start_matches("unsafe ").split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    // A macro's `$name` is not a name.
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    (is_type && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(package: &str, path: &str, text: &str) -> SourceFile {
        SourceFile { package: package.into(), path: path.into(), text: text.into() }
    }

    fn problems(text: &str) -> Vec<String> {
        file("a", "crates/a/src/b.rs", text).check()
    }

    fn rejected(problems: &[String], because: &str) {
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(because), "{problems:?}");
    }

    #[test]
    fn a_documented_short_file_passes() {
        assert!(problems("//! Counts things.\nfn main() {}\n").is_empty());
    }

    #[test]
    fn a_missing_or_empty_module_doc_is_reported() {
        rejected(&problems("fn main() {}\n"), "crates/a/src/b.rs:1: no module doc");
        for text in ["//!\nfn main() {}\n", "// Not a doc.\n", ""] {
            rejected(&problems(text), "no module doc");
        }
    }

    #[test]
    fn a_crate_says_more_than_a_module() {
        let root = |text| file("a", "crates/a/src/lib.rs", text).check();
        rejected(&root("//! Counts things.\n//!\n//! All of them.\n"), "2 lines of doc");
        assert!(root("//! Counts things.\n//!\n//! All of them.\n//! Start at `count`.\n").is_empty());
    }

    #[test]
    fn a_file_over_the_limit_is_reported_and_one_at_the_limit_is_not() {
        let at_limit = format!("//! Long.\n{}", "\n".repeat(MAX_LINES - 1));
        assert!(problems(&at_limit).is_empty());
        rejected(&problems(&format!("{at_limit}\n")), "601 lines");
    }

    #[test]
    fn lines_of_code_are_counted_without_comments_and_tests() {
        let code = format!("//! Long.\n{}", "use a;\n".repeat(MAX_CODE_LINES));
        assert!(problems(&format!("{code}\n// Why.\n#[cfg(test)]\nmod tests {{}}\n")).is_empty());
        rejected(&problems(&format!("{code}use b;\n")), "501 lines of code");
    }

    #[test]
    fn a_long_function_is_reported_in_code_and_tests_however_it_is_declared() {
        let body = "        a();\n".repeat(MAX_FUNCTION_LINES - 1);
        for head in [
            "fn long() {",
            "pub(crate) async fn long<T>(\n        a: T,\n    ) {",
            "unsafe extern \"C\" fn long() {",
        ] {
            let text = format!("//! Doc.\nimpl A {{\n    {head}\n{body}    }}\n}}\n");
            rejected(&problems(&text), "b.rs:3: function `long` has");
            rejected(&file("a", "crates/a/tests/b.rs", &text).check(), "function `long` has");
        }
        let shorter = format!("//! Doc.\nfn short() {{\n{}}}\n", "    a();\n".repeat(MAX_FUNCTION_LINES - 2));
        assert!(problems(&shorter).is_empty());
        let declared = format!("//! Doc.\ntrait A {{\n    fn a();\n    fn b() {{}}\n{body}}}\n");
        assert!(problems(&declared).is_empty());
    }

    #[test]
    fn a_public_type_name_belongs_to_one_type() {
        let text = "//! Doc.\n#[cfg(test)]\nmod tests;\npub struct Row<T>(T);\nstruct Own;\n\
                    #[cfg(test)]\npub enum Fake {}\n#[cfg(test)]\nmod more {\npub enum Other {}\n}\n";
        let files = |path: &str| [file("a", "crates/a/src/b.rs", text), file("c", path, text)];
        let found = check_type_names(&files("crates/c/src/d.rs"));
        rejected(&found, "crates/a/src/b.rs:4, crates/c/src/d.rs:4: `Row` is the name");
        assert!(check_type_names(&files("crates/c/tests/d.rs")).is_empty());
        assert!(check_type_names(&files("crates/c/src/d/tests.rs")).is_empty());
        let of_one_crate = [file("a", "crates/a/src/b.rs", text), file("a", "crates/a/src/c.rs", text)];
        rejected(&check_type_names(&of_one_crate), "`Row` is the name of several types");
    }

    #[test]
    fn every_kind_of_type_is_known() {
        for line in [
            "pub struct A;",
            "    pub enum A {",
            "pub trait A: B {",
            "pub type A<T> = B;",
            "pub unsafe trait A {",
        ] {
            assert_eq!(type_name(line), Some("A"), "{line}");
        }
        for line in [
            "pub(crate) struct A;",
            "struct A;",
            "pub fn a() {",
            "// pub struct A;",
            "pub use a::A;",
            "pub struct $name {",
        ] {
            assert_eq!(type_name(line), None, "{line}");
        }
    }
}
