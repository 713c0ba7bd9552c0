//! What the project may depend on, by `deny.toml`: licences, banned crates and sources.
//!
//! The file has the format of cargo-deny, which need not be installed: this module checks the same rules offline, with
//! the output of `cargo metadata`. An unknown key is a problem, so that every line of the file has an effect.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use toml::Table;

use crate::workspace;

/// The rules.
pub struct DenyRules {
    /// The systems that the project is built for.
    targets: Vec<String>,
    licenses: BTreeSet<String>,
    /// Crates with the reason why they must not be used.
    banned: Vec<(String, String)>,
    registries: Vec<String>,
    repositories: Vec<String>,
}

impl DenyRules {
    /// Reads `deny.toml`.
    pub fn parse(text: &str) -> Result<Self> {
        let file: Table = text.parse().context("not TOML")?;
        refuse_unchecked(&file)?;
        let bans = get_list(&file, "bans", "deny")?.iter().map(|ban| {
            let part = |key: &str| {
                let text = ban.get(key).and_then(toml::Value::as_str);
                text.map(str::to_owned).with_context(|| format!("a ban without `{key}`"))
            };
            Ok((part("crate")?, part("reason")?))
        });
        Ok(Self {
            targets: get_strings(&file, "graph", "targets")?,
            licenses: get_strings(&file, "licenses", "allow")?.into_iter().collect(),
            banned: bans.collect::<Result<_>>()?,
            registries: get_strings(&file, "sources", "allow-registry")?,
            repositories: get_strings(&file, "sources", "allow-git")?,
        })
    }

    /// Returns the problems with the packages that cargo lists.
    pub fn check(&self, metadata: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            let name = format!("{} {}", text("name"), text("version"));
            let license = text("license");
            if license.is_empty() {
                problems.push(format!("{name}: says no licence"));
            } else if !self.allows_license(license) {
                problems.push(format!("{name}: `{license}` is not among the allowed licences"));
            }
            if let Some((_, reason)) = self.banned.iter().find(|(banned, _)| banned == text("name")) {
                problems.push(format!("{name}: is banned: {reason}"));
            }
            problems.extend(
                self.check_source(package["source"].as_str()).map(|problem| format!("{name}: {problem}")),
            );
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                // Wildcards in crates of others cannot be changed here.
                let wildcard = dependency["req"] == "*" && dependency["path"].is_null();
                if package["source"].is_null() && wildcard {
                    problems.push(format!("{name}: takes any version of {}", dependency["name"]));
                }
            }
        }
        problems
    }

    /// `source` is `None` for crates of this workspace.
    fn check_source(&self, source: Option<&str>) -> Option<String> {
        let (kind, address) = source?.split_once('+').unwrap_or_default();
        let address = address.split(['?', '#']).next().unwrap_or_default();
        let allowed = match kind {
            "registry" | "sparse" => &self.registries,
            _ => &self.repositories,
        };
        (!allowed.iter().any(|allowed_address| allowed_address == address))
            .then(|| format!("comes from {}, which is not an allowed source", source.unwrap_or_default()))
    }

    /// Whether a licence expression has a choice that is allowed: SPDX, and the older `A/B` for `A OR B`.
    fn allows_license(&self, expression: &str) -> bool {
        let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = expression.split_whitespace().collect();
        let mut rest = words.as_slice();
        self.any_of(&mut rest) && rest.is_empty()
    }

    fn any_of(&self, words: &mut &[&str]) -> bool {
        let mut allowed = self.all_of(words);
        while let [first, rest @ ..] = *words
            && *first == "OR"
        {
            *words = rest;
            allowed |= self.all_of(words);
        }
        allowed
    }

    fn all_of(&self, words: &mut &[&str]) -> bool {
        let mut allowed = self.allows_term(words);
        while let [first, rest @ ..] = *words
            && *first == "AND"
        {
            *words = rest;
            allowed &= self.allows_term(words);
        }
        allowed
    }

    fn allows_term(&self, words: &mut &[&str]) -> bool {
        match *words {
            ["(", rest @ ..] => {
                *words = rest;
                let allowed = self.any_of(words);
                let is_closed = words.first() == Some(&")");
                *words = words.get(1..).unwrap_or_default();
                allowed && is_closed
            }
            [license, "WITH", exception, rest @ ..] => {
                *words = rest;
                self.licenses.contains(&format!("{license} WITH {exception}"))
            }
            [license, rest @ ..] => {
                *words = rest;
                self.licenses.contains(*license)
            }
            [] => false,
        }
    }
}

/// The keys that hold lists.
const LISTS: [(&str, &str); 5] = [
    ("graph", "targets"),
    ("licenses", "allow"),
    ("bans", "deny"),
    ("sources", "allow-registry"),
    ("sources", "allow-git"),
];

