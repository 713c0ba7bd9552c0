//! The inverted index as bytes: encoding, merging and matching of postings, independent of a database.
//!
//! Steps are indexed in blocks. A block has one row per word, with the word's places in all steps of the block: for each
//! step its position, how many words it has, how often it has this one, and where. Numbers are stored as differences, in
//! varints of seven bits per byte.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use stepback_model::search::{Texts, words};
use stepback_store::StoreError;

/// The words of a block with their places.
#[derive(Default)]
pub(crate) struct Block {
    words: BTreeMap<String, WordPostings>,
    /// The number of steps in the block.
    pub documents: usize,
}

#[derive(Default)]
struct WordPostings {
    last: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// Adds the texts of a step; steps must be added in order of their positions. Returns how many words the texts have.
    pub fn add(&mut self, position: u64, texts: &Texts) -> u64 {
        let mut positions_by_word: HashMap<Cow<'_, str>, Vec<u64>> = HashMap::new();
        let (mut word_position, mut length) = (0u64, 0u64);
        for text in texts.values() {
            for word in words(text) {
                positions_by_word.entry(word.text).or_default().push(word_position);
                word_position += 1;
                length += 1;
            }
            // Leave a gap, so that no phrase extends from one field to the next.
            word_position += 1;
        }
        for (word, places) in positions_by_word {
            let WordPostings { last, bytes } = self.words.entry(word.into_owned()).or_default();
            write(bytes, position - *last);
            *last = position;
            write(bytes, length);
            write(bytes, places.len() as u64);
            let mut previous = 0;
            for word_position in places {
                write(bytes, word_position - previous);
                previous = word_position;
            }
        }
        self.documents += 1;
        length
    }

    /// The words of the block in order, with the bytes of their rows.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.words.iter().map(|(word, places)| (word.as_str(), places.bytes.as_slice()))
    }
}

fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if *first < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A row of the index.
pub(crate) struct IndexRow<'r> {
    pub block: i64,
    pub places: &'r [u8],
}

/// Block and position of entries that are out of date, because the step was indexed again in another block.
pub(crate) type Stale = HashSet<(i64, u64)>;

/// A step that contains a phrase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PhraseHit {
    pub position: u64,
    /// The number of words in the step.
    pub length: u64,
    /// How often the step contains the phrase.
    pub count: u64,
}

fn damaged_row() -> StoreError {
    StoreError::Corrupt { what: "the index: a row of places cannot be read".into() }
}

/// Calls `visit` for each step of an index row, with the bytes of its places.
fn visit_steps<'r>(
    row: &IndexRow<'r>,
    stale: &Stale,
    mut visit: impl FnMut(PhraseHit, &'r [u8]),
) -> Result<(), StoreError> {
    let (mut bytes, mut position) = (row.places, 0u64);
    while !bytes.is_empty() {
        let mut next = || read(&mut bytes).ok_or_else(damaged_row);
        position = position.checked_add(next()?).ok_or_else(damaged_row)?;
        let (length, count) = (next()?, next()?);
        let places = bytes;
        for _ in 0..count {
            let end = bytes.iter().position(|byte| *byte < 0x80).ok_or_else(damaged_row)?;
            bytes = &bytes[end + 1..];
        }
        if stale.is_empty() || !stale.contains(&(row.block, position)) {
            visit(PhraseHit { position, length, count }, &places[..places.len() - bytes.len()]);
        }
    }
    Ok(())
}

fn decode(mut places: &[u8]) -> impl Iterator<Item = u64> {
    let mut last = 0;
    std::iter::from_fn(move || {
        last += read(&mut places)?;
        Some(last)
    })
}

/// Finds the steps that contain consecutive words, row by row: first the rows of all words that may stand at the first
/// place, then those for the second place, and so on. Rows are not kept, only the candidates they leave.
#[derive(Default)]
pub(crate) struct PhraseMatcher {
    /// For each step that has the words of the places before: where they end. `None` at the first place.
    previous_ends: Option<HashMap<u64, HashSet<u64>>>,
    /// For each step that has a word for the current place: its length, and the places.
    current: HashMap<u64, (u64, Vec<u64>)>,
}

impl PhraseMatcher {
    /// Continues with the next place of the phrase.
    pub fn next_place(&mut self) {
        let current = std::mem::take(&mut self.current);
        let ends = current.into_iter().map(|(position, (_, ends))| (position, ends.into_iter().collect()));
        self.previous_ends = Some(ends.collect());
    }

