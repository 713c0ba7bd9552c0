//! Where everything that is shown comes from: the store in this process, or a server elsewhere.
//!
//! Both speak the same documents, those of the HTTP API. What differs is how a request gets there: `direct` hands it to the
//! server's own routes without a socket, `remote` sends it. So a view cannot tell which of the two it is looking at.

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
use tokio::runtime::{Handle, Runtime};

use crate::documents::Problem;

pub use remote::Remote;

/// Largest document that is taken in. Steps can hold tens of megabytes; nothing sensible is larger.
const LARGEST_DOCUMENT: usize = 512 << 20;
/// Everything is asked below this.
const API: &str = "/api/v1";

type AnyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer, as it comes.
type Pieces = UnsyncBoxBody<Bytes, AnyError>;
type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Pieces>, String>> + Send + 'a>>;

/// How a request gets to where it is answered.
trait Transport: Send + Sync {
    /// Sends it; what fails is told in words.
    fn send(&self, request: Request<Bytes>) -> Sending<'_>;
}

/// Why something was not answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Trouble {
    /// There was no answer at all.
    Gone(String),
    /// It was answered that it does not go like this.
    Refused(Box<Problem>),
}

impl Trouble {
    /// Whether what was asked for is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 404)
    }

    /// What to tell, on one line.
    pub fn line(&self) -> String {
        match self {
            Self::Gone(why) => why.clone(),
            Self::Refused(problem) => match problem.hints.first() {
                Some(hint) => format!("{}; {hint}", problem.detail),
                None => problem.detail.clone(),
            },
        }
    }
}

/// An answer or none.
pub type Answered<T> = Result<T, Trouble>;

/// The source.
#[derive(Clone)]
pub struct Source {
    transport: Arc<dyn Transport>,
    /// It is there for as long as the program is: what runs in it holds the source, and nothing may end what it runs in.
    runtime: &'static Runtime,
    name: String,
}

impl Source {
    fn new(transport: impl Transport + 'static, name: String) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stepback-tui")
            .enable_all()
            .build()?;
        Ok(Self { transport: Arc::new(transport), runtime: Box::leak(Box::new(runtime)), name })
    }

    /// The store that `work` works with, in this process.
    pub fn direct(work: stepback_server::AppState) -> std::io::Result<Self> {
        Self::new(direct::Direct::new(work), "this store".into())
    }

    /// A server elsewhere.
    pub fn remote(server: Remote) -> std::io::Result<Self> {
        let name = server.shown().to_owned();
        Self::new(server, name)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its work runs.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Whether it answers, and knows the session that is named; waits for it.
    pub fn check(&self, session: Option<&str>) -> Answered<()> {
        let path = session.map_or("/stops".to_owned(), |session| format!("/sessions/{}", part(session)));
        self.runtime.block_on(self.get::<Value>(&path)).map(drop)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answered<Response<Pieces>> {
        let mut request = Request::builder().method(method).uri(format!("{API}{path}"));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(body).map_err(|error| Trouble::Gone(format!("cannot ask: {error}")))?;
        let answer = self.transport.send(request).await.map_err(Trouble::Gone)?;
        match answer.status().as_u16() {
            200..=299 => Ok(answer),
            status => Err(problem(status, answer.into_body()).await),
        }
    }

    async fn document<T: DeserializeOwned>(answer: Response<Pieces>) -> Answered<T> {
        let (bytes, cut) = collect(answer.into_body(), LARGEST_DOCUMENT).await?;
        if cut {
            return Err(Trouble::Gone("the answer is too large to be shown".into()));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            Trouble::Gone(format!("the answer is not understood ({error}); is the server older?"))
        })
    }

    /// Asks for a document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Answered<T> {
        Self::document(self.send(Method::GET, path, None).await?).await
    }

    /// Asks for something to be done.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Answered<T> {
        Self::document(self.send(Method::POST, path, Some(body)).await?).await
    }

    /// Asks for something to be changed.
    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Answered<T> {
        Self::document(self.send(Method::PATCH, path, Some(body)).await?).await
    }

    /// Asks for something to be taken away.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Answered<T> {
        Self::document(self.send(Method::DELETE, path, None).await?).await
    }

    /// The first bytes of something, and whether there are more.
    pub async fn beginning(&self, path: &str, most: usize) -> Answered<(Vec<u8>, bool)> {
        collect(self.send(Method::GET, path, None).await?.into_body(), most).await
    }

    /// Hears what happens: `told` is called with the name of every event, until there are no more. Says why it ended.
    pub async fn follow(&self, mut told: impl FnMut(&str, &[u8])) -> Trouble {
        let mut body = match self.send(Method::GET, "/events", None).await {
            Ok(answer) => answer.into_body(),
            Err(trouble) => return trouble,
        };
        told("connected", b"");
        let (mut rest, mut name) = (Vec::new(), String::new());
        while let Some(frame) = body.frame().await {
            let piece = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) => return Trouble::Gone(format!("{} went away: {error}", self.name)),
            };
            rest.extend_from_slice(&piece);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let line = line.strip_suffix(b"\n").unwrap_or(&line);
                if let Some(event) = line.strip_prefix(b"event: ") {
                    name = String::from_utf8_lossy(event).into_owned();
                } else if let Some(data) = line.strip_prefix(b"data: ") {
                    told(&name, data);
                }
            }
        }
        Trouble::Gone(format!("{} went away", self.name))
    }
}

/// What an answer says about why it is none.
async fn problem(status: u16, body: Pieces) -> Trouble {
    let bytes = collect(body, 4 << 20).await.map(|(bytes, _)| bytes).unwrap_or_default();
    let problem = serde_json::from_slice(&bytes).unwrap_or_else(|_| Problem {
        status,
        detail: format!("it was answered with status {status}, and not by a stepback server"),
        ..Problem::default()
    });
    Trouble::Refused(Box::new(problem))
}

/// At most so many bytes, and whether there were more.
async fn collect(mut body: Pieces, most: usize) -> Answered<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Trouble::Gone(format!("the answer broke off: {error}")))?;
        if let Ok(data) = frame.into_data() {
            let room = most - bytes.len();
            bytes.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            if data.len() > room {
                return Ok((bytes, true));
            }
        }
    }
    Ok((bytes, false))
}

/// A text as one part of an address.
pub fn part(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
