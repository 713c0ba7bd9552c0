//! Authentication: every request needs the token or a browser's session, and pages of other origins are refused.
//!
//! Every page in the user's browser can reach a server on loopback. So a request must be authorised, its `Host` must be a
//! name of this server (which stops DNS rebinding: a name that is pointed at this address later is refused), and its
//! `Origin`, if it has one, must be the server's own or one that was allowed by name.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use stepback_model::hex;
use stepback_store::new_file::{Durability, NewFile};

use crate::browser_session::{BrowserSessions, is_equal};
use crate::problem::Problem;
use crate::static_files;

/// The secret that authenticates a client.
#[derive(Clone)]
pub struct AuthToken(String);

impl std::fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl AuthToken {
    /// Reads the token from a file that only its owner can read; creates the file with a new token if there is none.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        match read_token(path) {
            Ok(token) => return Ok(token),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let token = hex::encode(&bytes);
        let new = NewFile::create(path, 0o600, Durability::Synced)?;
        new.file().write_all(token.as_bytes())?;
        // Another server may have created the file first; then its token counts.
        match new.link() {
            Ok(()) => Ok(Self(token)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_token(path),
            Err(error) => Err(error),
        }
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn matches(&self, given: &str) -> bool {
        is_equal(self.0.as_bytes(), given.as_bytes())
    }
}

fn read_token(path: &Path) -> io::Result<AuthToken> {
    let mut text = String::new();
    fs::File::open(path)?.take(200).read_to_string(&mut text)?;
    let token = text.trim();
    match token.len() >= 32 && token.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(AuthToken(token.to_owned())),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} contains no token; remove it to create a new one", path.display()),
        )),
    }
}

/// Decides which requests are let in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Guard {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    token: AuthToken,
    sessions: Option<BrowserSessions>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// A request that is let in.
#[derive(Debug, Default)]
struct Admission {
    /// A `Set-Cookie` header that renews the session of the browser.
    renewal: Option<HeaderValue>,
}

impl Guard {
    /// Lets in requests with `token` for one of `hosts`, from the server's own pages or from `origins`.
    pub fn new(token: AuthToken, hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self { inner: Arc::new(Inner { token, sessions: None, hosts, origins }) }
    }

    /// Lets in requests with a session of a browser, too.
    pub(crate) fn with_sessions(
        token: AuthToken,
        sessions: BrowserSessions,
        hosts: Vec<String>,
        origins: Vec<String>,
    ) -> Self {
        Self { inner: Arc::new(Inner { token, sessions: Some(sessions), hosts, origins }) }
    }

    /// Wraps a router so that it answers only authorised requests.
    pub fn protect(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, authorize))
    }

    /// Decides about a request to `host`; an error says why it is refused.
    fn admit(
        &self,
        host: &str,
        headers: &HeaderMap,
        open: bool,
        now: SystemTime,
    ) -> Result<Admission, Problem> {
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if !self.is_allowed_host(host) {
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "refused", "unknown host name")
                .with_hint("use its IP address, or start the server with --allow-host NAME"));
        }
        if let Some(origin) = text(header::ORIGIN) {
            let own = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
            if !own && !self.inner.origins.iter().any(|allowed| allowed == origin) {
                return Err(Problem::new(StatusCode::FORBIDDEN, "refused", "this origin is not allowed")
                    .with_hint("start the server with --allow-origin ORIGIN to allow it"));
            }
        }
        if open {
            return Ok(Admission::default());
        }
        let admitted = match text(header::AUTHORIZATION) {
            Some(given) => {
                let is_own =
                    given.strip_prefix("Bearer ").is_some_and(|given| self.inner.token.matches(given));
                is_own.then(Admission::default)
            }
            None => {
                let session = self.inner.sessions.as_ref().and_then(|sessions| sessions.find(headers, now));
                session.map(|session| Admission { renewal: session.renewal })
            }
        };
        admitted.ok_or_else(|| {
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "refused", "the token is missing or wrong");
            // The path of the token file is not revealed to a client without the token.
            problem.with_hint(
                "send \"Authorization: Bearer TOKEN\" with the token in the file that the server printed at its start",
            )
        })
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        self.inner.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name))
    }
}

/// Paths that need no token: liveness and the API description are not secret, and a client that signs in has no token yet.
const PUBLIC_PATHS: [&str; 6] =
    ["/", "/healthz", "/readyz", "/sign-in", "/api/v1/docs", "/api/v1/openapi.json"];

