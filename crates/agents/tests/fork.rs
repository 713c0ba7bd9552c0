//! Forks: what is planned for each agent, and that carrying it out touches nothing that exists.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod sample;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sample::{SESSION, claude_lines, codex_lines, gemini_lines, opencode_db};
use serde_json::Value;
use stepback_agents::Agent;
use stepback_agents::fork::{self, Fork, ForkError, ForkMode, ForkOptions, ForkSource};
use stepback_agents::transcript::{self, AgentDirs, TranscriptCursor, TranscriptLocation};
use stepback_model::time::Timestamp;

struct Bench {
    dir: tempfile::TempDir,
    home: AgentDirs,
    place: TranscriptLocation,
    lines: Vec<String>,
}

impl Bench {
    fn new(agent: Agent) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = AgentDirs::from_home(dir.path());
        let (path, lines) = match agent {
            Agent::Claude => (format!(".claude/projects/-home-dev-app/{SESSION}.jsonl"), claude_lines()),
            Agent::Codex => (
                format!(".codex/sessions/2026/03/04/rollout-2026-03-04T05-06-00-{SESSION}.jsonl"),
                codex_lines(),
            ),
            Agent::Gemini => {
                (".gemini/tmp/app/chats/session-2026-03-04T05-06-0c0ffee0.jsonl".into(), gemini_lines())
            }
            Agent::Opencode => (".local/share/opencode/opencode.db".into(), Vec::new()),
        };
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut bench =
            Self { dir, home, place: TranscriptLocation { agent, path, session: SESSION.into() }, lines };
        if agent == Agent::Opencode {
            bench.place.session = "ses_old".into();
            let db = opencode_db(&bench.place.path, "ses_old");
            sample::part(
                &db,
                "ses_old",
                "msg_000000000002bbbbbbbbbbbbbb",
                "prt_2",
                sample::tool("completed"),
            );
            bench.lines = transcript::read(&bench.place, &TranscriptCursor::default()).unwrap().lines;
        } else {
            fs::write(&bench.place.path, bench.lines.join("\n") + "\n").unwrap();
        }
        bench
    }

    fn plan(&self, keep: usize, cwd: &str, mode: ForkMode<'_>) -> Result<Fork, ForkError> {
        let source = ForkSource {
            location: &self.place,
            cwd: Path::new("/home/dev/app"),
            home: &self.home,
            lines: &self.lines,
        };
        let now = Timestamp::from_micros(1_772_600_766_000_000);
        fork::plan(&source, &ForkOptions { keep, cwd: Path::new(cwd), id: [0xab; 16], now, mode })
    }
}

fn file(fork: &Fork, end: &str) -> (PathBuf, String) {
    let write = fork.writes.iter().find(|write| write.path.to_string_lossy().ends_with(end)).unwrap();
    (write.path.clone(), String::from_utf8(write.bytes.clone()).unwrap())
}

const NEW: &str = "abababab-abab-4bab-abab-abababababab";

#[test]
fn claude_forks_by_itself_where_it_can() {
    let bench = Bench::new(Agent::Claude);
    let fork = bench.plan(13, "/home/dev/app", ForkMode::Prompt("go on")).unwrap();
    let expected = format!(
        "claude -p --resume {SESSION} --resume-session-at u12 --fork-session --session-id {NEW} go on"
    );
    assert_eq!(fork.command.join(" "), expected);
    assert_eq!((fork.session.as_str(), fork.kept_lines, fork.note.clone()), (NEW, 13, None));
    let (path, task) = file(&fork, "1.json");
    assert_eq!(path, bench.home.claude.join("tasks").join(NEW).join("1.json"));
    let task: Value = serde_json::from_str(&task).unwrap();
    assert_eq!((task["status"].as_str(), task["subject"].as_str()), (Some("in_progress"), Some("A")));
    assert_eq!(file(&fork, ".highwatermark").1, "1");
    assert_eq!(
        bench.plan(9, "/home/dev/app", ForkMode::Prompt("x")).unwrap().writes,
        [],
        "there were no tasks yet"
    );
}

