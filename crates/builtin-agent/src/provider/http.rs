//! A model server: Anthropic's, or any server that implements Chat Completions.
//!
//! The key is sent with the request and nowhere else; it never reaches what is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;
use stepback_llm_wire::{Chunks, ModelRequest, Response};
use stepback_model::event::ReportedError;

use super::{Provider, chat};
use crate::request::WORKER;

/// How often to check whether the answer is still wanted.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sends a body to a URL and returns the response, or why there was none.
pub trait Post: Send + Sync {
    /// Sends one POST request.
    fn post(&self, url: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Response, String>;
}

/// The API of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// The Messages API.
    Anthropic,
    /// Chat Completions.
    Chat,
}

impl Dialect {
    /// Returns the default address of its servers.
    pub fn address(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::Chat => "https://api.openai.com/v1",
        }
    }
}

/// Provider that calls a server.
pub struct Http {
    post: Arc<dyn Post>,
    dialect: Dialect,
    url: String,
    key: Option<String>,
    stop: Arc<AtomicBool>,
}

impl Http {
    /// Creates a provider for the server at `base`, or at the dialect's default address. It stops waiting for an answer when
    /// `stop` is set.
    pub fn new(
        post: Arc<dyn Post>,
        dialect: Dialect,
        base: Option<&str>,
        key: Option<String>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let base = base.unwrap_or(dialect.address()).trim_end_matches('/');
        let url = match dialect {
            // Users write the address with and without the version.
            Dialect::Anthropic => format!("{}/v1/messages", base.trim_end_matches("/v1")),
            Dialect::Chat => format!("{base}/chat/completions"),
        };
        Self { post, dialect, url, key, stop }
    }

    fn headers(&self, request: &ModelRequest) -> Vec<(String, String)> {
        let known = request.headers.iter().filter(|(name, _)| match self.dialect {
            Dialect::Anthropic => name != WORKER,
            Dialect::Chat => name == "content-type",
        });
        let mut headers: Vec<(String, String)> = known.cloned().collect();
        headers.extend(self.key.as_ref().map(|key| match self.dialect {
            Dialect::Anthropic => ("x-api-key".to_string(), key.clone()),
            Dialect::Chat => ("authorization".to_string(), format!("Bearer {key}")),
        }));
        headers
    }
}

impl Provider for Http {
    fn ask(&mut self, request: &ModelRequest) -> Result<Response, ReportedError> {
        let body = match self.dialect {
            Dialect::Anthropic => request.body.to_string(),
            Dialect::Chat => chat::question(&request.body).to_string(),
        };
        let (post, url, headers) = (self.post.clone(), self.url.clone(), self.headers(request));
        let (done, answer) = mpsc::channel();
        // In a thread of its own, because a model can take minutes and the user may interrupt.
        std::thread::spawn(move || {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let _ = done.send(post.post(&url, &headers, body.into_bytes()));
        });
        let trouble = |name: &str, message: String| ReportedError {
            name: Some(name.to_string()),
            message,
            ..ReportedError::default()
        };
        let response = loop {
            match answer.recv_timeout(CANCEL_POLL_INTERVAL) {
                Ok(response) => break response.map_err(|error| trouble("unreachable", error))?,
                Err(RecvTimeoutError::Timeout) if !self.stop.load(Ordering::Relaxed) => {}
                Err(RecvTimeoutError::Timeout) => return Err(trouble("interrupted", "interrupted".into())),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(trouble("unreachable", "the request was lost".into()));
                }
            }
        };
        Ok(match self.dialect {
            Dialect::Anthropic => response,
            Dialect::Chat => translate_response(response),
        })
    }
}

/// Translates a Chat Completions response to the Messages API. Its chunks are not kept, because they do not fit the new body.
fn translate_response(response: Response) -> Response {
    let Ok(body) = serde_json::from_str::<Value>(&response.body) else { return response };
    let body = chat::answer(&body).to_string();
    let mut chunks = Chunks::default();
    chunks.push(response.took, body.len() as u64);
    Response { body, chunks, ..response }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use stepback_llm_wire::AnswerEnd;

    use super::*;
    use crate::request;

    type Sent = (String, Vec<(String, String)>, Value);

    /// A server that always answers the same and stores the requests it got.
    struct Server(Value, Mutex<Vec<Sent>>);

    impl Post for Server {
        fn post(&self, url: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Response, String> {
            let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let body = serde_json::from_slice(&body).unwrap();
            self.1.lock().unwrap().push((url.to_string(), headers, body));
            Ok(Response {
                status: 200,
                headers: Vec::new(),
                body: self.0.to_string(),
                chunks: Chunks::default(),
                ended: AnswerEnd::Complete,
                first_byte: None,
                took: 1,
                left_out: 0,
            })
        }
    }

    fn ask(dialect: Dialect, base: Option<&str>, said: Value) -> (request::ModelAnswer, Sent) {
        let server = Arc::new(Server(said, Mutex::default()));
        let mut http = Http::new(server.clone(), dialect, base, Some("k".into()), Arc::default());
        let request = request::request("m", "", &[json!({ "role": "user", "content": "go" })], Some("w c"));
        let answer = request::read(&http.ask(&request).unwrap()).unwrap();
        let sent = server.1.lock().unwrap().remove(0);
        (answer, sent)
    }

    #[test]
    fn anthropic_is_asked_as_it_is() {
        let said = json!({ "type": "message", "content": [{ "type": "text", "text": "hello" }] });
        let (answer, (url, headers, body)) = ask(Dialect::Anthropic, None, said.clone());
        assert_eq!((answer.text.as_str(), url.as_str()), ("hello", "https://api.anthropic.com/v1/messages"));
        assert!(headers.contains(&("x-api-key".into(), "k".into())));
        assert!(headers.iter().any(|(name, _)| name == "anthropic-version"));
        assert!(!headers.iter().any(|(name, _)| name == WORKER), "that is between us");
        assert_eq!(body["messages"][0]["content"], "go");
        let (_, (url, ..)) = ask(Dialect::Anthropic, Some("http://localhost:1/v1/"), said);
        assert_eq!(url, "http://localhost:1/v1/messages");
    }

    #[test]
    fn others_are_asked_in_their_own_words() {
        let said = json!({ "choices": [{ "message": { "content": "hello" } }] });
        let (answer, (url, headers, body)) = ask(Dialect::Chat, Some("http://localhost:1/v1"), said);
        assert_eq!((answer.text.as_str(), url.as_str()), ("hello", "http://localhost:1/v1/chat/completions"));
        assert!(headers.contains(&("authorization".into(), "Bearer k".into())));
        assert_eq!(body["messages"][0]["role"], "user");
    }
}
