//! stepback's MCP server in an agent's settings: one entry named `stepback`, beside the other servers.
//!
//! Claude Code keeps a project's servers in `.mcp.json` and the user's in `.claude.json`, Gemini CLI in its settings,
//! opencode in its configuration, Codex as a table of `config.toml`. For Gemini CLI that is also the file with the hooks; a
//! plan that follows another one for the same file starts from the result of that one.

use std::path::{Path, PathBuf};

use super::hooks::HookConflict;
use super::jsonc::{JsoncDocument, PathStep, Rest};
use super::parse::SpannedNode;
use super::plan::{InstallPlan, broken, parse, text};
use super::value::{Value, quoted};
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
    place: &SettingsPaths,
    binary: &Path,
    direction: InstallDirection,
    earlier: Option<&InstallPlan>,
) -> Result<InstallPlan, InstallError> {
    let program = binary.to_str().filter(|_| binary.is_absolute());
    let Some(program) = program else { return Err(InstallError::Binary(binary.to_owned())) };
    let file = file(agent, scope, place);
    let shown = place.show(&file);
    let mut plan = InstallPlan::nothing_yet(agent, file, place)?;
    if let Some(earlier) = earlier.filter(|earlier| earlier.target == plan.target) {
        plan.before.clone_from(&earlier.after);
        plan.after.clone_from(&earlier.after);
    }
    match (agent, direction) {
        (Agent::Codex, InstallDirection::Install) => into_table(&mut plan, program)?,
        (Agent::Codex, InstallDirection::Uninstall) => out_of_table(&mut plan)?,
        (_, InstallDirection::Install) => into_object(&mut plan, program)?,
        (_, InstallDirection::Uninstall) => out_of_object(&mut plan)?,
    }
    if !plan.is_nothing() {
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
        plan.follow_up = follow_up(agent, scope);
    }
    plan.drop_unneeded_dirs(direction);
    Ok(plan)
}

fn file(agent: Agent, scope: InstallScope, place: &SettingsPaths) -> PathBuf {
    match (agent, scope) {
        (Agent::Claude, InstallScope::Project) => place.workspace.join(".mcp.json"),
        // Beside the directory, unless the user configured another directory.
        (Agent::Claude, InstallScope::User) if place.claude_dir == place.home.join(".claude") => {
            place.home.join(".claude.json")
        }
        (Agent::Claude, InstallScope::User) => place.claude_dir.join(".claude.json"),
        (Agent::Codex, InstallScope::Project) => place.workspace.join(".codex/config.toml"),
        (Agent::Codex, InstallScope::User) => place.codex_home.join("config.toml"),
        (Agent::Gemini, InstallScope::Project) => place.workspace.join(".gemini/settings.json"),
        (Agent::Gemini, InstallScope::User) => place.gemini_dir.join("settings.json"),
        (Agent::Opencode, InstallScope::Project) => place.workspace.join("opencode.json"),
        (Agent::Opencode, InstallScope::User) => place.opencode_config_dir.join("opencode.json"),
    }
}

fn follow_up(agent: Agent, scope: InstallScope) -> Vec<String> {
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
fn container(agent: Agent) -> &'static str {
    if agent == Agent::Opencode { "mcp" } else { "mcpServers" }
}

fn entry(agent: Agent, program: &str) -> Value {
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
fn is_ours(node: &SpannedNode) -> bool {
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

fn into_object(plan: &mut InstallPlan, program: &str) -> Result<(), InstallError> {
    let (container, entry) = (container(plan.agent), entry(plan.agent, program));
    let text = text(plan)?;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let whole =
            Value::Object(vec![(container, Value::Object(vec![(NAME, entry)]))]).pretty("\n", "  ", "");
        plan.after = Some(format!("{whole}\n").into_bytes());
        return Ok(());
    }
    let mut document = parse(plan, text)?;
    let shape = |document: &JsoncDocument, node: &SpannedNode, what: &str| {
        let misfit = HookConflict::Shape { what: what.to_owned(), position: document.position(node) };
        broken(plan, misfit)
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
            Some(known) if entry.says_the_same_as(known) => Ok(()),
            Some(known) if is_ours(known) => document.replace(&[container.into(), NAME.into()], &entry),
            Some(known) => return Err(shape(&document, known, "another server is named \"stepback\"")),
        },
    };
    done.map_err(|error| broken(plan, error.into()))?;
    plan.after = Some(document.text().as_bytes().to_vec());
    Ok(())
}

