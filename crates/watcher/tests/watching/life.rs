//! How a watcher that a hook started ends, and what it does when far more happens than it can follow.

use std::fs;
use std::path::Path;
use std::time::Duration;

use stepback_watcher::client::{SOCKET, WatcherClient, WatcherPresence};
use stepback_watcher::server::{EndReason, Watcher, WatcherConfig, lock_holder};
use stepback_worktree::scan::hints::{ScanHints, WatchAnswer};

use crate::desk::{WatchFixture, let_times_settle};
use crate::socket::{question, scan, store, until};

fn automatic(dir: &Path, root: &Path) -> Watcher {
    let config =
        WatcherConfig { recent: vec![root.to_path_buf()], automatic: true, ..WatcherConfig::new(dir) };
    Watcher::start(config).unwrap().unwrap()
}

const AT_ONCE: Duration = Duration::ZERO;

#[test]
fn another_version_gets_no_answer_and_ends_it() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let watcher = automatic(&dir, &desk.root);
    let client = WatcherClient::for_any_size(&dir);
    until("it is watched", || client.status(&desk.root)?.ok());
    until("a hint", || scan(&desk, &client).hinted.then_some(()));
    assert_eq!(watcher.wait_for_end(AT_ONCE), None);
    let other = WatcherClient::for_any_size(&dir).with_version("0.0.0-other");
    desk.write("f", "changed");
    let found = scan(&desk, &other);
    assert!(!found.hinted, "rules may differ between versions");
    assert_eq!(found.files, desk.scan(None, None).files);
    assert_eq!(watcher.wait_for_end(Duration::from_secs(60)), Some(EndReason::OtherVersion));
}

#[test]
fn a_watcher_of_a_server_does_not_end_for_a_client() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let watcher = Watcher::start(WatcherConfig::new(&dir)).unwrap().unwrap();
    let client = WatcherClient::for_any_size(&dir);
    assert!(!client.stop().unwrap());
    assert_eq!(watcher.wait_for_end(AT_ONCE), None);
    drop(watcher);
    let watcher = automatic(&dir, &desk.root);
    assert_eq!(lock_holder(&dir), Some(std::process::id()));
    assert!(client.stop().unwrap());
    assert_eq!(watcher.wait_for_end(Duration::from_secs(60)), Some(EndReason::Asked));
    drop(watcher);
    assert_eq!(lock_holder(&dir), None);
    assert_eq!(client.presence(), WatcherPresence::Absent);
}

#[test]
fn it_ends_with_its_store_and_leaves_the_socket_of_another_alone() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let watcher = automatic(&dir, &desk.root);
    let moved = desk.dir.path().join("moved");
    fs::rename(&dir, &moved).unwrap();
    assert_eq!(watcher.wait_for_end(AT_ONCE), Some(EndReason::StoreGone));
    // Another store at the same path, with a watcher of its own.
    fs::create_dir(&dir).unwrap();
    let second = automatic(&dir, &desk.root);
    assert_eq!(watcher.wait_for_end(AT_ONCE), Some(EndReason::StoreGone));
    drop(watcher);
    assert!(dir.join(SOCKET).exists());
    assert!(matches!(WatcherClient::new(&dir).presence(), WatcherPresence::Running(_)));
    assert_eq!(second.wait_for_end(AT_ONCE), None);
    fs::remove_file(dir.join(SOCKET)).unwrap();
    assert_eq!(second.wait_for_end(AT_ONCE), Some(EndReason::StoreGone), "it cannot be reached any more");
}

#[test]
fn it_ends_when_nothing_is_asked() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let idle = Duration::from_millis(300);
    let config = WatcherConfig { automatic: true, idle, ..WatcherConfig::new(&dir) };
    let watcher = Watcher::start(config).unwrap().unwrap();
    let reason = until("its end", || watcher.wait_for_end(Duration::from_millis(50)));
    assert_eq!(reason, EndReason::Idle);
}

#[test]
fn a_watcher_that_was_silent_is_not_asked_for_a_while() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    fs::create_dir(dir.join("watch")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dir.join(SOCKET)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let client = WatcherClient::new(&dir);
    assert_eq!(client.changes(&question(&desk.root)), WatchAnswer::Unknown);
    assert!(listener.accept().is_ok());
    let unanswered = dir.join("watch/unanswered");
    assert_eq!(fs::read(&unanswered).unwrap().len(), 1);
    // As if it had been many.
    fs::write(&unanswered, "........").unwrap();
    assert_eq!(client.changes(&question(&desk.root)), WatchAnswer::Unknown);
    assert!(listener.accept().is_err(), "the next one does not even try");
    // As if some time had passed.
    let noted = fs::File::options().write(true).open(&unanswered).unwrap();
    noted.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    assert_eq!(client.changes(&question(&desk.root)), WatchAnswer::Unknown);
    assert!(listener.accept().is_ok());
}

#[test]
fn a_workspace_that_is_made_again_is_watched_again() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let _watcher = automatic(&dir, &desk.root);
    let client = WatcherClient::for_any_size(&dir);
    for round in 0..3 {
        for number in 0..10 {
            desk.write(&format!("d{number}/f"), format!("{round} {number}"));
        }
        let_times_settle();
        until("a hint", || {
            let found = scan(&desk, &client);
            assert_eq!(found.files, desk.scan(None, None).files, "round {round}");
            found.hinted.then_some(())
        });
        match round {
            0 => fs::remove_dir_all(&desk.root).unwrap(),
            _ => fs::rename(&desk.root, desk.dir.path().join(format!("aside{round}"))).unwrap(),
        }
        fs::create_dir(&desk.root).unwrap();
    }
}

#[test]
fn thousands_of_directories_that_come_and_go_are_all_seen() {
    let desk = WatchFixture::new();
    let dir = store(&desk);
    let _watcher = automatic(&dir, &desk.root);
    let client = WatcherClient::for_any_size(&dir);
    until("a hint", || scan(&desk, &client).hinted.then_some(()));
    for round in 0..4 {
        std::thread::scope(|scope| {
            for part in 0..2 {
                let desk = &desk;
                scope.spawn(move || {
                    for number in 0..700 {
                        desk.write(
                            &format!("new{part}/{}/{number}/deep/f", number % 7),
                            format!("{round} {number}"),
                        );
                    }
                    if round % 2 == 1 {
                        let moved = desk.root.join(format!("moved{part}-{round}"));
                        fs::rename(desk.root.join(format!("new{part}")), moved).unwrap();
                    }
                });
            }
            // While it happens, a scan sees what it sees; afterwards, all of it.
            scan(&desk, &client);
        });
        for _ in 0..3 {
            let found = scan(&desk, &client);
            assert_eq!(found.files, desk.scan(None, None).files, "round {round}");
        }
    }
    until("a hint", || scan(&desk, &client).hinted.then_some(()));
}
