//! Files that another process writes to while they are read.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stepback_model::tree::{SkipReason, TreeNode};
use stepback_testkit::tree::{self, Draw};
use stepback_worktree::restore::read_content;

use crate::desk::ScannedTree;
use crate::let_times_settle;

/// Content that tells whether it is one version or a mixture: every line is the same.
fn version(number: u64, size: usize) -> Vec<u8> {
    format!("{number:063}\n").into_bytes().repeat(size / 64)
}

fn is_one_version(bytes: &[u8]) -> bool {
    bytes.len().is_multiple_of(64) && bytes.chunks(64).all(|line| line == &bytes[..64])
}

/// Whether a file that is written in place, front to back, one version after the other, was like this at some instant: one
/// version, or the beginning of one over the rest of the version before it. A reader overtaken by the writer sees something else.
fn was_so_at_some_instant(bytes: &[u8]) -> bool {
    let version = |line: &[u8]| std::str::from_utf8(&line[..63]).unwrap().parse::<u64>().unwrap();
    let (first, last) = (version(&bytes[..64]), version(&bytes[bytes.len() - 64..]));
    let pages: Vec<u64> = bytes.chunks(64).map(version).collect();
    first - last.min(first) <= 1 && pages.is_sorted_by(|a, b| a >= b)
}

/// Tells a thread to end, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Scans while another thread writes; every stored content must be one version, or be noted as unstable.
fn scanned_while(size: usize, is_whole: fn(&[u8]) -> bool, write: impl Fn(&Path, u64) + Sync) {
    for place in [tree::scratch_place(), std::env::temp_dir()] {
        scanned_at(&place, size, is_whole, &write);
    }
}

fn scanned_at(place: &Path, size: usize, is_whole: fn(&[u8]) -> bool, write: impl Fn(&Path, u64) + Sync) {
    let desk = ScannedTree::at(place);
    desk.write("f", version(0, size));
    let over = AtomicBool::new(false);
    let (mut stable, mut torn) = (0, 0);
    std::thread::scope(|scope| {
        // However this ends, the writer ends too.
        let _end = End(&over);
        scope.spawn(|| {
            let mut number = 1;
            while !over.load(Ordering::Relaxed) {
                write(&desk.root.join("f"), number);
                number += 1;
            }
        });
        for _ in 0..40 {
            let snapshot = desk.warm();
            match desk.node(&snapshot, "f") {
                Some(TreeNode::File { content, size: noted, .. }) => {
                    let bytes = read_content(&content, &desk.store).unwrap();
                    stable += 1;
                    torn += usize::from(!is_whole(&bytes) || bytes.len() as u64 != noted);
                }
                Some(TreeNode::Skipped { reason: SkipReason::Unstable }) => {
                    let told = snapshot.troubles.iter().any(|trouble| trouble.path.as_bytes() == b"f");
                    assert!(told, "an unstable file is a trouble to tell");
                }
                // Between the removal and the rename there is no file.
                None => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(torn, 0, "of {stable} stored versions, so many are mixtures");
    // When the writer is done, the file is stable again.
    let now = fs::read(desk.root.join("f")).unwrap();
    assert!(desk.content(&desk.warm(), "f") == now);
}

#[test]
fn a_file_replaced_by_rename_while_it_is_read_is_stored_whole() {
    for size in [64 << 10, 2 << 20] {
        scanned_while(size, is_one_version, |path, number| {
            let aside = path.with_extension("aside");
            fs::write(&aside, version(number, size)).unwrap();
            fs::rename(&aside, path).unwrap();
        });
    }
}

#[test]
fn a_file_written_in_place_while_it_is_read_is_stored_as_it_was_at_some_instant_or_noted() {
    for size in [64 << 10, 2 << 20] {
        scanned_while(size, was_so_at_some_instant, |path, number| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&version(number, size), 0).unwrap();
        });
    }
}

#[test]
fn a_file_that_grows_all_the_time_does_not_hang_a_scan() {
    scanned_while(64, is_one_version, |path, number| {
        let mut bytes = fs::read(path).unwrap();
        bytes = version(0, (bytes.len() + 64).min(1 << 20));
        if number % 100 == 0 {
            bytes.truncate(64);
        }
        fs::write(path.with_extension("aside"), &bytes).unwrap();
        fs::rename(path.with_extension("aside"), path).unwrap();
    });
}

#[test]
fn a_directory_that_vanishes_during_the_scan_is_no_error() {
    let desk = ScannedTree::new();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&over);
        scope.spawn(|| {
            let mut draw = Draw::new(1);
            while !over.load(Ordering::Relaxed) {
                let dir = desk.root.join(format!("d{}", draw.below(4)));
                if draw.once_in(2) {
                    let _ = fs::remove_dir_all(&dir);
                    let _ = fs::remove_file(&dir);
                } else if draw.once_in(3) {
                    let _ = fs::write(&dir, "a file");
                } else {
                    let _ = fs::create_dir_all(dir.join("sub/deep"));
                    let _ = fs::write(dir.join("sub/deep/f"), draw.bytes(100));
                }
            }
        });
        for _ in 0..200 {
            let snapshot = desk.warm();
            desk.stored(snapshot.files);
        }
    });
    let_times_settle();
    desk.warm_is_cold("when it is quiet again");
}
