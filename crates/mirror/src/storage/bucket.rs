//! A mirror in a bucket of an S3-compatible service.
//!
//! Three requests are all that it needs: create an object that does not exist, read one, and list a prefix. The service must
//! honour `If-None-Match: *`, without which two writers could overwrite each other; a mirror is not created in one that
//! ignores it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ring::digest;
use rustls::{ClientConfig, RootCertStore};
use stepback_faults as faults;
use tokio::runtime::Runtime;

use super::listing;
use super::signature::{BucketCredentials, SignedRequest, query_text, sha256_hex};
use super::{CreateOutcome, ListedFile, MirrorStorage};
use crate::error::MirrorError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take, with everything that is sent and received.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// An unused connection is closed before the server closes it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a request is sent if the service is busy or the connection breaks.
const ATTEMPTS: u32 = 3;
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// How a service is reached.
#[derive(Clone, Debug)]
pub struct BucketAccess {
    /// What requests are signed with.
    pub credentials: BucketCredentials,
    /// The region of the bucket.
    pub region: String,
    /// The address of the service, without a slash at the end; `None` for Amazon S3.
    pub endpoint: Option<String>,
}

/// A bucket, and the prefix of a mirror in it.
pub struct BucketStorage {
    runtime: Runtime,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    access: BucketAccess,
    bucket: String,
    /// Empty, or with a slash at the end.
    prefix: String,
    /// The address of the bucket, without a slash at the end, and its parts.
    url: String,
    host: String,
    base_path: String,
}

impl std::fmt::Debug for BucketStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketStorage").field("place", &self.place()).finish_non_exhaustive()
    }
}

/// The answer of the service.
struct BucketAnswer {
    status: StatusCode,
    body: Vec<u8>,
}

impl BucketStorage {
    /// Prepares a client; no request is made.
    pub fn new(access: BucketAccess, bucket: &str, prefix: &str) -> Result<Self, MirrorError> {
        let url = match &access.endpoint {
            Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            // The certificate of the service covers one more component.
            None if bucket.contains('.') => format!("https://s3.{}.amazonaws.com/{bucket}", access.region),
            None => format!("https://{bucket}.s3.{}.amazonaws.com", access.region),
        };
        let rest = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
        let Some((_, rest)) = rest else {
            return Err(MirrorError::Address {
                address: format!("s3://{bucket}"),
                reason: "AWS_ENDPOINT_URL must begin with http:// or https://".into(),
            });
        };
        let (host, base_path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, base_path) = (host.to_owned(), base_path.trim_matches('/').to_owned());
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let failed = |error: std::io::Error| MirrorError::io("connect to", format!("s3://{bucket}"))(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let client = new_client(url.starts_with("https:")).map_err(failed)?;
        Ok(Self {
            runtime: runtime.map_err(failed)?,
            client,
            access,
            bucket: bucket.to_owned(),
            prefix,
            url,
            host,
            base_path,
        })
    }

    fn failure(&self, what: &'static str, name: &str, why: String) -> MirrorError {
        MirrorError::Storage { what, place: format!("s3://{}/{}{name}", self.bucket, self.prefix), why }
    }

    /// Sends a request, and repeats it if that may help.
    fn send(
        &self,
        method: &str,
        key: &str,
        query: &[(&str, &str)],
        body: Option<&Bytes>,
    ) -> Result<BucketAnswer, String> {
        let mut attempt = 1;
        loop {
            let answer = self.runtime.block_on(async {
                match tokio::time::timeout(REQUEST_TIMEOUT, self.send_once(method, key, query, body)).await {
                    Ok(answer) => answer,
                    Err(_) => Err(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())),
                }
            });
            let is_busy = match &answer {
                Ok(answer) => answer.status.is_server_error() || matches!(answer.status.as_u16(), 409 | 429),
                Err(_) => true,
            };
            if !is_busy || attempt == ATTEMPTS {
                return answer;
            }
            thread::sleep(RETRY_INTERVAL * attempt);
            attempt += 1;
        }
    }

