//! Finds the conversations that agents keep, and what they are about.
//!
//! Nothing here reads the environment: the caller passes the directories as a [`Home`].

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use stepback_model::time::Timestamp;

use serde_json::Value;

use super::message::{TranscriptMessage, parse_messages};
use super::value::{clip_line, get_str, get_string, get_timestamp};
use super::{TranscriptLocation, claude, opencode_db};
use crate::agent::Agent;

/// How many levels of directories are searched.
const MAX_DEPTH: usize = 12;
/// How many bytes of a transcript are read to find out what it is about.
const HEAD_BYTES: u64 = 1 << 20;

/// The directories in which the agents keep their files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentDirs {
    /// Claude Code's directory: `CLAUDE_CONFIG_DIR`, or `~/.claude`.
    pub claude: PathBuf,
    /// Codex's directory: `CODEX_HOME`, or `~/.codex`.
    pub codex: PathBuf,
    /// Gemini CLI's directory: `~/.gemini`.
    pub gemini: PathBuf,
    /// opencode's data: `$XDG_DATA_HOME/opencode`, or `~/.local/share/opencode`.
    pub opencode: PathBuf,
}

impl AgentDirs {
    /// Returns the default directories below a home directory.
    pub fn from_home(home: &Path) -> Self {
        Self {
            claude: home.join(".claude"),
            codex: home.join(".codex"),
            gemini: home.join(".gemini"),
            opencode: home.join(".local/share/opencode"),
        }
    }

    /// Returns the path of opencode's database.
    pub fn opencode_db(&self) -> PathBuf {
        self.opencode.join("opencode.db")
    }
}

/// Facts about a conversation from its first lines.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConversationHead {
    /// The agent's own id of the session, if the lines say it.
    pub session: Option<String>,
    /// The directory it runs in.
    pub cwd: Option<PathBuf>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// Its title, or else its first prompt, on one line.
    pub title: Option<String>,
    /// The model that answered first.
    pub model: Option<String>,
}

/// A conversation that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundTranscript {
    /// Where it is stored.
    pub location: TranscriptLocation,
    /// What it is about.
    pub head: ConversationHead,
}

/// Finds the conversation of a session. Its directory makes this faster, if known.
pub fn locate(
    agent: Agent,
    home: &AgentDirs,
    session: &str,
    cwd: Option<&Path>,
) -> Option<TranscriptLocation> {
    // The id becomes part of a path and comes from outside.
    if session.is_empty()
        || !session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    {
        return None;
    }
    let path = match agent {
        Agent::Claude => {
            let name = format!("{session}.jsonl");
            let projects = home.claude.join("projects");
            let likely = cwd.map(|cwd| projects.join(claude::project_folder(cwd)).join(&name));
            likely.filter(|path| path.is_file()).or_else(|| {
                list_dir(&projects).into_iter().map(|folder| folder.join(&name)).find(|path| path.is_file())
            })
        }
        Agent::Codex => {
            let end = format!("-{session}.jsonl");
            list_rollouts(home).into_iter().rev().find(|path| file_name(path).ends_with(&end))
        }
        Agent::Gemini => {
            let is = |path: &PathBuf| {
                parse_conversation_head(agent, &read_head_lines(path)).session.as_deref() == Some(session)
            };
            let end = format!("-{}.jsonl", session.get(..8).unwrap_or(session));
            list_chats(home).into_iter().filter(|path| file_name(path).ends_with(&end)).find(is)
        }
        Agent::Opencode => {
            let path = home.opencode_db();
            opencode_db::find_session(&path, session).ok().flatten().map(|_| path)
        }
    };
    path.map(|path| TranscriptLocation { agent, path, session: session.into() })
}

/// Returns all conversations of all agents, oldest first. Those that cannot be read are skipped.
pub fn discover_transcripts(home: &AgentDirs) -> Vec<FoundTranscript> {
    let folders = list_dir(&home.claude.join("projects"));
    let claude = folders.iter().flat_map(|folder| list_dir(folder)).filter(|path| is_jsonl(path));
    let files = claude.map(|path| (Agent::Claude, path));
    let files = files.chain(list_rollouts(home).into_iter().map(|path| (Agent::Codex, path)));
    let files = files.chain(list_chats(home).into_iter().map(|path| (Agent::Gemini, path)));
    let mut found: Vec<FoundTranscript> =
        files.filter_map(|(agent, path)| transcript_in_file(agent, path)).collect();
    found.extend(transcripts_in_database(&home.opencode_db()));
    found.sort_by(|a, b| (a.head.started_at, &a.location.path).cmp(&(b.head.started_at, &b.location.path)));
    found
}

/// Returns the conversations in a file, or in a directory and below. The agent that wrote a file is detected from its
/// content, unless it is given.
pub fn find_transcripts_at(path: &Path, agent: Option<Agent>) -> Vec<FoundTranscript> {
    let mut found = Vec::new();
    let mut waiting = vec![(path.to_path_buf(), 0)];
    while let Some((path, depth)) = waiting.pop() {
        // Links are not followed: they may form a cycle.
        if path.is_dir() && depth < MAX_DEPTH && (depth == 0 || !path.is_symlink()) {
            waiting.extend(list_dir(&path).into_iter().map(|entry| (entry, depth + 1)));
        } else if path.extension().is_some_and(|extension| extension == "db") {
            found.extend(transcripts_in_database(&path));
        } else if path.is_file() && (is_jsonl(&path) || depth == 0) {
            let writer = agent.or_else(|| detect_agent(&read_head_lines(&path)));
            // The conversations of sub-agents are part of the one that started them.
            let is_worker = path.parent().is_some_and(|dir| dir.ends_with("subagents"));
            found.extend(writer.filter(|_| !is_worker).and_then(|agent| transcript_in_file(agent, path)));
        }
    }
    found.sort_by(|a, b| (a.head.started_at, &a.location.path).cmp(&(b.head.started_at, &b.location.path)));
    found
}

