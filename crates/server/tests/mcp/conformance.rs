//! The official suite. What it finds is compared with a baseline that says why a scenario fails; one that is listed and passes
//! fails the test too.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::{self, Next};
use stepback_mcp::http::{self, ServiceLocator};
use stepback_mcp::rpc::Refusal;
use stepback_mcp::service::McpService;
use stepback_server::{AuthToken, Guard};
use stepback_testkit::mcp::Counterparts;

use crate::fixture::Fixture;

struct Fixtures;

impl ServiceLocator for Fixtures {
    fn service(&self, _: &Uri) -> Result<Arc<dyn McpService>, Refusal> {
        Ok(Arc::new(Fixture))
    }
}

/// Starts a server for the rest of the process and gives its address. The suite cannot send a token, so it is added on the way;
/// host and origin are checked as they come.
fn serve(scratch: &Path) -> String {
    let token = AuthToken::load_or_create(&scratch.join("token")).unwrap();
    let bearer = HeaderValue::from_str(&format!("Bearer {}", token.as_str())).unwrap();
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let guarded = Guard::new(token, hosts, Vec::new()).protect(http::router(Arc::new(Fixtures)));
    let router = guarded.layer(middleware::from_fn(move |mut request: Request, next: Next| {
        request.headers_mut().insert(header::AUTHORIZATION, bearer.clone());
        next.run(request)
    }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    format!("http://{address}/mcp")
}

fn conforms(revision: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let url = serve(scratch.path());
    let counterparts = Counterparts::installed();
    let baseline = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/mcp/baseline-{revision}.yaml"));
    let output = Command::new(counterparts.node())
        .arg(counterparts.conformance())
        .args(["server", "--url", &url, "--suite", "all", "--spec-version", revision, "--expected-failures"])
        .arg(&baseline)
        .arg("--output-dir")
        .arg(counterparts.fresh(&format!("conformance-{revision}")))
        .current_dir(scratch.path())
        .env("HOME", scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    counterparts.keep(&format!("conformance-{revision}.txt"), &said);
    assert!(output.status.success(), "{said}\n{}", fs::read_to_string(&baseline).unwrap_or_default());
}

#[test]
fn the_current_revision_conforms() {
    conforms("2026-07-28");
}

#[test]
fn the_previous_revision_conforms() {
    conforms("2025-11-25");
}
