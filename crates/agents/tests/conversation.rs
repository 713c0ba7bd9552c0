//! Transcripts: reading them as they grow, understanding them, cutting them, finding them, importing them.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod sample;

use std::fs;
use std::io::Write;
use std::path::Path;

use sample::{SESSION, claude_lines, codex_lines, gemini_lines, opencode_db};
use serde_json::json;
use stepback_agents::Agent;
use stepback_agents::import;
use stepback_agents::transcript::{
    self, AgentDirs, MessagePart, MessageRole, MessageUsage, TranscriptCursor, TranscriptError,
    TranscriptLocation, TranscriptMessage,
};
use stepback_model::record::StepKind;

fn place(agent: Agent, path: &Path) -> TranscriptLocation {
    TranscriptLocation { agent, path: path.into(), session: SESSION.into() }
}

fn append(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn a_half_written_line_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let place = place(Agent::Claude, &path);
    assert!(matches!(
        transcript::read(&place, &TranscriptCursor::default()),
        Err(TranscriptError::NotFound(_))
    ));
    append(&path, b"{\"a\":1}\n\n{\"b\":");
    let first = transcript::read(&place, &TranscriptCursor::default()).unwrap();
    assert_eq!((first.keep, first.lines.as_slice()), (0, ["{\"a\":1}".to_owned()].as_slice()));
    let again = transcript::read(&place, &first.cursor).unwrap();
    assert_eq!((again.keep, again.lines.len()), (1, 0));
    append(&path, b"2}\n{\"c\":\"\xff\"}\n");
    let saved = serde_json::to_string(&again.cursor).unwrap();
    let second = transcript::read(&place, &serde_json::from_str(&saved).unwrap()).unwrap();
    assert_eq!(second.keep, 1);
    assert_eq!(second.lines, ["{\"b\":2}", "{\"c\":\"\u{fffd}\"}"]);
    assert_eq!(second.cursor.lines, 3);
}

#[test]
fn a_file_that_is_not_the_same_is_read_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let place = place(Agent::Claude, &path);
    let start = |text: &str| {
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        transcript::read(&place, &TranscriptCursor::default()).unwrap().cursor
    };
    let restarted = |cursor: &TranscriptCursor, expected: &[&str]| {
        let fresh = transcript::read(&place, cursor).unwrap();
        assert_eq!(
            (fresh.keep, fresh.lines),
            (0, expected.iter().map(|line| line.to_string()).collect::<Vec<_>>())
        );
    };
    let cursor = start("1\n2\n3\n");
    fs::write(&path, "1\n").unwrap();
    restarted(&cursor, &["1"]);
    let cursor = start("1\n2\n3\n");
    fs::write(&path, "1\n9\n3\n4\n").unwrap();
    restarted(&cursor, &["1", "9", "3", "4"]);
    let cursor = start("1\n2\n3\n");
    let other = dir.path().join("other");
    fs::write(&other, "1\n2\n3\n4\n").unwrap();
    fs::rename(&other, &path).unwrap();
    restarted(&cursor, &["1", "2", "3", "4"]);
    let cursor = start("1\n2\n3\n");
    fs::remove_file(&path).unwrap();
    assert!(matches!(transcript::read(&place, &cursor), Err(TranscriptError::NotFound(_))));
    fs::create_dir(&path).unwrap();
    assert!(matches!(transcript::read(&place, &cursor), Err(TranscriptError::Io { .. })));
}

#[test]
fn a_line_too_long_to_keep_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    append(&path, &vec![b'x'; transcript::LINE_LIMIT + 1]);
    append(&path, b"\n{\"after\":1}\n");
    let fresh = transcript::read(&place(Agent::Codex, &path), &TranscriptCursor::default()).unwrap();
    let bytes = transcript::LINE_LIMIT + 2;
    assert_eq!(
        fresh.lines,
        [format!("{{\"stepback\":\"line left out\",\"bytes\":{bytes}}}"), "{\"after\":1}".to_owned()]
    );
    assert!(transcript::is_omitted_line(&fresh.lines[0]) && !transcript::is_omitted_line(&fresh.lines[1]));
}

