//! Scanning: whatever the cache says, the result is what is on disk.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod desk;
mod underway;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;
use std::time::Duration;

use stepback_model::ObjectKind;
use stepback_model::object::ObjectSource;
use stepback_model::tree::{SkipReason, TreeNode};
use stepback_store::prelude::*;
use stepback_testkit::tree::{self, Draw, Thing};
use stepback_testkit::work::FileWorker;
use stepback_worktree::rules::Budget;
use stepback_worktree::scan::{Scan, Snapshot};

use self::desk::ScannedTree;

/// Longer than the time in which a change could hide behind an equal timestamp.
fn let_times_settle() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn a_scan_stores_exactly_what_is_there() {
    for seed in 0..5 {
        let desk = ScannedTree::new();
        let mut files = FileWorker { root: desk.root.clone(), draw: Draw::new(1000 + seed) };
        for _ in 0..150 {
            files.change();
        }
        let stored = desk.stored(desk.warm().files);
        let is_cache = |path: &[u8]| path.split(|byte| *byte == b'/').any(|name| name == b"node_modules");
        let mut expected = tree::copy_of(&desk.root, is_cache);
        let caches: Vec<_> = stored.keys().filter(|path| is_cache(path)).cloned().collect();
        expected.extend(caches.into_iter().map(|path| (path, Thing::Special)));
        let differences = tree::differences(&expected, &stored);
        assert!(differences.is_empty(), "seed {seed}:\n{differences}");
    }
}

#[test]
fn a_warm_scan_finds_what_a_cold_one_finds_after_any_edits() {
    for seed in 0..12 {
        let desk = ScannedTree::new();
        let mut files = FileWorker { root: desk.root.clone(), draw: Draw::new(seed) };
        let mut log = Vec::new();
        for round in 0..60 {
            for _ in 0..files.draw.below(4) {
                log.push(files.change());
            }
            if round % 20 == 7 {
                // Now nothing is racy any more, so the cache is really believed.
                let_times_settle();
            }
            desk.warm_is_cold(&format!("seed {seed}\n{}\n", log.join("\n")));
        }
    }
}

#[test]
fn edits_of_the_same_size_right_after_a_scan_are_seen() {
    let desk = ScannedTree::new();
    for round in 0..200 {
        let text = format!("{round:08}");
        desk.write("f", &text);
        assert_eq!(desk.content(&desk.warm(), "f"), text.as_bytes(), "round {round}");
    }
}

#[test]
fn links_replaced_by_links_of_the_same_length_are_seen() {
    let desk = ScannedTree::new();
    let link = desk.root.join("link");
    for round in 0..200 {
        let target = format!("{round:08}");
        let _ = fs::remove_file(&link);
        symlink(&target, &link).unwrap();
        let expected = TreeNode::Symlink { target: target.clone().into_bytes() };
        assert_eq!(desk.node(&desk.warm(), "link"), Some(expected), "round {round}");
    }
}

#[test]
fn files_that_come_and_go_right_after_a_scan_are_seen() {
    let desk = ScannedTree::new();
    for round in 0..200 {
        desk.write("dir/sub/f", "1");
        assert!(desk.node(&desk.warm(), "dir/sub/f").is_some(), "round {round}");
        fs::rename(desk.root.join("dir/sub/f"), desk.root.join("dir/sub/g")).unwrap();
        let snapshot = desk.warm();
        let found = ["f", "g"].map(|name| desk.node(&snapshot, &format!("dir/sub/{name}")).is_some());
        assert_eq!(found, [false, true], "round {round}");
        fs::remove_file(desk.root.join("dir/sub/g")).unwrap();
        assert!(desk.node(&desk.warm(), "dir/sub/g").is_none(), "round {round}");
    }
}

#[test]
fn an_edit_that_restores_size_and_modification_time_is_seen() {
    let desk = ScannedTree::new();
    desk.write("f", "old content");
    desk.write("g", "old content");
    let_times_settle();
    desk.warm();
    // What `touch -r` and `cp -p` do.
    let path = desk.root.join("f");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "new content").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let aside = desk.root.join("aside");
    fs::write(&aside, "new content").unwrap();
    File::options().write(true).open(&aside).unwrap().set_modified(time).unwrap();
    fs::rename(&aside, desk.root.join("g")).unwrap();
    let snapshot = desk.warm();
    assert_eq!(desk.content(&snapshot, "f"), b"new content");
    assert_eq!(desk.content(&snapshot, "g"), b"new content");
}