#[test]
fn claude_goes_on_elsewhere_from_a_copy() {
    let bench = Bench::new(Agent::Claude);
    let fork = bench.plan(16, "/home/dev/other tree", ForkMode::Prompt("--go")).unwrap();
    assert_eq!(fork.command, ["claude", "-p", "--resume", NEW, "--", "--go"]);
    let (path, text) = file(&fork, ".jsonl");
    assert_eq!(path, bench.home.claude.join(format!("projects/-home-dev-other-tree/{NEW}.jsonl")));
    assert_eq!(text.lines().count(), 16);
    assert!(!text.contains(SESSION) && text.contains(NEW));
    assert!(!text.contains("\"cwd\":\"/home/dev/app\"") && text.contains("\"cwd\":\"/home/dev/other tree\""));
    assert!(text.contains("/home/dev/app/a.rs"), "what was said is not changed");
    let fork = bench.plan(16, "/home/dev/app", ForkMode::Interactive).unwrap();
    assert_eq!(fork.command, ["claude", "--resume", NEW]);
}

#[test]
fn a_call_without_result_is_cut_off() {
    let bench = Bench::new(Agent::Claude);
    let fork = bench.plan(8, "/home/dev/app", ForkMode::Interactive).unwrap();
    assert_eq!(fork.kept_lines, 3);
    assert!(fork.note.unwrap().contains("continues from before it"));
    assert!(matches!(
        bench.plan(1, "/home/dev/app", ForkMode::Interactive),
        Err(ForkError::EmptyConversation(Agent::Claude))
    ));
    assert!(matches!(
        bench.plan(99, "/home/dev/app", ForkMode::Interactive),
        Err(ForkError::TooShort { .. })
    ));
}

#[test]
fn the_agents_own_file_counts_only_if_it_says_the_same() {
    let mut bench = Bench::new(Agent::Claude);
    let own = bench.lines[6].clone();
    bench.lines[6] = own.replace("fn a() {}", "[secret]");
    let kept = file(&bench.plan(9, "/home/dev/app", ForkMode::Interactive).unwrap(), ".jsonl").1;
    assert!(kept.contains("fn a() {}") && !kept.contains("[secret]"));
    bench.lines[6] = "{\"stepback\":\"line left out\",\"bytes\":99}".into();
    let fork = bench.plan(9, "/home/dev/app", ForkMode::Interactive).unwrap();
    assert!(file(&fork, ".jsonl").1.contains("fn a() {}"));
    fs::remove_file(&bench.place.path).unwrap();
    bench.lines[6] = own;
    let fork = bench.plan(9, "/home/dev/app", ForkMode::Prompt("x")).unwrap();
    assert_eq!(
        fork.command,
        ["claude", "-p", "--resume", NEW, "x"],
        "there is nothing left that it could fork itself"
    );
    assert_eq!(file(&fork, ".jsonl").1.lines().count(), 9);
    bench.lines[2] = "{\"stepback\":\"line left out\",\"bytes\":99}".into();
    assert!(
        bench
            .plan(9, "/home/dev/app", ForkMode::Interactive)
            .unwrap()
            .note
            .unwrap()
            .contains("1 very long line")
    );
}

#[test]
fn codex_resumes_a_truncated_rollout() {
    let bench = Bench::new(Agent::Codex);
    let fork = bench.plan(17, "/home/dev/other", ForkMode::Prompt("go on")).unwrap();
    let id = &fork.session;
    assert_eq!(fork.command, ["codex", "exec", "resume", id, "go on"]);
    assert_eq!((id.len(), id.as_bytes()[14]), (36, b'7'));
    let (path, text) = file(&fork, ".jsonl");
    let expected = format!("sessions/2026/03/04/rollout-2026-03-04T05-06-06-{id}.jsonl");
    assert_eq!(path, bench.home.codex.join(expected));
    assert!(
        !text.contains(SESSION) && text.contains(id.as_str()) && !text.contains("\"cwd\":\"/home/dev/app\"")
    );
    assert_eq!(
        bench.plan(17, "/home/dev/app", ForkMode::Interactive).unwrap().command,
        ["codex", "resume", id]
    );
}

