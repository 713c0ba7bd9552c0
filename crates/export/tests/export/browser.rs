//! The page in a real browser, offline: what it loads, and what of the recorded content runs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use stepback_export::html;
use stepback_export::recording::SessionRecording;
use stepback_model::time::Timestamp;
use stepback_testkit::skip::skip;
use stepback_testkit::test_workspace::START;

use crate::sample::{self, SampleSession};

fn chromium() -> Option<PathBuf> {
    let names = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    names.iter().map(PathBuf::from).find(|path| path.exists())
}

/// The document as the browser has it after it has run what it is allowed to run.
fn dump_dom(chromium: &Path, url: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--disable-component-update", "--no-first-run", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(dom.contains("</html>"), "{}", String::from_utf8_lossy(&output.stderr));
    dom
}

/// A server that keeps what it is asked for.
fn counting_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut bytes = [0; 4096];
            let length = stream.read(&mut bytes).unwrap_or(0);
            let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
            seen.lock().unwrap().push(head.lines().next().unwrap_or_default().to_owned());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    (url, requests)
}

/// What could make a browser load something, or run something, from `url`.
fn attacks(url: &str) -> String {
    format!(
        "</script></style></title><script src=\"{url}/a.js\"></script><img src=\"{url}/a.png\" onerror=\"document.title='pwned'\">\
         <svg><image href=\"{url}/b.svg\"/><script>document.title='pwned'</script></svg><iframe src=\"{url}/frame\"></iframe>\
         <link rel=\"stylesheet\" href=\"{url}/a.css\"><style>@import '{url}/b.css'; body {{ background: url({url}/c.png) }}</style>\
         <meta http-equiv=\"refresh\" content=\"0;url={url}/refresh\"><object data=\"{url}/o\"></object><video src=\"{url}/v\" autoplay></video>\
         \n\n![image]({url}/image.png)\n\n[link]({url}/link)\n\n<{url}/auto>\n\n```html\n<script>document.title='pwned'</script>\n```\n"
    )
}

fn page(session: &SampleSession) -> String {
    let recording = SessionRecording::read(&session.workspace, &session.session(), true).unwrap();
    html::render(&recording, Timestamp::from_micros(START))
}

#[test]
fn a_browser_loads_nothing_and_runs_nothing_of_the_content() {
    let Some(chromium) = chromium() else { return skip("Chromium") };
    let (url, requests) = counting_server();
    let seen = || requests.lock().unwrap().clone();
    let text = attacks(&url);
    let session = SampleSession::new();
    session.begin();
    session.prompt(&text);
    let call = sample::SampleCall {
        id: "c",
        tool: "Bash",
        thought: &text,
        text: &text,
        input: serde_json::json!({ "command": text }),
        output: serde_json::json!({ "stdout": text, "stderr": text }),
        error: Some(&text),
        ..Default::default()
    };
    session.call(&call, |world| world.write("evil.html", &text));
    session.done(&text);
    let page = page(&session);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    std::fs::write(&file, &page).unwrap();
    let dom = dump_dom(&chromium, &format!("file://{}", file.display()));
    assert_eq!(seen(), Vec::<String>::new(), "a request left the page");
    assert!(!dom.contains("<title>pwned"), "a script of the content ran");
    assert!(!dom.contains("id=\"tools\" hidden"), "the page's own script did not run");
    assert_eq!(dom.matches("<script").count(), 1);

    // The policy alone would be enough: with the content as markup, still nothing is loaded or run.
    let broken =
        page.replacen("<main id=\"session\">", &format!("<main id=\"session\">{}", attacks(&url)), 1);
    assert_ne!(broken, page);
    std::fs::write(&file, broken.replace("<meta http-equiv=\"refresh\"", "<meta")).unwrap();
    let dom = dump_dom(&chromium, &format!("file://{}", file.display()));
    // A browser may connect ahead of time without asking for anything.
    let asked: Vec<String> = seen().into_iter().filter(|request| !request.is_empty()).collect();
    assert_eq!(asked, Vec::<String>::new(), "the policy let a request through");
    assert!(!dom.contains("<title>pwned"), "the policy let a script run");

    // The test would notice: without the policy, the same page loads.
    let open = broken.replacen("http-equiv=\"Content-Security-Policy\"", "name=\"none\"", 1);
    std::fs::write(&file, open).unwrap();
    dump_dom(&chromium, &format!("file://{}", file.display()));
    assert!(
        seen().iter().any(|request| !request.is_empty()),
        "nothing is ever loaded, so this test shows nothing"
    );
}
