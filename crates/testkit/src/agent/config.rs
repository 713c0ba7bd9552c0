//! The configuration with which each agent runs unattended against the scripted model: files, environment, command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::PORT;
use crate::model::ScriptedAgent;

/// The files an agent needs in its home, with their content.
pub fn files(agent: ScriptedAgent) -> Vec<(&'static str, String)> {
    match agent {
        ScriptedAgent::Claude => Vec::new(),
        // Codex offers no patch tool for a model that its catalogue does not have.
        ScriptedAgent::Codex => vec![(
            ".codex/config.toml",
            format!(
                "model = \"gpt-5.5\"\nmodel_provider = \"scripted\"\ncheck_for_update_on_startup = false\n\n\
                 [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"http://127.0.0.1:{PORT}/v1\"\n\
                 wire_api = \"responses\"\nenv_key = \"SCRIPTED_API_KEY\"\n"
            ),
        )],
        ScriptedAgent::Gemini => {
            let settings = json!({
                "security": { "auth": { "selectedType": "gemini-api-key" } },
                "general": { "enableAutoUpdate": false },
                "privacy": { "usageStatisticsEnabled": false },
                "telemetry": { "enabled": false },
                "hooksConfig": { "enabled": true },
            });
            vec![(".gemini/settings.json", format!("{settings:#}\n"))]
        }
        ScriptedAgent::Opencode => {
            let model = json!({ "name": "Scripted", "tool_call": true, "limit": { "context": 200_000, "output": 8_000 } });
            let config = json!({
                "$schema": "https://opencode.ai/config.json",
                "model": "scripted/scripted",
                "autoupdate": false,
                "share": "disabled",
                "provider": { "scripted": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Scripted",
                    "options": { "baseURL": format!("http://127.0.0.1:{PORT}/v1"), "apiKey": "sk-scripted" },
                    "models": { "scripted": model },
                } },
            });
            vec![(".config/opencode/opencode.json", format!("{config:#}\n"))]
        }
    }
}

/// The whole environment of a run.
pub fn environment(agent: ScriptedAgent, home: &Path, path: &OsStr) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(&str, OsString)> = vec![
        ("HOME", home.into()),
        ("PATH", path.into()),
        ("TMPDIR", home.join("tmp").into()),
        ("USER", "test".into()),
        ("SHELL", "/bin/bash".into()),
        ("LANG", "C.UTF-8".into()),
        ("TERM", "dumb".into()),
        ("TZ", "UTC".into()),
    ];
    let model_url = format!("http://127.0.0.1:{PORT}");
    match agent {
        ScriptedAgent::Claude => variables.extend([
            ("ANTHROPIC_BASE_URL", model_url.into()),
            ("ANTHROPIC_API_KEY", "sk-scripted".into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
        ]),
        ScriptedAgent::Codex => variables.push(("SCRIPTED_API_KEY", "sk-scripted".into())),
        ScriptedAgent::Gemini => variables
            .extend([("GOOGLE_GEMINI_BASE_URL", model_url.into()), ("GEMINI_API_KEY", "scripted".into())]),
        ScriptedAgent::Opencode => variables.extend([
            ("OPENCODE_DISABLE_AUTOUPDATE", "1".into()),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1".into()),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".into()),
            // Before Gemini CLI loads a plugin it requests a package from npm, which takes 70 seconds to fail without a
            // network.
            ("npm_config_offline", "true".into()),
        ]),
    }
    variables.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// The command line that works on one prompt without asking for confirmation.
pub fn command(agent: ScriptedAgent, resume: Option<&str>, more: &[OsString], prompt: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![agent.program().into()];
    let mut add = |arguments: &[&str]| words.extend(arguments.iter().map(OsString::from));
    match agent {
        ScriptedAgent::Claude => {
            add(&[
                "-p",
                prompt,
                "--output-format",
                "json",
                "--allowedTools",
                "Bash,Edit,Write,Read,Glob,Grep",
            ]);
            if let Some(session) = resume {
                add(&["--resume", session]);
            }
            words.extend(more.iter().cloned());
        }
        ScriptedAgent::Codex => {
            add(&["exec", "-s", "danger-full-access", "--skip-git-repo-check", "--json"]);
            words.extend(more.iter().cloned());
            if let Some(session) = resume {
                words.extend(["resume".into(), session.into()]);
            }
            words.push(prompt.into());
        }
        ScriptedAgent::Gemini => {
            add(&["-p", prompt, "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "--skip-trust"]);
            add(&["--output-format", "json"]);
            if let Some(session) = resume {
                add(&["--resume", session]);
            }
            words.extend(more.iter().cloned());
        }
        ScriptedAgent::Opencode => {
            add(&["run", "--format", "json", "--auto"]);
            if let Some(session) = resume {
                add(&["--session", session]);
            }
            words.extend(more.iter().cloned());
            words.push(prompt.into());
        }
    }
    words
}

/// The directory of the installed agents, next to the build that this test binary belongs to.
///
/// Fails the test if they are missing or not the ones that are pinned.
pub fn installed() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let directory = program
        .ancestors()
        .map(|target| target.join("agents"))
        .find(|directory| directory.join("installed.json").exists());
    let Some(directory) = directory else {
        panic!("the real agents are not installed: run `cargo xtask agents install`");
    };
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/agents/package-lock.json");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        read(&directory.join("installed.json")) == read(&lock),
        "the real agents in {} are not the ones that are pinned: run `cargo xtask agents install`",
        directory.display()
    );
    directory
}