#[test]
fn modes_of_files_and_directories_are_seen_when_nothing_else_changes() {
    use std::os::unix::fs::PermissionsExt;
    let desk = ScannedTree::new();
    desk.write("dir/f", "1");
    let_times_settle();
    desk.warm();
    for (path, mode) in [("dir/f", 0o600), ("dir", 0o700)] {
        fs::set_permissions(desk.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        let found = match desk.node(&desk.warm(), path) {
            Some(TreeNode::File { mode, .. } | TreeNode::Dir { mode, .. }) => mode,
            other => panic!("{path} is {other:?}"),
        };
        assert_eq!(found, mode, "{path}");
    }
}

#[test]
fn nothing_is_read_again_when_nothing_changed() {
    let desk = ScannedTree::new();
    for number in 0..50 {
        desk.write(&format!("dir{}/f{number}", number % 5), number.to_string());
    }
    let_times_settle();
    let first = desk.warm();
    let second = desk.warm();
    assert_eq!((first.hashed, second.hashed), (50, 0));
    assert_eq!(first.files, second.files);
}

#[test]
fn large_files_edited_anywhere_are_stored_as_if_seen_for_the_first_time() {
    let mut draw = Draw::new(7);
    for round in 0..6 {
        let desk = ScannedTree::new();
        // Some over the size at which all threads share a file; some with long runs of equal bytes.
        let size = if round % 3 == 2 { 9 << 20 } else { (1 << 20) + draw.below(3 << 20) };
        let mut bytes = draw.bytes(size);
        if round % 2 == 1 {
            bytes[size / 4..size / 2].fill(0);
        }
        desk.write("large", &bytes);
        desk.warm();
        for edit in 0..14 {
            let length = 1 + draw.below(if edit % 2 == 0 { 10 } else { 300_000 });
            let place = match edit % 4 {
                0 => 0,
                1 => bytes.len(),
                _ => draw.below(bytes.len()),
            };
            let what = draw.below(3);
            match what {
                0 => {
                    let new = draw.bytes(length);
                    bytes.splice(place..place, new);
                }
                1 => {
                    let from = place.min(bytes.len() - length.min(bytes.len()));
                    let to = (from + length).min(bytes.len());
                    bytes.drain(from..to);
                }
                _ => {
                    let end = (place + length).min(bytes.len());
                    let new = draw.bytes(end - place);
                    bytes[place..end].copy_from_slice(&new);
                }
            }
            desk.write("large", &bytes);
            let when =
                format!("round {round}, edit {edit}: {what} at {place}, {length} bytes, now {}", bytes.len());
            let (warm, cold) = (desk.warm(), desk.cold());
            assert_eq!(desk.node(&warm, "large"), desk.node(&cold, "large"), "{when}");
            assert!(desk.content(&warm, "large") == bytes, "{when}: other bytes");
        }
    }
}

#[test]
fn one_byte_in_a_large_file_stores_little() {
    let desk = ScannedTree::new();
    let mut bytes = Draw::new(3).bytes(32 << 20);
    desk.write("large", &bytes);
    desk.warm();
    let before = desk.store.usage().unwrap().raw_bytes;
    bytes[16 << 20] ^= 1;
    desk.write("large", &bytes);
    desk.warm();
    let stored = desk.store.usage().unwrap().raw_bytes - before;
    assert!(stored < 1 << 20, "{stored} bytes for one");
}

#[test]
fn pipes_sockets_and_links_to_nowhere_do_not_hang_a_scan() {
    let desk = ScannedTree::new();
    assert!(Command::new("mkfifo").arg(desk.root.join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(desk.root.join("socket")).unwrap();
    symlink("/dev/zero", desk.root.join("endless")).unwrap();
    symlink("endless-loop", desk.root.join("endless-loop")).unwrap();
    symlink("..", desk.root.join("up")).unwrap();
    for snapshot in [desk.warm(), desk.warm()] {
        assert_eq!(desk.skipped(&snapshot, "pipe"), Some(SkipReason::Fifo));
        assert_eq!(desk.skipped(&snapshot, "socket"), Some(SkipReason::Socket));
        assert_eq!(
            desk.node(&snapshot, "endless"),
            Some(TreeNode::Symlink { target: b"/dev/zero".to_vec() })
        );
        assert_eq!(desk.node(&snapshot, "up"), Some(TreeNode::Symlink { target: b"..".to_vec() }));
    }
    // A pipe in a file's place and back.
    fs::remove_file(desk.root.join("pipe")).unwrap();
    desk.write("pipe", "a file now");
    assert_eq!(desk.content(&desk.warm(), "pipe"), b"a file now");
}

#[test]
fn caches_that_tools_rebuild_are_noted_and_not_read() {
    let desk = ScannedTree::new();
    let signature = "Signature: 8a477f597d28d172789f06886806bc55\n# made by a tool\n";
    desk.write("node_modules/x/index.js", "1");
    desk.write("app/node_modules/y", "1");
    desk.write("rust/Cargo.toml", "[package]");
    desk.write("rust/target/debug/x", "1");
    desk.write("archery/target/bull.txt", "the user's own directory called target");
    desk.write(".venv/bin/python", "1");
    desk.write("env/pyvenv.cfg", "home = /usr");
    desk.write("env/lib/x", "1");
    desk.write("tagged/CACHEDIR.TAG", signature);
    desk.write("tagged/data", "1");
    desk.write("untagged/CACHEDIR.TAG", "not the signature");
    desk.write("untagged/data", "1");
    for snapshot in [desk.warm(), desk.warm(), desk.cold()] {
        for cache in ["node_modules", "app/node_modules", "rust/target", ".venv", "env", "tagged"] {
            assert_eq!(desk.skipped(&snapshot, cache), Some(SkipReason::HeavyCache), "{cache}");
        }
        for path in ["archery/target/bull.txt", "untagged/data", "rust/Cargo.toml"] {
            assert!(desk.node(&snapshot, path).is_some_and(|node| node.is_stored()), "{path}");
        }
    }
    // What makes it a cache goes: it is an ordinary directory again, and the other way round.
    fs::remove_file(desk.root.join("rust/Cargo.toml")).unwrap();
    fs::remove_file(desk.root.join("tagged/CACHEDIR.TAG")).unwrap();
    desk.write("archery/Cargo.toml", "[package]");
    desk.write("untagged/CACHEDIR.TAG", signature);
    let snapshot = desk.warm();
    assert!(desk.node(&snapshot, "rust/target/debug/x").is_some());
    assert!(desk.node(&snapshot, "tagged/data").is_some());
    assert_eq!(desk.skipped(&snapshot, "archery/target"), Some(SkipReason::HeavyCache));
    assert_eq!(desk.skipped(&snapshot, "untagged"), Some(SkipReason::HeavyCache));
    desk.warm_is_cold("after the marks changed");
}

#[test]
fn a_directory_that_becomes_a_cache_by_an_edit_of_its_tag_is_noted() {
    let desk = ScannedTree::new();
    desk.write("dir/CACHEDIR.TAG", "");
    desk.write("dir/data", "1");
    let_times_settle();
    assert!(desk.node(&desk.warm(), "dir/data").is_some());
    desk.write("dir/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    desk.warm_is_cold("after the tag was written in place");
}

#[test]
fn stepbackignore_excludes_and_brings_even_caches_back() {
    let desk = ScannedTree::new();
    desk.write(".stepbackignore", "*.bin\n!node_modules\n/private/\n");
    desk.write("node_modules/x/index.js", "1");
    desk.write("a.bin", "1");
    desk.write("dir/b.bin", "1");
    desk.write("private/x", "1");
    desk.write("dir/private/x", "1");
    desk.write("dir/.stepbackignore", "!b.bin\n");
    for snapshot in [desk.warm(), desk.warm(), desk.cold()] {
        assert!(desk.node(&snapshot, "node_modules/x/index.js").is_some());
        assert_eq!(desk.skipped(&snapshot, "a.bin"), Some(SkipReason::Rule));
        assert_eq!(desk.skipped(&snapshot, "private"), Some(SkipReason::Rule));
        assert!(desk.node(&snapshot, "dir/private/x").is_some(), "the rule names the top one only");
        assert_eq!(desk.content(&snapshot, "dir/b.bin"), b"1", "the nearer file has the last word");
    }
}

#[test]
fn changed_rules_hold_at_once_for_files_that_did_not_change() {
    let desk = ScannedTree::new();
    desk.write("a.log", "1");
    desk.write("dir/b.log", "1");
    desk.write("dir/sub/c.txt", "1");
    let_times_settle();
    desk.warm();
    let draws: [(&str, Option<&str>); 7] = [
        (".stepbackignore", Some("*.log\n")),
        (".stepbackignore", Some("dir/\n")),
        ("dir/.stepbackignore", Some("sub\n")),
        (".stepbackignore", None),
        (".gitignore", Some("*.log\n")),
        ("dir/.stepbackignore", None),
        (".gitignore", None),
    ];
    for (path, text) in draws {
        match text {
            Some(text) => desk.write(path, text),
            None => fs::remove_file(desk.root.join(path)).unwrap(),
        }
        desk.warm_is_cold(&format!("{path} is {text:?}"));
        let_times_settle();
        desk.warm_is_cold(&format!("{path} is still {text:?}"));
    }
}

#[test]
fn the_budget_for_ignored_files_counts_what_is_there() {
    let mut desk = ScannedTree::new();
    desk.budget = Budget { large_total: 40 << 20, ..Budget::default() };
    desk.write(".gitignore", "*.iso\n");
    // Larger than what one thread reads alone, written again and again: 10 MB of 40 are used, not more each time.
    for round in 0..8u8 {
        desk.write("a.iso", vec![round; 10 << 20]);
        let snapshot = desk.warm();
        assert_eq!(desk.skipped(&snapshot, "a.iso"), None, "round {round}");
    }
    // Over the budget until others go.
    for name in ["b", "c", "d", "e"] {
        desk.write(&format!("{name}.iso"), vec![1; 10 << 20]);
    }
    let over = |snapshot: &Snapshot| {
        ["a", "b", "c", "d", "e"]
            .into_iter()
            .filter(|name| desk.skipped(snapshot, &format!("{name}.iso")).is_some())
            .count()
    };
    assert_eq!(over(&desk.warm()), 1);
    for name in ["a", "b", "c"] {
        fs::remove_file(desk.root.join(format!("{name}.iso"))).unwrap();
    }
    desk.warm();
    assert_eq!(over(&desk.warm()), 0, "there is room again");
}

#[test]
fn a_lost_damaged_or_foreign_cache_changes_nothing() {
    let mut desk = ScannedTree::new();
    desk.write("dir/sub/f", "1");
    desk.write("g", vec![7; 2 << 20]);
    symlink("g", desk.root.join("link")).unwrap();
    let_times_settle();
    let expected = desk.warm().files;
    let good = fs::read(desk.cache()).unwrap();
    fs::remove_file(desk.cache()).unwrap();
    assert_eq!(desk.warm().files, expected, "no cache");
    for length in [0, 8, good.len() / 2, good.len() - 1] {
        fs::write(desk.cache(), &good[..length]).unwrap();
        assert_eq!(desk.warm().files, expected, "cut to {length}");
    }
    fs::write(desk.cache(), vec![0xff; good.len()]).unwrap();
    assert_eq!(desk.warm().files, expected, "noise");
    // After a power loss, parts of it may be anything; another boot finds out.
    let mut draw = Draw::new(5);
    desk.boot = [9; 16];
    for _ in 0..50 {
        let mut bad = good.clone();
        let at = draw.below(bad.len());
        bad[at] ^= 1 << draw.below(8);
        fs::write(desk.cache(), &bad).unwrap();
        assert_eq!(desk.warm().files, expected, "byte {at} of {}", bad.len());
    }
    // The cache of another directory.
    let other = ScannedTree::new();
    other.write("dir/sub/f", "2");
    let_times_settle();
    other.warm();
    fs::copy(other.cache(), desk.cache()).unwrap();
    desk.boot = other.boot;
    assert_eq!(desk.warm().files, expected, "another root");
}

#[test]
fn a_cache_damaged_by_a_program_does_not_bring_a_scan_down() {
    let desk = ScannedTree::new();
    desk.write("dir/sub/f", "1");
    desk.write("dir/g", "2");
    let_times_settle();
    desk.warm();
    let good = fs::read(desk.cache()).unwrap();
    let mut draw = Draw::new(6);
    for _ in 0..300 {
        let mut bad = good.clone();
        for _ in 0..1 + draw.below(3) {
            // The whole file except what is proved by its length.
            let at = 32 + draw.below(bad.len() - 32);
            bad[at] = draw.number() as u8;
        }
        fs::write(desk.cache(), &bad).unwrap();
        let batch = desk.store.begin().unwrap();
        let scan = Scan {
            root: &desk.root,
            cache: Some(&desk.cache()),
            vault: None,
            store_dir: None,
            budget: desk.budget,
            epoch: 0,
            boot: desk.boot,
            threads: 1,
            progress: None,
            hints: None,
            everything: false,
            check_objects: false,
        };
        // Right or an error; never a panic.
        let _ = scan.run(&desk.store, &*batch);
    }
}

#[test]
fn after_a_collection_everything_is_stored_again() {
    let desk = ScannedTree::new();
    desk.write("whole", "1");
    desk.write("dir/sub/deep", "2");
    desk.write("large", Draw::new(1).bytes(3 << 20));
    desk.write("huge", Draw::new(2).bytes(9 << 20));
    symlink("whole", desk.root.join("link")).unwrap();
    let_times_settle();
    let before = desk.warm();
    let copy = desk.stored(before.files);
    let mark = desk.store.commit_seq().unwrap();
    desk.store.sweep(&Default::default(), mark).unwrap();
    assert!(desk.store.read(ObjectKind::Tree, before.files).is_err(), "the collection took everything");
    // Changed and unchanged files alike.
    let file = OpenOptions::new().write(true).open(desk.root.join("huge")).unwrap();
    file.write_all_at(b"edited", 5 << 20).unwrap();
    let file = OpenOptions::new().write(true).open(desk.root.join("large")).unwrap();
    file.write_all_at(b"edited", 1 << 20).unwrap();
    let after = desk.warm();
    let found = desk.stored(after.files);
    assert_eq!(tree::differences(&tree::copy_of(&desk.root, |_| false), &found), "");
    assert_eq!(copy.len(), found.len());
    desk.warm_is_cold("after the collection");
}
