//! The layer table of ARCHITECTURE.md and the rules for edges between crates.
//!
//! Pure: it takes text and a list of crates and returns problems, so that the rules are tested on small graphs. The table
//! is below the heading `## Layers`, one row per layer from top to bottom: `| layer | crates | edges |`. The third column
//! is optional and lists allowed edges inside one layer, as `from → to`.

use std::collections::BTreeMap;

use crate::workspace::{Crate, DependencyKind};

/// Crates outside the layers: tools and test helpers, each with its own rule.
const ASIDE: &str = "aside";

/// The parsed layer table.
#[derive(Debug)]
pub struct Layers {
    /// The layer of each crate folder, counted from the top; `None` for crates outside the layers.
    places: BTreeMap<String, Option<usize>>,
    names: Vec<String>,
    allowed: Vec<(String, String)>,
}

impl Layers {
    /// Reads the table; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let section = text
            .lines()
            .skip_while(|line| line.trim() != "## Layers")
            .skip(1)
            .take_while(|line| !line.starts_with("## ") && !line.starts_with("# "));
        let mut layers = Self { places: BTreeMap::new(), names: Vec::new(), allowed: Vec::new() };
        // Only the first table of the section is read; prose around it is ignored.
        let rows = section.skip_while(|line| !is_row(line)).take_while(|line| is_row(line));
        for (number, row) in rows.enumerate() {
            let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
            let header = number == 0 && cells[0].eq_ignore_ascii_case("layer");
            if header || cells[0].chars().all(|c| matches!(c, '-' | ':')) {
                continue;
            }
            layers.add_row(&cells)?;
        }
        if layers.places.is_empty() {
            return Err("no table under the heading `## Layers`; add one with a row per layer, \
                        `| layer | crate, crate |`, from top to bottom"
                .to_owned());
        }
        for (from, to) in &layers.allowed {
            for end in [from, to] {
                if !layers.places.contains_key(end) {
                    return Err(format!(
                        "the allowed edge `{from} → {to}` names `{end}`, which is in no layer"
                    ));
                }
            }
        }
        Ok(layers)
    }

    fn add_row(&mut self, cells: &[&str]) -> Result<(), String> {
        let name = trim_markup(cells[0]);
        let crates = cells.get(1).ok_or_else(|| format!("layer `{name}` has no column of crates"))?;
        let place = if name.eq_ignore_ascii_case(ASIDE) {
            None
        } else {
            self.names.push(name.to_owned());
            Some(self.names.len() - 1)
        };
        for folder in split_cell(crates) {
            if self.places.insert(folder.to_owned(), place).is_some() {
                return Err(format!("crate `{folder}` is in more than one layer"));
            }
        }
        for edge in cells.get(2).into_iter().flat_map(|cell| split_cell(cell)) {
            let ends = edge.split_once('→').or_else(|| edge.split_once("->"));
            let (from, to) =
                ends.ok_or_else(|| format!("`{edge}` in layer `{name}` is no edge `from → to`"))?;
            self.allowed.push((trim_markup(from).to_owned(), trim_markup(to).to_owned()));
        }
        Ok(())
    }

    /// Lists every crate that the table lacks or invents, and every edge that it does not allow.
    pub fn check(&self, crates: &[Crate]) -> Vec<String> {
        let mut problems = Vec::new();
        let folders: BTreeMap<&str, &str> =
            crates.iter().map(|member| (member.package.as_str(), member.folder.as_str())).collect();
        for member in crates {
            let folder = &member.folder;
            if !self.places.contains_key(folder) {
                problems.push(format!(
                    "ARCHITECTURE.md: crate `{folder}` is in no layer; add it to the table under `## Layers`"
                ));
            }
            let expected = package_name(folder);
            if member.package != expected {
                problems.push(format!(
                    "{}: the package is called `{}`; a crate in the folder `{folder}` is called `{expected}`",
                    manifest_path(member),
                    member.package
                ));
            }
        }
        for folder in self.places.keys() {
            if !crates.iter().any(|member| member.folder == *folder) {
                problems.push(format!(
                    "ARCHITECTURE.md: names the crate `{folder}`, which does not exist; remove it from the table"
                ));
            }
        }
        for member in crates {
            for (package, kind) in &member.dependencies {
                let Some(to) = folders.get(package.as_str()) else { continue };
                if let Some(reason) = self.forbidden_reason(&member.folder, to, *kind) {
                    problems.push(format!(
                        "{}: `{}` must not depend on `{to}`: {reason}",
                        manifest_path(member),
                        member.folder
                    ));
                }
            }
        }
        problems.dedup();
        problems
    }

    /// Why an edge is not allowed, or `None` when it is.
    fn forbidden_reason(&self, from: &str, to: &str, kind: DependencyKind) -> Option<String> {
        // A crate that the table misses is reported once, not once per edge.
        let (from_place, to_place) = (*self.places.get(from)?, *self.places.get(to)?);
        if from == to || self.allowed.iter().any(|(a, b)| a == from && b == to) {
            return None;
        }
        match (from_place, to_place) {
            (_, None) => match to {
                "bench" | "xtask" => Some("nothing depends on the project's tasks".to_owned()),
                "testkit" if kind != DependencyKind::Dev && from_place.is_some() => {
                    Some("test helpers are only for dev-dependencies; move it there".to_owned())
                }
                _ => None,
            },
            // Tools and test helpers may use whatever they test. `faults` is the exception: every crate may use it, so it
            // may use none, or an edge through it could point up.
            (None, Some(_)) if from == "faults" && kind != DependencyKind::Dev => {
                Some("every layer may use `faults`, so it depends on no layer".to_owned())
            }
            (None, Some(_)) => None,
            (Some(a), Some(b)) if a < b => None,
            (Some(a), Some(b)) if a == b => Some(format!(
                "both are in the layer `{}`; move what they share down, or list the edge `{from} → {to}` in the \
                 table's third column",
                self.names[a]
            )),
            (Some(a), Some(b)) => Some(format!(
                "the edge points up, from `{}` to `{}`; turn it around or move the shared part down",
                self.names[a], self.names[b]
            )),
        }
    }
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

