//! Sessions of browsers, which are signed in without ever holding the token.
//!
//! A browser sends a cookie to every port of a host, so a server that another user runs there receives it. Therefore a session
//! has two halves: a cookie that scripts cannot read, and a key that only the page's own scripts know and send in a header. The
//! browser keeps the key for one origin, port included. Neither half is of use without the other, neither is the token, and
//! neither is valid at another server. Both are derived from the token, so that a server that is restarted knows them again
//! and stores nothing.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue, header};
use stepback_model::hex;

use crate::auth::AuthToken;

/// The header in which a page sends its key.
pub(crate) const PAGE_KEY_HEADER: &str = "x-stepback-page";
/// What the key follows in a list of WebSocket protocols, which is the only thing a script can set there.
pub(crate) const PAGE_KEY_PROTOCOL: &str = "stepback.page.";
/// The cookie that earlier versions put the token in.
const FORMER_COOKIE: &str = "stepback";

/// How long a session lasts after its last renewal.
const IDLE_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// How long a session lasts altogether.
const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Age of a cookie after which a request renews it.
const RENEWAL_AGE: Duration = Duration::from_secs(15 * 60);
/// How far in the future a cookie may have been issued, for a clock that was set back.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// Issues and checks the sessions of one server.
#[derive(Clone)]
pub(crate) struct BrowserSessions {
    key: [u8; 32],
    cookie: String,
    /// Whether the cookie may only be sent over TLS.
    secure: bool,
}

impl std::fmt::Debug for BrowserSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrowserSessions").field("cookie", &self.cookie).finish_non_exhaustive()
    }
}

/// A session that was just begun.
pub(crate) struct NewSession {
    /// The values of the `Set-Cookie` headers.
    pub cookies: [HeaderValue; 2],
    /// The key that the page sends in [`PAGE_KEY_HEADER`].
    pub page_key: String,
}

/// A valid session of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ActiveSession {
    /// A `Set-Cookie` header that renews the session, if it is time.
    pub renewal: Option<HeaderValue>,
}

/// What a cookie says: seconds since 1970, and a random number that distinguishes sessions.
#[derive(Clone, Copy)]
struct Claims {
    begun: u64,
    issued: u64,
    nonce: u64,
}

impl BrowserSessions {
    /// Sessions of the server at `port` that has `token`. The cookie is named after both, so that servers on one host do not
    /// sign each other's browsers out.
    pub(crate) fn new(token: &AuthToken, port: u16, secure: bool) -> Self {
        let secret = format!("{port} {}", token.as_str());
        let key = blake3::derive_key("stepback 2026-11 sessions of browsers", secret.as_bytes());
        let id = hex::encode(&blake3::keyed_hash(&key, b"name").as_bytes()[..4]);
        // The prefix makes browsers refuse such a cookie from a page without TLS or of another host.
        let prefix = if secure { "__Host-" } else { "" };
        Self { key, cookie: format!("{prefix}stepback-{id}"), secure }
    }

    /// Begins a session.
    pub(crate) fn begin(&self, now: SystemTime) -> io::Result<NewSession> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let now = seconds(now);
        let claims = Claims { begun: now, issued: now, nonce: u64::from_le_bytes(nonce) };
        let former = format!("{FORMER_COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
        let former = HeaderValue::from_str(&former).map_err(io::Error::other)?;
        let cookies = [self.set_cookie(claims).map_err(io::Error::other)?, former];
        Ok(NewSession { cookies, page_key: self.page_key(claims) })
    }

