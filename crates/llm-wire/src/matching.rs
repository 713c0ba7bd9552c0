//! Finds the recorded answer to a request: by what it asks, after removing everything that legitimately differs between
//! two runs, and not by its position in the order.
//!
//! A request consists of its conversation, its model, whether it wants a stream, and the rest: instructions, tools,
//! settings. The first three must be equal. The rest may differ, because agents put the state of the machine into their
//! instructions; but an exchange whose rest is equal too is preferred.

mod background;
mod differences;
mod normalize;
mod text_normalizer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::{Exchange, ModelRequest, Wire};

use normalize::RequestFingerprint;
use text_normalizer::Directories;

/// The directories that differ between two runs.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Directories of the recorded run, each with its placeholder: the workspace, the home, the temporary directory.
    pub recorded: Vec<(PathBuf, &'static str)>,
    /// The same for the present run.
    pub present: Vec<(PathBuf, &'static str)>,
}

/// Removes from texts what differs between any two runs: directories, ids, times.
#[derive(Debug)]
pub struct TextNormalizer(Directories);

impl TextNormalizer {
    /// Creates a normalizer for runs in these directories, which are all treated as the same.
    pub fn new<'a>(directories: impl Iterator<Item = &'a Path>) -> Self {
        let places: Vec<(PathBuf, &'static str)> =
            directories.map(|path| (path.to_path_buf(), "{directory}")).collect();
        Self(Directories::new(places.iter()))
    }

    /// Returns a value with all its texts normalized.
    pub fn value(&self, value: &serde_json::Value) -> serde_json::Value {
        normalize::map_texts(value, &mut |text| text_normalizer::normalize_text(text, &self.0))
    }
}

/// A difference between the request and the nearest recorded one.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct RequestDifference {
    /// The position, as a JSON path: `messages[4].content[0].text`.
    pub path: String,
    /// The recorded text; `None` if there was nothing.
    pub recorded: Option<String>,
    /// The present text; `None` if there is nothing.
    pub present: Option<String>,
}

/// The result of looking up a request in a recording.
#[derive(Clone, PartialEq, Debug)]
pub enum MatchResult {
    /// The index of the exchange that answers it.
    Same(usize),
    /// It is a background request (a title, a router, a quota check); holds the nearest recorded one, if any.
    Background(Option<usize>),
    /// No recorded request is equal. Holds the nearest exchange, and where the two diverge.
    Different {
        /// The index of the nearest one; `None` if there is none of the same wire.
        nearest: Option<usize>,
        /// The first differences, the earliest in the conversation first.
        differences: Vec<RequestDifference>,
    },
}

/// The recorded exchanges of one session, ready for lookups.
#[derive(Debug)]
pub struct Recording {
    exchanges: Vec<Exchange>,
    indexed: Vec<IndexedRequest>,
    recorded: Directories,
    present: Directories,
    /// A cache of hashes of what was already normalized. An agent sends the whole conversation with every request.
    hash_cache: HashMap<u64, u64>,
}

/// What a lookup needs of a recorded exchange.
#[derive(Debug)]
struct IndexedRequest {
    fingerprint: RequestFingerprint,
    is_background: bool,
    used: bool,
}

impl Recording {
    /// Creates a recording from exchanges, in the order they happened.
    pub fn new(exchanges: Vec<Exchange>, places: Places) -> Self {
        let recorded = Directories::new(places.recorded.iter());
        // Recorded answers name directories of the recorded run, and the agent sends them back.
        let present = Directories::new(places.present.iter().chain(&places.recorded));
        let mut hash_cache = HashMap::new();
        let outlines: Vec<RequestFingerprint> = exchanges
            .iter()
            .map(|exchange| RequestFingerprint::from_request(&exchange.request, &recorded, &mut hash_cache))
            .collect();
        let tools =
            Wire::ALL.map(|wire| outlines.iter().any(|indexed| indexed.wire == Some(wire) && indexed.tools));
        let background = |(exchange, outline): (&Exchange, &RequestFingerprint)| {
            let others =
                Wire::ALL.iter().zip(tools).any(|(wire, tools)| outline.wire == Some(*wire) && tools);
            background::is_background(&exchange.request, outline, others)
        };
        let kinds: Vec<bool> = exchanges.iter().zip(&outlines).map(background).collect();
        let indexed = outlines
            .into_iter()
            .zip(kinds)
            .map(|(outline, background)| IndexedRequest {
                fingerprint: outline,
                is_background: background,
                used: false,
            })
            .collect();
        Self { exchanges, indexed, recorded, present, hash_cache: HashMap::new() }
    }

