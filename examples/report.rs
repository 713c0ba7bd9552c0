//! Reports one session of an agent to a server.
//!
//! ```console
//! $ stepback serve &
//! $ cargo run --example report -- http://127.0.0.1:7171 ~/.local/share/stepback/server.token
//! ```

use std::error::Error;
use std::time::Duration;

use serde_json::json;
use stepback_client::{Recorder, RecorderConfig};

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(token_file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: report URL TOKEN-FILE".into());
    };
    report(&url, std::fs::read_to_string(token_file)?.trim())
}

/// Reports the session to the server at `url`.
pub fn report(url: &str, token: &str) -> Result<(), Box<dyn Error>> {
    let recorder = Recorder::start(RecorderConfig::new(url, token).workspace("shop").agent("buyer"))?;
    let session = recorder.session("order-17");
    session.prompt("buy milk");

    let search = session.tool("search", json!({ "query": "milk" }));
    search.finish(json!({ "found": 3 }));
    let pay = session.tool("pay", json!({ "amount": 1.29 }));
    pay.fail("the card was declined");
    session.end();

    // Steps are sent in the background; a program that ends waits for the last ones.
    match recorder.flush(Duration::from_secs(10)) {
        true => Ok(()),
        false => Err(format!("the server did not take everything: {:?}", recorder.counts()).into()),
    }
}
