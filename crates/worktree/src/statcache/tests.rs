//! What is written can be read again; torn files and files of other caches are rejected.

use std::fs;

use super::*;
use crate::scan::hints::LogPosition;
use stepback_model::ObjectKind;

fn entry<'a>(name: &'a [u8], kind: CachedKind, aux: u32, target: &'a [u8]) -> CachedEntry<'a> {
    let stat = Stat { size: target.len() as u64, mtime: -5, ctime: 7, ino: 9, mode: 0o100644 };
    CachedEntry { name, kind, flags: RACY, stat, hash: Hash::of(ObjectKind::Blob, name), aux, target }
}

fn meta() -> Meta {
    Meta {
        root: (1, 2),
        root_stat: Stat { ino: 8, ..Stat::default() },
        epoch: 3,
        rules: [4; 32],
        boot: [5; 16],
        ignored: IgnoredTotals { bytes: [6, 7], waiting: 1 },
        git: Some(Hash::of(ObjectKind::Git, b"git")),
        token: Some(LogPosition { instance: [9; 16], position: 10 }),
        full_at: -11,
    }
}

fn sample(path: &Path) {
    let mut builder = Builder::like(None, Budget::default());
    builder.entry(&entry(b"a", CachedKind::Whole, 0, b""));
    builder.entry(&entry(b"link", CachedKind::Symlink, 0, b"target"));
    builder.entry(&entry(b"sub", CachedKind::Dir, 1, b""));
    builder.finish_dir(Hash::of(ObjectKind::Tree, b"root"));
    builder.entry(&entry(b"x\xff", CachedKind::Chunked, 0, b""));
    builder.finish_dir(Hash::of(ObjectKind::Tree, b"sub"));
    builder.write(path, &meta(), &[RelPath::root(), RelPath::parse("sub").unwrap()]).unwrap();
}

#[test]
fn what_is_written_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    let cache = StatCache::open(&path, [5; 16]).unwrap();
    assert_eq!(cache.meta(), &meta());
    let root = cache.dir(0).unwrap();
    assert_eq!((root.len(), root.tree), (3, Hash::of(ObjectKind::Tree, b"root")));
    let link = root.entry(root.find(b"link").unwrap()).unwrap();
    assert_eq!((link.kind, link.target, link.stat.mtime), (CachedKind::Symlink, &b"target"[..], -5));
    assert_eq!(root.find(b"nope"), None);
    let sub = cache.dir(root.entry(2).unwrap().aux).unwrap();
    assert_eq!(sub.entry(0).unwrap().name, b"x\xff");
    assert!(cache.dir(2).is_none());
}

#[test]
fn a_torn_cache_is_no_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    let good = fs::read(&path).unwrap();
    assert!(StatCache::open(&path, [0; 16]).is_some(), "another boot verifies the checksum");
    for cut in [0, 7, 100, good.len() - 1] {
        fs::write(&path, &good[..cut]).unwrap();
        assert!(StatCache::open(&path, [5; 16]).is_none(), "cut at {cut}");
    }
    let mut zeroed = good.clone();
    let end = zeroed.len();
    zeroed[end - 8..].fill(0);
    fs::write(&path, &zeroed).unwrap();
    assert!(StatCache::open(&path, [0; 16]).is_none(), "zeroes after a power loss");
}

/// Loads an overlay as the next process would.
fn load(path: &Path) -> (CacheOverlay, u64) {
    let cache = StatCache::open(path, [5; 16]).unwrap();
    (cache.overlay().clone(), cache.meta().epoch)
}

/// Sets directory `number` to one file, and writes it as the scan of epoch `epoch`.
fn change(path: &Path, overlay: &CacheOverlay, number: u32, name: &[u8], epoch: u64) {
    let mut overlay = overlay.clone();
    let file = entry(name, CachedKind::Whole, 0, b"");
    overlay.set(number, Hash::of(ObjectKind::Tree, name), std::iter::once(file));
    let below = *StatCache::open(path, [5; 16]).unwrap().checksum();
    overlay.write(path, &below, &Meta { epoch, ..meta() }, &[]).unwrap();
}

#[test]
fn what_changed_is_added_and_the_last_change_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    change(&path, &CacheOverlay::default(), 0, b"first", 10);
    let first = fs::read(CacheOverlay::path(&path)).unwrap();
    change(&path, &load(&path).0, 1, b"second", 11);
    change(&path, &load(&path).0, 0, b"third", 12);
    let all = fs::read(CacheOverlay::path(&path)).unwrap();
    assert!(all.starts_with(&first), "nothing that was written is written again");
    let cache = StatCache::open(&path, [5; 16]).unwrap();
    assert_eq!(cache.meta().epoch, 12);
    assert_eq!(cache.dir(0).unwrap().entry(0).unwrap().name, b"third");
    assert_eq!(cache.dir(1).unwrap().entry(0).unwrap().name, b"second");
    assert_eq!(cache.tree(0), Some(Hash::of(ObjectKind::Tree, b"third")));
}

