//! The server: which turn answers a request, and the record of all requests.
//!
//! One thread for each connection; connections stay open. A request is recorded *before* it is answered, so a test that
//! sees an effect of an answer finds the request.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::{self, HttpReply, HttpRequest};
use super::script::{Script, ScriptedTurn};
use super::wire::{self, ConversationItem, ItemRole, ScriptedAnswer};
use super::{ReceivedRequest, RequestOutcome, ScriptedAgent, tools};

/// The longest a turn waits for its file.
const TURN_FILE_TIMEOUT: Duration = Duration::from_secs(300);

/// The configuration of a server, which is passed to another process as a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerParts {
    /// Who it talks to.
    pub agent: ScriptedAgent,
    /// Where that agent works.
    pub workspace: PathBuf,
    /// What it says.
    pub script: Script,
}

/// A model in this process.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    record: Arc<Record>,
}

#[derive(Debug)]
struct Record {
    part: ServerParts,
    requests: Mutex<Vec<ReceivedRequest>>,
    log: Option<Mutex<File>>,
    failed: Mutex<HashMap<(usize, usize), u32>>,
}

impl ModelServer {
    /// Starts a model on a port of 127.0.0.1 that the system chooses.
    pub fn start(part: ServerParts) -> Self {
        Self::listen(part, 0, None).unwrap()
    }

    /// Starts a model on a given port, writing each request as a line of JSON to `log`.
    pub fn listen(part: ServerParts, port: u16, log: Option<&Path>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let address = listener.local_addr()?;
        let log = match log {
            Some(path) => Some(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)),
            None => None,
        };
        let record = Arc::new(Record { part, requests: Mutex::default(), log, failed: Mutex::default() });
        let shared = Arc::clone(&record);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // The agent handles a broken connection; its request is recorded.
                    let _ = shared.serve(&stream);
                });
            }
        });
        Ok(Self { address, record })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.record.requests.lock().unwrap().clone()
    }
}

impl Record {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut reader, mut writer) = (BufReader::new(stream), stream);
        while let Some(message) = http::read(&mut reader, &mut writer)? {
            let closes = message.closes();
            let reply = self.answer(message);
            http::write(&mut writer, &reply)?;
            if closes {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, message: HttpRequest) -> HttpReply {
        let body: Value = serde_json::from_slice(&message.body).unwrap_or(Value::Null);
        let path = message.path.split('?').next().unwrap_or_default().to_owned();
        let (answered, reply) = if message.method == "POST" && is_model_call(self.part.agent, &path) {
            self.say(&path, &body)
        } else if path == "/" {
            (RequestOutcome::Other(200), Answering::Now(HttpReply::Empty(200)))
        } else {
            (
                RequestOutcome::Other(404),
                Answering::Now(HttpReply::Json(404, json!({ "error": { "message": "not here" } }))),
            )
        };
        let HttpRequest { method, path, headers, .. } = message;
        self.keep(ReceivedRequest { method, path, headers, body, answer: answered });
        match reply {
            Answering::Now(reply) => reply,
            Answering::Later(turn, reply) => {
                thread::sleep(Duration::from_millis(turn.delay));
                let started = Instant::now();
                while turn.until.as_ref().is_some_and(|file| !file.exists())
                    && started.elapsed() < TURN_FILE_TIMEOUT
                {
                    thread::sleep(Duration::from_millis(5));
                }
                reply
            }
        }
    }

    fn keep(&self, request: ReceivedRequest) {
        if let Some(log) = &self.log {
            let mut line = serde_json::to_vec(&request).unwrap();
            line.push(b'\n');
            log.lock().unwrap().write_all(&line).unwrap();
        }
        self.requests.lock().unwrap().push(request);
    }

    fn say(&self, path: &str, body: &Value) -> (RequestOutcome, Answering) {
        let part = &self.part;
        let stream = body["stream"] == true || path.ends_with(":streamGenerateContent");
        let items = wire::items(part.agent, body);
        let (conversation, turn) = choose(&part.script, &items);
        let mut answer = ScriptedAnswer {
            key: format!("c{conversation}t{}", wire::turns(&items)),
            text: Some("The script is over.".to_owned()),
            calls: Vec::new(),
            model: body["model"].as_str().unwrap_or("scripted").to_owned(),
        };
        let offered = wire::offered(body);
        if offered.is_empty() {
            // A request for a JSON answer asks for a title or a choice of model.
            answer.text = Some(
                "{\"title\":\"Scripted\",\"model_choice\":\"pro\",\"reasoning\":\"scripted\"}".to_owned(),
            );
            if part.agent == ScriptedAgent::Opencode {
                answer.text = Some("Scripted".to_owned());
            }
            return (RequestOutcome::Aside, Answering::Now(wire::write(part.agent, &answer, stream)));
        }
        let found = part.script.conversations.get(conversation).and_then(|chosen| chosen.turns.get(turn));
        let Some(found) = found else {
            return (RequestOutcome::Over, Answering::Now(wire::write(part.agent, &answer, stream)));
        };
        if let Some((status, times)) = found.fails {
            let mut failed = self.failed.lock().unwrap();
            let failed = failed.entry((conversation, turn)).or_default();
            if *failed < times {
                *failed += 1;
                let error = json!({ "type": "error", "error": {
                    "type": "overloaded_error", "message": "scripted", "code": status, "status": "UNAVAILABLE",
                } });
                return (RequestOutcome::Failed(status), Answering::Now(HttpReply::Json(status, error)));
            }
        }
        answer.text.clone_from(&found.text);
        let translated = |call| tools::translate(part.agent, call, &part.workspace, &offered);
        answer.calls = found.calls.iter().map(translated).collect();
        let reply = wire::write(part.agent, &answer, stream);
        (RequestOutcome::Turn { conversation, turn }, Answering::Later(found.clone(), reply))
    }
}

