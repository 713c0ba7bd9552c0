//! Words of texts, and the longest runs of words that two texts share.
//!
//! A word is a run of letters and digits; case is ignored, and so is everything between words. In scripts without spaces each
//! character is a word. The words of the change are put into a suffix automaton once; each text of the context then runs
//! through it in time proportional to its length, however repetitive either is.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem;

use super::automaton::{Automaton, Walk};

/// The most words of a change that are looked for.
pub(crate) const MAX_QUERY_WORDS: usize = 20_000;
/// The most characters of a word: longer ones (a base64 text) are split.
const MAX_WORD_CHARS: usize = 200;

/// A word of the change, by its number in [`Query`]; equal words have equal numbers.
pub(crate) type WordId = u32;

/// A word in a text: its bytes, and the word of the change that it is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TextWord {
    range: Range<usize>,
    word: Option<WordId>,
}

/// Common words of English and of programs. They are no evidence by themselves.
static COMMON: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("common_words.txt").split_whitespace().collect());

/// The words of a change, ready to be looked for.
pub(crate) struct Query {
    text: String,
    words: Vec<TextWord>,
    /// Each different word: its number.
    ids: HashMap<String, WordId>,
    /// Whether each different word is decisive.
    decisive: Vec<bool>,
    automaton: Automaton,
    /// Which ends and lengths the decisive words have: most words of a text are none of them.
    shapes: ShapeFilter,
    /// Whether words were left out because there are too many.
    pub truncated: bool,
}

/// A run of words that a text shares with the change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Run {
    /// Its bytes in the text.
    pub text: Range<usize>,
    /// Its bytes in the change.
    pub change: Range<usize>,
    /// Its words in the change, as indexes.
    words: Range<usize>,
    /// The sum of the weights of its different decisive words.
    pub weight: f64,
}

impl Run {
    /// The number of its words.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }
}

impl Query {
    /// Reads the words of a change. Words of `old`, which the file had before, are not decisive, unless no other is.
    pub(crate) fn new(text: &str, old: &str) -> Self {
        let mut ids: HashMap<String, WordId> = HashMap::new();
        let mut words = Vec::new();
        let mut truncated = false;
        let mut last_end = 0;
        for_each_word(text, &mut |range, folded| {
            if words.len() >= MAX_QUERY_WORDS {
                truncated = true;
                return false;
            }
            let next = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            let id = match ids.get(folded) {
                Some(id) => *id,
                None => {
                    ids.insert(folded.to_owned(), next);
                    next
                }
            };
            last_end = range.end;
            words.push(TextWord { range, word: Some(id) });
            true
        });
        let mut is_old = vec![false; ids.len()];
        for_each_word(old, &mut |_, folded| {
            if let Some(id) = ids.get(folded) {
                is_old[*id as usize] = true;
            }
            true
        });
        let mut decisive = vec![false; ids.len()];
        for (word, id) in &ids {
            decisive[*id as usize] = is_decisive(word) && !is_old[*id as usize];
        }
        if !decisive.contains(&true) {
            for (word, id) in &ids {
                decisive[*id as usize] = is_decisive(word);
            }
        }
        let automaton = Automaton::new(words.iter().filter_map(|word| word.word));
        let mut shapes = ShapeFilter::default();
        ids.iter().filter(|(_, id)| decisive[**id as usize]).for_each(|(word, _)| shapes.add(word));
        Self { text: text[..last_end].to_owned(), words, ids, decisive, automaton, shapes, truncated }
    }

    /// The number of different words.
    pub(crate) fn word_count(&self) -> usize {
        self.decisive.len()
    }

    /// The number of different decisive words.
    pub(crate) fn decisive_count(&self) -> usize {
        self.decisive.iter().filter(|decisive| **decisive).count()
    }

    /// The decisive words, by number, in the order in which they stand in the change first.
    pub(crate) fn decisive_words(&self) -> Vec<(WordId, &str)> {
        let mut seen = vec![false; self.decisive.len()];
        let mut found = Vec::new();
        for word in &self.words {
            let Some(id) = word.word else { continue };
            if self.decisive[id as usize] && !std::mem::replace(&mut seen[id as usize], true) {
                found.push((id, &self.text[word.range.clone()]));
            }
        }
        found
    }

