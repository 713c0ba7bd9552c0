//! Runs an agent once with stepback's hooks, without a lasting change.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::hooks::{self, OwnHandlers};
use super::jsonc::JsoncDocument;
use super::value::Value;
use super::{
    HookCommand, InstallDirection, InstallError, InstallPlan, InstallScope, SettingsPaths, codex, opencode,
    plan,
};
use crate::Agent;

/// A command to run with hooks.
#[derive(Clone, Copy, Debug)]
pub struct HookedCommand<'a> {
    /// The program and its arguments.
    pub argv: &'a [OsString],
    /// The directory it is run in.
    pub cwd: &'a Path,
    /// The environment it is run in; only variables about the agent's settings are read.
    pub environment: &'a [(OsString, OsString)],
    /// Where settings are.
    pub paths: &'a SettingsPaths,
    /// Path of the stepback program.
    pub binary: &'a Path,
    /// Whether the hooks fail closed.
    pub strict: bool,
    /// A directory for this run only, which is removed after it.
    pub temp_dir: &'a Path,
}

/// How to run the command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunPlan {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Environment variables to set.
    pub env: Vec<(String, String)>,
    /// Files to write first, in `temp_dir`.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Changes for the duration of the run, if the agent has no other way: to be carried out before it and undone after it
    /// with [`plan_undo`](super::plan_undo). If that finds the file changed, uninstall instead.
    pub edits: Vec<InstallPlan>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Returns the agent that a command runs, if it is a supported one.
pub fn detect_agent(argv: &[OsString]) -> Option<Agent> {
    parse_invocation(argv).map(|(agent, _)| agent)
}

/// Returns the index of the agent's first own argument. For a command of unknown form (a script, say), the first word is
/// assumed to be the agent.
pub(super) fn first_argument_index(argv: &[OsString]) -> usize {
    parse_invocation(argv).map_or(1, |(_, first)| first).min(argv.len())
}

/// Returns the words of a command that start the agent, without the agent's own arguments.
pub fn launcher_words(argv: &[OsString]) -> &[OsString] {
    &argv[..first_argument_index(argv)]
}

/// Plans one run of `agent` with hooks.
pub fn plan_run(agent: Agent, run: &HookedCommand<'_>) -> Result<RunPlan, InstallError> {
    let hook = HookCommand::new(agent, run.binary, run.strict)?;
    let first = first_argument_index(run.argv);
    let mut out = RunPlan { argv: run.argv.to_vec(), ..RunPlan::default() };
    match agent {
        Agent::Claude => add_claude_settings(&mut out, run, &hook, first)?,
        Agent::Codex => {
            let settings = codex::build_overrides(&hook, run.paths, run.binary);
            let args = settings.into_iter().flat_map(|setting| ["-c".into(), setting.into()]);
            out.argv.splice(first..first, args);
            out.notes.push("Codex trusts stepback's hooks for this run only.".to_owned());
        }
        Agent::Gemini => {
            // Its system settings would be the right place, but Gemini CLI reads them only from a file that root owns.
            let plan = plan(
                agent,
                InstallScope::User,
                run.paths,
                run.binary,
                run.strict,
                InstallDirection::Install,
            )?;
            if !plan.is_unchanged() {
                let shown = run.paths.display_path(&plan.file);
                out.notes.push(format!("{shown} contains stepback's hooks during this run."));
                out.edits.push(plan);
            }
        }
        Agent::Opencode => {
            let file = run.temp_dir.join(opencode::NAME);
            let url = file_url(&file);
            out.files.push((file, opencode::render_plugin(&hook).into_bytes()));
            out.env.push((OPENCODE_CONFIG_VARIABLE.to_owned(), build_opencode_config(run, &url)?));
        }
    }
    Ok(out)
}

pub(super) const OPENCODE_CONFIG_VARIABLE: &str = "OPENCODE_CONFIG_CONTENT";

/// Claude Code merges the file after `--settings` with the user's and the project's, but uses only the last one given.
fn add_claude_settings(
    out: &mut RunPlan,
    run: &HookedCommand<'_>,
    hook: &HookCommand<'_>,
    first: usize,
) -> Result<(), InstallError> {
    let file = run.temp_dir.join("settings.json");
    let wanted = plan::build_handlers(hook);
    let text = match find_settings_option(run.argv, first) {
        None => {
            out.argv.splice(first..first, ["--settings".into(), file.clone().into()]);
            Value::Object(vec![("hooks", hooks::build_hooks_object(&wanted))])
                .to_pretty_string("\n", "  ", "")
        }
        Some((at, joined, value)) => {
            let wrong = |what: String| InstallError::InvalidOption { option: "--settings", what };
            let text = match value.to_str() {
                Some(inline) if inline.trim_start().starts_with('{') => inline.to_owned(),
                _ => {
                    std::fs::read_to_string(run.cwd.join(&value)).map_err(|error| wrong(error.to_string()))?
                }
            };
            let mut document = JsoncDocument::parse(text).map_err(|error| wrong(error.to_string()))?;
            let ours = OwnHandlers { agent: Agent::Claude, binary: run.binary };
            hooks::install(&mut document, &wanted, ours).map_err(|misfit| wrong(misfit.to_string()))?;
            out.argv[at] = if joined {
                let mut option = OsString::from("--settings=");
                option.push(&file);
                option
            } else {
                file.clone().into()
            };
            document.text().to_owned()
        }
    };
    out.files.push((file, text.into_bytes()));
    let off = |arg: &&OsString| *arg == "--bare" || *arg == "--safe-mode";
    if let Some(off) = run.argv.iter().skip(first).find(off) {
        let off = off.to_string_lossy();
        out.notes.push(format!("{off} disables hooks: the steps of this run are not recorded."));
    }
    Ok(())
}