    /// Returns the exchanges.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Returns how many exchanges were used as an answer at least once.
    pub fn given(&self) -> usize {
        self.indexed.iter().filter(|indexed| indexed.used).count()
    }

    /// Marks an exchange as used, although it is not an exact match: the next time, an equally near one is preferred.
    pub fn give(&mut self, index: usize) {
        if let Some(indexed) = self.indexed.get_mut(index) {
            indexed.used = true;
        }
    }

    /// Looks up the answer to a request. Of several matches, the first unused one is returned; if all were used, the last
    /// one again (an agent that retries sends the same request twice).
    pub fn find(&mut self, request: &ModelRequest) -> MatchResult {
        let fingerprint = RequestFingerprint::from_request(request, &self.present, &mut self.hash_cache);
        let asks_the_same = |indexed: &IndexedRequest| indexed.fingerprint.asks_the_same(&fingerprint);
        let exactly =
            |indexed: &IndexedRequest| asks_the_same(indexed) && indexed.fingerprint.rest == fingerprint.rest;
        if let Some(index) = self.find_first_match(exactly).or_else(|| self.find_first_match(asks_the_same)) {
            self.indexed[index].used = true;
            return MatchResult::Same(index);
        }
        let others = self
            .indexed
            .iter()
            .any(|indexed| indexed.fingerprint.wire == fingerprint.wire && indexed.fingerprint.tools);
        if background::is_background(request, &fingerprint, others) {
            let nearest = self.find_nearest(&fingerprint, |indexed| {
                indexed.is_background && indexed.fingerprint.method_and_path == fingerprint.method_and_path
            });
            if let Some(index) = nearest {
                self.indexed[index].used = true;
            }
            return MatchResult::Background(nearest);
        }
        let nearest = self
            .find_nearest(&fingerprint, |indexed| !indexed.is_background)
            .or_else(|| self.find_nearest(&fingerprint, |_| true));
        let differences = nearest.map_or_else(Vec::new, |index| {
            let recorded = (&self.exchanges[index].request, &self.recorded);
            let common = self.indexed[index].fingerprint.in_common(&fingerprint);
            differences::between(recorded, (request, &self.present), common)
        });
        MatchResult::Different { nearest, differences }
    }

    /// Returns the first match that was not used, otherwise the last match.
    fn find_first_match(&self, fits: impl Fn(&IndexedRequest) -> bool) -> Option<usize> {
        let new = self.indexed.iter().position(|indexed| !indexed.used && fits(indexed));
        new.or_else(|| self.indexed.iter().rposition(fits))
    }

    /// Returns the one with the longest common beginning of the conversation; of equals the first unused one, then the
    /// first.
    fn find_nearest(
        &self,
        fingerprint: &RequestFingerprint,
        among: impl Fn(&IndexedRequest) -> bool,
    ) -> Option<usize> {
        let fitting = self
            .indexed
            .iter()
            .enumerate()
            .filter(|(_, indexed)| indexed.fingerprint.wire == fingerprint.wire && among(indexed));
        let by_nearness = fitting.map(|(at, indexed)| {
            let common = indexed.fingerprint.in_common(fingerprint);
            (std::cmp::Reverse(common), indexed.used, at)
        });
        by_nearness.min().map(|(.., at)| at)
    }
}
