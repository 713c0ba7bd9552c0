//! A mirror in a bucket: of a server that honours conditional writes, and of one that does not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use stepback_mirror::address::{CreateDirectory, MirrorAddress};
use stepback_mirror::archive::MirrorArchive;
use stepback_mirror::error::MirrorError;
use stepback_mirror::join::{AcceptOther, join};
use stepback_mirror::restore::restore;
use stepback_mirror::storage::bucket::BucketAccess;
use stepback_mirror::storage::signature::BucketCredentials;
use stepback_mirror::storage::{CreateOutcome, MirrorStorage, StorageAccess};
use stepback_mirror::survey::MirrorSurvey;
use stepback_mirror::sync::MirrorSync;
use stepback_store::embedded::EmbeddedStore;
use stepback_testkit::python::python;
use stepback_testkit::sample::noise;

use crate::fixture::{MirroredStore, assert_same};

fn access(endpoint: &str) -> StorageAccess {
    StorageAccess {
        bucket: Some(BucketAccess {
            credentials: BucketCredentials {
                access_key: "testing".into(),
                secret_key: "testing".into(),
                session_token: None,
            },
            region: "us-east-1".into(),
            endpoint: Some(endpoint.to_owned()),
        }),
    }
}

/// A real server of another project, which ends with the test.
struct BucketServer {
    process: Child,
    endpoint: String,
}

impl BucketServer {
    fn start() -> Self {
        let mut command = Command::new(python().with_file_name("moto_server"));
        command.args(["--host", "127.0.0.1", "--port", "0"]).env("PYTHONUNBUFFERED", "1");
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let endpoint = lines
            .find_map(|line| Some(line.unwrap().split_once("http://127.0.0.1:")?.1.trim().to_owned()))
            .map(|port| format!("http://127.0.0.1:{port}"))
            .unwrap();
        // It says more, and must not wait for a reader.
        thread::spawn(move || lines.for_each(drop));
        let server = Self { process, endpoint };
        server.put_bucket("mirrors");
        server
    }

    fn put_bucket(&self, name: &str) {
        let host = self.endpoint.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let header = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request";
        write!(
            stream,
            "PUT /{name} HTTP/1.1\r\nhost: {host}\r\nauthorization: {header}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn storage(&self, address: &str) -> Arc<dyn MirrorStorage> {
        let address = MirrorAddress::parse(address, std::path::Path::new("/")).unwrap();
        address.open(CreateDirectory::No, &access(&self.endpoint)).unwrap()
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_bucket_holds_a_mirror() {
    let server = BucketServer::start();
    let place = MirroredStore::new();
    let store = place.store();
    let (_, session) = place.begin(&store, "/w");
    place.append(&store, &session, &noise(1, 10_000));
    let storage = server.storage("s3://mirrors/of/ann");
    assert!(storage.is_empty().unwrap());
    let archive = join(&store, storage.clone(), None, AcceptOther::No, &*place.env).unwrap();
    let mut sync = MirrorSync::new(&store, archive, &*place.env);
    sync.sync().unwrap();
    for seed in 2..14 {
        place.append(&store, &session, &noise(seed, 900_000));
        sync.sync().unwrap();
    }
    assert!(!storage.is_empty().unwrap());
    assert_eq!(storage.create("stepback-mirror.json", b"{}").unwrap(), CreateOutcome::Exists);
    assert_eq!(storage.read("nothing").unwrap(), None);
    let archive = MirrorArchive::open(storage).unwrap().unwrap();
    assert_eq!(archive.segments, 13);
    assert_eq!(MirrorSurvey::take(&archive, true).unwrap().report.problems, Vec::<String>::new());
    let into = place.path("copy");
    let report = restore(&archive, &into, None, &place.env, &AtomicU64::new(0)).unwrap();
    assert_eq!((report.steps, report.missing), (13, Vec::<String>::new()));
    assert_same(&store, &EmbeddedStore::open_existing(&into).unwrap());

    let missing = server.storage("s3://no-such-bucket/x");
    let error = MirrorArchive::open(missing).unwrap_err().to_string();
    assert!(error.contains("NoSuchBucket"), "{error}");
}

/// Several writers, each with its own connection: exactly one creates each object.
#[test]
fn one_of_many_writers_creates_an_object() {
    let server = BucketServer::start();
    let writers: Vec<_> = (0..8).map(|_| server.storage("s3://mirrors/race")).collect();
    for round in 0..10 {
        let name = format!("segments/{round}");
        let created: usize = thread::scope(|scope| {
            let started: Vec<_> = writers
                .iter()
                .enumerate()
                .map(|(number, writer)| {
                    let name = &name;
                    scope.spawn(move || writer.create(name, &[number as u8]).unwrap())
                })
                .collect();
            started
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .filter(|outcome| *outcome == CreateOutcome::Created)
                .count()
        });
        assert_eq!(created, 1, "round {round}");
    }
    let listed = writers[0].list("segments", "4").unwrap();
    assert_eq!(listed.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["5", "6", "7", "8", "9"]);
}

/// A server that stores whatever it is sent, as some do.
#[test]
fn a_service_without_conditional_writes_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut len) = (String::new(), 0);
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    len = value.trim().parse().unwrap();
                }
                head.push_str(&line);
                line.clear();
            }
            std::io::copy(&mut (&mut reader).take(len), &mut std::io::sink()).unwrap();
            let answer = match () {
                () if head.starts_with("PUT") => ("200 OK", ""),
                () if head.contains("list-type") => {
                    ("200 OK", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
                }
                () => ("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>"),
            };
            let (status, body) = answer;
            let text = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).unwrap();
        }
    });
    let place = MirroredStore::new();
    let address = MirrorAddress::parse("s3://b/x", std::path::Path::new("/")).unwrap();
    let storage = address.open(CreateDirectory::No, &access(&endpoint)).unwrap();
    let error = join(&place.store(), storage, None, AcceptOther::No, &*place.env).unwrap_err();
    assert!(
        matches!(&error, MirrorError::NotAMirror { reason, .. } if reason.contains("If-None-Match")),
        "{error}"
    );
}
