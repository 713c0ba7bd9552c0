//! The watcher as seen by another process: a socket that may be missing, silent, or another program's.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stepback_watcher::client::{SOCKET, WatcherClient};
use stepback_watcher::server::{Watcher, WatcherConfig};
use stepback_worktree::scan::hints::{ScanHints, WatchAnswer, WatchQuestion};

use crate::desk::{WatchFixture, let_times_settle};

/// A store's directory beside a workspace.
pub fn store(desk: &WatchFixture) -> PathBuf {
    let dir = desk.dir.path().join("store");
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn start(dir: &Path, recent: &[&Path], most: Option<usize>) -> Option<Watcher> {
    let recent = recent.iter().map(|root| root.to_path_buf()).collect();
    Watcher::start(WatcherConfig { recent, max_dirs: most, ..WatcherConfig::new(dir) }).unwrap()
}

/// Waits for something that another thread does.
#[track_caller]
pub fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = is() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn scan(desk: &WatchFixture, client: &WatcherClient) -> stepback_worktree::scan::Snapshot {
    desk.scan(Some(&desk.cache()), Some(client))
}

#[test]
fn a_workspace_is_watched_once_a_client_asks_about_it() {
    let desk = WatchFixture::new();
    for dir in 0..20 {
        desk.write(&format!("d{dir}/f"), dir.to_string());
    }
    let_times_settle();
    let dir = store(&desk);
    let client = WatcherClient::for_any_size(&dir);
    assert!(client.status(&desk.root).is_none(), "no watcher runs");
    assert!(!scan(&desk, &client).hinted);
    let watcher = start(&dir, &[], None).unwrap();
    assert_eq!(fs::metadata(dir.join(SOCKET)).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(client.status(&desk.root).unwrap().is_err(), "no client asked about it yet");
    assert!(start(&dir, &[], None).is_none(), "one watcher for one store");
    assert!(!scan(&desk, &client).hinted, "it begins now");
    let directories = until("it is watched", || client.status(&desk.root)?.ok());
    assert_eq!(directories, 21);
    // The first answer gives a moment, later ones are about what came since. A busy machine may take too long for one.
    until("a hint", || scan(&desk, &client).hinted.then_some(()));
    for round in 0..50 {
        desk.write(&format!("d{}/f", round % 20), format!("round {round}"));
        let found = scan(&desk, &client);
        assert_eq!(found.files, desk.scan(None, None).files, "round {round}");
    }
    watcher.stop();
    assert!(!dir.join(SOCKET).exists());
    desk.write("d1/f", "not watched");
    let found = scan(&desk, &client);
    assert!(!found.hinted);
    assert_eq!(found.files, desk.scan(None, None).files);
    // Another one does not know the moments of the first.
    let _watcher = start(&dir, &[&desk.root], None).unwrap();
    until("it is watched", || client.status(&desk.root)?.ok());
    desk.write("d2/f", "watched again");
    let found = scan(&desk, &client);
    assert!(!found.hinted);
    assert_eq!(found.files, desk.scan(None, None).files);
    until("a hint", || scan(&desk, &client).hinted.then_some(()));
}

#[test]
fn a_workspace_with_too_many_directories_is_not_watched_and_says_so() {
    let desk = WatchFixture::new();
    for dir in 0..20 {
        desk.write(&format!("d{dir}/f"), dir.to_string());
    }
    let dir = store(&desk);
    let _watcher = start(&dir, &[&desk.root], Some(10)).unwrap();
    let client = WatcherClient::for_any_size(&dir);
    let why = until("it is refused", || match client.status(&desk.root)? {
        Err(why) if why.contains("more than 10 directories") => Some(why),
        _ => None,
    });
    assert_eq!(why, "it has more than 10 directories");
    assert!(!scan(&desk, &client).hinted);
    assert!(!scan(&desk, &client).hinted);
}

#[test]
fn a_store_with_a_long_path_has_a_watcher_too() {
    let desk = WatchFixture::new();
    let dir = desk.dir.path().join("long".repeat(40));
    fs::create_dir(&dir).unwrap();
    let _watcher = start(&dir, &[&desk.root], None).unwrap();
    let client = WatcherClient::for_any_size(&dir);
    until("it is watched", || client.status(&desk.root)?.ok());
}

pub fn question(root: &Path) -> WatchQuestion<'_> {
    WatchQuestion { root, root_id: (1, 2), since: None, entries: 100_000 }
}

#[test]
fn a_watcher_that_is_silent_is_not_waited_for() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    // The kernel accepts for it; it never reads or answers.
    let _listener = UnixListener::bind(dir.join(SOCKET)).unwrap();
    let begun = Instant::now();
    assert_eq!(WatcherClient::new(&dir).changes(&question(&desk.root)), WatchAnswer::Unknown);
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(10), "it gives up: {waited:?}");
    // One that does not even accept any more.
    let busy: Vec<_> = std::iter::from_fn(|| {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        );
        let socket = socket.unwrap();
        let address = rustix::net::SocketAddrUnix::new(dir.join(SOCKET)).unwrap();
        rustix::net::connect(&socket, &address).ok().map(|()| socket)
    })
    .take(20_000)
    .collect();
    assert!(!busy.is_empty());
    assert_eq!(WatcherClient::new(&dir).changes(&question(&desk.root)), WatchAnswer::Unknown);
}

#[test]
fn nonsense_is_no_answer() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let listener = UnixListener::bind(dir.join(SOCKET)).unwrap();
    let answers: &[&[u8]] = &[
        b"",
        b"\x00",
        b"\xff\xff\xff\xff",
        b"\x05\x00\x00\x00SBW\x01\x00",
        b"\x05\x00\x00\x00SBW\x02\x09",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x1e\x00\x00\x00SBW\x02\x01\x01",
    ];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut some = [0; 64];
                let _ = stream.read(&mut some);
                let _ = stream.write_all(answer);
            }
        });
        for answer in answers {
            let heard = WatcherClient::new(&dir).changes(&question(&desk.root));
            assert_eq!(heard, WatchAnswer::Unknown, "{}", answer.escape_ascii());
        }
    });
}

#[test]
fn a_malformed_question_does_not_block_other_clients() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let _watcher = start(&dir, &[&desk.root], None).unwrap();
    let client = WatcherClient::for_any_size(&dir);
    until("it is watched", || client.status(&desk.root)?.ok());
    let connect = || std::os::unix::net::UnixStream::connect(dir.join(SOCKET)).unwrap();
    let silent: Vec<_> = (0..4).map(|_| connect()).collect();
    connect().write_all(&[0xff; 100]).unwrap();
    connect().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until("an answer", || client.status(&desk.root)?.ok());
    drop(silent);
}
