//! Hooks in the agents' own settings: put in, brought up to date, taken out, and nothing else touched.
#![expect(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};

use stepback_agents::Agent;
use stepback_agents::install::{
    InstallDirection::{self, Install, Uninstall},
    InstallError, InstallPlan,
    InstallScope::{self, Project, User},
    SettingsPaths, WriteResult, apply_plan, detect_agents, plan, plan_undo,
};
use tempfile::TempDir;

const BINARY: &str = "/opt/step back/bin/stepback";

struct AgentHome {
    _dir: TempDir,
    place: SettingsPaths,
}

impl AgentHome {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let place = SettingsPaths::from_home(&root.join("home"), &root.join("work"));
        fs::create_dir_all(&place.home).unwrap();
        fs::create_dir_all(&place.workspace).unwrap();
        Self { _dir: dir, place }
    }

    fn plan(
        &self,
        agent: Agent,
        scope: InstallScope,
        direction: InstallDirection,
    ) -> Result<InstallPlan, InstallError> {
        plan(agent, scope, &self.place, Path::new(BINARY), false, direction)
    }

    fn go(
        &self,
        agent: Agent,
        scope: InstallScope,
        direction: InstallDirection,
    ) -> (InstallPlan, WriteResult) {
        let plan = self.plan(agent, scope, direction).unwrap();
        let done = apply_plan(&plan).unwrap();
        (plan, done)
    }

    fn file(&self, agent: Agent, scope: InstallScope) -> PathBuf {
        self.plan(agent, scope, Install).unwrap().file
    }

    fn write(&self, agent: Agent, text: &str) -> PathBuf {
        let file = self.file(agent, User);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }
}

fn json(file: &Path) -> serde_json::Value {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<_> = text
        .trim_start_matches('\u{feff}')
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    serde_json::from_str(&lines.join("\n")).unwrap()
}

#[test]
fn what_init_makes_it_unmakes() {
    for agent in Agent::ALL {
        for scope in [Project, User] {
            let world = AgentHome::new();
            let (installed, done) = world.go(agent, scope, Install);
            assert_eq!(done, WriteResult::Created);
            assert!(!installed.changes.is_empty() && !installed.follow_up.is_empty());
            assert_eq!(world.go(agent, scope, Install).1, WriteResult::Unchanged, "{agent}: installed twice");
            let (removed, done) = world.go(agent, scope, Uninstall);
            assert_eq!(done, WriteResult::Removed, "{agent}: {removed:?}");
            for root in [&world.place.home, &world.place.workspace] {
                assert_eq!(fs::read_dir(root).unwrap().count(), 0, "{agent}: {removed:?}");
            }
            assert_eq!(world.go(agent, scope, Uninstall).1, WriteResult::Unchanged);
        }
    }
}

#[test]
fn uninstall_gives_back_the_bytes_of_before() {
    let texts = [
        "",
        "\n",
        "{}",
        "{}\n",
        "{\n}\n",
        "{\"hooks\":{}}",
        "{\n  \"hooks\": {}\n}\n",
        "{\n  \"hooks\": {\n  }\n}\n",
        "{\n  \"hooks\": { \"PreToolUse\": [], \"BeforeTool\": [ ] }\n}\n",
        "{\"model\":\"x\",\"permissions\":{\"allow\":[]}}",
        "{\r\n\t\"model\": \"x\"\r\n}\r\n",
        "\u{feff}{\n    \"model\": \"x\"\n}",
        "{\n  \"z\": 1,\n  \"hooks\": {\n    \"PreToolUse\": [\n      { \"matcher\": \"Bash\", \"hooks\": [{ \"type\": \"command\", \"command\": \"lint\" }] }\n    ],\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}]\n  },\n  \"a\": null\n}\n",
    ];
    for agent in [Agent::Claude, Agent::Codex, Agent::Gemini] {
        for text in texts {
            let world = AgentHome::new();
            let file = world.write(agent, text);
            assert_eq!(world.go(agent, User, Install).1, WriteResult::Changed);
            json(&file);
            let installed = fs::read(&file).unwrap();
            assert_eq!(world.go(agent, User, Install).1, WriteResult::Unchanged, "{agent}: {text:?}");
            assert_eq!(fs::read(&file).unwrap(), installed);
            world.go(agent, User, Uninstall);
            assert_eq!(fs::read_to_string(&file).unwrap(), text, "{agent}");
        }
    }
}

