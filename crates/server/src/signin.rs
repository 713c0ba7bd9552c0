//! Signs a browser in: a URL with a one-time code is exchanged for a session.
//!
//! The token itself is never in a URL: those end up in histories, in logs and on shared screens. The page's half of the session
//! is in the fragment of the next URL, which browsers send to no server; the page removes it from there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use stepback_model::hex;

use crate::browser_session::{BrowserSessions, NewSession};
use crate::extract::{Json, QueryString};
use crate::problem::Problem;

/// How long an unused code is valid.
const CODE_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Most valid codes at once; a new one replaces the oldest.
const AT_ONCE: usize = 16;

/// Issues and checks one-time codes.
#[derive(Clone)]
pub(crate) struct SignIn {
    sessions: BrowserSessions,
    codes: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl SignIn {
    pub(crate) fn new(sessions: BrowserSessions) -> Self {
        Self { sessions, codes: Arc::default() }
    }

    /// Issues a new code.
    pub(crate) fn issue_code(&self) -> std::io::Result<String> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        let code = hex::encode(&bytes);
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() >= AT_ONCE {
            codes.remove(0);
        }
        codes.push((code.clone(), Instant::now()));
        Ok(code)
    }

    /// Whether a code is valid. It is used up by this call.
    fn redeem_code(&self, given: &str, now: Instant) -> bool {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(_, made)| now.duration_since(*made) < CODE_LIFETIME);
        let found = codes.iter().position(|(code, _)| code == given);
        found.map(|at| codes.remove(at)).is_some()
    }

    /// The routes for signing in.
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/sign-in", get(sign_in))
            .route("/sign-in/codes", post(create_code))
            .with_state(self)
    }
}

#[derive(Deserialize)]
struct SignInQuery {
    #[serde(default)]
    code: String,
}

/// Issues another one-time URL, for a client that has the token.
async fn create_code(State(sign_in): State<SignIn>) -> Result<Json<Value>, Problem> {
    Ok(Json(json!({ "path": format!("/sign-in?code={}", sign_in.issue_code()?) })))
}

async fn sign_in(
    State(sign_in): State<SignIn>,
    QueryString(SignInQuery { code }): QueryString<SignInQuery>,
) -> Result<Response, Problem> {
    if !sign_in.redeem_code(&code, Instant::now()) {
        let problem = Problem::new(
            StatusCode::FORBIDDEN,
            "refused",
            "this one-time link was already used or has expired",
        );
        return Err(problem.with_hint("\"stepback studio\" creates a new one"));
    }
    let NewSession { cookies: [session, former], page_key } = sign_in.sessions.begin(SystemTime::now())?;
    let mut next = HeaderValue::from_str(&format!("/#page={page_key}"))
        .map_err(|_| Problem::internal("the session is not text"))?;
    next.set_sensitive(true);
    let headers = [
        (header::LOCATION, next),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    let cookies = AppendHeaders([(header::SET_COOKIE, session), (header::SET_COOKIE, former)]);
    Ok((StatusCode::SEE_OTHER, headers, cookies).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AuthToken;

    #[test]
    fn a_code_is_good_once_and_not_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let token = AuthToken::load_or_create(&dir.path().join("token")).unwrap();
        let sign_in = SignIn::new(BrowserSessions::new(&token, 7171, false));
        let now = Instant::now();
        let code = sign_in.issue_code().unwrap();
        assert!(!sign_in.redeem_code("", now));
        assert!(!sign_in.redeem_code(&code[1..], now));
        assert!(sign_in.redeem_code(&code, now));
        assert!(!sign_in.redeem_code(&code, now));
        let code = sign_in.issue_code().unwrap();
        assert!(!sign_in.redeem_code(&code, now + CODE_LIFETIME + Duration::from_secs(1)));
        let codes: Vec<String> = (0..=AT_ONCE).map(|_| sign_in.issue_code().unwrap()).collect();
        assert!(!sign_in.redeem_code(&codes[0], now), "the oldest of too many ends");
        assert!(codes[1..].iter().all(|code| sign_in.redeem_code(code, now)));
    }
}
