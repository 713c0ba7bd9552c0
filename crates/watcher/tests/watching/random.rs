//! Random work, with a scan after every few changes.

use std::fs;
use std::path::PathBuf;

use stepback_testkit::tree::Draw;
use stepback_testkit::work::FileWorker;

use crate::desk::{WatchFixture, let_times_settle};

/// What decides elsewhere: rules, marks of caches, repositories.
fn decide(files: &mut FileWorker, round: usize) -> Option<String> {
    let some_dir = |files: &mut FileWorker| -> PathBuf {
        let dirs: Vec<PathBuf> = fs::read_dir(&files.root)
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        if dirs.is_empty() { files.root.clone() } else { files.draw.pick(&dirs).clone() }
    };
    Some(match files.draw.below(24) {
        0 => {
            let rules = *files.draw.pick(&["*.log\n", "a\n", "!node_modules\n", "lib/\n", ""]);
            let dir = some_dir(files);
            let _ = fs::write(dir.join(".stepbackignore"), rules);
            format!("{} leaves out {rules:?}", dir.display())
        }
        1 => {
            let dir = some_dir(files);
            if dir == files.root {
                return None;
            }
            let _ = fs::write(dir.join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n");
            format!("mark {} as a cache", dir.display())
        }
        2 => {
            let dir = some_dir(files);
            let gone = fs::remove_file(dir.join("CACHEDIR.TAG")).is_ok();
            format!("{} is no cache any more: {gone}", dir.display())
        }
        3 => {
            let dir = some_dir(files).join("repo");
            let git = dir.join(".git");
            let _ = fs::create_dir_all(git.join("refs/heads"));
            // No `objects`: no scan looks whether one of git's immutable files was edited in place, as random work would.
            let _ = fs::write(git.join("HEAD"), format!("ref: refs/heads/b{}\n", round % 3));
            let _ = fs::write(git.join(format!("refs/heads/b{}", round % 3)), format!("{round:040}\n"));
            let _ = fs::write(dir.join("file"), round.to_string());
            format!("commit in {}", dir.display())
        }
        4 => {
            let dir = some_dir(files);
            let _ = fs::create_dir_all(dir.join("target/debug"));
            let _ = fs::write(dir.join("target/debug/out"), round.to_string());
            let manifest = dir.join("Cargo.toml");
            match files.draw.once_in(2) {
                true => drop(fs::write(&manifest, "[package]\n")),
                false => drop(fs::remove_file(&manifest)),
            }
            format!("build in {}, a manifest: {}", dir.display(), manifest.exists())
        }
        5 => {
            // A directory that moves into one that has just been made.
            let (dir, new) = (some_dir(files), files.root.join(format!("new{round}")));
            if dir == files.root {
                return None;
            }
            let _ = fs::create_dir(&new);
            let _ = fs::rename(&dir, new.join("moved"));
            let _ = fs::write(new.join("moved/after"), "after");
            format!("move {} into {}", dir.display(), new.display())
        }
        6 => {
            let dir = some_dir(files);
            let aside = files.root.join("aside");
            let _ = fs::rename(&dir, &aside);
            let _ = fs::create_dir_all(dir.join("deep/er"));
            let _ = fs::write(dir.join("deep/er/f"), round.to_string());
            format!("replace {} by another directory", dir.display())
        }
        _ => return None,
    })
}

/// Works and scans; returns how often the watcher could help.
pub fn work(
    desk: &WatchFixture,
    seed: u64,
    rounds: usize,
    mut between: impl FnMut(usize, &mut Draw),
) -> usize {
    let mut files = FileWorker { root: desk.root.clone(), draw: Draw::new(seed) };
    let mut log = Vec::new();
    let mut helped = 0;
    for round in 0..rounds {
        for _ in 0..files.draw.below(4) {
            log.push(files.change());
        }
        log.extend(decide(&mut files, round));
        log.push("-".into());
        if round % 20 == 7 {
            let_times_settle();
        }
        between(round, &mut files.draw);
        match files.draw.below(10) {
            0 => drop(desk.whole()),
            1 => drop(desk.scan(Some(&desk.cache()), None)),
            _ => {}
        }
        helped += usize::from(desk.check(&|| format!("seed {seed}\n{}\n", log.join("\n"))));
    }
    helped
}

#[test]
fn a_scan_with_a_watcher_finds_what_one_without_finds() {
    let mut helped = 0;
    for seed in 100..112 {
        helped += work(&WatchFixture::new(), seed, 60, |_, _| {});
    }
    assert!(helped > 200, "the watcher helped only {helped} times: this tests nothing");
}