#[test]
fn comments_in_gemini_settings_stay() {
    let text = "// mine\n{\n  // theme\n  \"ui\": {}, // end\n  \"hooks\": {\n    // none yet\n  }\n}\n";
    let world = AgentHome::new();
    let file = world.write(Agent::Gemini, text);
    world.go(Agent::Gemini, User, Install);
    assert!(fs::read_to_string(&file).unwrap().contains("// none yet"));
    world.go(Agent::Gemini, User, Uninstall);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn settings_the_agent_would_ignore_are_refused() {
    for (agent, text, place) in [
        (Agent::Claude, "{\n  // c\n  \"a\": 1\n}", "line 2, column 3"),
        (Agent::Claude, "{\"a\": 1,}", "line 1, column 8"),
        (Agent::Codex, "/* c */ {}", "line 1, column 1"),
        (Agent::Gemini, "{\"a\": [1,]}", "line 1, column 9"),
        (Agent::Gemini, "{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column 3"),
        (Agent::Claude, "{\"hooks\": []}", "line 1, column 11"),
        (Agent::Claude, "{\"hooks\": {\"Stop\": {}}}", "line 1, column 20"),
        (Agent::Claude, "[]", "line 1, column 1"),
    ] {
        let world = AgentHome::new();
        let file = world.write(agent, text);
        let error = world.plan(agent, User, Install).unwrap_err();
        assert!(error.to_string().contains(place), "{error}");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
}

#[test]
fn hooks_of_others_stay_and_keep_their_place() {
    let text = "{\"hooks\": {\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"lint\"}]}]}}";
    let world = AgentHome::new();
    let file = world.write(Agent::Claude, text);
    world.go(Agent::Claude, User, Install);
    let groups = json(&file)["hooks"]["PreToolUse"].clone();
    assert_eq!(groups[0]["hooks"][0]["command"], "lint");
    assert_eq!(groups[1]["hooks"][0]["command"], BINARY);
    assert_eq!(groups[1]["hooks"][0]["args"], serde_json::json!(["hook", "claude"]));
    assert_eq!(groups[1]["hooks"][0]["timeout"], 3600);
}

#[test]
fn in_a_shared_group_only_ours_goes() {
    let ours = "{\"type\": \"command\", \"command\": \"/usr/bin/stepback hook codex\", \"timeout\": 3600}";
    let other = "{\"type\": \"command\", \"command\": \"lint\"}";
    let world = AgentHome::new();
    let file = world.write(
        Agent::Codex,
        &format!("{{\"hooks\": {{\"PreToolUse\": [{{\"hooks\": [{ours}, {other}]}}]}}}}"),
    );
    world.go(Agent::Codex, User, Uninstall);
    let expected = format!("{{\"hooks\": {{\"PreToolUse\": [{{\"hooks\": [ {other}]}}]}}}}");
    assert_eq!(fs::read_to_string(file).unwrap(), expected);
}

#[test]
fn hooks_of_an_older_stepback_are_brought_up_to_date_in_place() {
    let old = "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \"'/old place/stepback' hook claude\"\n          },\n          { \"type\": \"command\", \"command\": \"say\" }\n        ]\n      }\n    ],\n    \"OldEvent\": [\n      {\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \"/old/stepback hook claude\"\n          }\n        ]\n      }\n    ]\n  }\n}\n";
    let world = AgentHome::new();
    let file = world.write(Agent::Claude, old);
    let (plan, _) = world.go(Agent::Claude, User, Install);
    let hooks = json(&file)["hooks"].clone();
    assert_eq!(hooks["Stop"].as_array().unwrap().len(), 1);
    assert_eq!(hooks["Stop"][0]["hooks"][0]["command"], BINARY);
    assert_eq!(hooks["Stop"][0]["hooks"][1]["command"], "say");
    assert!(hooks.get("OldEvent").is_none());
    assert_eq!(
        plan.changes,
        [
            "adds 15 hooks to ~/.claude/settings.json",
            "updates 1 hook in ~/.claude/settings.json",
            "removes 1 hook from ~/.claude/settings.json",
        ]
    );
}

#[test]
fn a_doubled_hook_is_undoubled() {
    let world = AgentHome::new();
    let file = world.file(Agent::Codex, User);
    world.go(Agent::Codex, User, Install);
    let once = fs::read_to_string(&file).unwrap();
    let mut twice: serde_json::Value = serde_json::from_str(&once).unwrap();
    let list = twice["hooks"]["Stop"].as_array_mut().unwrap();
    list.push(list[0].clone());
    fs::write(&file, twice.to_string()).unwrap();
    world.go(Agent::Codex, User, Install);
    assert_eq!(json(&file), serde_json::from_str::<serde_json::Value>(&once).unwrap());
}

#[test]
fn what_others_added_meanwhile_survives_uninstall() {
    let world = AgentHome::new();
    let file = world.file(Agent::Claude, User);
    world.go(Agent::Claude, User, Install);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("{\n", "{\n  \"model\": \"x\",\n", 1)).unwrap();
    world.go(Agent::Claude, User, Uninstall);
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\n  \"model\": \"x\"\n}\n");
}

