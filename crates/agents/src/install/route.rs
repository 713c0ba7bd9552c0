//! Sends an agent's model calls through stepback's proxy for one run.
//!
//! Every agent is configured differently, and some have several models at several addresses. First [`routes`] returns the
//! addresses that the agent would call; a proxy is started for each; then [`through`] configures the agent to call the
//! proxies instead. None of it lasts longer than the run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::jsonc::{JsoncDocument, PathStep, SyntaxError};
use super::run::{HookedCommand, OPENCODE_CONFIG_VARIABLE, RunPlan, first_argument_index};
use super::value::{Value, quote_json};
use super::{InstallError, SettingsPaths};
use crate::Agent;

/// One address that an agent would call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its name in the agent's settings: a variable, or the name of a provider.
    pub name: String,
    /// The base URL of the model's server.
    pub upstream: String,
}

impl Route {
    fn new(name: impl Into<String>, upstream: impl Into<String>) -> Self {
        Self { name: name.into(), upstream: upstream.into() }
    }
}

const ANTHROPIC_URL_VARIABLE: &str = "ANTHROPIC_BASE_URL";
const GEMINI_URL_VARIABLE: &str = "GOOGLE_GEMINI_BASE_URL";
const CODE_ASSIST_URL_VARIABLE: &str = "CODE_ASSIST_ENDPOINT";
/// Codex's own provider, which has a setting of its own.
const OPENAI_PROVIDER: &str = "openai";

/// Providers that opencode knows without configuration: name, address, and the variables with a key for it.
const OPENCODE_BUILTIN_PROVIDERS: [(&str, &str, &[&str]); 4] = [
    ("anthropic", "https://api.anthropic.com/v1", &["ANTHROPIC_API_KEY"]),
    ("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"]),
    (
        "google",
        "https://generativelanguage.googleapis.com/v1beta",
        &["GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"],
    ),
    ("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"]),
];

/// Variables that send an agent's calls through a network proxy, or sign them: a proxy in between would break them. An agent
/// behind a network proxy may even look for stepback's proxy there.
pub const PROXY_BLOCKING_VARIABLES: [&str; 8] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY",
];

