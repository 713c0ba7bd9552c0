//! stepback's MCP server in an agent's settings: one entry named `stepback`, beside the other servers.
//!
//! Claude Code keeps a project's servers in `.mcp.json` and the user's in `.claude.json`, Gemini CLI in its settings,
//! opencode in its configuration, Codex as a table of `config.toml`. For Gemini CLI that is also the file with the hooks; a
//! plan that follows another one for the same file starts from the result of that one.

use std::path::{Path, PathBuf};

use super::hooks::HookConflict;
use super::jsonc::{JsoncDocument, PathStep, RemainingContent};
use super::parse::SpannedNode;
use super::plan::{InstallPlan, current_text, invalid_settings, parse_document};
use super::value::{Value, quote_json};
use super::{InstallDirection, InstallError, InstallScope, Position, SettingsPaths};
use crate::Agent;

/// The server's name in every settings file.
const NAME: &str = "stepback";
/// The table header in Codex's settings.
const TABLE: &str = "[mcp_servers.stepback]";

/// Plans to add the MCP server of `binary` to the settings of `agent`, or to remove it. `earlier` is a plan that will be
/// carried out before this one.
pub fn plan_server(
    agent: Agent,
    scope: InstallScope,
    paths: &SettingsPaths,
    binary: &Path,
    direction: InstallDirection,
    earlier: Option<&InstallPlan>,
) -> Result<InstallPlan, InstallError> {
    let program = binary.to_str().filter(|_| binary.is_absolute());
    let Some(program) = program else { return Err(InstallError::InvalidBinaryPath(binary.to_owned())) };
    let file = settings_file(agent, scope, paths);
    let shown = paths.display_path(&file);
    let mut plan = InstallPlan::unchanged(agent, file, paths)?;
    if let Some(earlier) = earlier.filter(|earlier| earlier.target == plan.target) {
        plan.before.clone_from(&earlier.after);
        plan.after.clone_from(&earlier.after);
    }
    match (agent, direction) {
        (Agent::Codex, InstallDirection::Install) => add_to_table(&mut plan, program)?,
        (Agent::Codex, InstallDirection::Uninstall) => remove_from_table(&mut plan)?,
        (_, InstallDirection::Install) => add_to_object(&mut plan, program)?,
        (_, InstallDirection::Uninstall) => remove_from_object(&mut plan)?,
    }
    if !plan.is_unchanged() {
        let change = match (direction, &plan.after) {
            (InstallDirection::Install, _) => format!("adds the MCP server to {shown}"),
            (InstallDirection::Uninstall, Some(_)) => format!("removes the MCP server from {shown}"),
            (InstallDirection::Uninstall, None) => {
                format!("removes {shown}, which contains only the MCP server")
            }
        };
        plan.changes.push(change);
    }
    if direction == InstallDirection::Install {
        plan.follow_up = follow_up_notes(agent, scope);
    }
    plan.drop_unneeded_dirs(direction);
    Ok(plan)
}

fn settings_file(agent: Agent, scope: InstallScope, paths: &SettingsPaths) -> PathBuf {
    match (agent, scope) {
        (Agent::Claude, InstallScope::Project) => paths.workspace.join(".mcp.json"),
        // Beside the directory, unless the user configured another directory.
        (Agent::Claude, InstallScope::User) if paths.claude_dir == paths.home.join(".claude") => {
            paths.home.join(".claude.json")
        }
        (Agent::Claude, InstallScope::User) => paths.claude_dir.join(".claude.json"),
        (Agent::Codex, InstallScope::Project) => paths.workspace.join(".codex/config.toml"),
        (Agent::Codex, InstallScope::User) => paths.codex_home.join("config.toml"),
        (Agent::Gemini, InstallScope::Project) => paths.workspace.join(".gemini/settings.json"),
        (Agent::Gemini, InstallScope::User) => paths.gemini_dir.join("settings.json"),
        (Agent::Opencode, InstallScope::Project) => paths.workspace.join("opencode.json"),
        (Agent::Opencode, InstallScope::User) => paths.opencode_config_dir.join("opencode.json"),
    }
}

