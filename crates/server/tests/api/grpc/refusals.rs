//! Errors are those of the HTTP API; health and reflection need no token, everything else does.

use serde_json::json;
use stepback_grpc::v1::*;
use stepback_server::ServerConfig;
use tonic::{Code, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::connection::Connection;
use crate::support::TestServer;

fn list(grpc: &Connection) -> Result<SessionPage, Status> {
    grpc.wait(grpc.sessions().list_sessions(ListSessionsRequest::default())).map(|answer| answer.into_inner())
}

#[test]
fn a_problem_arrives_with_its_code_title_and_hints() {
    let server = TestServer::new();
    server.write("file", "1");
    server.checkpoint("one");
    let grpc = Connection::new(&server);
    let (workspace, point) = (server.workspace(), "nowhere".to_owned());
    let http = server.get(&format!("/workspaces/{workspace}/points/{point}")).problem(404);
    let request = ResolvePointRequest { workspace: workspace.clone(), point };
    let status = grpc.wait(grpc.workspaces().resolve_point(request)).unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().starts_with(http["detail"].as_str().unwrap()), "{status:?}");
    let problem = stepback_grpc::problem_of(&status).unwrap();
    assert_eq!(json!([problem.code, problem.title]), json!([http["code"], http["title"]]));
    assert_eq!(json!(problem.hints), http["hints"]);

    let wrong = ListSessionsRequest { limit: Some(0), ..Default::default() };
    let status = grpc.wait(grpc.sessions().list_sessions(wrong)).unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "limit must be between 1 and 1000")
    );
    let status = grpc.wait(grpc.sessions().get_session(GetSessionRequest::default())).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "session is missing"));
    let twice =
        PlanRewindRequest { workspace, point: Some("one".into()), last: Some(1), ..Default::default() };
    let status = grpc.wait(grpc.plans().plan_rewind(twice)).unwrap_err();
    assert!(status.code() == Code::InvalidArgument && status.message().contains("exactly one"), "{status:?}");
    for odd in ["../x", "a/b", "%2e%2e", "x y", "ü", "?limit=1", "#", "\u{0}"] {
        let request = GetSessionRequest { session: odd.into() };
        let code = grpc.wait(grpc.sessions().get_session(request)).unwrap_err().code();
        assert!(matches!(code, Code::NotFound | Code::InvalidArgument), "{odd}: {code:?}");
    }
}

#[test]
fn every_method_needs_the_token_but_health_and_reflection() {
    let server = TestServer::new();
    for token in [None, Some("0".repeat(64)), Some(String::new())] {
        let grpc = Connection::with_token(&server, token.clone());
        let status = list(&grpc).unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{token:?}");
        assert!(status.message().contains("the token is missing or wrong"));
        assert_eq!(stepback_grpc::problem_of(&status).unwrap().code, "refused");
        let follow = grpc.wait(grpc.events().follow_events(FollowEventsRequest::default()));
        assert_eq!(follow.unwrap_err().code(), Code::Unauthenticated);
        let mut health = HealthClient::new(grpc.channel.clone());
        let check = |service: &str| HealthCheckRequest { service: service.to_owned() };
        for service in ["", "stepback.v1.Sessions"] {
            let found = grpc.wait(health.check(check(service))).unwrap().into_inner();
            assert_eq!(found.status(), ServingStatus::Serving);
        }
        assert_eq!(grpc.wait(health.check(check("other"))).unwrap_err().code(), Code::NotFound);
        assert_eq!(grpc.wait(health.watch(check(""))).unwrap_err().code(), Code::Unauthenticated);
    }
    let grpc = Connection::new(&server);
    list(&grpc).unwrap();
    let mut health = HealthClient::new(grpc.channel.clone());
    let watched = grpc.wait(health.watch(HealthCheckRequest::default())).unwrap();
    assert_eq!(grpc.wait(watched.into_inner().message()).unwrap().unwrap().status(), ServingStatus::Serving);
    let unknown = grpc.wait(health.watch(HealthCheckRequest { service: "other".into() })).unwrap();
    assert_eq!(
        grpc.wait(unknown.into_inner().message()).unwrap().unwrap().status(),
        ServingStatus::ServiceUnknown
    );
}

#[test]
fn reflection_describes_every_service_without_the_token() {
    let server = TestServer::new();
    let grpc = Connection::with_token(&server, None);
    let mut client = ServerReflectionClient::new(grpc.channel.clone());
    let mut ask = |what: MessageRequest| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(what) };
        let call = client.server_reflection_info(futures_util::stream::iter([request]));
        let answer = grpc.wait(async { call.await?.into_inner().message().await });
        answer.unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())) else {
        panic!("no list");
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for method in stepback_grpc::operations() {
        let service = method.rpc.split('/').nth(1).unwrap();
        assert!(names.contains(&service), "{service} is not in {names:?}");
    }
    let symbol = MessageRequest::FileContainingSymbol("stepback.v1.Plans.ApplyRewindPlan".into());
    assert!(
        matches!(ask(symbol), MessageResponse::FileDescriptorResponse(file) if !file.file_descriptor_proto.is_empty())
    );
    let unknown = MessageRequest::FileContainingSymbol("stepback.v1.Nothing".into());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(unknown) };
    let call = client.server_reflection_info(futures_util::stream::iter([request]));
    let answer = grpc.wait(async { call.await?.into_inner().message().await });
    assert!(
        !matches!(answer, Ok(Some(found)) if matches!(found.message_response, Some(MessageResponse::FileDescriptorResponse(_))))
    );
}

#[test]
fn the_limits_of_the_server_hold_for_grpc() {
    let server = TestServer::with(|config| ServerConfig { rate: Some(1), ..config });
    let grpc = Connection::new(&server);
    let refused = (0..10).find_map(|_| list(&grpc).err()).unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(stepback_grpc::problem_of(&refused).unwrap().code, "busy");
}

#[test]
fn failed_calls_are_counted_by_method_and_status() {
    let server = TestServer::new();
    let grpc = Connection::new(&server);
    list(&grpc).unwrap();
    let request = GetSessionRequest { session: "nothing".into() };
    grpc.wait(grpc.sessions().get_session(request)).unwrap_err();
    let metrics = server.send("GET", "/metrics", "", b"");
    let metrics = String::from_utf8(metrics.body).unwrap();
    for (method, status) in [("ListSessions", 200), ("GetSession", 404)] {
        let line = format!("route=\"/stepback.v1.Sessions/{method}\",status=\"{status}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
}
