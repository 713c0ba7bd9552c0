//! Compares the hooks in an agent's settings with those that an installation would write now.
//!
//! A hook that was changed, that runs another program, or that the agent's settings disable leaves no error anywhere: the agent
//! works, and nothing is recorded. Only a comparison with the settings shows it. Nothing here writes, and no program that
//! settings name is run: a repository may contain settings too.

use std::fs;
use std::path::{Path, PathBuf};

use super::hooks::OwnHandlers;
use super::jsonc::{JsoncDocument, PathStep};
use super::parse::SpannedNode;
use super::plan::{build_handlers, settings_file};
use super::write::resolve_and_read;
use super::{
    HookCommand, InstallDirection, InstallError, InstallPlan, InstallScope, SettingsPaths, codex, opencode,
    plan,
};
use crate::Agent;

/// Settings are not longer than this, in bytes; a longer file is not read.
const MAX_SETTINGS_BYTES: u64 = 16 << 20;
/// How many events a sentence names.
const NAMED_EVENTS: usize = 4;

/// What stands in the settings of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookCondition {
    /// There are no hooks of stepback.
    Absent,
    /// The hooks are those that an installation would write.
    Intact,
    /// There are hooks of stepback, but not exactly those.
    Altered,
    /// The file cannot be read, or the agent cannot read it.
    Unreadable,
}

/// The hooks of one agent in one settings file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookInspection {
    /// The agent that owns the settings.
    pub agent: Agent,
    /// The scope of the file.
    pub scope: InstallScope,
    /// The file.
    pub file: PathBuf,
    /// What stands in it.
    pub condition: HookCondition,
    /// What differs, as clauses without a subject ("lacks 2 of 16 hooks: …"), or why the file cannot be read.
    pub differences: Vec<String>,
    /// The programs that the hooks run, each once.
    pub programs: Vec<PathBuf>,
    /// Whether the hooks were installed with `--strict`.
    pub is_strict: bool,
    /// How many hooks an installation writes.
    pub hooks: usize,
}

/// Compares the settings of `agent` with what an installation of `binary` would write.
pub fn inspect(agent: Agent, scope: InstallScope, paths: &SettingsPaths, binary: &Path) -> HookInspection {
    let file = settings_file(agent, scope, paths);
    let mut found = HookInspection {
        agent,
        scope,
        file: file.clone(),
        condition: HookCondition::Absent,
        differences: Vec::new(),
        programs: Vec::new(),
        is_strict: false,
        hooks: 0,
    };
    let unreadable = |found: HookInspection, why: String| HookInspection {
        condition: HookCondition::Unreadable,
        differences: vec![why],
        ..found
    };
    let text = match read_settings(&file) {
        Ok(None) => return found,
        Ok(Some(text)) => text,
        Err(why) => return unreadable(found, why),
    };
    let compared = match agent {
        Agent::Opencode => compare_plugin(&mut found, &text, binary),
        _ => compare_handlers(&mut found, text, binary),
    };
    if let Err(why) = compared {
        return unreadable(found, why);
    }
    if found.condition == HookCondition::Absent {
        return found;
    }
    // An installation refuses what the agent cannot read, such as a comment where the agent allows none.
    if let Err(error) = plan_repair(&found, paths, binary) {
        return unreadable(found, without_advice(&error));
    }
    found
}

/// Plans what an installation would change about `found`, with the same strictness.
pub fn plan_repair(
    found: &HookInspection,
    paths: &SettingsPaths,
    binary: &Path,
) -> Result<InstallPlan, InstallError> {
    plan(found.agent, found.scope, paths, binary, found.is_strict, InstallDirection::Install)
}

/// Returns the settings file, other than those that stepback writes to, that contains stepback's hooks: users move entries.
pub fn find_moved_hooks(agent: Agent, paths: &SettingsPaths, binary: &Path) -> Option<PathBuf> {
    if agent != Agent::Claude {
        return None;
    }
    let file = paths.workspace.join(".claude/settings.json");
    let document = JsoncDocument::parse(read_settings(&file).ok()??).ok()?;
    let own = OwnHandlers { agent, binary };
    (!own.find_handlers(&document).is_empty()).then_some(file)
}

/// Reads a settings file for comparison; `None` if there is none.
pub(super) fn read_settings(file: &Path) -> Result<Option<String>, String> {
    if let Ok(metadata) = fs::metadata(file)
        && metadata.len() > MAX_SETTINGS_BYTES
        && metadata.is_file()
    {
        return Err(format!("{} has {} bytes, too many for settings", file.display(), metadata.len()));
    }
    match resolve_and_read(file) {
        Ok((_, None)) => Ok(None),
        Ok((_, Some(bytes))) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(format!("{} is not UTF-8 text", file.display())),
        },
        Err(error) => Err(without_advice(&error)),
    }
}