#[test]
fn gemini_resumes_where_it_knows_the_directory() {
    let bench = Bench::new(Agent::Gemini);
    let fork = bench.plan(7, "/home/dev/app", ForkMode::Prompt("go on")).unwrap();
    assert_eq!(fork.command, ["gemini", "--resume", NEW, "--prompt=go on"]);
    let (path, text) = file(&fork, ".jsonl");
    assert_eq!(path, bench.home.gemini.join("tmp/app/chats/session-2026-03-04T05-06-abababab.jsonl"));
    assert!(!text.contains(SESSION) && text.contains(NEW));
    let fork = bench.plan(7, "/home/dev/other", ForkMode::Interactive).unwrap();
    assert_eq!(fork.command, ["gemini", "--session-file", path.to_str().unwrap()]);
    assert!(fork.note.unwrap().contains("a new id"));
    fs::create_dir_all(bench.home.gemini.join("tmp/other")).unwrap();
    fs::write(bench.home.gemini.join("tmp/other/.project_root"), "/home/dev/other\n").unwrap();
    let fork = bench.plan(7, "/home/dev/other", ForkMode::Interactive).unwrap();
    assert_eq!(fork.command, ["gemini", "--resume", NEW]);
    assert!(fork.writes[0].path.starts_with(bench.home.gemini.join("tmp/other/chats")));
}

#[test]
fn opencode_imports_messages_under_new_ids() {
    let bench = Bench::new(Agent::Opencode);
    let here = bench.dir.path().to_str().unwrap();
    let mut fork = bench.plan(2, here, ForkMode::Prompt("go on")).unwrap();
    assert_eq!(fork.command, ["opencode", "run", "--session", &fork.session, "go on"]);
    let (path, text) = file(&fork, ".json");
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(!text.contains("ses_old") && !text.contains("\"prt_1\"") && !text.contains("aaaaaaaaaaaaaa"));
    let id = document["messages"][0]["info"]["id"].as_str().unwrap();
    assert!(id.starts_with("msg_000000000001") && id.len() == 30);
    assert_eq!(document["messages"][1]["info"]["parentID"], id);
    assert_eq!(document["messages"][0]["parts"][0]["messageID"], id);
    let prepare = fork.prepare.as_mut().unwrap();
    assert_eq!(prepare.command, ["opencode", "import", path.to_str().unwrap()]);
    prepare.command = vec!["true".into()];
    assert!(
        matches!(fork::execute_fork(&fork), Err(ForkError::Prepare { .. })),
        "it did not import anything"
    );
    assert!(!path.exists());
}

#[test]
fn carrying_out_overwrites_nothing() {
    let bench = Bench::new(Agent::Claude);
    let fork = bench.plan(13, "/home/dev/other", ForkMode::Interactive).unwrap();
    let before = fs::read(&bench.place.path).unwrap();
    let ready = fork::execute_fork(&fork).unwrap();
    assert_eq!((ready.session.as_str(), ready.cwd.as_path()), (NEW, Path::new("/home/dev/other")));
    for write in &fork.writes {
        assert_eq!(fs::read(&write.path).unwrap(), write.bytes);
        assert_eq!(fs::metadata(&write.path).unwrap().permissions().mode() & 0o777, 0o600);
        let folder = write.path.parent().unwrap();
        assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let last = &fork.writes.last().unwrap().path;
    for write in &fork.writes[..fork.writes.len() - 1] {
        fs::remove_file(&write.path).unwrap();
    }
    fs::write(last, "mine").unwrap();
    assert!(matches!(fork::execute_fork(&fork), Err(ForkError::Write { .. })));
    assert_eq!(fs::read(last).unwrap(), b"mine");
    assert!(
        fork.writes[..fork.writes.len() - 1].iter().all(|write| !write.path.exists()),
        "what it wrote is gone again"
    );
    assert_eq!(fs::read(&bench.place.path).unwrap(), before);
}
