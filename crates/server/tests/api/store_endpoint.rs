//! `/store`: the store's own port over HTTP, for stores that are guarded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use stepback_remote::{
    AccessRole, ClientConfig, RemoteAddress, RemoteStore, STORE_PATH, ServiceConfig, StoreService,
};
use stepback_server::{ServerConfig, Tls};
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_store::{Mutation, StoreError};
use stepback_testkit::contract;
use stepback_testkit::sample::Sample;

use crate::support::TestServer;

const OWNER: &str = "0123456789abcdef0123456789abcdef";
const AGENT: &str = "abcdef0123456789abcdef0123456789";

fn service(store: Arc<EmbeddedStore>) -> StoreService {
    let tokens = vec![(OWNER.into(), AccessRole::Full), (AGENT.into(), AccessRole::Append)];
    StoreService::new(ServiceConfig { store, store_id: "test".into(), tokens, update_index: None }).unwrap()
}

#[test]
fn a_store_is_used_over_tls_with_the_role_of_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&tls.certificate, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    let clauses =
        ["a_large_object_reads_back", "threads_write_into_one_batch", "commits_are_followed_without_a_gap"];
    for (name, clause) in contract::CLAUSES.iter().filter(|(name, _)| clauses.contains(name)) {
        eprintln!("{name}");
        let store = Arc::new(EmbeddedStore::open(&dir.path().join(name)).unwrap());
        let place = TestServer::with(|config| ServerConfig {
            tls: Some(tls.clone()),
            store_service: Some(service(store)),
            ..config
        });
        let port = place.server.address().port();
        let url = format!("https://localhost:{port}?ca={}", tls.certificate.display());
        let config = |token: &str| ClientConfig {
            token: Some(token.to_owned()),
            machine: Some("one".into()),
            ..ClientConfig::new(
                RemoteAddress::parse(&url).unwrap(),
                &dir.path().join(format!("local-{name}")),
            )
        };
        let owner = RemoteStore::connect(&config(OWNER)).unwrap();
        assert_eq!(owner.role(), AccessRole::Full);
        clause(&owner);
        let agent = RemoteStore::connect(&config(AGENT)).unwrap();
        let purge = agent.commit(None, &[Mutation::Purge { steps: Vec::new() }]);
        assert!(matches!(purge, Err(StoreError::Forbidden { .. })), "{purge:?}");
        assert!(RemoteStore::connect(&config(&"x".repeat(32))).is_err());
        // Without the certificate, the server is not trusted.
        let address = RemoteAddress::parse(&format!("https://localhost:{port}")).unwrap();
        assert!(RemoteStore::connect(&ClientConfig { address, ..config(OWNER) }).is_err());
    }
}

#[test]
fn machines_with_the_same_paths_have_workspaces_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&dir.path().join("store")).unwrap());
    let place =
        TestServer::with(|config| ServerConfig { store_service: Some(service(store.clone())), ..config });
    let address = RemoteAddress::parse(&place.server.url()).unwrap();
    let client = |machine: &str| {
        let config = ClientConfig::new(address.clone(), &dir.path().join(machine));
        RemoteStore::connect(&ClientConfig {
            token: Some(AGENT.into()),
            machine: Some(machine.into()),
            ..config
        })
        .unwrap()
    };
    let (one, two) = (client("one"), client("two"));
    let (first, _) = Sample::new(1).begin(&one, b"/work");
    assert_eq!(two.workspace_at(b"/work").unwrap(), None);
    let (second, _) = Sample::new(2).begin(&two, b"/work");
    assert_eq!(
        one.workspace_at(b"/work").unwrap().map(|found| (found.id, found.root)),
        Some((first.id, b"/work".to_vec()))
    );
    assert_eq!(two.workspace_at(b"/work").unwrap().map(|found| found.id), Some(second.id));
    let mut roots: Vec<_> = store.workspaces().unwrap().into_iter().map(|found| found.root).collect();
    roots.sort();
    assert_eq!(roots, [b"remote:one:/work".to_vec(), b"remote:two:/work".to_vec()]);
}

#[test]
fn what_is_not_a_client_of_the_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&dir.path().join("store")).unwrap());
    let place = TestServer::with(|config| ServerConfig { store_service: Some(service(store)), ..config });
    let status = |place: &TestServer, headers: &str| {
        let mut stream = TcpStream::connect(place.server.address()).unwrap();
        write!(stream, "GET {STORE_PATH} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start[9..]).into_owned()
    };
    let upgrade = "connection: upgrade\r\nupgrade: stepback-store/1\r\n";
    let bearer = format!("authorization: Bearer {AGENT}\r\n");
    assert_eq!(status(&place, ""), "426");
    assert_eq!(status(&place, &bearer), "426");
    assert_eq!(status(&place, &(upgrade.replace("store/1", "store/2") + &bearer)), "426");
    assert_eq!(status(&place, upgrade), "401");
    // The server's own token for its API is none of these.
    let own = format!("{upgrade}authorization: Bearer {}\r\n", place.server.token().as_str());
    assert_eq!(status(&place, &own), "401");
    assert_eq!(status(&place, &format!("{upgrade}{bearer}origin: http://localhost\r\n")), "403");
    assert_eq!(status(&place, &format!("{upgrade}{bearer}")), "101");
    // A server that does not guard its store offers nothing there.
    let other = TestServer::new();
    assert_ne!(status(&other, &format!("{upgrade}{bearer}")), "101");
}