    /// Returns the session of a request; `None` if it has none, or one that has ended.
    pub(crate) fn find(&self, headers: &HeaderMap, now: SystemTime) -> Option<ActiveSession> {
        let page_key = sent_page_key(headers)?;
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        // Another program of this host may have set a cookie of the same name for another path.
        let claims =
            pairs.filter(|(name, _)| *name == self.cookie).find_map(|(_, value)| self.verify(value))?;
        let is_own = is_equal(self.page_key(claims).as_bytes(), page_key.as_bytes());
        let (begun, issued) = (at(claims.begun)?, at(claims.issued)?);
        let is_young = |since: SystemTime, limit: Duration| match now.duration_since(since) {
            Ok(age) => age < limit,
            Err(early) => early.duration() < CLOCK_TOLERANCE,
        };
        if !is_own || !is_young(begun, MAX_LIFETIME) || !is_young(issued, IDLE_LIFETIME) {
            return None;
        }
        let renewed = Claims { issued: seconds(now), ..claims };
        let renewal = match is_young(issued, RENEWAL_AGE) {
            true => None,
            false => self.set_cookie(renewed).ok(),
        };
        Some(ActiveSession { renewal })
    }

    fn set_cookie(&self, claims: Claims) -> Result<HeaderValue, header::InvalidHeaderValue> {
        let Claims { begun, issued, nonce } = claims;
        let left = (begun + MAX_LIFETIME.as_secs()).saturating_sub(issued).min(IDLE_LIFETIME.as_secs());
        let secure = if self.secure { "; Secure" } else { "" };
        let mut value = HeaderValue::from_str(&format!(
            "{}={begun:x}.{issued:x}.{nonce:x}.{}; Path=/; HttpOnly; SameSite=Strict; Max-Age={left}{secure}",
            self.cookie,
            self.mac("cookie", &[begun, issued, nonce]).to_hex()
        ))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns what a cookie says if this server issued it.
    fn verify(&self, cookie: &str) -> Option<Claims> {
        let mut parts = cookie.split('.');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (begun, issued, nonce) = (number()?, number()?, number()?);
        let mac = blake3::Hash::from_hex(parts.next()?).ok()?;
        // Comparing two hashes takes the same time wherever they differ.
        let is_own = parts.next().is_none() && mac == self.mac("cookie", &[begun, issued, nonce]);
        is_own.then_some(Claims { begun, issued, nonce })
    }

    /// The key of a session. It stays the same when the cookie is renewed.
    fn page_key(&self, claims: Claims) -> String {
        self.mac("page", &[claims.begun, claims.nonce]).to_hex().to_string()
    }

    fn mac(&self, purpose: &str, numbers: &[u64]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(purpose.as_bytes());
        for number in numbers {
            hasher.update(&number.to_le_bytes());
        }
        hasher.finalize()
    }
}

/// The key that a page sent, in the header or among the WebSocket protocols.
fn sent_page_key(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get(PAGE_KEY_HEADER) {
        return key.to_str().ok();
    }
    let protocols =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    protocols.flat_map(|line| line.split(',')).find_map(|item| item.trim().strip_prefix(PAGE_KEY_PROTOCOL))
}

/// Compares in constant time, so that the duration does not reveal how much of a secret is right.
pub(crate) fn is_equal(own: &[u8], given: &[u8]) -> bool {
    let differs = own.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
    own.len() == given.len() && differs == 0
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn at(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(port: u16) -> BrowserSessions {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
        BrowserSessions::new(&AuthToken::load_or_create(&file).unwrap(), port, false)
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    /// The cookie as a browser sends it back.
    fn sent(cookie: &HeaderValue) -> String {
        cookie.to_str().unwrap().split(';').next().unwrap().to_owned()
    }

    fn headers(cookie: &str, key: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, cookie.parse().unwrap());
        if let Some(key) = key {
            headers.append(PAGE_KEY_HEADER, key.parse().unwrap());
        }
        headers
    }

    #[test]
    fn both_halves_are_needed_and_belong_together() {
        let server = sessions(7171);
        let (one, other) = (server.begin(now()).unwrap(), server.begin(now()).unwrap());
        let cookie = sent(&one.cookies[0]);
        let has_session = |headers: &HeaderMap| server.find(headers, now()).is_some();
        assert!(has_session(&headers(&format!("a=b; {cookie}; c=d"), Some(&one.page_key))));
        assert!(!has_session(&headers(&cookie, None)));
        assert!(!has_session(&headers(&cookie, Some(""))));
        assert!(!has_session(&headers(&cookie, Some(&other.page_key))));
        assert!(!has_session(&headers("a=b", Some(&one.page_key))));
        assert!(!cookie.contains("0123456789abcdef0123456789abcdef"));
        let mut socket = headers(&cookie, None);
        let protocols = format!("stepback, {PAGE_KEY_PROTOCOL}{}", one.page_key);
        socket.append(header::SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
        assert!(has_session(&socket));
        // A cookie of the same name that another program set does not get in the way.
        let name = cookie.split('=').next().unwrap();
        assert!(has_session(&headers(&format!("{name}=x; {cookie}"), Some(&one.page_key))));
    }

    #[test]
    fn a_forged_or_changed_cookie_is_refused() {
        let server = sessions(7171);
        let session = server.begin(now()).unwrap();
        let cookie = sent(&session.cookies[0]);
        let (name, value) = cookie.split_once('=').unwrap();
        for at in 0..value.len() {
            let mut changed = value.as_bytes().to_vec();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = format!("{name}={}", String::from_utf8(changed).unwrap());
            assert!(server.find(&headers(&changed, Some(&session.page_key)), now()).is_none(), "{changed}");
        }
        for value in ["", "....", "1.2.3", &format!("{value}.5"), &value[..value.len() - 1]] {
            let changed = format!("{name}={value}");
            assert!(server.find(&headers(&changed, Some(&session.page_key)), now()).is_none(), "{changed}");
        }
    }

    #[test]
    fn a_session_is_of_one_server() {
        let (one, other) = (sessions(7171), sessions(7272));
        let session = one.begin(now()).unwrap();
        let sent = headers(&sent(&session.cookies[0]), Some(&session.page_key));
        assert!(other.find(&sent, now()).is_none());
        assert_ne!(one.cookie, other.cookie, "neither replaces the other's cookie");
        assert!(sessions(7171).find(&sent, now()).is_some(), "a restart ends no session");
        let renamed = sent.get(header::COOKIE).unwrap().to_str().unwrap().replace(&one.cookie, &other.cookie);
        assert!(other.find(&headers(&renamed, Some(&session.page_key)), now()).is_none());
    }

    #[test]
    fn a_session_is_renewed_while_it_is_used_and_ends() {
        let server = sessions(7171);
        let session = server.begin(now()).unwrap();
        let mut cookie = sent(&session.cookies[0]);
        let key = Some(session.page_key.as_str());
        let later = |seconds: Duration| now() + seconds;
        assert_eq!(server.find(&headers(&cookie, key), now()), Some(ActiveSession { renewal: None }));
        assert!(server.find(&headers(&cookie, key), later(IDLE_LIFETIME)).is_none());
        assert!(server.find(&headers(&cookie, key), now() - CLOCK_TOLERANCE).is_none(), "not valid yet");
        let mut age = Duration::ZERO;
        while age + IDLE_LIFETIME / 2 < MAX_LIFETIME {
            age += IDLE_LIFETIME / 2;
            let active = server.find(&headers(&cookie, key), later(age)).unwrap();
            cookie = sent(&active.renewal.unwrap());
        }
        assert!(server.find(&headers(&cookie, key), later(MAX_LIFETIME)).is_none());
    }

    #[test]
    fn the_cookie_is_out_of_reach_for_scripts_and_other_sites() {
        let mut server = sessions(7171);
        let session = server.begin(now()).unwrap();
        let cookie = session.cookies[0].to_str().unwrap().to_owned();
        for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Max-Age=43200"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Domain") && !cookie.contains("Secure"), "{cookie}");
        assert!(
            session.cookies[1].to_str().unwrap().starts_with("stepback=; "),
            "the token's own cookie goes"
        );
        let dir = tempfile::tempdir().unwrap();
        server =
            BrowserSessions::new(&AuthToken::load_or_create(&dir.path().join("token")).unwrap(), 7171, true);
        let cookie = server.begin(now()).unwrap().cookies[0].to_str().unwrap().to_owned();
        assert!(cookie.starts_with("__Host-stepback-") && cookie.ends_with("; Secure"), "{cookie}");
    }
}