/// Rules that are built in here; the file has to state them, because cargo-deny has other defaults.
const FIXED: [(&str, &str, &str); 5] = [
    ("bans", "multiple-versions", "allow"),
    ("bans", "wildcards", "deny"),
    ("bans", "allow-wildcard-paths", "true"),
    ("sources", "unknown-registry", "deny"),
    ("sources", "unknown-git", "deny"),
];

fn refuse_unchecked(file: &Table) -> Result<()> {
    for (section, key, expected) in FIXED {
        let value = file.get(section).and_then(|section| section.get(key));
        let stated = match value {
            Some(toml::Value::Boolean(value)) => value.to_string() == expected,
            Some(value) => value.as_str() == Some(expected),
            None => false,
        };
        if !stated {
            bail!("`{key}` in [{section}] has to be {expected}");
        }
    }
    for (section, content) in file {
        for key in content.as_table().into_iter().flat_map(Table::keys) {
            let rule = (section.as_str(), key.as_str());
            if !LISTS.contains(&rule) && !FIXED.iter().any(|(section, key, _)| (*section, *key) == rule) {
                bail!("`{key}` in [{section}] is not checked by tidy; remove it, or teach tidy");
            }
        }
    }
    Ok(())
}

fn get_list<'a>(file: &'a Table, section: &str, key: &str) -> Result<&'a Vec<toml::Value>> {
    let value = file.get(section).and_then(|section| section.get(key));
    value.and_then(toml::Value::as_array).with_context(|| format!("no list `{key}` in [{section}]"))
}

fn get_strings(file: &Table, section: &str, key: &str) -> Result<Vec<String>> {
    let text = |value: &toml::Value| {
        value
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("`{key}` in [{section}] is not a list of texts"))
    };
    get_list(file, section, key)?.iter().map(text).collect()
}

/// Checks what the workspace is built from, for every system in the file.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let rules = match DenyRules::parse(&text) {
        Ok(rules) => rules,
        Err(error) => return Ok(vec![format!("deny.toml: {error:#}")]),
    };
    let mut problems = BTreeSet::new();
    for target in &rules.targets {
        let metadata = workspace::cargo_metadata(&["--offline", "--filter-platform", target]);
        let metadata = metadata.context("`cargo fetch` downloads what is missing")?;
        problems.extend(rules.check(&metadata));
    }
    Ok(problems.into_iter().map(|problem| format!("deny.toml: {problem}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT", "Apache-2.0", "ISC"]
        [bans]
        multiple-versions = "allow"
        wildcards = "deny"
        allow-wildcard-paths = true
        deny = [{ crate = "openssl-sys", reason = "rustls is there" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://github.com/rust-lang/crates.io-index"]
        allow-git = []
    "#;

    fn check(package: Value) -> Vec<String> {
        let mut whole = json!({ "name": "a", "version": "1.0.0", "license": "MIT", "dependencies": [],
            "source": "registry+https://github.com/rust-lang/crates.io-index" });
        for (key, value) in package.as_object().unwrap() {
            whole[key] = value.clone();
        }
        DenyRules::parse(RULES).unwrap().check(&json!({ "packages": [whole] }))
    }

    fn rejected(package: Value, because: &str) {
        let problems = check(package);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(because), "{problems:?}");
    }

    #[test]
    fn licences_are_expressions() {
        for license in
            ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(MIT OR X) AND ISC", "X WITH Y OR Apache-2.0"]
        {
            assert!(check(json!({ "license": license })).is_empty(), "{license}");
        }
        for license in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR X) AND Y", "Apache-2.0 WITH Y", "(MIT", "MIT MIT", "OR"]
        {
            rejected(json!({ "license": license }), "not among the allowed licences");
        }
        rejected(json!({ "license": null }), "says no licence");
    }

    #[test]
    fn banned_crates_and_unknown_sources_are_rejected() {
        rejected(json!({ "name": "openssl-sys" }), "is banned: rustls is there");
        rejected(json!({ "source": "registry+https://crates.example/index" }), "not an allowed source");
        rejected(json!({ "source": "git+https://github.com/a/b?rev=1#2" }), "not an allowed source");
        assert!(check(json!({ "source": null })).is_empty());
    }

    #[test]
    fn a_wildcard_is_rejected_in_our_crates_unless_it_is_a_path() {
        let any = |path: Value| json!({ "source": null, "dependencies": [{ "name": "b", "req": "*", "path": path }] });
        rejected(any(Value::Null), "takes any version of");
        assert!(check(any(json!("/w/b"))).is_empty());
    }

    #[test]
    fn a_rule_that_is_not_checked_is_rejected() {
        let unknown = RULES.replace("[bans]", "[bans]\nhighlight = \"all\"");
        let error = DenyRules::parse(&unknown).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("`highlight` in [bans] is not checked"), "{error}");
        let weaker = RULES.replace("unknown-git = \"deny\"", "unknown-git = \"allow\"");
        assert!(DenyRules::parse(&weaker).is_err());
        assert!(DenyRules::parse(&RULES.replace("allow-git = []", "")).is_err());
    }
}