#[test]
fn a_database_gives_back_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("opencode.db");
    let db = opencode_db(&path, "ses_1");
    let place = TranscriptLocation { agent: Agent::Opencode, path: path.clone(), session: "ses_1".into() };
    let first = transcript::read(&place, &TranscriptCursor::default()).unwrap();
    assert_eq!((first.keep, first.lines.len()), (0, 2));
    assert_eq!(transcript::align_cut(Agent::Opencode, &first.lines, 2), 1);
    let none = transcript::read(&place, &first.cursor).unwrap();
    assert_eq!((none.keep, none.lines.len(), none.cursor.lines), (2, 0, 2));
    sample::part(&db, "ses_1", "msg_000000000002bbbbbbbbbbbbbb", "prt_2", sample::tool("completed"));
    let grown = transcript::read(&place, &first.cursor).unwrap();
    assert_eq!((grown.keep, grown.lines.len(), grown.cursor.lines), (1, 1, 2));
    let all = transcript::parse_messages(Agent::Opencode, &[first.lines[0].clone(), grown.lines[0].clone()]);
    assert_eq!(all[0].role, MessageRole::User);
    assert_eq!(
        all[1].usage,
        Some(MessageUsage { input: 5, output: 7, cache_read: 2, cache_write: 3, reasoning: 1 })
    );
    assert!(matches!(
        &all[1].parts[..],
        [MessagePart::ToolCall { .. }, MessagePart::ToolResult { failed: false, .. }]
    ));
    db.execute("UPDATE session SET revert = '{\"messageID\":\"msg_000000000002bbbbbbbbbbbbbb\"}'", [])
        .unwrap();
    let reverted = transcript::read(&place, &grown.cursor).unwrap();
    assert_eq!((reverted.keep, reverted.lines.len(), reverted.cursor.lines), (1, 0, 1));
    let other = TranscriptLocation { session: "ses_2".into(), ..place };
    assert!(matches!(
        transcript::read(&other, &TranscriptCursor::default()),
        Err(TranscriptError::NotFound(_))
    ));
}

fn roles(all: &[TranscriptMessage]) -> Vec<MessageRole> {
    all.iter().map(|message| message.role).collect()
}

#[test]
fn the_blocks_of_an_answer_are_one_message() {
    let all = transcript::parse_messages(Agent::Claude, &claude_lines());
    let answer = &all[1];
    assert_eq!((answer.id.as_deref(), answer.record.as_deref()), (Some("m1"), Some("u3")));
    assert_eq!(answer.lines, 3..8);
    assert_eq!(answer.call_ids().collect::<Vec<_>>(), ["c1", "c2"]);
    assert_eq!(
        answer.usage,
        Some(MessageUsage { input: 7, output: 3, cache_read: 11, cache_write: 2, reasoning: 0 })
    );
    assert_eq!(all.iter().filter(|message| message.is_prompt()).count(), 2);
    assert!(all.iter().any(|message| message.worker.as_deref() == Some("sub1")));
    assert!(all.iter().any(
        |message| matches!(&message.parts[..], [MessagePart::Failure { text }] if text.contains("overloaded"))
    ));
}

#[test]
fn what_claude_code_invents_is_no_answer() {
    let user = |meta: bool, text: &str| {
        json!({"type": "user", "uuid": text, "isMeta": meta, "message": {"role": "user", "content": text}})
            .to_string()
    };
    let lines = [
        user(false, "go"),
        user(false, "<command-name>/compact</command-name>\n<command-args>now</command-args>"),
        user(true, "Continue from where you left off."),
        json!({"type": "assistant", "message": {"id": "i", "model": "<synthetic>", "content": "No response requested."}})
            .to_string(),
        user(false, "on"),
    ];
    let all = transcript::parse_messages(Agent::Claude, &lines);
    assert_eq!(
        roles(&all),
        [MessageRole::User, MessageRole::User, MessageRole::System, MessageRole::System, MessageRole::User]
    );
    assert_eq!(all[1].text(), "/compact now");
    assert_eq!(transcript::cut_before_prompt(Agent::Claude, &lines, 2), Some(2));
}

#[test]
fn an_answer_of_codex_ends_where_its_outputs_begin() {
    use MessageRole::{Assistant, System, Tool, User};
    let all = transcript::parse_messages(Agent::Codex, &codex_lines());
    assert_eq!(roles(&all), [System, User, Assistant, Tool, Tool, Assistant, System, User, System]);
    assert_eq!(all[2].lines, 6..10);
    assert_eq!(
        all[2].usage,
        Some(MessageUsage { input: 60, output: 20, cache_read: 40, cache_write: 0, reasoning: 0 })
    );
    assert_eq!(all[2].model.as_deref(), Some("gpt"));
    assert!(matches!(all[3].parts[..], [MessagePart::ToolResult { failed: true, .. }]));
    assert!(matches!(all[4].parts[..], [MessagePart::ToolResult { failed: false, .. }]));
}

