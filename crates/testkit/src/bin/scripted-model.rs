//! A scripted model as a program of its own, to try an agent by hand.
//!
//! `scripted-model DIRECTORY [PORT]` runs the script in `DIRECTORY/part.json` on 127.0.0.1, writes its port to
//! `DIRECTORY/port` and every request to `DIRECTORY/requests.jsonl`. Tests do not need it: a test binary runs the model
//! itself.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, port) = match arguments.as_slice() {
        [directory] => (directory, Some(0)),
        [directory, port] => (directory, port.parse().ok()),
        _ => return usage(),
    };
    let Some(port) = port else { return usage() };
    match stepback_testkit::model::server::play(Path::new(directory), port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scripted-model: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: scripted-model DIRECTORY [PORT]");
    ExitCode::from(2)
}