    /// A part of the change.
    pub(crate) fn slice(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// The different decisive words that a text has.
    pub(crate) fn decisive_in(&self, text: &str) -> Vec<WordId> {
        let mut found = WordSet::new(self.decisive.len());
        self.scan(text, &mut found);
        found.into_list()
    }

    /// Like [`Self::decisive_in`], for a text inside a JSON document whose strings are not decoded yet.
    pub(crate) fn decisive_in_json(&self, json: &str) -> Vec<WordId> {
        let mut found = WordSet::new(self.decisive.len());
        // What an escape stands for is seldom a letter; where it may be, the line is decoded.
        if memmem::find(json.as_bytes(), b"\\u").is_some()
            && let Ok(value) = serde_json::from_str::<serde_json::Value>(json)
        {
            for_each_string(&value, &mut |text| self.scan(text, &mut found));
            return found.into_list();
        }
        for piece in split_escapes(json) {
            self.scan(piece, &mut found);
        }
        found.into_list()
    }

    /// Adds the decisive words of a text. This is what every text of a context goes through.
    fn scan(&self, text: &str, found: &mut WordSet) {
        if !text.is_ascii() {
            for_each_word(text, &mut |_, folded| {
                self.add_decisive(folded, found);
                true
            });
            return;
        }
        let mut folded = String::new();
        for word in text.as_bytes().split(|byte| !byte.is_ascii_alphanumeric()) {
            for part in word.chunks(MAX_WORD_CHARS) {
                if self.shapes.may_have(part) {
                    folded.clear();
                    folded.extend(part.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                    self.add_decisive(&folded, found);
                }
            }
        }
    }

    fn add_decisive(&self, folded: &str, found: &mut WordSet) {
        if let Some(id) = self.ids.get(folded)
            && self.decisive[*id as usize]
        {
            found.insert(*id);
        }
    }

    /// The runs that a text shares with the change and that are evidence, the heaviest first; at most `most`, none of which
    /// repeats another's words.
    pub(crate) fn shared_runs(&self, text: &str, weights: &Weights, most: usize) -> Vec<Run> {
        let mut candidates = self.maximal_runs(text, weights);
        candidates.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| b.len().cmp(&a.len())));
        let mut taken = vec![false; self.decisive.len()];
        let mut runs: Vec<Run> = Vec::new();
        for mut run in candidates {
            if runs.len() >= most {
                break;
            }
            // Only words that no heavier run has count again.
            let new: Vec<WordId> =
                self.distinct_decisive(&run.words).into_iter().filter(|id| !taken[*id as usize]).collect();
            run.weight = new.iter().map(|id| weights.of(*id)).sum();
            if self.is_evidence(&run, &new, weights) {
                new.iter().for_each(|id| taken[*id as usize] = true);
                runs.push(run);
            }
        }
        runs.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        runs
    }

    /// The decisive words of some runs, each once.
    pub(crate) fn words_of_runs(&self, runs: &[Run]) -> Vec<WordId> {
        let mut found = WordSet::new(self.decisive.len());
        for run in runs {
            self.distinct_decisive(&run.words).into_iter().for_each(|id| found.insert(id));
        }
        found.into_list()
    }