#[test]
fn what_gemini_writes_again_replaces_what_it_wrote() {
    use MessageRole::{Assistant, System, Tool, User};
    let all = transcript::parse_messages(Agent::Gemini, &gemini_lines());
    assert_eq!(roles(&all), [System, User, Assistant, Tool, User]);
    assert_eq!(all[2].lines, 4..6);
    assert_eq!(
        all[2].usage,
        Some(MessageUsage { input: 70, output: 25, cache_read: 30, cache_write: 0, reasoning: 5 })
    );
    assert_eq!(all[2].result_ids().collect::<Vec<_>>(), ["w2"], "a cancelled call has no message of its own");
    assert_eq!(all[4].text(), "right");
}

#[test]
fn what_a_few_lines_settle_does_not_change_with_more() {
    let samples =
        [(Agent::Claude, claude_lines()), (Agent::Codex, codex_lines()), (Agent::Gemini, gemini_lines())];
    for (agent, lines) in samples {
        let all = transcript::parse_messages(agent, &lines);
        let mut settled = 0;
        for call in all.iter().flat_map(|message| message.call_ids()) {
            let whole = transcript::cut_before_call(agent, &lines, call);
            for from in 0..lines.len() {
                let asked = transcript::find_requesting_answer(agent, &lines[from..], call, true);
                if let Some(answer) = asked.answer.filter(|_| asked.is_final) {
                    assert_eq!(Some(from + answer.lines.start), whole, "{agent:?} {call} from line {from}");
                    settled += 1;
                }
            }
        }
        assert!(settled > 0 || agent == Agent::Gemini, "{agent:?}");
    }
}

#[test]
fn cuts_leave_a_conversation() {
    let lines = claude_lines();
    assert_eq!(transcript::cut_before_call(Agent::Claude, &lines, "c2"), Some(3));
    assert_eq!(transcript::cut_before_call(Agent::Claude, &lines, "c3"), Some(9));
    assert_eq!(transcript::cut_before_call(Agent::Claude, &lines, "no such"), None);
    // Whatever had been written when the call began, it ends at the same place.
    for seen in [0, 5, 9] {
        assert_eq!(transcript::cut_before_later_call(Agent::Claude, &lines, "c3", seen), Some(9), "{seen}");
    }
    assert_eq!(transcript::cut_before_later_call(Agent::Claude, &lines, "c2", 9), None);
    assert_eq!(transcript::cut_before_prompt(Agent::Claude, &lines, 0), Some(0));
    assert_eq!(transcript::cut_before_prompt(Agent::Claude, &lines, 1), Some(17));
    assert_eq!(transcript::cut_before_prompt(Agent::Claude, &lines, 2), None);
    assert_eq!(transcript::align_cut(Agent::Claude, &lines, 8), 3, "of two parallel calls one waits");
    assert_eq!(transcript::align_cut(Agent::Claude, &lines, 5), 3, "half an answer is none");
    assert_eq!(transcript::align_cut(Agent::Claude, &lines, 9), 9);
    assert_eq!(transcript::align_cut(Agent::Claude, &lines, 999), 22);
    let lines = codex_lines();
    assert_eq!(
        transcript::cut_before_call(Agent::Codex, &lines, "b"),
        Some(6),
        "what was shown of it goes too"
    );
    assert_eq!(transcript::cut_before_prompt(Agent::Codex, &lines, 0), Some(1));
    assert_eq!(transcript::cut_before_prompt(Agent::Codex, &lines, 1), Some(18));
    assert_eq!(transcript::align_cut(Agent::Codex, &lines, 13), 6);
    let lines = gemini_lines();
    assert_eq!(transcript::cut_before_call(Agent::Gemini, &lines, "w1"), Some(4));
    assert_eq!(transcript::cut_before_prompt(Agent::Gemini, &lines, 1), Some(9));
}

#[test]
fn nothing_an_agent_may_write_is_too_much() {
    let odd = [
        "",
        "null",
        "[]",
        "{\"type\":\"user\"}",
        "{\"type\":\"assistant\",\"message\":7}",
        "{\"payload\":[]}",
        "\u{0}",
        "{\"id\":5}",
        "{\"type\":\"response_item\",\"payload\":{\"type\":\"new\",\"id\":\"x\"}}",
        "{\"$set\":{\"messages\":[1,{}]}}",
        "{\"info\":{\"role\":\"assistant\"},\"parts\":[{\"type\":\"tool\"}]}",
        "{\"stepback\":\"line left out\",\"bytes\":9}",
        "{\"type\":\"event_msg\",\"payload\":{\"type\":\"thread_rolled_back\",\"num_turns\":18446744073709551615}}",
    ];
    for agent in Agent::ALL {
        for mut lines in [claude_lines(), codex_lines(), gemini_lines(), Vec::new()] {
            lines.extend(odd.iter().map(|line| line.to_string()));
            let place = place(agent, Path::new("/none"));
            for n in 0..=lines.len() {
                let all = transcript::parse_messages(agent, &lines[..n]);
                assert!(
                    all.iter()
                        .all(|message| message.lines.start < message.lines.end && message.lines.end <= n)
                );
                assert!(transcript::align_cut(agent, &lines, n) <= n);
                import::build_events(&place, &lines[..n]);
                serde_json::to_string(&all).unwrap();
            }
        }
    }
}