/// Returns the error without the advice of an installation, which was not tried.
fn without_advice(error: &InstallError) -> String {
    let text = error.to_string();
    text.split_once(". Nothing was changed").map_or(text.as_str(), |(what, _)| what).to_owned()
}

fn compare_handlers(found: &mut HookInspection, text: String, binary: &Path) -> Result<(), String> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(());
    }
    let shown = found.file.display().to_string();
    let document = JsoncDocument::parse(text)
        .map_err(|error| format!("{shown} is invalid: {} at {}", error.what, error.position))?;
    let own = OwnHandlers { agent: found.agent, binary };
    let places = own.find_handlers(&document);
    if places.is_empty() {
        return Ok(());
    }
    let node = |place: &(String, usize, usize)| {
        let (event, group, handler) = place;
        let path: [PathStep; 5] =
            ["hooks".into(), event.as_str().into(), (*group).into(), "hooks".into(), (*handler).into()];
        (document.get(&path[..3]), document.get(&path))
    };
    let words: Vec<Vec<String>> =
        places.iter().filter_map(|place| own.command_words(node(place).1?)).collect();
    found.is_strict = words.iter().flatten().any(|word| word == "--strict");
    for program in words.iter().filter_map(|words| words.first()).map(PathBuf::from) {
        if !found.programs.contains(&program) {
            found.programs.push(program);
        }
    }
    let hook = HookCommand::new(found.agent, binary, found.is_strict).map_err(|error| error.to_string())?;
    let wanted = build_handlers(&hook);
    found.hooks = wanted.len();
    let (mut missing, mut changed, mut doubled, mut filtered) = (vec![], vec![], vec![], vec![]);
    for (event, handler) in &wanted {
        let mut of_event = places.iter().filter(|place| place.0 == *event);
        let Some(place) = of_event.next() else {
            missing.push(*event);
            continue;
        };
        doubled.extend(of_event.next().map(|_| *event));
        let (group, present) = node(place);
        let runs_other = present
            .and_then(|node| own.command_words(node))
            .is_some_and(|words| Path::new(&words[0]) != binary);
        if !runs_other && present.is_some_and(|node| !handler.matches_node(node)) {
            changed.push(*event);
        }
        filtered.extend(group.is_some_and(has_filter).then_some(*event));
    }
    let surplus = places.iter().map(|place| place.0.as_str());
    let surplus: Vec<&str> =
        surplus.filter(|event| !wanted.iter().any(|(known, _)| known == event)).collect();
    let mut push = |events: &[&str], what: &str| {
        if !events.is_empty() {
            found.differences.push(format!("{what}: {}", join_events(events)));
        }
    };
    push(&missing, &format!("lacks {} of {} hooks", missing.len(), wanted.len()));
    push(&filtered, "limits hooks to some calls by a matcher");
    push(&changed, "has hooks with other options than stepback writes");
    push(&doubled, "has hooks twice");
    push(&surplus, "has hooks that stepback does not use");
    push_programs(found, binary);
    Ok(())
}

fn compare_plugin(found: &mut HookInspection, text: &str, binary: &Path) -> Result<(), String> {
    if !opencode::is_own_plugin(text.as_bytes()) {
        return Err(format!("{} was not written by stepback", found.file.display()));
    }
    found.hooks = 1;
    found.is_strict = text.contains("const STRICT = true");
    let named = text.lines().find_map(|line| line.strip_prefix("const BINARY = ")?.strip_suffix(';'));
    found.programs.extend(named.and_then(|text| serde_json::from_str::<PathBuf>(text).ok()));
    let hook = HookCommand::new(found.agent, binary, found.is_strict).map_err(|error| error.to_string())?;
    found.condition = HookCondition::Intact;
    push_programs(found, binary);
    if found.differences.is_empty() && opencode::render_plugin(&hook) != text {
        found
            .differences
            .push("has the plugin of another release of stepback, or one that was edited".into());
        found.condition = HookCondition::Altered;
    }
    Ok(())
}

/// Adds the programs that are not `binary` to the differences, and decides about the condition.
fn push_programs(found: &mut HookInspection, binary: &Path) {
    for program in found.programs.iter().filter(|program| *program != binary) {
        let what = match describe_program(program, binary) {
            None => continue,
            Some(what) => what,
        };
        found.differences.push(format!("runs {}, {what}", program.display()));
    }
    found.condition = match found.differences.is_empty() {
        true => HookCondition::Intact,
        false => HookCondition::Altered,
    };
}

/// Returns how another program differs from this one; `None` if a copy or a link of this one is there.
fn describe_program(program: &Path, binary: &Path) -> Option<&'static str> {
    use std::os::unix::fs::PermissionsExt as _;
    if !program.is_absolute() {
        return Some("which depends on the search path of the agent");
    }
    let Ok(metadata) = fs::metadata(program) else { return Some("which does not exist") };
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Some("which is not a program");
    }
    (!is_same_file(program, binary)).then_some("another build than this program")
}