    async fn send_once(
        &self,
        method: &str,
        key: &str,
        query: &[(&str, &str)],
        body: Option<&Bytes>,
    ) -> Result<BucketAnswer, String> {
        let empty = Bytes::new();
        let bytes = body.unwrap_or(&empty);
        let body_hash = sha256_hex(bytes);
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = vec![
            ("host".to_owned(), self.host.clone()),
            ("x-amz-content-sha256".to_owned(), body_hash.clone()),
            ("x-amz-date".to_owned(), time.clone()),
        ];
        if let Some(token) = &self.access.credentials.session_token {
            headers.push(("x-amz-security-token".to_owned(), token.clone()));
        }
        if body.is_some() {
            headers.push(("if-none-match".to_owned(), "*".to_owned()));
            // A bucket with object lock requires a checksum.
            let checksum = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, bytes));
            headers.push(("x-amz-checksum-sha256".to_owned(), checksum));
        }
        let path: Vec<&str> =
            [self.base_path.as_str(), key].into_iter().filter(|part| !part.is_empty()).collect();
        let path = format!("/{}", path.join("/"));
        let signed = SignedRequest {
            method,
            path: &path,
            query,
            headers: &headers,
            body_hash: &body_hash,
            time: &time,
            region: &self.access.region,
        };
        let authorization = signed.authorization(&self.access.credentials);
        let slash = if key.is_empty() { "" } else { "/" };
        let question = if query.is_empty() { String::new() } else { format!("?{}", query_text(query)) };
        let root = if key.is_empty() && self.base_path.is_empty() { "/" } else { "" };
        let mut request =
            Request::builder().method(method).uri(format!("{}{root}{slash}{key}{question}", self.url));
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let request = request.header("authorization", authorization).body(Full::new(bytes.clone()));
        let request = request.map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| chain(&error))?;
        Ok(BucketAnswer { status, body: body.to_bytes().to_vec() })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

fn new_client(with_tls: bool) -> std::io::Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>> {
    let mut roots = RootCertStore::empty();
    if with_tls {
        // Some of a system's certificates may be unusable; the others still work.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(connector))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

impl BucketAnswer {
    /// The error that the service describes.
    fn error(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let said = |tag| listing::text_of(&text, tag).unwrap_or_default();
        let (code, message) = (said("Code"), said("Message"));
        match code.is_empty() {
            true => format!("the service answered {}", self.status),
            false => format!("the service answered {}: {code}: {message}", self.status.as_u16()),
        }
    }
}

impl MirrorStorage for BucketStorage {
    fn place(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix.trim_end_matches('/')).trim_end_matches('/').to_owned()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<CreateOutcome, MirrorError> {
        let failed = |why: String| self.failure("write", name, why);
        faults::point().map_err(|error| failed(error.to_string()))?;
        let body = Bytes::copy_from_slice(bytes);
        let answer = self.send("PUT", &self.key(name), &[], Some(&body)).map_err(failed)?;
        match answer.status.as_u16() {
            200 | 201 | 204 => Ok(CreateOutcome::Created),
            412 => Ok(CreateOutcome::Exists),
            _ => Err(failed(answer.error())),
        }
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, MirrorError> {
        let failed = |why: String| self.failure("read", name, why);
        let answer = self.send("GET", &self.key(name), &[], None).map_err(failed)?;
        match answer.status.as_u16() {
            200 => Ok(Some(answer.body)),
            404 if !answer.error().contains("NoSuchBucket") => Ok(None),
            _ => Err(failed(answer.error())),
        }
    }

    fn is_empty(&self) -> Result<bool, MirrorError> {
        Ok(self.list_page("", "", None)?.0.is_empty())
    }

    fn list(&self, folder: &str, after: &str) -> Result<Vec<ListedFile>, MirrorError> {
        let folder = format!("{folder}/");
        let mut files = Vec::new();
        let mut token = None;
        loop {
            let (page, next) = self.list_page(&folder, after, token.as_deref())?;
            files.extend(page);
            match next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }
}

impl BucketStorage {
    fn list_page(
        &self,
        folder: &str,
        after: &str,
        token: Option<&str>,
    ) -> Result<(Vec<ListedFile>, Option<String>), MirrorError> {
        let failed = |why: String| self.failure("list", folder, why);
        let prefix = self.key(folder);
        let start = format!("{prefix}{after}");
        let mut query = vec![("list-type", "2"), ("prefix", prefix.as_str())];
        match token {
            Some(token) => query.push(("continuation-token", token)),
            None if !after.is_empty() => query.push(("start-after", start.as_str())),
            None => {}
        }
        let answer = self.send("GET", "", &query, None).map_err(failed)?;
        if answer.status != StatusCode::OK {
            return Err(failed(answer.error()));
        }
        let page = listing::parse(&String::from_utf8_lossy(&answer.body)).map_err(failed)?;
        let names = page.files.into_iter().filter_map(|file| {
            let name = file.name.strip_prefix(&prefix)?.to_owned();
            (name.as_str() > after && !name.is_empty()).then_some(ListedFile { name, ..file })
        });
        Ok((names.collect(), page.next))
    }
}