fn trim_markup(cell: &str) -> &str {
    cell.trim().trim_matches(|c| matches!(c, '`' | '*')).trim()
}

fn split_cell(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(trim_markup).filter(|name| !name.is_empty() && !matches!(*name, "–" | "-" | "—"))
}

fn package_name(folder: &str) -> String {
    match folder {
        "stepback" | "xtask" => folder.to_owned(),
        other => format!("stepback-{other}"),
    }
}

fn manifest_path(member: &Crate) -> String {
    let parent = if member.folder == "xtask" { "" } else { "crates/" };
    format!("{parent}{}/Cargo.toml", member.folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DependencyKind::{Build, Dev, Normal};

    const TABLE: &str = "\
# Architecture

## Layers

Arrows point down only.

| layer | crates | allowed edges |
|---|---|---|
| surfaces | stepback | |
| engine | engine, query | `query → engine` |
| ports | `store`, `worktree` | – |
| model | model |
| aside | bench, faults, testkit, xtask |

## Other

| not | a layer |
";

    fn graph(edges: &[(&str, &str, DependencyKind)]) -> Vec<Crate> {
        let folders = [
            "stepback", "engine", "query", "store", "worktree", "model", "bench", "faults", "testkit",
            "xtask",
        ];
        folders
            .iter()
            .map(|folder| Crate {
                folder: (*folder).to_owned(),
                package: package_name(folder),
                directory: folder.into(),
                dependencies: edges
                    .iter()
                    .filter(|(from, ..)| from == folder)
                    .map(|(_, to, kind)| (package_name(to), *kind))
                    .collect(),
            })
            .collect()
    }

    fn check(edges: &[(&str, &str, DependencyKind)]) -> Vec<String> {
        Layers::parse(TABLE).unwrap().check(&graph(edges))
    }

    fn rejected(from: &str, to: &str, kind: DependencyKind, because: &str) {
        let problems = check(&[(from, to, kind)]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(because), "{problems:?}");
        assert!(problems[0].contains(&format!("{from}/Cargo.toml")), "{problems:?}");
    }

    #[test]
    fn edges_that_point_down_pass_even_over_several_layers() {
        let good = [("stepback", "engine", Normal), ("stepback", "model", Normal), ("store", "model", Build)];
        assert_eq!(check(&good), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_points_up_is_rejected_for_every_kind() {
        for kind in [Normal, Build, Dev] {
            rejected("model", "store", kind, "points up, from `model` to `ports`");
        }
    }

    #[test]
    fn an_edge_inside_a_layer_needs_its_place_in_the_third_column() {
        rejected("store", "worktree", Normal, "both are in the layer `ports`");
        assert!(check(&[("query", "engine", Normal)]).is_empty());
        rejected("engine", "query", Normal, "both are in the layer `engine`");
    }

    #[test]
    fn aside_crates_follow_their_own_rules() {
        assert!(check(&[("model", "faults", Normal), ("model", "testkit", Dev)]).is_empty());
        assert!(check(&[("testkit", "store", Normal), ("xtask", "testkit", Normal)]).is_empty());
        rejected("model", "testkit", Normal, "only for dev-dependencies");
        rejected("store", "testkit", Build, "only for dev-dependencies");
        rejected("stepback", "xtask", Dev, "nothing depends on the project's tasks");
        rejected("engine", "bench", Dev, "nothing depends on the project's tasks");
        rejected("faults", "model", Normal, "depends on no layer");
    }

    #[test]
    fn crates_and_table_must_name_each_other() {
        let mut crates = graph(&[]);
        crates.retain(|member| member.folder != "query");
        crates.push(Crate {
            folder: "tui".to_owned(),
            package: "stepback-tui".to_owned(),
            directory: "tui".into(),
            dependencies: vec![("stepback".to_owned(), Normal)],
        });
        let problems = Layers::parse(TABLE).unwrap().check(&crates);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("crate `tui` is in no layer"));
        assert!(problems[1].contains("names the crate `query`, which does not exist"));
    }

    #[test]
    fn a_package_is_named_after_its_folder() {
        let mut crates = graph(&[]);
        crates[1].package = "engine".to_owned();
        let problems = Layers::parse(TABLE).unwrap().check(&crates);
        assert!(problems[0].contains("is called `stepback-engine`"), "{problems:?}");
    }

    #[test]
    fn a_broken_table_says_what_is_wrong() {
        let error = |text: &str| Layers::parse(text).unwrap_err();
        assert!(error("# Architecture\n").contains("no table"));
        assert!(error("## Layers\n| a | x |\n| b | x |\n").contains("more than one layer"));
        assert!(error("## Layers\n| a | x | x to y |\n").contains("no edge"));
        assert!(error("## Layers\n| a | x | x → y |\n").contains("in no layer"));
        assert!(error("## Layers\n| a |\n").contains("no column of crates"));
    }
}