enum Answering {
    Now(HttpReply),
    Later(ScriptedTurn, HttpReply),
}

fn is_model_call(agent: ScriptedAgent, path: &str) -> bool {
    match agent {
        ScriptedAgent::Claude => path == "/v1/messages",
        ScriptedAgent::Codex => path == "/v1/responses",
        ScriptedAgent::Gemini => {
            path.ends_with(":streamGenerateContent") || path.ends_with(":generateContent")
        }
        ScriptedAgent::Opencode => path == "/v1/chat/completions",
    }
}

/// Selects the next turn: the latest prompt with a marker selects the conversation, and the model's turns since then the
/// turn.
fn choose(script: &Script, items: &[ConversationItem]) -> (usize, usize) {
    for (index, item) in items.iter().enumerate().rev().filter(|(_, item)| item.role == ItemRole::User) {
        let marked = script.conversations.iter().position(|conversation| {
            conversation.when.as_ref().is_some_and(|marker| item.text.contains(marker.as_str()))
        });
        if let Some(conversation) = marked {
            return (conversation, wire::turns(&items[index..]));
        }
    }
    let default_conversation =
        script.conversations.iter().position(|conversation| conversation.when.is_none());
    (default_conversation.unwrap_or(script.conversations.len()), wire::turns(items))
}

/// The requests in the log of a server; an incomplete last line is left out.
pub fn logged(log: &Path) -> Vec<ReceivedRequest> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
    complete_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the model of a directory, for as long as the process lives: reads `part.json`, writes each request to
/// `requests.jsonl`, and creates a file `port` when it listens.
pub fn play(directory: &Path, port: u16) -> io::Result<()> {
    let part: ServerParts = serde_json::from_slice(&fs::read(directory.join("part.json"))?)?;
    let server = ModelServer::listen(part, port, Some(&directory.join("requests.jsonl")))?;
    fs::write(directory.join("port.new"), server.address().port().to_string())?;
    fs::rename(directory.join("port.new"), directory.join("port"))?;
    loop {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(role: ItemRole, text: &str, turn: usize) -> ConversationItem {
        ConversationItem { role, text: text.to_owned(), turn: turn.to_string() }
    }

    #[test]
    fn the_latest_marked_prompt_decides_and_its_turns_count() {
        let script = Script::new([ScriptedTurn::text("a")])
            .when("fix", [ScriptedTurn::text("b")])
            .when("test", [ScriptedTurn::text("c")]);
        let mut items = vec![item(ItemRole::User, "please fix it", 0)];
        assert_eq!(choose(&script, &items), (1, 0));
        items.extend([
            item(ItemRole::Call, "x", 1),
            item(ItemRole::Result, "y", 2),
            item(ItemRole::Model, "z", 3),
        ]);
        assert_eq!(choose(&script, &items), (1, 2));
        items.push(item(ItemRole::User, "go on", 4));
        assert_eq!(choose(&script, &items), (1, 2));
        items.push(item(ItemRole::User, "now test it", 5));
        assert_eq!(choose(&script, &items), (2, 0));
        assert_eq!(
            choose(&script, &[item(ItemRole::User, "hello", 0), item(ItemRole::Model, "hi", 1)]),
            (0, 1)
        );
    }

    #[test]
    fn every_agent_gets_its_turn_over_its_wire_and_all_is_on_record() {
        for (agent, path, body) in [
            (
                ScriptedAgent::Claude,
                "/v1/messages?beta=true",
                json!({ "messages": [], "tools": [{ "name": "Bash" }], "stream": true }),
            ),
            (
                ScriptedAgent::Codex,
                "/v1/responses",
                json!({ "input": [], "tools": [{ "name": "exec_command" }], "stream": true }),
            ),
            (
                ScriptedAgent::Gemini,
                "/v1beta/models/m:streamGenerateContent?alt=sse",
                json!({ "contents": [], "tools": [{ "name": "a" }] }),
            ),
            (
                ScriptedAgent::Opencode,
                "/v1/chat/completions",
                json!({ "messages": [], "tools": [{ "name": "bash" }] }),
            ),
        ] {
            let script = Script::new([ScriptedTurn::shell("ls -l").failing(529, 1)]);
            let server = ModelServer::start(ServerParts { agent, workspace: PathBuf::from("/w"), script });
            let ask = || {
                let mut stream = TcpStream::connect(server.address()).unwrap();
                let body = body.to_string();
                write!(
                    stream,
                    "POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
                io::read_to_string(stream).unwrap()
            };
            assert!(ask().starts_with("HTTP/1.1 529"));
            let answer = ask();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("ls -l"), "{agent:?}: {answer}");
            let answers: Vec<RequestOutcome> =
                server.requests().into_iter().map(|request| request.answer).collect();
            assert_eq!(
                answers,
                [RequestOutcome::Failed(529), RequestOutcome::Turn { conversation: 0, turn: 0 }]
            );
        }
    }
}