fn follow_up_notes(agent: Agent, scope: InstallScope) -> Vec<String> {
    let mut notes = Vec::new();
    if (agent, scope) == (Agent::Claude, InstallScope::Project) {
        notes.push(
            "Claude Code asks once, at its next start here, whether to use the server in .mcp.json."
                .to_owned(),
        );
    }
    if (agent, scope) == (Agent::Codex, InstallScope::Project) {
        notes.push("Codex reads .codex/config.toml only in a project it trusts.".to_owned());
    }
    if scope == InstallScope::Project {
        notes.push(
            "Keep the file out of git, or install with --user: it contains a path of this machine."
                .to_owned(),
        );
    }
    notes
}

/// The member of the settings that contains all servers.
fn servers_key(agent: Agent) -> &'static str {
    if agent == Agent::Opencode { "mcp" } else { "mcpServers" }
}

fn server_entry(agent: Agent, program: &str) -> Value {
    let words =
        |words: &[&str]| Value::Array(words.iter().map(|word| Value::Text((*word).to_owned())).collect());
    match agent {
        Agent::Opencode => Value::Object(vec![
            ("type", Value::Text("local".to_owned())),
            ("command", words(&[program, "mcp"])),
        ]),
        _ => Value::Object(vec![("command", Value::Text(program.to_owned())), ("args", words(&["mcp"]))]),
    }
}

/// Whether an entry starts `stepback mcp`, with any path of stepback.
fn is_own_entry(node: &SpannedNode) -> bool {
    let mut words: Vec<&str> = Vec::new();
    for member in ["command", "args"] {
        match node.member(member) {
            Some(node) if node.text().is_some() => words.extend(node.text()),
            Some(node) => {
                words.extend(node.elements().unwrap_or_default().iter().filter_map(SpannedNode::text))
            }
            None => {}
        }
    }
    matches!(words.as_slice(), [program, "mcp", ..] if Path::new(program).file_stem().is_some_and(|stem| stem == NAME))
}

fn add_to_object(plan: &mut InstallPlan, program: &str) -> Result<(), InstallError> {
    let (container, entry) = (servers_key(plan.agent), server_entry(plan.agent, program));
    let text = current_text(plan)?;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let whole = Value::Object(vec![(container, Value::Object(vec![(NAME, entry)]))])
            .to_pretty_string("\n", "  ", "");
        plan.after = Some(format!("{whole}\n").into_bytes());
        return Ok(());
    }
    let mut document = parse_document(plan, text)?;
    let shape = |document: &JsoncDocument, node: &SpannedNode, what: &str| {
        let misfit = HookConflict::Shape { what: what.to_owned(), position: document.position(node) };
        invalid_settings(plan, misfit)
    };
    if document.root().members().is_none() {
        return Err(shape(&document, document.root(), "the settings are not an object"));
    }
    let done = match document.root().member(container) {
        None => document.insert_member(&[], container, &Value::Object(vec![(NAME, entry)])),
        Some(servers) if servers.members().is_none() => {
            return Err(shape(&document, servers, &format!("\"{container}\" is not an object")));
        }
        Some(servers) => match servers.member(NAME) {
            None => document.insert_member(&[container.into()], NAME, &entry),
            Some(known) if entry.matches_node(known) => Ok(()),
            Some(known) if is_own_entry(known) => document.replace(&[container.into(), NAME.into()], &entry),
            Some(known) => return Err(shape(&document, known, "another server is named \"stepback\"")),
        },
    };
    done.map_err(|error| invalid_settings(plan, error.into()))?;
    plan.after = Some(document.text().as_bytes().to_vec());
    Ok(())
}