/// Returns the last `--settings`: the index of the argument with its value, whether it is joined to the option, and the value.
fn find_settings_option(argv: &[OsString], first: usize) -> Option<(usize, bool, OsString)> {
    let mut found = None;
    let mut at = first;
    while at < argv.len() && argv[at] != "--" {
        if argv[at] == "--settings" && at + 1 < argv.len() {
            found = Some((at + 1, false, argv[at + 1].clone()));
            at += 1;
        } else if let Some(value) = argv[at].to_str().and_then(|arg| arg.strip_prefix("--settings=")) {
            found = Some((at, true, value.into()));
        }
        at += 1;
    }
    found
}

/// Returns the URL of a file, with everything but plain letters, digits and marks escaped.
fn file_url(file: &Path) -> String {
    let mut url = String::from("file://");
    for &byte in file.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// opencode merges the plugins of all its configurations; the one in the environment is one of them.
fn build_opencode_config(run: &HookedCommand<'_>, url: &str) -> Result<String, InstallError> {
    let given =
        run.environment.iter().find(|(name, _)| name == OPENCODE_CONFIG_VARIABLE).map(|(_, value)| value);
    let Some(given) = given.filter(|given| !given.is_empty()) else {
        let plugins = Value::Array(vec![Value::Text(url.to_owned())]);
        return Ok(Value::Object(vec![("plugin", plugins)]).to_compact_string(false));
    };
    let wrong = |what: String| InstallError::InvalidOption { option: OPENCODE_CONFIG_VARIABLE, what };
    let text = given.to_str().ok_or_else(|| wrong("it is not UTF-8".to_owned()))?;
    let mut document = JsoncDocument::parse(text.to_owned()).map_err(|error| wrong(error.to_string()))?;
    let plugin = Value::Text(url.to_owned());
    let done = match document.root().member("plugin") {
        Some(_) => document.append(&["plugin".into()], &plugin),
        None => document.insert_member(&[], "plugin", &Value::Array(vec![plugin])),
    };
    done.map_err(|error| wrong(error.to_string()))?;
    Ok(document.text().to_owned())
}

/// Returns the agent of a command, and the index of its first own argument.
fn parse_invocation(argv: &[OsString]) -> Option<(Agent, usize)> {
    let name = program_name(argv.first()?);
    let rest = |first: usize, agent: fn(&OsStr) -> Option<Agent>| {
        let at = first + argv[first..].iter().position(|arg| !arg.as_encoded_bytes().starts_with(b"-"))?;
        agent(&argv[at]).map(|agent| (agent, at + 1))
    };
    match name.as_str() {
        "npx" | "bunx" | "pnpx" => rest(1, agent_from_package),
        "npm" | "pnpm" | "yarn" | "bun"
            if argv.get(1).is_some_and(|arg| arg == "exec" || arg == "dlx" || arg == "x") =>
        {
            rest(2, agent_from_package)
        }
        "node" | "bun" | "deno" => rest(1, agent_from_script),
        "env" => {
            let assigns = |arg: &OsString| arg.as_encoded_bytes().contains(&b'=');
            let at = 1 + argv[1..].iter().position(|arg| !assigns(arg))?;
            parse_invocation(&argv[at..]).map(|(agent, first)| (agent, at + first))
        }
        name => Agent::parse(name).map(|agent| (agent, 1)),
    }
}

/// Returns the name of a program without its directory and extension.
fn program_name(path: &OsStr) -> String {
    let name = Path::new(path).file_name().unwrap_or(path).to_string_lossy();
    let ending = [".exe", ".cmd", ".js", ".cjs", ".mjs"].into_iter().find(|ending| name.ends_with(ending));
    name.strip_suffix(ending.unwrap_or_default()).unwrap_or(&name).to_owned()
}

const PACKAGES: [(&str, Agent); 4] = [
    ("@anthropic-ai/claude-code", Agent::Claude),
    ("@openai/codex", Agent::Codex),
    ("@google/gemini-cli", Agent::Gemini),
    ("opencode-ai", Agent::Opencode),
];

/// Returns the agent in an npm package name, with or without a version.
fn agent_from_package(name: &OsStr) -> Option<Agent> {
    let name = name.to_str()?;
    let bare = name.char_indices().skip(1).find(|(_, c)| *c == '@').map_or(name, |(at, _)| &name[..at]);
    PACKAGES.into_iter().find(|(package, _)| *package == bare).map(|(_, agent)| agent)
}

/// Returns the agent in a script that Node runs.
fn agent_from_script(path: &OsStr) -> Option<Agent> {
    let text = path.to_str()?.replace('\\', "/");
    let inside = |(package, _): &(&str, Agent)| text.contains(&format!("/{package}/"));
    PACKAGES.into_iter().find(inside).map(|(_, agent)| agent).or_else(|| Agent::parse(&program_name(path)))
}