/// Whether two paths lead to the same bytes.
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(mut one), Ok(mut other)) = (fs::File::open(one), fs::File::open(other)) else { return false };
    let (Ok(first), Ok(second)) = (one.metadata(), other.metadata()) else { return false };
    if (first.dev(), first.ino()) == (second.dev(), second.ino()) {
        return true;
    }
    if first.len() != second.len() {
        return false;
    }
    let (mut left, mut right) = (vec![0; 1 << 18], vec![0; 1 << 18]);
    loop {
        let Ok(count) = one.read(&mut left) else { return false };
        if count == 0 {
            return true;
        }
        if other.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
            return false;
        }
    }
}

/// Whether a group of hooks applies to some calls only.
fn has_filter(group: &SpannedNode) -> bool {
    let matcher = group.member("matcher").and_then(SpannedNode::text);
    matcher.is_some_and(|text| !matches!(text, "" | "*" | ".*"))
}

fn join_events(events: &[&str]) -> String {
    let named = events.iter().take(NAMED_EVENTS).copied().collect::<Vec<_>>().join(", ");
    match events.len().saturating_sub(NAMED_EVENTS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// A setting of an agent because of which hooks do not run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DisablingSetting {
    /// The file that contains it.
    pub file: PathBuf,
    /// The setting with its value, as the user would write it.
    pub setting: String,
}

/// The settings that an administrator gives every user of Claude Code on this machine.
const MANAGED_CLAUDE: &str = "/etc/claude-code/managed-settings.json";

/// Returns the setting that keeps the agent from running stepback's hooks. Files that cannot be read count as empty; the
/// inspection of the hooks reports them.
pub fn find_disabling_setting(agent: Agent, paths: &SettingsPaths) -> Option<DisablingSetting> {
    let parsed = |file: &Path| JsoncDocument::parse(read_settings(file).ok()??).ok();
    let found = |file: &Path, setting: &str| {
        Some(DisablingSetting { file: file.to_owned(), setting: setting.to_owned() })
    };
    match agent {
        Agent::Claude => {
            let managed = PathBuf::from(MANAGED_CLAUDE);
            let only_managed = parsed(&managed).is_some_and(|document| {
                document.root().member("allowManagedHooksOnly").is_some_and(|value| value.is_plain("true"))
            });
            if only_managed {
                return found(&managed, "allowManagedHooksOnly: true");
            }
            // The first file that has the setting decides.
            let files = [
                managed,
                paths.workspace.join(".claude/settings.local.json"),
                paths.workspace.join(".claude/settings.json"),
                paths.claude_dir.join("settings.json"),
            ];
            let (file, is_off) = files.into_iter().find_map(|file| {
                let document = parsed(&file)?;
                let is_off = document.root().member("disableAllHooks")?.is_plain("true");
                Some((file, is_off))
            })?;
            if is_off { found(&file, "disableAllHooks: true") } else { None }
        }
        Agent::Gemini => {
            let files =
                [paths.workspace.join(".gemini/settings.json"), paths.gemini_dir.join("settings.json")];
            files.into_iter().find_map(|file| {
                let document = parsed(&file)?;
                let config = document.root().member("hooksConfig")?;
                if config.member("enabled").is_some_and(|value| value.is_plain("false")) {
                    return found(&file, "hooksConfig.enabled: false");
                }
                let disabled = config.member("disabled").and_then(SpannedNode::elements).unwrap_or_default();
                let is_named = disabled.iter().any(|name| name.text() == Some("stepback"));
                if is_named { found(&file, "hooksConfig.disabled: [\"stepback\"]") } else { None }
            })
        }
        Agent::Codex => {
            let files = [paths.workspace.join(".codex/config.toml"), paths.codex_home.join("config.toml")];
            files.into_iter().find_map(|file| {
                let table: toml::Table = read_settings(&file).ok()??.parse().ok()?;
                let features = table.get("features")?;
                let is_off = |name: &str| features.get(name).and_then(toml::Value::as_bool) == Some(false);
                let name = ["hooks", "codex_hooks"].into_iter().find(|name| is_off(name))?;
                found(&file, &format!("features.{name} = false"))
            })
        }
        Agent::Opencode => None,
    }
}

/// Whether the user has reviewed the hooks, for an agent that runs only reviewed ones; `None` for other agents, and if there
/// are no hooks. Hooks whose review was of another text count as not reviewed.
pub fn are_reviewed(found: &HookInspection, paths: &SettingsPaths, binary: &Path) -> Option<bool> {
    if found.agent != Agent::Codex || found.condition == HookCondition::Absent {
        return None;
    }
    let config = read_settings(&paths.codex_home.join("config.toml")).ok().flatten().unwrap_or_default();
    let table: toml::Table = config.parse().unwrap_or_default();
    let state = table.get("hooks").and_then(|hooks| hooks.get("state"));
    Some(codex::are_trusted(&found.file, OwnHandlers { agent: found.agent, binary }, state))
}