/// Returns the variable that prevents an agent's calls from being proxied, if there is one.
pub fn find_blocking_variable(run: &HookedCommand<'_>) -> Option<&'static str> {
    PROXY_BLOCKING_VARIABLES.into_iter().find(|name| env_variable(run, name).is_some())
}

/// Returns the addresses that `agent` would call. Empty if the address of its model cannot be changed.
pub fn find_routes(agent: Agent, run: &HookedCommand<'_>) -> Vec<Route> {
    match agent {
        Agent::Claude => {
            let elsewhere = ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"];
            if elsewhere.iter().any(|name| env_variable(run, name).is_some()) {
                return Vec::new();
            }
            let set = claude_base_url(run.paths).or_else(|| env_variable(run, ANTHROPIC_URL_VARIABLE));
            vec![Route::new(
                ANTHROPIC_URL_VARIABLE,
                set.unwrap_or_else(|| "https://api.anthropic.com".to_owned()),
            )]
        }
        Agent::Codex => codex_route(run).into_iter().collect(),
        Agent::Gemini => [
            (GEMINI_URL_VARIABLE, "https://generativelanguage.googleapis.com"),
            (CODE_ASSIST_URL_VARIABLE, "https://cloudcode-pa.googleapis.com"),
        ]
        .map(|(name, usual)| Route::new(name, env_variable(run, name).unwrap_or_else(|| usual.to_owned())))
        .into(),
        Agent::Opencode => opencode_routes(run),
    }
}

/// Configures the agent to call `ours` instead, one address for each route.
pub fn route_through_proxy(
    agent: Agent,
    run: &HookedCommand<'_>,
    routes: &[(Route, String)],
    plan: &mut RunPlan,
) -> Result<(), InstallError> {
    match agent {
        Agent::Claude | Agent::Gemini => {
            plan.env.extend(routes.iter().map(|(route, ours)| (route.name.clone(), ours.clone())));
            if agent == Agent::Claude && claude_base_url(run.paths).is_some() {
                // The agent's settings override the environment, and settings given with the command override both.
                for (_, ours) in routes {
                    set_claude_setting(plan, run, &["env", ANTHROPIC_URL_VARIABLE], ours)?;
                }
            }
        }
        Agent::Codex => {
            let first = first_argument_index(&plan.argv);
            for (route, ours) in routes {
                let setting = match route.name.as_str() {
                    // Codex tries a WebSocket first; the proxy refuses that, and Codex falls back to plain requests.
                    OPENAI_PROVIDER => format!("openai_base_url={}", quote_json(ours)),
                    name => format!("model_providers.{name}.base_url={}", quote_json(ours)),
                };
                plan.argv.splice(first..first, ["-c".into(), setting.into()]);
            }
        }
        Agent::Opencode => {
            let Some(at) = plan.env.iter().position(|(name, _)| name == OPENCODE_CONFIG_VARIABLE) else {
                return Ok(());
            };
            let wrong = |what: String| InstallError::InvalidOption { option: OPENCODE_CONFIG_VARIABLE, what };
            let mut document =
                JsoncDocument::parse(plan.env[at].1.clone()).map_err(|error| wrong(error.to_string()))?;
            for (route, ours) in routes {
                let path = ["provider", &route.name, "options", "baseURL"];
                set_text(&mut document, &path, ours).map_err(|error| wrong(error.to_string()))?;
            }
            plan.env[at].1 = document.text().to_owned();
        }
    }
    Ok(())
}

fn env_variable(run: &HookedCommand<'_>, name: &str) -> Option<String> {
    let (_, value) = run.environment.iter().find(|(known, _)| known == OsStr::new(name))?;
    value.to_str().filter(|value| !value.is_empty()).map(str::to_owned)
}

fn read_document(file: &Path) -> Option<JsoncDocument> {
    JsoncDocument::parse(std::fs::read_to_string(file).ok()?).ok()
}

/// Returns the address in Claude Code's settings; the nearest file wins.
fn claude_base_url(paths: &SettingsPaths) -> Option<String> {
    let project = paths.workspace.join(".claude");
    let files = [
        project.join("settings.local.json"),
        project.join("settings.json"),
        paths.claude_dir.join("settings.json"),
    ];
    files.iter().find_map(|file| {
        let document = read_document(file)?;
        Some(document.root().member("env")?.member(ANTHROPIC_URL_VARIABLE)?.text()?.to_owned())
    })
}

/// Returns the provider that Codex would use, and its address.
fn codex_route(run: &HookedCommand<'_>) -> Option<Route> {
    let text = std::fs::read_to_string(run.paths.codex_home.join("config.toml")).unwrap_or_default();
    let config: toml::Table = toml::from_str(&text).ok()?;
    let given = parse_command_settings(run);
    let told = |name: &str| given.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let profile = told("profile").or_else(|| Some(config.get("profile")?.as_str()?.to_owned()));
    let in_profile = |name: &str| {
        let profile = config.get("profiles")?.get(profile.as_ref()?)?;
        Some(profile.get(name)?.as_str()?.to_owned())
    };
    let setting = |name: &str| {
        told(name).or_else(|| in_profile(name)).or_else(|| Some(config.get(name)?.as_str()?.to_owned()))
    };
    let provider = setting("model_provider").unwrap_or_else(|| OPENAI_PROVIDER.to_owned());
    if provider == OPENAI_PROVIDER {
        let auth = std::fs::read_to_string(run.paths.codex_home.join("auth.json")).unwrap_or_default();
        let auth: serde_json::Value = serde_json::from_str(&auth).unwrap_or_default();
        let has_plan = auth["tokens"].is_object() && !auth["OPENAI_API_KEY"].is_string();
        let usual =
            if has_plan { "https://chatgpt.com/backend-api/codex" } else { "https://api.openai.com/v1" };
        return Some(Route::new(
            OPENAI_PROVIDER,
            setting("openai_base_url").unwrap_or_else(|| usual.to_owned()),
        ));
    }
    let told = told(&format!("model_providers.{provider}.base_url"));
    let known = || Some(config.get("model_providers")?.get(&provider)?.get("base_url")?.as_str()?.to_owned());
    told.or_else(known).map(|url| Route::new(provider, url))
}

/// Settings of Codex in the command itself: `-c name=value`, `-p profile`.
fn parse_command_settings(run: &HookedCommand<'_>) -> Vec<(String, String)> {
    let mut given = Vec::new();
    let words: Vec<&str> = run.argv.iter().filter_map(|word| word.to_str()).collect();
    for pair in words.windows(2) {
        match pair[0] {
            "-c" | "--config" => {
                if let Some((name, value)) = pair[1].split_once('=') {
                    given.push((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()));
                }
            }
            "-p" | "--profile" => given.push(("profile".to_owned(), pair[1].to_owned())),
            _ => {}
        }
    }
    given
}

/// Returns the providers that opencode is configured for.
fn opencode_routes(run: &HookedCommand<'_>) -> Vec<Route> {
    let mut files: Vec<PathBuf> = Vec::new();
    for dir in [&run.paths.opencode_config_dir, &run.paths.workspace, &run.paths.workspace.join(".opencode")]
    {
        files.extend(["config.json", "opencode.json", "opencode.jsonc"].map(|name| dir.join(name)));
    }
    files.extend(env_variable(run, "OPENCODE_CONFIG").map(PathBuf::from));
    let mut documents: Vec<JsoncDocument> = files.iter().filter_map(|file| read_document(file)).collect();
    documents
        .extend(env_variable(run, OPENCODE_CONFIG_VARIABLE).and_then(|text| JsoncDocument::parse(text).ok()));
    let mut routes: Vec<Route> = Vec::new();
    let mut used: Vec<String> = Vec::new();
    for document in &documents {
        for provider in document.root().member("provider").and_then(|all| all.members()).unwrap_or_default() {
            used.push(provider.name.clone());
            let url = provider.value.member("options").and_then(|options| options.member("baseURL")?.text());
            if let Some(url) = url {
                // A later file overrides an earlier one.
                routes.retain(|route| route.name != provider.name);
                routes.push(Route::new(&provider.name, url));
            }
        }
        let model = document.root().member("model").and_then(|model| model.text()?.split_once('/'));
        used.extend(model.map(|(provider, _)| provider.to_owned()));
    }
    for pair in run.argv.windows(2).filter(|pair| pair[0] == "-m" || pair[0] == "--model") {
        let provider = pair[1].to_str().and_then(|model| model.split_once('/'));
        used.extend(provider.map(|(provider, _)| provider.to_owned()));
    }
    let logins = std::fs::read_to_string(run.paths.home.join(".local/share/opencode/auth.json"));
    let logins: serde_json::Value = serde_json::from_str(&logins.unwrap_or_default()).unwrap_or_default();
    for (name, url, keys) in OPENCODE_BUILTIN_PROVIDERS {
        let in_use = used.iter().any(|used| used == name)
            || logins.get(name).is_some()
            || keys.iter().any(|key| env_variable(run, key).is_some());
        if in_use && !routes.iter().any(|route| route.name == name) {
            routes.push(Route::new(name, url));
        }
    }
    routes
}

/// Sets a text in a document; creates missing objects on the path.
fn set_text(document: &mut JsoncDocument, path: &[&str], text: &str) -> Result<(), SyntaxError> {
    let steps: Vec<PathStep> = path.iter().map(|name| PathStep::from(*name)).collect();
    let last = path.len() - 1;
    for (depth, name) in path.iter().enumerate() {
        let value = if depth == last { Value::Text(text.to_owned()) } else { Value::Object(Vec::new()) };
        match document.get(&steps[..=depth]) {
            None => document.insert_member(&steps[..depth], name, &value)?,
            Some(_) if depth == last => document.replace(&steps, &value)?,
            Some(_) => {}
        }
    }
    Ok(())
}

/// Sets a text in the settings that Claude Code gets with its command.
fn set_claude_setting(
    plan: &mut RunPlan,
    run: &HookedCommand<'_>,
    path: &[&str],
    text: &str,
) -> Result<(), InstallError> {
    let wrong = |what: String| InstallError::InvalidOption { option: "--settings", what };
    let file = run.temp_dir.join("settings.json");
    for (_, bytes) in plan.files.iter_mut().filter(|(name, _)| *name == file) {
        let given = String::from_utf8(bytes.clone()).map_err(|error| wrong(error.to_string()))?;
        let mut document = JsoncDocument::parse(given).map_err(|error| wrong(error.to_string()))?;
        set_text(&mut document, path, text).map_err(|error| wrong(error.to_string()))?;
        *bytes = document.text().as_bytes().to_vec();
    }
    Ok(())
}