    /// Runs that cannot be made longer, with the sums of their weights. Of those that end at the same word of the change, the
    /// longest.
    fn maximal_runs(&self, text: &str, weights: &Weights) -> Vec<Run> {
        let mut read: Vec<TextWord> = Vec::new();
        let mut best: HashMap<usize, Run> = HashMap::new();
        let mut walk = Walk::default();
        // The sums of weights from the first word of the change on, to see quickly what a run can weigh at most.
        let sums: Vec<f64> = std::iter::once(0.0)
            .chain(self.words.iter().scan(0.0, |sum, word| {
                *sum += word.word.map_or(0.0, |id| weights.of(id));
                Some(*sum)
            }))
            .collect();
        let mut close = |walk: &Walk, read: &[TextWord]| {
            let Some(end) = self.automaton.end_of(walk) else { return };
            let words = end + 1 - walk.length..end + 1;
            let weight = sums[words.end] - sums[words.start];
            if weight < MIN_WORD_WEIGHT {
                return;
            }
            let (Some(first), Some(last)) = (read.len().checked_sub(walk.length), read.last()) else {
                return;
            };
            let run = Run {
                text: read[first].range.start..last.range.end,
                change: self.words[words.start].range.start..self.words[end].range.end,
                words,
                weight,
            };
            match best.get(&end) {
                Some(known) if known.len() >= run.len() => {}
                _ => {
                    best.insert(end, run);
                }
            }
        };
        for_each_word(text, &mut |range, folded| {
            let word = self.ids.get(folded).copied();
            let before = walk;
            self.automaton.advance(&mut walk, word);
            if walk.length <= before.length && before.length > 0 {
                close(&before, &read);
            }
            if walk.length == 0 {
                read.clear();
            } else {
                read.push(TextWord { range, word });
                // No run is longer than the change.
                if read.len() > 2 * self.words.len() + 16 {
                    read.drain(..read.len() - self.words.len());
                }
            }
            true
        });
        close(&walk, &read);
        let mut runs: Vec<Run> = best.into_values().collect();
        for run in &mut runs {
            run.weight = self.distinct_decisive(&run.words).into_iter().map(|id| weights.of(id)).sum();
        }
        // A map has no order, and the answer must not depend on chance.
        runs.sort_by_key(|run| (run.words.start, run.words.end));
        runs
    }

    fn distinct_decisive(&self, words: &Range<usize>) -> Vec<WordId> {
        let mut found: Vec<WordId> = self.words[words.clone()].iter().filter_map(|word| word.word).collect();
        found.retain(|id| self.decisive[*id as usize]);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether a run whose new decisive words are these is evidence: several of them with enough weight, or one that is
    /// distinctive and rare.
    fn is_evidence(&self, run: &Run, new: &[WordId], weights: &Weights) -> bool {
        match new {
            [] => false,
            [one] => {
                let word = self.words[run.words.clone()].iter().find(|word| word.word == Some(*one));
                let text = word.map_or("", |word| &self.text[word.range.clone()]);
                is_distinctive(text) && weights.is_rare(*one) && run.weight >= MIN_WORD_WEIGHT
            }
            _ => run.weight >= MIN_RUN_WEIGHT,
        }
    }
}

/// The least weight of a run of several decisive words.
const MIN_RUN_WEIGHT: f64 = 1.0;
/// The least weight of a run with one decisive word.
const MIN_WORD_WEIGHT: f64 = 0.4;

/// How much each word of a change weighs: rare and long words weigh more.
pub(crate) struct Weights {
    weights: Vec<f64>,
    is_rare: Vec<bool>,
}

impl Weights {
    /// Computes them from the number of texts, and the number of texts that have each word.
    pub(crate) fn new(query: &Query, texts: usize, having: &[u32]) -> Self {
        /// With few texts, how many have a word says little.
        const LEAST_TEXTS: usize = 16;
        let all = texts.max(LEAST_TEXTS) as f64;
        let mut weights = vec![0.0; query.decisive.len()];
        let mut is_rare = vec![false; query.decisive.len()];
        for (word, id) in &query.ids {
            let index = *id as usize;
            if !query.decisive[index] {
                continue;
            }
            let count = f64::from(having.get(index).copied().unwrap_or(0));
            let rarity = (1.0 - (1.0 + count).ln() / (2.0 + all).ln()).max(0.02);
            let form = (word.chars().count() as f64 / 6.0).clamp(0.5, 2.0);
            weights[index] = rarity * form;
            is_rare[index] = count <= (all / 10.0).max(3.0);
        }
        Self { weights, is_rare }
    }

    pub(crate) fn of(&self, word: WordId) -> f64 {
        self.weights.get(word as usize).copied().unwrap_or_default()
    }

    fn is_rare(&self, word: WordId) -> bool {
        self.is_rare.get(word as usize).copied().unwrap_or_default()
    }
}

/// Which first and last bytes and lengths some words have.
struct ShapeFilter {
    has: Vec<bool>,
}

impl Default for ShapeFilter {
    fn default() -> Self {
        Self { has: vec![false; 1 << 15] }
    }
}

impl ShapeFilter {
    fn add(&mut self, word: &str) {
        if let Some(shape) = Self::shape(word.as_bytes()) {
            self.has[shape] = true;
        }
    }