#[test]
fn a_torn_section_leaves_those_before_and_the_next_scan_rewrites_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    change(&path, &CacheOverlay::default(), 0, b"first", 10);
    let whole = fs::read(CacheOverlay::path(&path)).unwrap().len();
    change(&path, &load(&path).0, 1, b"second", 11);
    let both = fs::read(CacheOverlay::path(&path)).unwrap();
    for cut in whole..both.len() {
        fs::write(CacheOverlay::path(&path), &both[..cut]).unwrap();
        let (overlay, epoch) = load(&path);
        assert_eq!((overlay.len(), epoch), (1, 10), "cut at {cut}");
    }
    // A changed byte counts as torn, too.
    let mut damaged = both.clone();
    damaged[whole + 300] ^= 1;
    fs::write(CacheOverlay::path(&path), &damaged).unwrap();
    let (overlay, epoch) = load(&path);
    assert_eq!((overlay.len(), epoch), (1, 10));
    change(&path, &overlay, 1, b"again", 12);
    let cache = StatCache::open(&path, [5; 16]).unwrap();
    assert_eq!((cache.overlay().len(), cache.meta().epoch), (2, 12));
    assert_eq!(cache.dir(1).unwrap().entry(0).unwrap().name, b"again");
}

#[test]
fn of_two_that_looked_at_once_the_last_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    change(&path, &CacheOverlay::default(), 0, b"before", 10);
    let (one, other) = (load(&path).0, load(&path).0);
    // Both give the number 2 to a directory that is new to them.
    change(&path, &one, 2, b"one", 11);
    change(&path, &other, 2, b"other", 12);
    let cache = StatCache::open(&path, [5; 16]).unwrap();
    assert_eq!(cache.meta().epoch, 12);
    assert_eq!(cache.dir(2).unwrap().entry(0).unwrap().name, b"other");
    // Even if both find the file as they read it: a section with another base is not read.
    let sound = fs::read(CacheOverlay::path(&path)).unwrap();
    fs::write(CacheOverlay::path(&path), [&sound[..], &sound[..]].concat()).unwrap();
    assert_eq!(load(&path).1, 12);
}

#[test]
fn changes_that_are_out_of_date_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    for epoch in 0..1000 {
        change(&path, &load(&path).0, 0, b"again and again", epoch);
    }
    let size = fs::metadata(CacheOverlay::path(&path)).unwrap().len();
    assert!(size < 100 << 10, "{size} bytes for one small directory");
    assert_eq!(load(&path).1, 999);
}

#[test]
fn a_large_cache_is_read_in_parts_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let names: Vec<String> = (0..3000).map(|number| format!("file {number}")).collect();
    let mut builder = Builder::like(None, Budget::default());
    for name in &names {
        builder.entry(&entry(name.as_bytes(), CachedKind::Whole, 0, b""));
        builder.finish_dir(Hash::of(ObjectKind::Tree, name.as_bytes()));
    }
    builder.write(&path, &meta(), &[]).unwrap();
    let parts = StatCache::open(&path, [5; 16]).unwrap();
    assert!(matches!(parts.body, Body::Parts { .. }));
    let whole = StatCache::open(&path, [5; 16]).unwrap().read_whole().unwrap();
    for cache in [&parts, &whole] {
        for (number, name) in names.iter().enumerate().rev() {
            let number = number as u32;
            assert_eq!(cache.tree(number), Some(Hash::of(ObjectKind::Tree, name.as_bytes())));
            assert_eq!(cache.dir(number).unwrap().entry(0).unwrap().name, name.as_bytes());
        }
        assert!(cache.tree(3000).is_none() && cache.dir(3000).is_none() && cache.dir(NONE).is_none());
    }
}

/// Every directory of a cache as text, with everything that a scan takes from it.
fn contents(cache: &StatCache) -> Vec<String> {
    let entries = |dir: &Dir<'_>| (0..dir.len()).map(|at| format!("{:?}", dir.entry(at))).collect::<Vec<_>>();
    let text = |number: u32| {
        cache.dir(number).map(|dir| format!("{} {:?} {:?}", dir.tree, cache.tree(number), entries(&dir)))
    };
    (0..cache.dir_count() as u32).map(|number| text(number).unwrap_or_default()).collect()
}

#[test]
fn no_flipped_bit_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    sample(&path);
    let intact = fs::read(&path).unwrap();
    assert!(StatCache::open(&path, [5; 16]).is_some());
    for bit in 0..intact.len() * 8 {
        let mut damaged = intact.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &damaged).unwrap();
        assert!(StatCache::open(&path, [5; 16]).is_none(), "bit {bit} of {}", intact.len() * 8);
    }
}

/// Of a cache that is read in parts, only the parts that were read are verified: they are right, or the damage is known.
#[test]
fn no_flipped_bit_in_a_part_that_was_read_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let mut builder = Builder::like(None, Budget::default());
    for number in 0..3000 {
        let name = format!("file {number}");
        builder.entry(&entry(name.as_bytes(), CachedKind::Whole, 0, b""));
        builder.finish_dir(Hash::of(ObjectKind::Tree, name.as_bytes()));
    }
    builder.write(&path, &meta(), &[RelPath::root()]).unwrap();
    let intact = fs::read(&path).unwrap();
    let expected = contents(&StatCache::open(&path, [5; 16]).unwrap());
    let (mut ignored, mut noticed) = (0, 0);
    for bit in (0..intact.len() * 8).step_by(intact.len() * 8 / 400 + 1) {
        let mut damaged = intact.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &damaged).unwrap();
        let Some(cache) = StatCache::open(&path, [5; 16]) else {
            ignored += 1;
            continue;
        };
        let found = contents(&cache);
        assert!(cache.is_damaged(), "bit {bit}");
        let wrong =
            found.iter().zip(&expected).filter(|(found, expected)| !found.is_empty() && found != expected);
        assert_eq!(wrong.count(), 0, "bit {bit}: a damaged directory was believed");
        assert!(cache.read_whole().is_none(), "bit {bit}");
        noticed += 1;
    }
    assert!(noticed > 300, "{noticed} noticed, {ignored} ignored");
}