fn out_of_object(plan: &mut InstallPlan) -> Result<(), InstallError> {
    let text = text(plan)?;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(());
    }
    let mut document = parse(plan, text)?;
    let path: [PathStep; 2] = [container(plan.agent).into(), NAME.into()];
    if !document.get(&path).is_some_and(is_ours) {
        return Ok(());
    }
    let mut rest = document.remove(&path).map_err(|error| broken(plan, error.into()))?;
    if rest == Rest::EmptyAndOurs {
        rest = document.remove(&path[..1]).map_err(|error| broken(plan, error.into()))?;
    } else {
        rest = Rest::Entries;
    }
    let nothing_left = rest == Rest::EmptyAndOurs && document.is_bare();
    plan.after = (!nothing_left).then(|| document.text().as_bytes().to_vec());
    Ok(())
}

/// Returns the byte range of stepback's table in Codex's settings.
fn table(text: &str) -> Option<std::ops::Range<usize>> {
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

fn checked(plan: &InstallPlan, text: &str) -> Result<toml::Table, InstallError> {
    text.parse::<toml::Table>().map_err(|error| InstallError::Broken {
        file: plan.file.clone(),
        position: Position::of(text, error.span().map_or(0, |span| span.start)),
        what: error.message().to_owned(),
    })
}

fn into_table(plan: &mut InstallPlan, program: &str) -> Result<(), InstallError> {
    let text = text(plan)?;
    let known = checked(plan, &text)?;
    let lines = format!("{TABLE}\ncommand = {}\nargs = [\"mcp\"]\n", quoted(program));
    let there = known.get("mcp_servers").and_then(|servers| servers.get(NAME));
    let after = match (there, table(&text)) {
        (None, _) if text.is_empty() => lines,
        (None, _) => {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            format!("{text}{end}\n{lines}")
        }
        (Some(there), Some(_)) if says_the_same(there, program) => return Ok(()),
        (Some(_), Some(range)) => {
            // What is between stepback's lines and the next table is not stepback's.
            let kept = text[range.clone()].len() - text[range.clone()].trim_end().len();
            let kept = &text[range.end - kept..range.end];
            format!("{}{}{kept}{}", &text[..range.start], lines.trim_end(), &text[range.end..])
        }
        (Some(_), None) => {
            return Err(InstallError::Broken {
                file: plan.file.clone(),
                position: Position::of(&text, 0),
                what: "a server named \"stepback\" in an unknown format".to_owned(),
            });
        }
    };
    checked(plan, &after)?;
    plan.after = Some(after.into_bytes());
    Ok(())
}

fn says_the_same(there: &toml::Value, program: &str) -> bool {
    let args = there.get("args").and_then(toml::Value::as_array);
    there.get("command").and_then(toml::Value::as_str) == Some(program)
        && args.is_some_and(|args| matches!(args.as_slice(), [one] if one.as_str() == Some("mcp")))
}

fn out_of_table(plan: &mut InstallPlan) -> Result<(), InstallError> {
    let text = text(plan)?;
    checked(plan, &text)?;
    let Some(range) = table(&text) else { return Ok(()) };
    // The blank line above was added by stepback too; at the end of the file, nothing of stepback's follows it.
    let above = text[..range.start].strip_suffix("\n\n").map_or(range.start, |above| above.len() + 1);
    let after = format!("{}{}", &text[..above], &text[range.end..]);
    checked(plan, &after)?;
    plan.after = (!after.is_empty()).then(|| after.into_bytes());
    Ok(())
}
