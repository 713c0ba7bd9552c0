//! Connections that are protected, with a real server and certificates made here.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use stepback_postgres::PostgresStore;
use stepback_store::StoreError;
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::Sample;

/// Somebody who signs certificates.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

/// How connections are protected: `Ok(true)` for TLS, else what is said and what to do.
fn opened(server: &PostgresServer, url: &str) -> Result<bool, (String, &'static str)> {
    let local = tempfile::tempdir().unwrap();
    match PostgresStore::open(url, local.path()) {
        Ok(store) => {
            let sql = "SELECT bool_and(ssl)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                WHERE application_name = 'stepback'";
            let protected = server.sql("postgres", sql).trim() == "true";
            drop(store);
            // The server notices a little later that it is gone.
            let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stepback'";
            while server.sql("postgres", gone).trim() != "0" {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(protected)
        }
        Err(StoreError::Server { what, why, remedy }) => Err((format!("{what}: {why}"), remedy)),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_address_says_how_its_connections_are_protected() {
    let server = PostgresServer::start();
    let url = server.database();
    let files = tempfile::tempdir().unwrap();

    // The server does not speak TLS yet.
    assert_eq!(opened(&server, &url), Ok(false));
    let (said, remedy) = opened(&server, &format!("{url}?sslmode=require")).unwrap_err();
    assert!(said.contains("TLS") && remedy.contains("ssl = on"), "{said}; {remedy}");

    let (ours, ours_pem) = authority("ours");
    let (_, others_pem) = authority("others");
    let [trusted, other, none] = ["trusted.pem", "other.pem", "none.pem"].map(|name| files.path().join(name));
    fs::write(&trusted, &ours_pem).unwrap();
    fs::write(&other, &others_pem).unwrap();
    fs::write(&none, "no certificates").unwrap();
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &ours).unwrap();
    server.use_tls(&made.pem(), &key.serialize_pem());

    // The certificate is made for the name of this machine, and not for its address.
    let named = url.replace("127.0.0.1", "localhost");
    let ask = |url: &str, mode: &str, roots: Option<&std::path::Path>| {
        let roots = roots.map(|path| format!("&sslrootcert={}", path.display())).unwrap_or_default();
        opened(&server, &format!("{url}?sslmode={mode}{roots}"))
    };
    assert_eq!(ask(&url, "disable", None), Ok(false));
    assert_eq!(ask(&url, "prefer", None), Ok(true));
    assert_eq!(ask(&url, "require", None), Ok(true));
    assert_eq!(ask(&url, "require", Some(&trusted)), Ok(true));
    assert_eq!(ask(&url, "verify-ca", Some(&trusted)), Ok(true));
    assert_eq!(ask(&named, "verify-full", Some(&trusted)), Ok(true));

    let (said, remedy) = ask(&url, "verify-full", Some(&trusted)).unwrap_err();
    assert!(said.contains("not valid for name") && remedy.contains("host name"), "{said}; {remedy}");
    for (url, mode) in [(&url, "require"), (&url, "verify-ca"), (&named, "verify-full")] {
        let (said, remedy) = ask(url, mode, Some(&other)).unwrap_err();
        assert!(said.contains("UnknownIssuer") && remedy.contains("sslrootcert"), "{said}; {remedy}");
    }
    let (said, _) = ask(&named, "verify-full", Some(&none)).unwrap_err();
    assert!(said.contains("none.pem") && said.contains("none in it"), "{said}");
    let (said, _) = ask(&named, "verify-full", Some(&files.path().join("missing.pem"))).unwrap_err();
    assert!(said.contains("missing.pem"), "{said}");
}

/// What was recorded over a protected connection is there, and those who wait for it hear of it.
#[test]
fn everything_works_over_tls() {
    let server = PostgresServer::start();
    let (ours, pem) = authority("ours");
    let files = tempfile::tempdir().unwrap();
    let trusted = files.path().join("ca.pem");
    fs::write(&trusted, pem).unwrap();
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &ours).unwrap();
    server.use_tls(&made.pem(), &key.serialize_pem());
    let url = server.database().replace("127.0.0.1", "localhost");
    let url = format!("{url}?sslmode=verify-full&sslrootcert={}", trusted.display());
    let store = PostgresStore::open(&url, &files.path().join("local")).unwrap();
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(&store, b"/w");
    let mark = store.commit_seq().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.wait_for_commit(mark, Duration::from_secs(60)).unwrap());
        // Larger than what fits into one record of TLS.
        sample.append(&store, session.id, &stepback_testkit::sample::noise(1, 3 << 20));
        assert_ne!(waiting.join().unwrap(), mark);
    });
    assert_eq!(store.checkpoints(workspace.id).unwrap().len(), 1);
}
