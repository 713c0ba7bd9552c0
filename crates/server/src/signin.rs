//! Signs a browser in: a URL with a one-time code is exchanged for a cookie.
//!
//! The token itself is never in a URL: those end up in histories, in logs and on shared screens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use stepback_model::hex;

use crate::auth::{AuthToken, COOKIE};
use crate::extract::{Json, QueryString};
use crate::problem::Problem;

/// How long an unused code is valid.
const CODE_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Most valid codes at once; a new one replaces the oldest.
const AT_ONCE: usize = 16;
/// How long a browser stays signed in.
const SIGN_IN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Issues and checks one-time codes.
#[derive(Clone)]
pub(crate) struct SignIn {
    token: AuthToken,
    /// Whether the cookie may only be sent over TLS.
    secure: bool,
    codes: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl SignIn {
    pub(crate) fn new(token: AuthToken, secure: bool) -> Self {
        Self { token, secure, codes: Arc::default() }
    }

    /// Issues a new code.
    pub(crate) fn code(&self) -> std::io::Result<String> {
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
    fn takes(&self, given: &str, now: Instant) -> bool {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(_, made)| now.duration_since(*made) < CODE_LIFETIME);
        let found = codes.iter().position(|(code, _)| code == given);
        found.map(|at| codes.remove(at)).is_some()
    }

    /// The routes for signing in.
    pub(crate) fn router(self) -> Router {
        Router::new().route("/sign-in", get(sign_in)).route("/sign-in/codes", post(new_code)).with_state(self)
    }
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: String,
}

/// Issues another one-time URL, for a client that has the token.
async fn new_code(State(sign_in): State<SignIn>) -> Result<Json<Value>, Problem> {
    Ok(Json(json!({ "path": format!("/sign-in?code={}", sign_in.code()?) })))
}

async fn sign_in(
    State(sign_in): State<SignIn>,
    QueryString(Code { code }): QueryString<Code>,
) -> Result<Response, Problem> {
    if !sign_in.takes(&code, Instant::now()) {
        let problem = Problem::new(
            StatusCode::FORBIDDEN,
            "refused",
            "this one-time link was already used or has expired",
        );
        return Err(problem.hint("\"stepback studio\" creates a new one"));
    }
    let secure = if sign_in.secure { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
        sign_in.token.text(),
        SIGN_IN_LIFETIME.as_secs(),
    );
    let mut cookie =
        HeaderValue::from_str(&cookie).map_err(|_| Problem::internal("the token is not text"))?;
    cookie.set_sensitive(true);
    let headers = [
        (header::SET_COOKIE, cookie),
        (header::LOCATION, HeaderValue::from_static("/")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_not_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let sign_in = SignIn::new(AuthToken::at(&dir.path().join("token")).unwrap(), false);
        let now = Instant::now();
        let code = sign_in.code().unwrap();
        assert!(!sign_in.takes("", now));
        assert!(!sign_in.takes(&code[1..], now));
        assert!(sign_in.takes(&code, now));
        assert!(!sign_in.takes(&code, now));
        let code = sign_in.code().unwrap();
        assert!(!sign_in.takes(&code, now + CODE_LIFETIME + Duration::from_secs(1)));
        let codes: Vec<String> = (0..=AT_ONCE).map(|_| sign_in.code().unwrap()).collect();
        assert!(!sign_in.takes(&codes[0], now), "the oldest of too many ends");
        assert!(codes[1..].iter().all(|code| sign_in.takes(code, now)));
    }
}
