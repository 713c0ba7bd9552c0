//! Single things that a watcher does not see, or sees in its own way.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::Ordering;
use std::time::Duration;

use stepback_worktree::scan::hints::{ChangedDir, LogPosition, ScanHints, WatchAnswer, WatchQuestion};

use crate::desk::{WatchFixture, let_times_settle};

/// A workspace with some files that is watched and has been looked at twice: the next look can be a hinted one.
fn settled() -> WatchFixture {
    let desk = WatchFixture::new();
    for dir in 0..8 {
        for file in 0..4 {
            desk.write(&format!("d{dir}/sub/f{file}"), format!("{dir} {file}"));
        }
    }
    let_times_settle();
    desk.asked();
    desk.asked();
    desk
}

#[track_caller]
fn finds(desk: &WatchFixture, what: &str, hinted: bool) {
    let helped = desk.check(&|| what.to_string());
    assert_eq!(helped, hinted, "{what}: whether the watcher could help");
}

#[test]
fn one_change_is_found_by_looking_at_its_directory_alone() {
    let desk = settled();
    let before = desk.asked();
    assert!(before.hinted && before.hashed == 0);
    desk.write("d3/sub/f1", "changed");
    let after = desk.asked();
    assert!(after.hinted);
    assert_eq!(after.hashed, 1);
    assert_ne!(before.files, after.files);
    finds(&desk, "a change", true);
}

/// A directory in which something happened moments before a scan is scanned once more when its times are reliable, and then
/// skipped.
#[test]
fn a_directory_that_came_to_rest_is_left_alone() {
    let desk = settled();
    for file in 0..100 {
        desk.write(&format!("d9/f{file}"), file.to_string());
    }
    desk.asked();
    let_times_settle();
    desk.asked();
    let looks = |desk: &WatchFixture| {
        let before = desk.looked.load(Ordering::Relaxed);
        assert!(desk.asked().hinted);
        desk.looked.load(Ordering::Relaxed) - before
    };
    looks(&desk);
    assert!(looks(&desk) < 100, "it is looked at again and again");
    desk.write("d9/f7", "changed");
    assert!(looks(&desk) >= 100, "and again when something changes");
    finds(&desk, "a change", true);
}

#[test]
fn what_is_kept_beside_the_cache_grows_together_with_it() {
    let desk = settled();
    for round in 0..30 {
        desk.write(&format!("d{}/sub/f{}", round % 8, round % 4), round.to_string());
        desk.write(&format!("d{}/new{round}/deep/f", round % 8), "new");
        if round % 3 == 0 {
            let _ =
                fs::remove_dir_all(desk.root.join(format!("d{}/new{}", (round + 4) % 8, round - round % 2)));
        }
        finds(&desk, &format!("round {round}"), true);
    }
    // A look at everything writes one file again, and both say the same.
    let hinted = desk.asked();
    let full = desk.scan(Some(&desk.cache()), None);
    assert_eq!((hinted.files, full.files), (full.files, hinted.files));
    assert!(!desk.dir.path().join("cache.changes").exists());
}

#[test]
fn a_file_with_another_name_outside_is_looked_at_each_time() {
    let desk = settled();
    let outside = desk.dir.path().join("outside");
    fs::write(&outside, "one").unwrap();
    fs::hard_link(&outside, desk.root.join("d1/linked")).unwrap();
    finds(&desk, "a new link: where else it is, is not known", false);
    let_times_settle();
    finds(&desk, "nothing", true);
    fs::write(&outside, "two").unwrap();
    finds(&desk, "written under the other name", true);
    let_times_settle();
    finds(&desk, "nothing again", true);
    File::options().append(true).open(&outside).unwrap().write_all(b"three").unwrap();
    finds(&desk, "appended to under the other name", true);
}

#[test]
fn two_names_inside_are_looked_at_together() {
    let desk = settled();
    fs::hard_link(desk.root.join("d1/sub/f1"), desk.root.join("d2/also")).unwrap();
    finds(&desk, "a new link", false);
    let_times_settle();
    desk.asked();
    fs::write(desk.root.join("d2/also"), "written here, seen there").unwrap();
    finds(&desk, "a write under one of two names", true);
}

#[test]
fn times_that_were_put_back_do_not_hide_a_change() {
    let desk = settled();
    let path = desk.root.join("d4/sub/f2");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "9 9").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    finds(&desk, "an old time", true);
    fs::write(&path, "8 8").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time - Duration::from_secs(90_000))
        .unwrap();
    finds(&desk, "an older time", true);
}