/// What pages of an origin that was allowed by name may send (CORS).
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const HEADERS: &str = "authorization, content-type, if-none-match, last-event-id, mcp-protocol-version, mcp-method, mcp-name, x-request-id";

/// Middleware that refuses unauthorised requests and answers CORS preflights.
async fn authorize(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    // In HTTP/2 the host is part of the URI.
    let host = match headers.get(header::HOST) {
        Some(host) => host.to_str().unwrap_or_default(),
        None => request.uri().authority().map_or("", |authority| authority.as_str()),
    };
    let allowed = headers
        .get(header::ORIGIN)
        .filter(|origin| guard.inner.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
        .cloned();
    // A CORS preflight is sent without a token.
    let asks_first =
        request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let path = request.uri().path();
    let open = PUBLIC_PATHS.contains(&path)
        || stepback_grpc::PUBLIC_PATHS.contains(&path)
        || static_files::is_studio_path(path)
        || (asks_first && allowed.is_some());
    let mut response = match guard.admit(host, headers, open, SystemTime::now()) {
        Err(problem) => problem.into_response(),
        Ok(_) if asks_first && allowed.is_some() => {
            let may = [
                (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
                (header::ACCESS_CONTROL_MAX_AGE, "600"),
            ];
            (StatusCode::NO_CONTENT, may).into_response()
        }
        Ok(Admission { renewal }) => {
            let mut response = next.run(request).await;
            if let Some(cookie) = renewal {
                response.headers_mut().append(header::SET_COOKIE, cookie);
            }
            response
        }
    };
    if let Some(origin) = allowed {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag, x-request-id"));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_guard() -> Guard {
        let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let token = AuthToken("0123456789abcdef0123456789abcdef".into());
        let sessions = BrowserSessions::new(&token, 4000, false);
        Guard::with_sessions(token, sessions, hosts, vec!["https://studio.example".into()])
    }

    fn refusal_status(pairs: &[(&str, &str)]) -> Option<u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: header::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let host = pairs.iter().find(|(name, _)| *name == "host").map_or("", |(_, value)| value);
        test_guard().admit(host, &headers, false, SystemTime::now()).err().map(|problem| problem.status)
    }

    #[test]
    fn only_who_has_the_token_and_comes_from_here_is_let_in() {
        let bearer = ("authorization", concat!("Bea", "rer 0123456789abcdef", "0123456789abcdef"));
        let host = ("host", "127.0.0.1:4000");
        assert_eq!(refusal_status(&[host, bearer]), None);
        assert_eq!(refusal_status(&[("host", "[::1]:4000"), bearer]), None);
        let cookie = ("cookie", "a=b; stepback=0123456789abcdef0123456789abcdef");
        assert_eq!(refusal_status(&[host, cookie]), Some(401), "the token is not for cookies");
        let session = test_guard().inner.sessions.as_ref().unwrap().begin(SystemTime::now()).unwrap();
        let cookie = session.cookies[0].to_str().unwrap().split(';').next().unwrap();
        let (cookie, key) = (("cookie", cookie), ("x-stepback-page", session.page_key.as_str()));
        assert_eq!(refusal_status(&[host, cookie, key]), None);
        assert_eq!(refusal_status(&[host, cookie]), Some(401));
        assert_eq!(refusal_status(&[host, key]), Some(401));
        assert_eq!(refusal_status(&[host, cookie, key, ("authorization", "Bearer x")]), Some(401));
        assert_eq!(refusal_status(&[host, cookie, key, ("origin", "http://127.0.0.1:5000")]), Some(403));
        assert_eq!(refusal_status(&[host]), Some(401));
        assert_eq!(refusal_status(&[host, ("authorization", "Bearer 0123")]), Some(401));
        assert_eq!(refusal_status(&[("host", "evil.example:4000"), bearer]), Some(421));
        assert_eq!(refusal_status(&[bearer]), Some(421));
        assert_eq!(refusal_status(&[host, bearer, ("origin", "http://127.0.0.1:4000")]), None);
        assert_eq!(refusal_status(&[host, bearer, ("origin", "http://127.0.0.1:5000")]), Some(403));
        assert_eq!(refusal_status(&[host, bearer, ("origin", "https://studio.example")]), None);
        assert_eq!(refusal_status(&[host, bearer, ("origin", "null")]), Some(403));
    }
}
