//! A blocking client that calls a model without a proxy in between, with the same connections and the same trusted
//! certificates.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use http::{Method, Request, header};
use http_body_util::BodyExt;
use stepback_llm_wire::{AnswerEnd, Response};
use tokio::runtime::Runtime;

use crate::body_capture::{BodyCapture, Budget};
use crate::connect::{self, Models};
use crate::handler::full_body;
use crate::refusal::{Failure, error_chain};
use crate::upstream::Target;
use crate::{ProxyLimits, certificates, headers};

/// Calls models and keeps connections open between requests.
pub struct UpstreamClient {
    runtime: Runtime,
    models: Models,
    limits: ProxyLimits,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid and cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// No answer arrived; the text says why and what to do.
    #[error("{0}")]
    Failed(String),
}

impl UpstreamClient {
    /// Creates a client. `certificates` are trusted in addition to those of the system.
    pub fn new(limits: ProxyLimits, certificates: Option<&Path>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let models = connect::new_client(certificates::client_config(true, certificates)?, limits.connect);
        Ok(Self { runtime, models, limits })
    }

    /// Sends a request and waits for the end of its answer. `on_chunk` gets every chunk as it arrives, decompressed; it
    /// may stop the answer, which is then [`AnswerEnd::Cancelled`]. An answer that was cut off is returned as an answer.
    pub fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Response, Error> {
        let invalid_request = |error: &dyn std::fmt::Display| Error::Request(error.to_string());
        let target = Target::parse(url).map_err(|error| invalid_request(&error))?;
        let mut request = Request::builder().method(Method::POST).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(full_body(body.into())).map_err(|error| invalid_request(&error))?;
        self.runtime.block_on(self.send_request(&target.shown, request, on_chunk))
    }

    async fn send_request(
        &self,
        display_address: &str,
        request: Request<connect::AnyBody>,
        on_chunk: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Response, Error> {
        let since = Instant::now();
        let micros = || u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let idle = self.limits.idle;
        let response = match tokio::time::timeout(idle, self.models.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Err(Error::Failed(Failure::from_error(display_address, &error).message()));
            }
            Err(_) => {
                return Err(Error::Failed(Failure::idle_timeout(display_address, idle.as_secs()).message()));
            }
        };
        let (parts, mut body) = response.into_parts();
        let encoding = parts.headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let mut copy =
            BodyCapture::new(&Budget::new(self.limits.recorded_total), self.limits.recorded_body, encoding);
        let mut first_byte = None;
        let ended = loop {
            match tokio::time::timeout(idle, body.frame()).await {
                Ok(None) => break AnswerEnd::Complete,
                Ok(Some(Err(error))) => break AnswerEnd::CutOff(error_chain(&error)),
                Err(_) => break AnswerEnd::CutOff(silence_message(idle)),
                Ok(Some(Ok(frame))) => {
                    let Some(chunk) = frame.data_ref() else { continue };
                    let elapsed_micros = micros();
                    first_byte.get_or_insert(elapsed_micros);
                    if on_chunk(copy.push(elapsed_micros, chunk)).is_break() {
                        break AnswerEnd::Cancelled;
                    }
                }
            }
        };
        let text = copy.text();
        Ok(Response {
            status: parts.status.as_u16(),
            headers: headers::about_the_message(&headers::recordable_headers(&parts.headers), text.decoded),
            body: text.body,
            chunks: text.chunks,
            ended,
            first_byte,
            took: micros(),
            left_out: text.left_out,
        })
    }
}

fn silence_message(idle: Duration) -> String {
    format!("no data for {} s", idle.as_secs_f32())
}
