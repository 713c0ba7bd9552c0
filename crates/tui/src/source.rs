//! The source of all data: the store in this process, or a remote server.
//!
//! Both use the same documents, those of the HTTP API. Only the transport of a request differs: `direct` hands it to the
//! server's own routes without a socket, `remote` sends it over the network. So the views work the same with both.

mod direct;
mod remote;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stepback_api::address::encode_segment;
use stepback_api::problem::ProblemDocument;
use tokio::runtime::{Handle, Runtime};

pub use remote::RemoteServer;

/// The largest document that is read, in bytes. Steps can have tens of megabytes; nothing sensible is larger.
const MAX_DOCUMENT_BYTES: usize = 512 << 20;
/// The path prefix of all requests.
const API: &str = "/api/v1";

type AnyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer, as a stream.
type BodyStream = UnsyncBoxBody<Bytes, AnyError>;
type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<BodyStream>, String>> + Send + 'a>>;

/// How a request reaches the server's routes.
trait Transport: Send + Sync {
    /// Sends the request; an error is returned as text.
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_>;
}

/// Why a request failed.
#[derive(Clone, PartialEq, Debug)]
pub enum SourceError {
    /// There was no answer.
    NoResponse(String),
    /// The server refused the request.
    Refused(Box<ProblemDocument>),
}

impl SourceError {
    /// Whether the requested item was not found.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 404)
    }

    /// Returns the error on one line.
    pub fn to_line(&self) -> String {
        match self {
            Self::NoResponse(reason) => reason.clone(),
            Self::Refused(problem) => match problem.hints.first() {
                Some(hint) => format!("{}; {hint}", problem.detail),
                None => problem.detail.clone(),
            },
        }
    }
}

/// The result of a request.
pub type SourceResult<T> = Result<T, SourceError>;

/// A source of data.
#[derive(Clone)]
pub struct DataSource {
    transport: Arc<dyn Transport>,
    /// Lives as long as the program: tasks on it hold the source, and must not drop the runtime they run on.
    runtime: &'static Runtime,
    name: String,
}

impl DataSource {
    fn new(transport: impl Transport + 'static, name: String) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stepback-tui")
            .enable_all()
            .build()?;
        Ok(Self { transport: Arc::new(transport), runtime: Box::leak(Box::new(runtime)), name })
    }

    /// Returns a source over the store of `work`, in this process.
    pub fn in_process(state: stepback_server::AppState) -> std::io::Result<Self> {
        Self::new(direct::InProcessTransport::new(state), "this store".into())
    }

    /// Returns a source over a remote server.
    pub fn remote(server: RemoteServer) -> std::io::Result<Self> {
        let name = server.display_address().to_owned();
        Self::new(server, name)
    }

    /// Returns the name of the source, for display.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the handle of the runtime that its work runs on.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Checks that it answers and knows the named session; blocks until then.
    pub fn check(&self, session: Option<&str>) -> SourceResult<()> {
        let path = session.map_or("/stops".to_owned(), |session| session_path(session, ""));
        self.runtime.block_on(self.get::<Value>(&path)).map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> SourceResult<Response<BodyStream>> {
        let mut request = Request::builder().method(method).uri(format!("{API}{path}"));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request
            .body(body)
            .map_err(|error| SourceError::NoResponse(format!("invalid request: {error}")))?;
        let response = self.transport.send(request).await.map_err(SourceError::NoResponse)?;
        match response.status().as_u16() {
            200..=299 => Ok(response),
            status => Err(read_problem(status, response.into_body()).await),
        }
    }

    async fn parse_document<T: DeserializeOwned>(response: Response<BodyStream>) -> SourceResult<T> {
        let (bytes, cut) = read_limited(response.into_body(), MAX_DOCUMENT_BYTES).await?;
        if cut {
            return Err(SourceError::NoResponse("the response is too large to show".into()));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            SourceError::NoResponse(format!(
                "cannot parse the response ({error}); is the server an older version?"
            ))
        })
    }

    /// Requests a document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> SourceResult<T> {
        Self::parse_document(self.send(Method::GET, path, None).await?).await
    }

    /// Sends a POST request.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> SourceResult<T> {
        Self::parse_document(self.send(Method::POST, path, Some(body)).await?).await
    }

    /// Sends a PATCH request.
    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> SourceResult<T> {
        Self::parse_document(self.send(Method::PATCH, path, Some(body)).await?).await
    }

    /// Sends a DELETE request.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> SourceResult<T> {
        Self::parse_document(self.send(Method::DELETE, path, None).await?).await
    }

    /// Returns the first bytes of a response, and whether there are more.
    pub async fn get_beginning(&self, path: &str, max_bytes: usize) -> SourceResult<(Vec<u8>, bool)> {
        read_limited(self.send(Method::GET, path, None).await?.into_body(), max_bytes).await
    }

    /// Follows the event stream: calls `on_event` with the name and data of every event until the stream ends. Returns
    /// why it ended.
    pub async fn follow(&self, mut on_event: impl FnMut(&str, &[u8])) -> SourceError {
        let mut body = match self.send(Method::GET, "/events", None).await {
            Ok(response) => response.into_body(),
            Err(trouble) => return trouble,
        };
        on_event("connected", b"");
        let (mut rest, mut name) = (Vec::new(), String::new());
        while let Some(frame) = body.frame().await {
            let chunk = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) => {
                    return SourceError::NoResponse(format!("connection to {} lost: {error}", self.name));
                }
            };
            rest.extend_from_slice(&chunk);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let line = line.strip_suffix(b"\n").unwrap_or(&line);
                if let Some(event) = line.strip_prefix(b"event: ") {
                    name = String::from_utf8_lossy(event).into_owned();
                } else if let Some(data) = line.strip_prefix(b"data: ") {
                    on_event(&name, data);
                }
            }
        }
        SourceError::NoResponse(format!("connection to {} lost", self.name))
    }
}

/// Reads the error of a response.
async fn read_problem(status: u16, body: BodyStream) -> SourceError {
    let bytes = read_limited(body, 4 << 20).await.map(|(bytes, _)| bytes).unwrap_or_default();
    let problem = serde_json::from_slice(&bytes).unwrap_or_else(|_| ProblemDocument {
        status,
        detail: format!("status {status}, not from a stepback server"),
        ..ProblemDocument::default()
    });
    SourceError::Refused(Box::new(problem))
}

/// Reads at most `most` bytes, and returns whether there were more.
async fn read_limited(mut body: BodyStream, max_bytes: usize) -> SourceResult<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| SourceError::NoResponse(format!("the response was interrupted: {error}")))?;
        if let Ok(data) = frame.into_data() {
            let room = max_bytes - bytes.len();
            bytes.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            if data.len() > room {
                return Ok((bytes, true));
            }
        }
    }
    Ok((bytes, false))
}

/// Returns the path of something that belongs to a session.
pub fn session_path(session: &str, rest: &str) -> String {
    format!("/sessions/{}{rest}", encode_segment(session))
}

/// Returns the path of something that belongs to a workspace.
pub fn workspace_path(workspace: &str, rest: &str) -> String {
    format!("/workspaces/{}{rest}", encode_segment(workspace))
}