    /// Adds a row of a word that may stand at the current place.
    pub fn add(&mut self, row: &IndexRow<'_>, stale: &Stale) -> Result<(), StoreError> {
        let Self { previous_ends, current } = self;
        visit_steps(row, stale, |hit, places| {
            let ends_in_step = match previous_ends {
                None => None,
                Some(ends_by_step) => match ends_by_step.get(&hit.position) {
                    Some(ends) => Some(ends),
                    None => return,
                },
            };
            let follows = |place: &u64| {
                ends_in_step.is_none_or(|ends| place.checked_sub(1).is_some_and(|end| ends.contains(&end)))
            };
            let mut places = decode(places).filter(follows).peekable();
            if places.peek().is_some() {
                current.entry(hit.position).or_insert((hit.length, Vec::new())).1.extend(places);
            }
        })
    }

    /// The steps that contain the whole phrase, in order.
    pub fn finish(self) -> Vec<PhraseHit> {
        let hit = |(position, (length, ends)): (u64, (u64, Vec<u64>))| PhraseHit {
            position,
            length,
            count: ends.len() as u64,
        };
        let mut hits: Vec<PhraseHit> = self.current.into_iter().map(hit).collect();
        hits.sort_unstable_by_key(|hit| hit.position);
        hits
    }
}

/// Finds the steps that contain any of some words, row by row.
#[derive(Default)]
pub(crate) struct AnyOf {
    all: Vec<PhraseHit>,
}

impl AnyOf {
    /// Adds a row of one of the words.
    pub fn add(&mut self, row: &IndexRow<'_>, stale: &Stale) -> Result<(), StoreError> {
        visit_steps(row, stale, |hit, _| self.all.push(hit))
    }

    /// The steps, in order.
    pub fn finish(mut self) -> Vec<PhraseHit> {
        self.all.sort_by_key(|hit: &PhraseHit| hit.position);
        self.all.dedup_by(|later, earlier| {
            let is_same_step = later.position == earlier.position;
            if is_same_step {
                earlier.count += later.count;
            }
            is_same_step
        });
        self.all
    }
}

/// The hit at a position.
pub(crate) fn hit_at(list: &[PhraseHit], position: u64) -> Option<&PhraseHit> {
    list.binary_search_by_key(&position, |hit| hit.position).ok().map(|index| &list[index])
}

#[cfg(test)]
mod tests {
    use stepback_model::search::TextField;

    use super::*;

    fn texts(input: &str, output: &str) -> Texts {
        Texts::from([(TextField::Input, input.to_string()), (TextField::Output, output.to_string())])
    }

    #[test]
    fn what_is_put_in_is_found() {
        let mut block = Block::default();
        assert_eq!(block.add(7, &texts("red green red", "green blue")), 5);
        assert_eq!(block.add(300, &texts("blue", "red")), 2);
        let rows: HashMap<&str, &[u8]> = block.rows().collect();
        let row = |word: &str| IndexRow { block: 1, places: rows[word] };
        let none = Stale::new();
        let counts = |found: Vec<PhraseHit>| -> Vec<(u64, u64, u64)> {
            found.iter().map(|hit| (hit.position, hit.length, hit.count)).collect()
        };
        let any = |words: &[&str], stale: &Stale| {
            let mut any = AnyOf::default();
            words.iter().for_each(|word| any.add(&row(word), stale).unwrap());
            counts(any.finish())
        };
        assert_eq!(any(&["red"], &none), [(7, 5, 2), (300, 2, 1)]);
        assert_eq!(any(&["red", "blue"], &none), [(7, 5, 3), (300, 2, 2)]);
        assert_eq!(any(&["red"], &Stale::from([(1, 7)])), [(300, 2, 1)]);
        let phrase = |places: &[&[&str]]| {
            let mut phrase = PhraseMatcher::default();
            for (index, words) in places.iter().enumerate() {
                if index > 0 {
                    phrase.next_place();
                }
                words.iter().for_each(|word| phrase.add(&row(word), &none).unwrap());
            }
            counts(phrase.finish())
        };
        assert_eq!(phrase(&[&["red"], &["green"]]), [(7, 5, 1)]);
        assert_eq!(phrase(&[&["green"], &["red", "blue"]]), [(7, 5, 2)]);
        assert_eq!(phrase(&[&["red"], &["green"], &["blue"]]), [], "a phrase goes over two fields");
        assert_eq!(phrase(&[&["blue"], &["red"]]), [], "a phrase goes over two fields");
        for end in 1..rows["red"].len() {
            let cut = IndexRow { block: 1, places: &rows["red"][..end] };
            let read = AnyOf::default().add(&cut, &none);
            assert!(read.is_err() || end == rows["red"].len() - 5, "{end}");
        }
    }
}
