//! Model calls through a proxy for one run: every agent in the way it understands.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use stepback_agents::Agent;
use stepback_agents::install::{
    HookedCommand, Route, RunPlan, SettingsPaths, find_blocking_variable, find_routes, plan_run,
    route_through_proxy,
};
use tempfile::TempDir;

struct AgentHome {
    dir: TempDir,
    place: SettingsPaths,
}

impl AgentHome {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        let (home, work) = (dir.path().join("home"), dir.path().join("work"));
        for made in [&home, &work, &dir.path().join("temp")] {
            fs::create_dir_all(made).unwrap();
        }
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let place = SettingsPaths::from_home(&home, &work);
        Self { dir, place }
    }

    fn with_run<T>(
        &self,
        argv: &[&str],
        environment: &[(&str, &str)],
        ask: impl FnOnce(&HookedCommand<'_>) -> T,
    ) -> T {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let environment: Vec<(OsString, OsString)> =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let temp = self.dir.path().join("temp");
        ask(&HookedCommand {
            argv: &argv,
            cwd: &self.place.workspace,
            environment: &environment,
            paths: &self.place,
            binary: Path::new("/usr/bin/stepback"),
            strict: false,
            temp_dir: &temp,
        })
    }

    fn hindrance(&self, environment: &[(&str, &str)]) -> Option<&'static str> {
        self.with_run(&["claude"], environment, find_blocking_variable)
    }

    fn routed(&self, agent: Agent, argv: &[&str], environment: &[(&str, &str)]) -> (Vec<Route>, RunPlan) {
        self.with_run(argv, environment, |run| Self::routed_in(agent, run))
    }

    fn routed_in(agent: Agent, run: &HookedCommand<'_>) -> (Vec<Route>, RunPlan) {
        let found = find_routes(agent, run);
        let mut plan = plan_run(agent, run).unwrap();
        let ours: Vec<(Route, String)> = found
            .iter()
            .enumerate()
            .map(|(at, route)| (route.clone(), format!("http://127.0.0.1:{}", 7000 + at)))
            .collect();
        route_through_proxy(agent, run, &ours, &mut plan).unwrap();
        (found, plan)
    }
}

fn value<'a>(plan: &'a RunPlan, name: &str) -> Option<&'a str> {
    plan.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn upstreams(routes: &[Route]) -> Vec<(&str, &str)> {
    routes.iter().map(|route| (route.name.as_str(), route.upstream.as_str())).collect()
}

#[test]
fn claude_is_told_by_its_variable_and_by_settings_where_those_would_win() {
    let desk = AgentHome::new(&[]);
    let (found, plan) = desk.routed(Agent::Claude, &["claude"], &[]);
    assert_eq!(upstreams(&found), [("ANTHROPIC_BASE_URL", "https://api.anthropic.com")]);
    assert_eq!(value(&plan, "ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:7000"));

    let (found, _) = desk.routed(Agent::Claude, &["claude"], &[("ANTHROPIC_BASE_URL", "http://local:1/x")]);
    assert_eq!(upstreams(&found), [("ANTHROPIC_BASE_URL", "http://local:1/x")]);

    let settings = r#"{"env": {"ANTHROPIC_BASE_URL": "https://gateway.example"}}"#;
    let desk = AgentHome::new(&[("home/.claude/settings.json", settings)]);
    let (found, plan) = desk.routed(Agent::Claude, &["claude"], &[]);
    assert_eq!(upstreams(&found), [("ANTHROPIC_BASE_URL", "https://gateway.example")]);
    let given: serde_json::Value = serde_json::from_slice(&plan.files[0].1).unwrap();
    assert_eq!(given["env"]["ANTHROPIC_BASE_URL"], "http://127.0.0.1:7000");
    assert!(given["hooks"].is_object());

    let (found, plan) = desk.routed(Agent::Claude, &["claude"], &[("CLAUDE_CODE_USE_BEDROCK", "1")]);
    assert!(found.is_empty(), "what signs its requests cannot be carried");
    assert_eq!(value(&plan, "ANTHROPIC_BASE_URL"), None);
}

