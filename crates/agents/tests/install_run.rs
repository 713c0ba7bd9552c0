//! One run of an agent with hooks.
#![expect(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use stepback_agents::Agent;
use stepback_agents::install::{
    HookedCommand, InstallDirection, InstallScope, RunPlan, SettingsPaths, apply_plan, detect_agent, plan,
    plan_run,
};
use tempfile::TempDir;

fn words(command: &str) -> Vec<OsString> {
    command.split(' ').map(OsString::from).collect()
}

fn run(dir: &Path, command: &str, environment: &[(&str, &str)]) -> RunPlan {
    let place = SettingsPaths::from_home(&dir.join("home"), dir);
    let argv = words(command);
    let environment: Vec<_> =
        environment.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect();
    let run = HookedCommand {
        argv: &argv,
        cwd: dir,
        environment: &environment,
        paths: &place,
        binary: Path::new("/bin/stepback"),
        strict: false,
        temp_dir: Path::new("/run/one"),
    };
    plan_run(detect_agent(&argv).unwrap(), &run).unwrap()
}

#[test]
fn agents_are_known_by_their_commands() {
    for (command, agent) in [
        ("claude", Some(Agent::Claude)),
        ("/usr/local/bin/codex exec go", Some(Agent::Codex)),
        ("gemini.cmd", Some(Agent::Gemini)),
        ("opencode run x", Some(Agent::Opencode)),
        ("npx -y @anthropic-ai/claude-code@2.1.197 -p x", Some(Agent::Claude)),
        ("npx @openai/codex", Some(Agent::Codex)),
        ("bunx opencode-ai", Some(Agent::Opencode)),
        ("pnpm dlx @google/gemini-cli", Some(Agent::Gemini)),
        ("node --no-warnings /x/node_modules/@anthropic-ai/claude-code/cli.js -p x", Some(Agent::Claude)),
        ("node /usr/bin/gemini", Some(Agent::Gemini)),
        ("env A=1 B=2 claude", Some(Agent::Claude)),
        ("npx eslint", None),
        ("node server.js claude", None),
        ("bash", None),
        ("npx", None),
    ] {
        assert_eq!(detect_agent(&words(command)), agent, "{command}");
    }
    assert_eq!(detect_agent(&[]), None);
}

#[test]
fn claude_gets_a_settings_file_before_its_own_arguments() {
    let dir = TempDir::new().unwrap();
    let plan = run(dir.path(), "npx -y @anthropic-ai/claude-code -p x", &[]);
    assert_eq!(plan.argv, words("npx -y @anthropic-ai/claude-code --settings /run/one/settings.json -p x"));
    let settings: serde_json::Value = serde_json::from_slice(&plan.files[0].1).unwrap();
    assert_eq!(settings["hooks"].as_object().unwrap().len(), 16);
}

#[test]
fn settings_given_to_claude_are_joined_with_ours() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("mine.json"), "{\"model\": \"m\", \"hooks\": {\"Stop\": [{\"hooks\": []}]}}")
        .unwrap();
    for (command, expected) in [
        ("claude --settings mine.json -p x", "claude --settings /run/one/settings.json -p x"),
        ("claude -p x --settings=mine.json", "claude -p x --settings=/run/one/settings.json"),
    ] {
        let plan = run(dir.path(), command, &[]);
        assert_eq!(plan.argv, words(expected));
        let settings: serde_json::Value = serde_json::from_slice(&plan.files[0].1).unwrap();
        assert_eq!(settings["model"], "m");
        assert_eq!(settings["hooks"]["Stop"].as_array().unwrap().len(), 2);
    }
    let inline = run(dir.path(), "claude --settings {\"a\":1}", &[]);
    let settings: serde_json::Value = serde_json::from_slice(&inline.files[0].1).unwrap();
    assert_eq!(settings["a"], 1);
    assert!(run(dir.path(), "claude --bare", &[]).notes[0].contains("--bare"));
}

#[test]
fn codex_gets_hooks_with_their_trust_and_installed_ones_sleep() {
    let dir = TempDir::new().unwrap();
    let place = SettingsPaths::from_home(&dir.path().join("home"), dir.path());
    fs::create_dir_all(&place.home).unwrap();
    let install = plan(
        Agent::Codex,
        InstallScope::User,
        &place,
        Path::new("/bin/stepback"),
        false,
        InstallDirection::Install,
    )
    .unwrap();
    apply_plan(&install).unwrap();
    let plan = run(dir.path(), "codex exec go", &[]);
    let argv: Vec<_> = plan.argv.iter().map(|arg| arg.to_str().unwrap()).collect();
    assert_eq!((argv[0], argv[1], &argv[argv.len() - 2..]), ("codex", "-c", &["exec", "go"][..]));
    assert!(argv.contains(
        &"hooks.PreToolUse=[{hooks=[{type=\"command\",command=\"/bin/stepback hook codex\",timeout=3600}]}]"
    ));
    let state = argv.iter().find(|arg| arg.starts_with("hooks.state=")).unwrap();
    assert!(state.contains("\"/<session-flags>/config.toml:interrupt:0:0\"={trusted_hash=\"sha256:"));
    assert!(state.contains(&format!("\"{}:stop:0:0\"={{enabled=false}}", install.file.display())));
    assert!(!argv.iter().any(|arg| arg.contains("bypass")));
}

#[test]
fn gemini_gets_hooks_for_the_time_being() {
    let dir = TempDir::new().unwrap();
    let plan = run(dir.path(), "gemini -p x", &[]);
    assert_eq!(plan.argv, words("gemini -p x"));
    assert_eq!(plan.edits.len(), 1);
    assert!(plan.edits[0].file.ends_with("home/.gemini/settings.json"));
}

#[test]
fn opencode_gets_the_plugin_beside_those_it_is_given() {
    let dir = TempDir::new().unwrap();
    let plan = run(dir.path(), "opencode run x", &[]);
    let ours = "{\"plugin\":[\"file:///run/one/stepback.js\"]}";
    assert_eq!(plan.env, [("OPENCODE_CONFIG_CONTENT".to_owned(), ours.to_owned())]);
    let given = [("OPENCODE_CONFIG_CONTENT", "{\"model\":\"m\",\"plugin\":[\"other\"]}")];
    let plan = run(dir.path(), "opencode run x", &given);
    assert_eq!(plan.env[0].1, "{\"model\":\"m\",\"plugin\":[\"other\",\"file:///run/one/stepback.js\"]}");
}

#[test]
fn the_address_of_the_plugin_is_escaped() {
    let argv = words("opencode");
    let place = SettingsPaths::from_home(Path::new("/h"), Path::new("/w"));
    let run = HookedCommand {
        argv: &argv,
        cwd: Path::new("/w"),
        environment: &[],
        paths: &place,
        binary: Path::new("/bin/stepback"),
        strict: true,
        temp_dir: Path::new("/a b/ü"),
    };
    let plan = plan_run(Agent::Opencode, &run).unwrap();
    assert_eq!(plan.env[0].1, "{\"plugin\":[\"file:///a%20b/%C3%BC/stepback.js\"]}");
    let plugin = String::from_utf8(plan.files[0].1.clone()).unwrap();
    assert!(plugin.contains("const ARGS = [\"hook\", \"opencode\", \"--strict\"];"));
    assert!(plugin.contains("const STRICT = true;"));
}