#[test]
fn conversations_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let home = AgentDirs::from_home(dir.path());
    let put = |path: String, lines: &[String]| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, lines.join("\n") + "\n").unwrap();
    };
    put(format!(".claude/projects/-home-dev-app/{SESSION}.jsonl"), &claude_lines());
    put(".claude/projects/-home-dev-app/empty.jsonl".into(), &[]);
    put(format!(".claude/projects/-home-dev-app/{SESSION}/subagents/agent-a.jsonl"), &claude_lines()[13..15]);
    put(format!(".codex/sessions/2026/03/04/rollout-2026-03-04T05-06-00-{SESSION}.jsonl"), &codex_lines());
    put(".gemini/tmp/app/chats/session-2026-03-04T05-06-0c0ffee0.jsonl".into(), &gemini_lines());
    put(".gemini/tmp/app/.project_root".into(), &["/home/dev/app".into()]);
    fs::create_dir_all(&home.opencode).unwrap();
    opencode_db(&home.opencode.join("opencode.db"), "ses_1");
    let found = transcript::discover_transcripts(&home);
    let mut told: Vec<_> =
        found.iter().map(|found| (found.location.agent, found.head.title.as_deref().unwrap())).collect();
    told.sort();
    let expected = [
        (Agent::Claude, "fix the parser"),
        (Agent::Codex, "one"),
        (Agent::Gemini, "do the job"),
        (Agent::Opencode, "Title"),
    ];
    assert_eq!(told, expected);
    assert!(
        found.iter().all(|found| found.head.cwd.as_deref() == Some(Path::new("/home/dev/app"))),
        "{found:?}"
    );
    assert!(found.iter().all(|found| found.head.started_at.is_some() && found.head.model.is_some()));
    for found in &found {
        let (agent, session) = (found.location.agent, &found.location.session);
        assert_eq!(transcript::locate(agent, &home, session, None).as_ref(), Some(&found.location));
        assert_eq!(
            transcript::locate(agent, &home, session, Some(Path::new("/home/dev/app"))).as_ref(),
            Some(&found.location)
        );
        assert_eq!(transcript::locate(agent, &home, "../../etc/passwd", None), None);
    }
    let claude = found.iter().find(|found| found.location.agent == Agent::Claude).unwrap();
    assert_eq!(transcript::worker_transcripts(&claude.location).len(), 1);
    assert_eq!(transcript::discover_transcripts(&AgentDirs::from_home(Path::new("/nowhere"))), []);
}

#[test]
fn project_folders_are_named_as_claude_code_names_them() {
    let name = |path: &str| transcript::claude_project_folder(Path::new(path));
    assert_eq!(name("/home/a.b/my_app é"), "-home-a-b-my-app--");
    let long = name(&format!("/{}", "x".repeat(300)));
    assert!(long.starts_with(&format!("-{}-", "x".repeat(199))), "{long}");
}

#[test]
fn a_transcript_is_imported_as_events() {
    use StepKind::{AgentStep, Error, ModelEnd, StateChange, ToolEnd, ToolStart, UserInput};
    let place = place(Agent::Claude, Path::new("/none"));
    let events = import::build_events(&place, &claude_lines());
    let kinds: Vec<StepKind> = events.iter().map(|event| event.kind).collect();
    let start = [
        AgentStep, UserInput, ModelEnd, ToolStart, ToolStart, ToolEnd, ToolEnd, ModelEnd, ToolStart, ToolEnd,
    ];
    assert_eq!(kinds[..10], start);
    assert!(kinds.contains(&StateChange) && kinds.contains(&Error));
    assert_eq!(events[1].summary, "fix the parser");
    assert_eq!(events[2].metadata.as_ref().unwrap()["tokens"]["cache_read"], json!(11));
    assert_eq!(events[4].summary, "Bash: cargo test");
    assert_eq!(events[6].error.as_ref().unwrap().message, "Exit code 1");
    assert_eq!(events[6].duration, Some(1_000_000));
    assert!(events.iter().any(|event| event.worker.as_deref() == Some("sub1")));
    assert_eq!(events, import::build_events(&place, &claude_lines()));
    let mut keys: Vec<_> = events.iter().map(|event| (event.kind, event.key.clone().unwrap())).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), events.len());
}