#[test]
fn codex_keeps_its_provider_with_another_address() {
    let config = "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://local:1/v1\"\n\
                  [model_providers.other]\nbase_url = \"http://local:2/v1\"\n[profiles.deep]\nmodel_provider = \"other\"\n";
    let desk = AgentHome::new(&[("home/.codex/config.toml", config)]);
    let (found, plan) = desk.routed(Agent::Codex, &["codex", "exec", "hi"], &[]);
    assert_eq!(upstreams(&found), [("mine", "http://local:1/v1")]);
    let at = plan.argv.iter().position(|word| word == "exec").unwrap();
    assert!(
        plan.argv[..at].iter().any(|word| word == "model_providers.mine.base_url=\"http://127.0.0.1:7000\"")
    );
    let (found, _) = desk.routed(Agent::Codex, &["codex", "-p", "deep", "exec", "hi"], &[]);
    assert_eq!(upstreams(&found), [("other", "http://local:2/v1")]);
}

#[test]
fn codex_without_a_provider_keeps_its_own_login() {
    let desk = AgentHome::new(&[("home/.codex/auth.json", r#"{"OPENAI_API_KEY": null, "tokens": {}}"#)]);
    let (found, plan) = desk.routed(Agent::Codex, &["codex"], &[]);
    assert_eq!(upstreams(&found), [("openai", "https://chatgpt.com/backend-api/codex")]);
    assert!(plan.argv.iter().any(|word| word == "openai_base_url=\"http://127.0.0.1:7000\""));
    let desk = AgentHome::new(&[]);
    let (found, _) = desk.routed(Agent::Codex, &["codex"], &[]);
    assert_eq!(upstreams(&found), [("openai", "https://api.openai.com/v1")]);
}

#[test]
fn opencode_is_told_for_every_provider_in_use() {
    let config = r#"{ // mine
        "model": "anthropic/claude", "provider": {"local": {"options": {"baseURL": "http://local:1/v1"}}}
    }"#;
    let desk = AgentHome::new(&[("home/.config/opencode/opencode.jsonc", config)]);
    let (found, plan) = desk.routed(Agent::Opencode, &["opencode", "run", "hi"], &[]);
    assert_eq!(
        upstreams(&found),
        [("local", "http://local:1/v1"), ("anthropic", "https://api.anthropic.com/v1")]
    );
    let told: serde_json::Value =
        serde_json::from_str(value(&plan, "OPENCODE_CONFIG_CONTENT").unwrap()).unwrap();
    assert_eq!(told["provider"]["local"]["options"]["baseURL"], "http://127.0.0.1:7000");
    assert_eq!(told["provider"]["anthropic"]["options"]["baseURL"], "http://127.0.0.1:7001");
    assert_eq!(told["plugin"].as_array().unwrap().len(), 1, "the hooks stay");
}

#[test]
fn what_goes_through_a_proxy_of_the_network_is_left_alone() {
    let desk = AgentHome::new(&[]);
    let hindered = |environment: &[(&str, &str)]| desk.hindrance(environment);
    assert_eq!(hindered(&[("https_proxy", "http://proxy.example:3128")]), Some("https_proxy"));
    assert_eq!(hindered(&[("HTTPS_PROXY", "")]), None);
    assert_eq!(hindered(&[("NO_PROXY", "*")]), None);
}

#[test]
fn gemini_is_told_for_keys_and_for_logins() {
    let desk = AgentHome::new(&[]);
    let (found, plan) = desk.routed(Agent::Gemini, &["gemini"], &[("GOOGLE_GEMINI_BASE_URL", "http://g:1")]);
    assert_eq!(
        upstreams(&found),
        [
            ("GOOGLE_GEMINI_BASE_URL", "http://g:1"),
            ("CODE_ASSIST_ENDPOINT", "https://cloudcode-pa.googleapis.com")
        ]
    );
    assert_eq!(value(&plan, "CODE_ASSIST_ENDPOINT"), Some("http://127.0.0.1:7001"));
}