    fn may_have(&self, word: &[u8]) -> bool {
        Self::shape(word).is_some_and(|shape| self.has[shape])
    }

    /// Five bits of the first byte, five of the last, and the length up to 31; the same for capitals and small letters.
    fn shape(word: &[u8]) -> Option<usize> {
        let (first, last) = (*word.first()?, *word.last()?);
        Some((usize::from(first & 31) << 10) | (usize::from(last & 31) << 5) | word.len().min(31))
    }
}

/// A set of words.
struct WordSet {
    has: Vec<bool>,
    list: Vec<WordId>,
}

impl WordSet {
    fn new(words: usize) -> Self {
        Self { has: vec![false; words], list: Vec::new() }
    }

    fn insert(&mut self, word: WordId) {
        if let Some(has) = self.has.get_mut(word as usize)
            && !std::mem::replace(has, true)
        {
            self.list.push(word);
        }
    }

    fn into_list(self) -> Vec<WordId> {
        self.list
    }
}

/// Whether a word can decide: it is not common, and more than one character or two digits.
fn is_decisive(word: &str) -> bool {
    let chars = word.chars().count();
    let is_wide = word.chars().next().is_some_and(stands_alone);
    let is_small_number = chars <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
    (chars > 1 || is_wide) && !is_small_number && !COMMON.contains(word)
}

/// Whether a single word is evidence if it is rare: a long one, a number of four digits, or letters with digits.
fn is_distinctive(word: &str) -> bool {
    let chars = word.chars().count();
    let has_digit = word.chars().any(|c| c.is_ascii_digit());
    let has_letter = word.chars().any(char::is_alphabetic);
    chars >= 8 || (has_digit && chars >= 4) || (has_digit && has_letter && chars >= 3)
}

/// Whether a character of a script without spaces is a word by itself.
fn stands_alone(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3fffd}' | '\u{e00}'..='\u{e7f}')
}

/// Calls `each` with every word of a text and its lower-case form, until that returns `false`.
fn for_each_word(text: &str, each: &mut dyn FnMut(Range<usize>, &str) -> bool) {
    let mut folded = String::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        // Most text is ASCII, and this is the loop that everything runs through.
        if bytes[at].is_ascii() && !bytes[at].is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        folded.clear();
        let start = at;
        let mut count = 0;
        while count < MAX_WORD_CHARS && at < bytes.len() {
            let byte = bytes[at];
            if byte.is_ascii() {
                if !byte.is_ascii_alphanumeric() {
                    break;
                }
                folded.push(char::from(byte.to_ascii_lowercase()));
                at += 1;
            } else {
                let Some(c) = text[at..].chars().next() else { break };
                if !c.is_alphanumeric() || (stands_alone(c) && count > 0) {
                    break;
                }
                folded.extend(c.to_lowercase());
                at += c.len_utf8();
                if stands_alone(c) {
                    break;
                }
            }
            count += 1;
        }
        if at == start {
            // A character that is no letter.
            at += text[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        if !each(start..at, &folded) {
            return;
        }
    }
}

/// The pieces of a JSON text between its escapes.
fn split_escapes(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(json);
    std::iter::from_fn(move || {
        let text = rest?;
        match memchr::memchr(b'\\', text.as_bytes()) {
            Some(at) => {
                // The escaped character is ASCII in valid JSON; other bytes are left alone.
                let skip = text[at + 1..].chars().next().map_or(0, char::len_utf8);
                rest = Some(&text[at + 1 + skip..]);
                Some(&text[..at])
            }
            None => {
                rest = None;
                Some(text)
            }
        }
    })
}

/// Calls `each` with every string of a value that is not a name.
pub(crate) fn for_each_string(value: &serde_json::Value, each: &mut dyn FnMut(&str)) {
    match value {
        serde_json::Value::String(text) => each(text),
        serde_json::Value::Array(items) => items.iter().for_each(|item| for_each_string(item, each)),
        serde_json::Value::Object(fields) => fields.values().for_each(|field| for_each_string(field, each)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
