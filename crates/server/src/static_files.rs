//! Serves the Studio: its files, in the compression that the browser accepts, and its first page at every path that is a page
//! of it.
//!
//! The files contain no user data, so they need no token; what they show comes from the API, which does.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stepback_studio::Asset;

use crate::problem::Problem;

/// Only scripts and styles of this server, none of them inline; images also from blobs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
     font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The first path segments of the Studio's pages.
const PAGES: [&str; 12] = [
    "sessions",
    "checkpoints",
    "diff",
    "branches",
    "compare",
    "live",
    "search",
    "dashboard",
    "keys",
    "go",
    "steps",
    "why",
];

/// Whether a path belongs to the Studio.
pub(crate) fn is_studio_path(path: &str) -> bool {
    let path = path.trim_start_matches('/');
    let first = path.split('/').next().unwrap_or_default();
    PAGES.contains(&first) || first == "assets" || path == "icon.svg"
}

/// The routes of the Studio.
pub(crate) fn router() -> Router {
    PAGES.iter().fold(
        Router::new()
            .route("/", get(serve_index))
            .route("/icon.svg", get(serve_asset))
            .route("/assets/{*path}", get(serve_asset)),
        |router, page| {
            router
                .route(&format!("/{page}"), get(serve_index))
                .route(&format!("/{page}/{{*rest}}"), get(serve_index))
        },
    )
}

/// The first page; its script reads the URL.
async fn serve_index(headers: HeaderMap) -> Response {
    match stepback_studio::first() {
        Some(page) => asset_response(page, &headers),
        None => missing_studio_page().into_response(),
    }
}

async fn serve_asset(uri: Uri, headers: HeaderMap) -> Response {
    match stepback_studio::find(uri.path().trim_start_matches('/')) {
        Some(asset) => asset_response(asset, &headers),
        None => Problem::not_found("page", "at this address").into_response(),
    }
}

fn asset_response(asset: &Asset, request_headers: &HeaderMap) -> Response {
    let accepted = request_headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let (encoding, bytes) = choose_encoding(asset, accepted);
    let kept = if asset.is_fixed() { "public, max-age=31536000, immutable" } else { "no-cache" };
    let fixed = [
        (header::CONTENT_TYPE, asset.kind()),
        (header::CACHE_CONTROL, kept),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    let mut response = (fixed, bytes).into_response();
    if let Some(encoding) = encoding {
        response.headers_mut().insert(header::CONTENT_ENCODING, header::HeaderValue::from_static(encoding));
    }
    response
}

/// Returns the shortest accepted encoding, and its name.
fn choose_encoding(asset: &Asset, accepted: &str) -> (Option<&'static str>, &'static [u8]) {
    let takes = |name: &str| {
        accepted.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            let refused = |part: &str| part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0);
            parts.next() == Some(name) && !parts.any(refused)
        })
    };
    match (asset.brotli, asset.gzip) {
        (Some(bytes), _) if takes("br") => (Some("br"), bytes),
        (_, Some(bytes)) if takes("gzip") => (Some("gzip"), bytes),
        _ => (None, asset.plain),
    }
}

/// The answer at `/` in a program that was built without the Studio.
fn missing_studio_page() -> (StatusCode, [(HeaderName, &'static str); 2], String) {
    let why = stepback_studio::missing().unwrap_or_default();
    let why = why.replace('&', "&amp;").replace('<', "&lt;");
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>stepback</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>:root {{ color-scheme: light dark; }} \
         body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }}</style>\
         </head><body>\n<h1>stepback is serving, without the Studio</h1>\n\
         <p>This program was built without it: {why}.</p>\n\
         <p>To get it, install <b>Node 20.19 or newer</b> with npm, say <code>touch studio/package.json</code> in the sources \
         and build again with <code>cargo build --release</code>.</p>\n\
         <p>Everything else works: <a href=\"/api/v1/docs\">the HTTP API</a>, and on the command line \
         <code>stepback sessions</code>, <code>timeline</code>, <code>diff</code>, <code>rewind</code>.</p>\n</body></html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    (StatusCode::OK, headers, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_accepted_form_is_sent() {
        let asset = Asset { path: "assets/a.js", plain: b"plain", brotli: Some(b"br"), gzip: Some(b"gz") };
        assert_eq!(choose_encoding(&asset, "gzip, deflate, br, zstd"), (Some("br"), b"br".as_slice()));
        assert_eq!(choose_encoding(&asset, "gzip;q=1.0, br;q=0"), (Some("gzip"), b"gz".as_slice()));
        assert_eq!(choose_encoding(&asset, ""), (None, b"plain".as_slice()));
        let plain = Asset { brotli: None, gzip: None, ..asset };
        assert_eq!(choose_encoding(&plain, "br"), (None, b"plain".as_slice()));
    }

    #[test]
    fn only_pages_are_open() {
        for open in ["/sessions", "/sessions/4f2a", "/assets/index-1.js", "/icon.svg", "/live"] {
            assert!(is_studio_path(open), "{open}");
        }
        for shut in ["/api/v1/sessions", "/metrics", "/v1/traces", "/sessionsx", "/sign-in/codes"] {
            assert!(!is_studio_path(shut), "{shut}");
        }
    }

    #[test]
    fn a_program_without_the_studio_says_how_to_get_it() {
        let (_, _, page) = missing_studio_page();
        assert!(page.contains("Node 20.19") && page.contains("/api/v1/docs"), "{page}");
    }
}