#[test]
fn strict_says_so_and_can_be_given_up_again() {
    let world = AgentHome::new();
    let file = world.file(Agent::Claude, User);
    world.go(Agent::Claude, User, Install);
    let plain = fs::read(&file).unwrap();
    let strict = plan(Agent::Claude, User, &world.place, Path::new(BINARY), true, Install).unwrap();
    apply_plan(&strict).unwrap();
    let hooks = json(&file)["hooks"].clone();
    assert_eq!(hooks["PreToolUse"][0]["hooks"][0]["onFailure"], "block");
    assert_eq!(hooks["Stop"][0]["hooks"][0]["args"], serde_json::json!(["hook", "claude", "--strict"]));
    assert!(hooks["Stop"][0]["hooks"][0].get("onFailure").is_none());
    world.go(Agent::Claude, User, Install);
    assert_eq!(fs::read(&file).unwrap(), plain);
}

#[test]
fn a_path_with_blanks_is_quoted_for_the_shell() {
    let world = AgentHome::new();
    for agent in [Agent::Codex, Agent::Gemini] {
        world.go(agent, User, Install);
        let hooks = json(&world.file(agent, User))["hooks"].clone();
        let command = hooks["SessionStart"][0]["hooks"][0]["command"].clone();
        assert_eq!(command, format!("'{BINARY}' hook {agent}"));
    }
}

#[test]
fn a_relative_binary_is_refused() {
    let world = AgentHome::new();
    let error = plan(Agent::Codex, User, &world.place, Path::new("stepback"), false, Install).unwrap_err();
    assert!(matches!(error, InstallError::InvalidBinaryPath(_)));
}

