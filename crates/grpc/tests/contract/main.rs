//! The `.proto` files say the same as the description of the HTTP API, and the generated code says the same as them.
//!
//! `STEPBACK_UPDATE_PROTO=1` adds what is missing to the messages, with field numbers that were never used, and generates the
//! code again. A field that the HTTP API no longer has must be removed by hand, and its number reserved.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod documents;
mod generated;
mod proto_files;

use std::path::{Path, PathBuf};

/// Messages that are not documents of the HTTP API.
const OWN_MESSAGES: [&str; 6] = ["Empty", "JsonDocument", "TextList", "Chunk", "Event", "Problem"];
/// Fields of requests that the HTTP API has no name for, with the reason in their comments.
const OWN_FIELDS: [(&str, &str); 1] = [("AnnotateCheckpointRequest", "remove")];

fn crate_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn is_update() -> bool {
    std::env::var_os("STEPBACK_UPDATE_PROTO").is_some()
}

/// First the messages, then the code made of them: an update writes both.
#[test]
fn messages_and_generated_code_are_up_to_date() {
    let mut files = proto_files::ProtoFiles::read(&crate_dir().join("proto/stepback/v1"));
    let rpcs = files.rpcs();
    assert!(rpcs.len() > 40, "{}", rpcs.len());
    let openapi = std::fs::read_to_string(crate_dir().join("../../docs/openapi.json")).unwrap();
    let expected = documents::ExpectedMessages::collect(&serde_json::from_str(&openapi).unwrap(), &rpcs);
    let mut problems = Vec::new();
    for message in &expected.messages {
        problems.extend(files.compare(message, is_update()));
    }
    problems.extend(files.unknown_messages(&expected));
    if is_update() {
        files.write();
    }
    assert!(
        problems.is_empty(),
        "{}\nrun this test with STEPBACK_UPDATE_PROTO=1 to add what is missing",
        problems.join("\n")
    );
    generated::check(&crate_dir(), is_update());
}

/// The table that the server works by has the same operations as the comments of the `.proto` files.
#[test]
fn the_server_calls_the_operation_that_the_proto_files_name() {
    let files = proto_files::ProtoFiles::read(&crate_dir().join("proto/stepback/v1"));
    let mut described: Vec<String> = files
        .rpcs()
        .iter()
        .map(|rpc| format!("/stepback.v1.{}/{} = {} {}", rpc.service, rpc.name, rpc.method, rpc.path))
        .collect();
    let mut served: Vec<String> = stepback_grpc::operations()
        .iter()
        .map(|operation| format!("{} = {} /api/v1{}", operation.rpc, operation.method, operation.path))
        .collect();
    described.sort();
    served.sort();
    assert_eq!(served, described);
}
