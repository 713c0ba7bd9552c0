//! The change log of a watcher: which directories changed at which position. Pure: no clock, no kernel.

use std::collections::BTreeMap;

use stepback_model::path::RelPath;
use stepback_worktree::scan::hints::{ChangedDir, LogPosition, WatchAnswer};

/// The most directories that are logged one by one. With more, the log is cleared, and a question about the time before is
/// answered with a full scan.
const MAX_LOGGED_DIRS: usize = 4096;
/// The most directories in one answer.
const MAX_ANSWER_DIRS: usize = 512;

/// The changes that one watcher saw since it started or lost track.
#[derive(Debug)]
pub struct Ledger {
    instance: [u8; 16],
    position: u64,
    /// Changes up to this position are unknown.
    floor: u64,
    /// Whether something was logged since the last answer.
    open: bool,
    dirs: BTreeMap<RelPath, LoggedChange>,
}

#[derive(Clone, Copy, Debug)]
struct LoggedChange {
    /// The position at which something last happened in the directory.
    at: u64,
    /// The position at which it last appeared as new, with everything below it.
    whole_at: Option<u64>,
}

impl Ledger {
    /// An empty log. `instance` must not have been used before.
    pub fn new(instance: [u8; 16]) -> Self {
        Self { instance, position: 1, floor: 0, open: false, dirs: BTreeMap::new() }
    }

    /// Logs that something happened in a directory, and with `whole` also below it.
    pub fn note(&mut self, path: &RelPath, whole: bool) {
        // Everything between two answers happens at one position: after the first, before the second.
        if !self.open {
            self.position += 1;
            self.open = true;
        }
        let position = self.position;
        let noted = self.dirs.entry(path.clone()).or_insert(LoggedChange { at: position, whole_at: None });
        noted.at = position;
        if whole {
            noted.whole_at = Some(position);
        }
        if self.dirs.len() > MAX_LOGGED_DIRS {
            self.dirs.clear();
            self.floor = position;
        }
    }

    /// Returns what happened since `since`, and the present token. A scan that starts after this call sees all changes
    /// logged before it.
    pub fn answer(&mut self, since: Option<LogPosition>) -> WatchAnswer {
        self.open = false;
        let now = LogPosition { instance: self.instance, position: self.position };
        let comparable = since.filter(|since| {
            since.instance == self.instance
                && since.position >= self.floor
                && since.position > 0
                && since.position <= self.position
        });
        let Some(since) = comparable else { return WatchAnswer::Everything(now) };
        let mut changed = Vec::new();
        for (path, noted) in &self.dirs {
            if noted.at > since.position {
                let is_subtree = noted.whole_at.is_some_and(|position| position > since.position);
                changed.push(ChangedDir { path: path.clone(), whole: is_subtree });
            }
            if changed.len() > MAX_ANSWER_DIRS {
                return WatchAnswer::Everything(now);
            }
        }
        WatchAnswer::Only(now, changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn token(answer: &WatchAnswer) -> LogPosition {
        match answer {
            WatchAnswer::Everything(token) | WatchAnswer::Only(token, _) => *token,
            WatchAnswer::Unknown => panic!("a ledger always answers"),
        }
    }

    fn named(answer: WatchAnswer) -> Vec<(String, bool)> {
        let WatchAnswer::Only(_, changed) = answer else { panic!("not a list: {answer:?}") };
        changed.into_iter().map(|changed| (changed.path.display().into_owned(), changed.whole)).collect()
    }

    #[test]
    fn only_what_came_after_is_named() {
        let mut ledger = Ledger::new([1; 16]);
        ledger.note(&path("before"), true);
        let first = token(&ledger.answer(None));
        assert_eq!(named(ledger.answer(Some(first))), []);
        ledger.note(&path("a"), false);
        ledger.note(&path("b"), true);
        let second = token(&ledger.answer(Some(first)));
        ledger.note(&path("b"), false);
        assert_eq!(named(ledger.answer(Some(second))), [("b".to_string(), false)]);
        let since_first = [("a".to_string(), false), ("b".to_string(), true)];
        assert_eq!(named(ledger.answer(Some(first))), since_first, "an old moment can still be asked about");
    }

    #[test]
    fn a_position_of_another_watcher_or_of_the_future_means_a_full_scan() {
        let mut ledger = Ledger::new([1; 16]);
        let now = token(&ledger.answer(None));
        for wrong in [
            LogPosition { instance: [2; 16], ..now },
            LogPosition { position: now.position + 1, ..now },
            LogPosition { position: 0, ..now },
        ] {
            assert_eq!(ledger.answer(Some(wrong)), WatchAnswer::Everything(now), "{wrong:?}");
        }
    }

    #[test]
    fn more_than_can_be_remembered_means_everything() {
        let mut ledger = Ledger::new([1; 16]);
        let before = token(&ledger.answer(None));
        for number in 0..=MAX_LOGGED_DIRS {
            ledger.note(&path(&format!("d{number}")), false);
        }
        assert!(matches!(ledger.answer(Some(before)), WatchAnswer::Everything(_)));
        let after = token(&ledger.answer(None));
        ledger.note(&path("x"), false);
        assert_eq!(named(ledger.answer(Some(after))), [("x".to_string(), false)]);
    }

    #[test]
    fn more_than_one_answer_holds_means_everything() {
        let mut ledger = Ledger::new([1; 16]);
        let before = token(&ledger.answer(None));
        for number in 0..=MAX_ANSWER_DIRS {
            ledger.note(&path(&format!("d{number}")), false);
        }
        assert!(matches!(ledger.answer(Some(before)), WatchAnswer::Everything(_)));
    }
}