#[test]
fn a_concurrent_edit_is_not_overwritten() {
    let world = AgentHome::new();
    let file = world.write(Agent::Gemini, "{}");
    let plan = world.plan(Agent::Gemini, User, Install).unwrap();
    fs::write(&file, "{\"a\": 1}").unwrap();
    assert!(matches!(apply_plan(&plan), Err(InstallError::Changed(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"a\": 1}");
}

#[cfg(unix)]
#[test]
fn linked_settings_are_written_where_they_are() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let world = AgentHome::new();
    let dotfiles = world.place.home.join("dotfiles");
    fs::create_dir(&dotfiles).unwrap();
    fs::create_dir(world.place.home.join(".claude")).unwrap();
    let real = dotfiles.join("claude.json");
    fs::write(&real, "{}\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let link = world.place.home.join(".claude/settings.json");
    symlink("../dotfiles/claude.json", &link).unwrap();
    world.go(Agent::Claude, User, Install);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains(BINARY));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    world.go(Agent::Claude, User, Uninstall);
    assert_eq!(fs::read_to_string(&real).unwrap(), "{}\n");
    assert_eq!(fs::read_dir(&dotfiles).unwrap().count(), 1, "no temporary file is left");
    fs::remove_file(&real).unwrap();
    assert!(matches!(world.plan(Agent::Claude, User, Install), Err(InstallError::NotAFile(_))));
}

#[cfg(unix)]
#[test]
fn a_link_in_a_workspace_does_not_lead_out_of_it() {
    use std::os::unix::fs::symlink;
    for agent in [Agent::Claude, Agent::Codex, Agent::Gemini, Agent::Opencode] {
        let world = AgentHome::new();
        let outside = world.place.home.join("outside");
        fs::create_dir(&outside).unwrap();
        let file = world.plan(agent, Project, Install).unwrap().file;
        let below = file.strip_prefix(&world.place.workspace).unwrap().to_owned();
        let first = world.place.workspace.join(below.components().next().unwrap());
        // The directory of the settings is a link, before the plan and after it.
        let planned = world.plan(agent, Project, Install).unwrap();
        symlink(&outside, &first).unwrap();
        assert!(matches!(world.plan(agent, Project, Install), Err(InstallError::Outside(_))), "{agent:?}");
        assert!(apply_plan(&planned).is_err(), "{agent:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{agent:?}");
        // The file itself is one.
        fs::remove_file(&first).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let target = outside.join("settings.json");
        fs::write(&target, "{}\n").unwrap();
        symlink(&target, &file).unwrap();
        assert!(matches!(world.plan(agent, Project, Install), Err(InstallError::Outside(_))), "{agent:?}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "{}\n", "{agent:?}");
        // One that stays inside is followed.
        fs::remove_file(&file).unwrap();
        fs::write(world.place.workspace.join("kept.json"), "{}\n").unwrap();
        if agent != Agent::Opencode {
            symlink(world.place.workspace.join("kept.json"), &file).unwrap();
            world.go(agent, Project, Install);
            assert!(fs::symlink_metadata(&file).unwrap().is_symlink(), "{agent:?}");
            assert!(fs::read_to_string(world.place.workspace.join("kept.json")).unwrap().contains(BINARY));
        }
    }
}

#[cfg(unix)]
#[test]
fn a_read_only_file_is_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = AgentHome::new();
    let file = world.write(Agent::Codex, "{}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let plan = world.plan(Agent::Codex, User, Install).unwrap();
    assert!(matches!(apply_plan(&plan), Err(InstallError::ReadOnly(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
}

#[test]
fn a_plan_can_be_taken_back_unless_someone_else_wrote() {
    let world = AgentHome::new();
    let file = world.write(Agent::Gemini, "{ }");
    let (done, _) = world.go(Agent::Gemini, User, Install);
    let back = plan_undo(&done).unwrap().unwrap();
    apply_plan(&back).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "{ }");
    let (done, _) = world.go(Agent::Gemini, User, Install);
    fs::write(&file, "{}").unwrap();
    assert_eq!(plan_undo(&done).unwrap(), None);
}

#[test]
fn a_plugin_of_someone_else_is_not_ours_to_touch() {
    let world = AgentHome::new();
    let file = world.write(Agent::Opencode, "export const Mine = async () => ({});\n");
    assert!(world.plan(Agent::Opencode, User, Uninstall).unwrap().is_unchanged());
    assert!(matches!(world.plan(Agent::Opencode, User, Install), Err(InstallError::NotOwnFile(_))));
    assert!(fs::read_to_string(file).unwrap().contains("Mine"));
}

#[test]
fn the_plugin_names_the_binary_and_is_short() {
    let world = AgentHome::new();
    world.go(Agent::Opencode, Project, Install);
    let text = fs::read_to_string(world.place.workspace.join(".opencode/plugin/stepback.js")).unwrap();
    assert!(text.contains(&format!("const BINARY = \"{BINARY}\";")));
    assert!(
        text.contains("const ARGS = [\"hook\", \"opencode\"];") && text.contains("const STRICT = false;")
    );
    assert!(text.lines().count() < 120);
}

#[test]
fn agents_are_found_by_their_folders_and_their_programs() {
    let world = AgentHome::new();
    let bin = world.place.home.join("bin");
    fs::create_dir(&bin).unwrap();
    assert_eq!(detect_agents(&world.place, std::slice::from_ref(&bin)), []);
    fs::create_dir(world.place.workspace.join(".gemini")).unwrap();
    fs::create_dir(world.place.home.join(".claude")).unwrap();
    fs::write(bin.join("codex"), "").unwrap();
    assert_eq!(detect_agents(&world.place, &[bin]), [Agent::Claude, Agent::Codex, Agent::Gemini]);
}

#[test]
fn switched_off_hooks_are_pointed_out() {
    for (agent, text) in [
        (Agent::Claude, "{\"disableAllHooks\": true}"),
        (Agent::Gemini, "{\"hooksConfig\": {\"enabled\": false}}"),
    ] {
        let world = AgentHome::new();
        world.write(agent, text);
        let plan = world.plan(agent, User, Install).unwrap();
        assert!(plan.follow_up.iter().any(|note| note.contains("disabled")), "{plan:?}");
    }
}

#[test]
fn codex_users_are_sent_to_review() {
    let plan = AgentHome::new().plan(Agent::Codex, User, Install).unwrap();
    assert!(plan.follow_up[0].contains("/hooks"));
}

#[test]
fn hooks_that_would_run_twice_are_pointed_out() {
    for (agent, same_text, strict, expected) in [
        (Agent::Codex, true, false, true),
        (Agent::Claude, true, false, false),
        (Agent::Claude, false, true, true),
        (Agent::Gemini, true, false, false),
    ] {
        let world = AgentHome::new();
        world.go(agent, User, Install);
        let plan = plan(agent, Project, &world.place, Path::new(BINARY), strict, Install).unwrap();
        let found = plan.follow_up.iter().any(|note| note.contains("runs both"));
        assert_eq!(found, expected, "{agent}, same text: {same_text}");
    }
}