#[test]
fn modes_of_files_and_directories_are_seen() {
    let desk = settled();
    for (path, mode) in [("d1/sub/f1", 0o600), ("d2", 0o700), ("d3/sub", 0o750), ("", 0o711)] {
        fs::set_permissions(desk.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        finds(&desk, &format!("{path} has mode {mode:o}"), true);
    }
}

#[test]
fn a_link_to_a_directory_is_a_link() {
    let desk = settled();
    let outside = desk.dir.path().join("elsewhere");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, desk.root.join("link")).unwrap();
    finds(&desk, "a link", true);
    fs::write(outside.join("f"), "not part of it").unwrap();
    finds(&desk, "a change where it leads", true);
    fs::remove_file(desk.root.join("link")).unwrap();
    fs::rename(desk.root.join("d5"), desk.root.join("link")).unwrap();
    symlink("link", desk.root.join("d5")).unwrap();
    finds(&desk, "link and directory have changed places", true);
}

#[test]
fn a_directory_that_moved_is_watched_where_it_is() {
    let desk = settled();
    fs::rename(desk.root.join("d1"), desk.root.join("d2/moved")).unwrap();
    finds(&desk, "moved", true);
    desk.write("d2/moved/sub/f1", "in its new place");
    finds(&desk, "a change in its new place", true);
    fs::create_dir(desk.root.join("fresh")).unwrap();
    fs::rename(desk.root.join("d2/moved"), desk.root.join("fresh/again")).unwrap();
    desk.write("fresh/again/sub/f1", "moved into what was just made");
    finds(&desk, "moved into a new directory", true);
    desk.write("fresh/again/sub/f2", "and changed there");
    finds(&desk, "a change there", true);
    let outside = desk.dir.path().join("out");
    fs::rename(desk.root.join("fresh/again"), &outside).unwrap();
    fs::write(outside.join("sub/f3"), "not ours any more").unwrap();
    finds(&desk, "moved out", true);
}

#[test]
fn changed_rules_make_it_look_at_everything() {
    let desk = settled();
    desk.write(".gitignore", "*.log\n");
    finds(&desk, "git's rules", false);
    desk.write("d1/.stepbackignore", "sub\n");
    finds(&desk, "own rules", false);
    let_times_settle();
    desk.asked();
    desk.asked();
    desk.write("d1/sub/f1", "left out");
    desk.write("d2/sub/f1", "not left out");
    finds(&desk, "changes in both", true);
    fs::remove_file(desk.root.join("d1/.stepbackignore")).unwrap();
    finds(&desk, "the rules are gone", false);
    desk.asked();
    desk.write("d1/sub/f1", "not left out any more");
    finds(&desk, "what was left out is watched", true);
}