fn remove_from_object(plan: &mut InstallPlan) -> Result<(), InstallError> {
    let text = current_text(plan)?;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(());
    }
    let mut document = parse_document(plan, text)?;
    let path: [PathStep; 2] = [servers_key(plan.agent).into(), NAME.into()];
    if !document.get(&path).is_some_and(is_own_entry) {
        return Ok(());
    }
    let mut rest = document.remove(&path).map_err(|error| invalid_settings(plan, error.into()))?;
    if rest == RemainingContent::EmptyAndOurs {
        rest = document.remove(&path[..1]).map_err(|error| invalid_settings(plan, error.into()))?;
    } else {
        rest = RemainingContent::Entries;
    }
    let nothing_left = rest == RemainingContent::EmptyAndOurs && document.is_bare();
    plan.after = (!nothing_left).then(|| document.text().as_bytes().to_vec());
    Ok(())
}

/// Returns the byte range of stepback's table in Codex's settings.
fn find_table(text: &str) -> Option<std::ops::Range<usize>> {
    let mut start = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        match start {
            None if bare == TABLE => start = Some(at),
            Some(_) if bare.starts_with('[') => return start.map(|start| start..at),
            _ => {}
        }
        at += line.len();
    }
    start.map(|start| start..text.len())
}

fn parse_toml(plan: &InstallPlan, text: &str) -> Result<toml::Table, InstallError> {
    text.parse::<toml::Table>().map_err(|error| InstallError::InvalidSettings {
        file: plan.file.clone(),
        position: Position::from_offset(text, error.span().map_or(0, |span| span.start)),
        what: error.message().to_owned(),
    })
}

fn add_to_table(plan: &mut InstallPlan, program: &str) -> Result<(), InstallError> {
    let text = current_text(plan)?;
    let known = parse_toml(plan, &text)?;
    let lines = format!("{TABLE}\ncommand = {}\nargs = [\"mcp\"]\n", quote_json(program));
    let there = known.get("mcp_servers").and_then(|servers| servers.get(NAME));
    let after = match (there, find_table(&text)) {
        (None, _) if text.is_empty() => lines,
        (None, _) => {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            format!("{text}{end}\n{lines}")
        }
        (Some(there), Some(_)) if is_same_entry(there, program) => return Ok(()),
        (Some(_), Some(range)) => {
            // What is between stepback's lines and the next table is not stepback's.
            let kept = text[range.clone()].len() - text[range.clone()].trim_end().len();
            let kept = &text[range.end - kept..range.end];
            format!("{}{}{kept}{}", &text[..range.start], lines.trim_end(), &text[range.end..])
        }
        (Some(_), None) => {
            return Err(InstallError::InvalidSettings {
                file: plan.file.clone(),
                position: Position::from_offset(&text, 0),
                what: "a server named \"stepback\" in an unknown format".to_owned(),
            });
        }
    };
    parse_toml(plan, &after)?;
    plan.after = Some(after.into_bytes());
    Ok(())
}

fn is_same_entry(there: &toml::Value, program: &str) -> bool {
    let args = there.get("args").and_then(toml::Value::as_array);
    there.get("command").and_then(toml::Value::as_str) == Some(program)
        && args.is_some_and(|args| matches!(args.as_slice(), [one] if one.as_str() == Some("mcp")))
}

fn remove_from_table(plan: &mut InstallPlan) -> Result<(), InstallError> {
    let text = current_text(plan)?;
    parse_toml(plan, &text)?;
    let Some(range) = find_table(&text) else { return Ok(()) };
    // The blank line above was added by stepback too; at the end of the file, nothing of stepback's follows it.
    let above = text[..range.start].strip_suffix("\n\n").map_or(range.start, |above| above.len() + 1);
    let after = format!("{}{}", &text[..above], &text[range.end..]);
    parse_toml(plan, &after)?;
    plan.after = (!after.is_empty()).then(|| after.into_bytes());
    Ok(())
}