/// Returns the agent that writes lines like these.
fn detect_agent(lines: &[String]) -> Option<Agent> {
    lines.iter().take(20).find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let has = |field: &str| line.get(field).is_some();
        if get_str(&line, "type") == Some("session_meta") && has("payload") {
            return Some(Agent::Codex);
        }
        if has("sessionId") && (has("projectHash") || has("startTime")) {
            return Some(Agent::Gemini);
        }
        (has("sessionId") && has("type") && (has("uuid") || has("message"))).then_some(Agent::Claude)
    })
}

/// Returns the conversations of the sub-agents of a session, if the agent keeps them in separate files.
pub fn worker_transcripts(location: &TranscriptLocation) -> Vec<TranscriptLocation> {
    if location.agent != Agent::Claude {
        return Vec::new();
    }
    let paths = list_dir(&location.path.with_extension("").join("subagents"));
    let place = |path| TranscriptLocation { path, ..location.clone() };
    paths.into_iter().filter(|path| is_jsonl(path)).map(place).collect()
}

fn transcript_in_file(agent: Agent, path: PathBuf) -> Option<FoundTranscript> {
    let mut about = parse_conversation_head(agent, &read_head_lines(&path));
    if agent == Agent::Gemini && about.cwd.is_none() {
        let marker = path.parent()?.parent()?.join(".project_root");
        about.cwd = fs::read_to_string(marker).ok().map(|root| PathBuf::from(root.trim()));
    }
    // Claude Code uses the name of the file; a copied file may still contain the id of the session it was copied from.
    let session = match agent {
        Agent::Claude => path.file_stem()?.to_str()?.to_owned(),
        _ => about.session.clone()?,
    };
    // Files without a prompt are summaries and the like.
    about.title.as_ref()?;
    Some(FoundTranscript { location: TranscriptLocation { agent, path, session }, head: about })
}

fn transcripts_in_database(path: &Path) -> Vec<FoundTranscript> {
    let rows = opencode_db::list_sessions(path).unwrap_or_default();
    let found = rows.into_iter().filter(|row| row.parent.is_none()).map(|row| {
        let place = TranscriptLocation { agent: Agent::Opencode, path: path.into(), session: row.id };
        let title = Some(clip_line(&row.title, 100));
        let (session, cwd) = (Some(place.session.clone()), Some(PathBuf::from(row.directory)));
        FoundTranscript {
            location: place,
            head: ConversationHead { session, cwd, started_at: Some(row.created), title, model: row.model },
        }
    });
    found.collect()
}

/// Returns what the first lines of a chain say about the conversation.
pub fn parse_conversation_head<S: AsRef<str>>(agent: Agent, lines: &[S]) -> ConversationHead {
    let mut about = ConversationHead::default();
    for line in lines.iter().take(64) {
        let Ok(line) = serde_json::from_str::<Value>(line.as_ref()) else { continue };
        let header = match agent {
            Agent::Claude | Agent::Gemini => &line,
            Agent::Codex => line.get("payload").unwrap_or(&Value::Null),
            Agent::Opencode => line.get("info").unwrap_or(&Value::Null),
        };
        let session = match agent {
            Agent::Codex if get_str(&line, "type") == Some("session_meta") => get_string(header, "id"),
            Agent::Codex => None,
            _ => get_string(header, "sessionId").or_else(|| get_string(header, "sessionID")),
        };
        about.session = about.session.or(session);
        let path = header.get("path").unwrap_or(header);
        about.cwd = about.cwd.or_else(|| get_str(path, "cwd").map(PathBuf::from));
        let time = header.get("time").and_then(|time| get_timestamp(time, "created"));
        about.started_at = about.started_at.or_else(|| {
            time.or_else(|| get_timestamp(&line, "startTime")).or_else(|| get_timestamp(&line, "timestamp"))
        });
        if about.session.is_some() && about.cwd.is_some() && about.started_at.is_some() {
            break;
        }
    }
    let all = parse_messages(agent, lines);
    let prompt = all.iter().find(|message| message.is_prompt()).map(TranscriptMessage::text);
    about.title = prompt.map(|prompt| clip_line(&prompt, 100));
    about.model = all.into_iter().find_map(|message| message.model);
    about
}

/// Returns the complete lines in the first part of a file.
fn read_head_lines(path: &Path) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut bytes));
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    if read.is_err() {
        return Vec::new();
    }
    String::from_utf8_lossy(&bytes[..end]).lines().map(str::to_owned).collect()
}

fn list_rollouts(home: &AgentDirs) -> Vec<PathBuf> {
    let mut level = vec![home.codex.join("sessions")];
    for _ in 0..3 {
        level = level.iter().flat_map(|folder| list_dir(folder)).collect();
    }
    let files = level.iter().flat_map(|folder| list_dir(folder));
    files.filter(|path| is_jsonl(path) && file_name(path).starts_with("rollout-")).collect()
}

fn list_chats(home: &AgentDirs) -> Vec<PathBuf> {
    let projects = list_dir(&home.gemini.join("tmp"));
    let files = projects.iter().flat_map(|project| list_dir(&project.join("chats")));
    files.filter(|path| is_jsonl(path) && file_name(path).starts_with("session-")).collect()
}

/// Returns the paths in a directory, sorted by name; empty if it cannot be read.
fn list_dir(folder: &Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = found.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_jsonl(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "jsonl") && path.is_file()
}