#[test]
fn a_cache_that_is_none_any_more_is_watched() {
    let desk = settled();
    desk.write("d1/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    finds(&desk, "a mark", false);
    let_times_settle();
    desk.asked();
    desk.write("d1/sub/f1", "in a cache");
    finds(&desk, "a change in a cache", true);
    fs::remove_file(desk.root.join("d1/CACHEDIR.TAG")).unwrap();
    finds(&desk, "the mark is gone", false);
    desk.asked();
    desk.write("d1/sub/f1", "not in a cache");
    finds(&desk, "a change where a cache was", true);
}

#[test]
fn commits_are_seen_in_the_git_slot() {
    let desk = settled();
    desk.write("d1/.git/HEAD", "ref: refs/heads/main\n");
    desk.write("d1/.git/refs/heads/main", format!("{:040}\n", 1));
    desk.write(&format!("d1/.git/objects/ab/{:038}", 1), "an object");
    desk.write("d2/.git/HEAD", "ref: refs/heads/main\n");
    finds(&desk, "two repositories", true);
    let_times_settle();
    desk.asked();
    let before = desk.asked();
    desk.write(&format!("d1/.git/objects/ab/{:038}", 2), "another object");
    desk.write(&format!("d1/.git/objects/cd/{:038}", 3), "in a new directory");
    desk.write("d1/.git/refs/heads/main", format!("{:040}\n", 2));
    finds(&desk, "a commit in one", true);
    let after = desk.asked();
    assert_ne!(before.git, after.git);
    assert_eq!(before.files, after.files);
    fs::remove_dir_all(desk.root.join("d2/.git")).unwrap();
    finds(&desk, "one is gone", true);
    fs::rename(desk.root.join("d1"), desk.root.join("d3/sub/repo")).unwrap();
    finds(&desk, "the other has moved", true);
}

#[test]
fn a_look_at_everything_does_not_believe_and_leaves_a_moment() {
    let desk = settled();
    desk.write("d1/sub/f1", "changed");
    let whole = desk.whole();
    assert!(!whole.hinted);
    assert_eq!(whole.files, desk.scan(None, None).files);
    desk.write("d2/sub/f1", "changed");
    finds(&desk, "the next one can be hinted at once", true);
}

#[test]
fn another_root_in_its_place_is_not_answered_for() {
    let desk = settled();
    fs::rename(&desk.root, desk.dir.path().join("old")).unwrap();
    fs::create_dir(&desk.root).unwrap();
    desk.write("f", "another workspace");
    finds(&desk, "another root", false);
    desk.watch().unwrap();
    desk.asked();
    finds(&desk, "watched again", true);
}

#[test]
fn a_collection_makes_it_look_at_everything() {
    let mut desk = settled();
    desk.write("d1/sub/f1", "before");
    finds(&desk, "a change", true);
    desk.budget.file += 1;
    desk.write("d1/sub/f1", "other rules of the program");
    finds(&desk, "another budget", false);
}

/// Gives the answer that the test sets.
struct Liar(WatchAnswer);

impl ScanHints for Liar {
    fn changes(&self, _question: &WatchQuestion<'_>) -> WatchAnswer {
        self.0.clone()
    }
}

#[test]
fn a_moment_of_another_watcher_is_not_believed() {
    let desk = settled();
    desk.write("d1/sub/f1", "a change that is not reported");
    let cold = desk.scan(None, None);
    let foreign = LogPosition { instance: [1; 16], position: 7 };
    let lie = Liar(WatchAnswer::Only(foreign, Vec::new()));
    let asked = desk.scan(Some(&desk.cache()), Some(&lie));
    assert!(!asked.hinted);
    assert_eq!(asked.files, cold.files);
    // Now the cache stands for that moment. One before it is not of this watcher either.
    let earlier = Liar(WatchAnswer::Only(LogPosition { position: 6, ..foreign }, Vec::new()));
    desk.write("d1/sub/f1", "another");
    assert!(!desk.scan(Some(&desk.cache()), Some(&earlier)).hinted);
}

#[test]
fn paths_that_are_not_there_do_no_harm() {
    let desk = settled();
    let token = LogPosition { instance: [1; 16], position: 7 };
    desk.scan(Some(&desk.cache()), Some(&Liar(WatchAnswer::Everything(token))));
    let named = ["nowhere", "d1/nowhere/deep", "d2/sub/f1", "d2/sub/f1/below"].map(|path| ChangedDir {
        path: stepback_model::path::RelPath::parse(path).unwrap(),
        whole: path.len() % 2 == 0,
    });
    let asked = desk.scan(Some(&desk.cache()), Some(&Liar(WatchAnswer::Only(token, named.to_vec()))));
    assert!(asked.hinted);
    assert_eq!(asked.files, desk.scan(None, None).files);
}

#[test]
fn what_waits_for_room_in_the_budget_comes_in_when_there_is_some() {
    let mut desk = WatchFixture::new();
    desk.budget.small_total = 1000;
    desk.write(".gitignore", "*.log\n");
    desk.write("a/first.log", vec![b'x'; 800]);
    desk.asked();
    desk.write("b/second.log", vec![b'y'; 800]);
    let_times_settle();
    for round in 0..3 {
        desk.asked();
        desk.write(&format!("c/f{round}"), "something else");
    }
    let skipped = |desk: &WatchFixture| {
        let asked = desk.asked();
        let full = desk.scan(Some(&desk.cache()), None);
        assert_eq!(asked.files, full.files);
        desk.stored(asked.files)
            .iter()
            .filter(|(_, thing)| matches!(thing, stepback_testkit::tree::Thing::Special))
            .count()
    };
    assert_eq!(skipped(&desk), 1, "one waits");
    fs::remove_file(desk.root.join("a/first.log")).unwrap();
    desk.asked();
    desk.asked();
    desk.asked();
    assert_eq!(skipped(&desk), 0, "it has come in");
}

#[test]
fn a_torn_or_foreign_overlay_is_ignored() {
    let desk = settled();
    desk.write("d1/sub/f1", "changed");
    desk.asked();
    let overlay = desk.dir.path().join("cache.changes");
    let good = fs::read(&overlay).unwrap();
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let long = [good.as_slice(), b"more"].concat();
    for wrong in [&good[..0], &good[..20], &good[..good.len() - 1], &flipped, &long] {
        fs::write(&overlay, wrong).unwrap();
        // Without it the cache stands for an earlier moment, or for none.
        desk.check(&|| "a wrong overlay".to_string());
    }
    // One that belongs to an earlier version of the cache.
    let_times_settle();
    desk.write("d2/sub/f1", "changed");
    fs::remove_file(desk.cache()).unwrap();
    desk.scan(Some(&desk.cache()), None);
    fs::write(&overlay, &good).unwrap();
    finds(&desk, "an overlay of another cache", false);
}
