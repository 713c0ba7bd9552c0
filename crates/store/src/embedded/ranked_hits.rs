//! Evaluates searches on the index: which steps match, in which order, and how many there are at least.
//!
//! A word that half of a million steps contain must not cost more than one that three of them contain. So only as many of
//! the newest matches are ranked as a user would page through, no more than [`COUNTED`] are counted, and conditions on
//! steps are first tried on the newest matches alone; on all matches only if these are not enough.

use std::collections::HashSet;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params_from_iter};
use stepback_model::search::{Pattern, Phrase, Texts, fold};

use super::find::{self, Conditions, Size};
use super::index::Index;
use super::log;
use crate::error::StoreError;
use crate::port::{COUNTED, SearchRequest, SortKey, StepQuery};
use crate::rank::{Ranking, take_apart, weight};
use crate::search::unpack;

/// Number of the newest matches that are ranked; older ones follow in order of time.
const MAX_RANKED_MATCHES: u64 = 500;
/// Number of the newest matches that are tried against conditions before all of them are.
const MAX_FILTERED_MATCHES: u64 = 10_000;
/// Number of texts verified to contain a substring after which counting stops.
const MAX_VERIFIED_TEXTS: u64 = 1000;

/// The positions of matching steps with scores, in order.
#[derive(Default)]
pub(super) struct RankedMatches {
    /// The steps to show.
    pub shown: Vec<(i64, f64)>,
    /// The number of matches.
    pub total: u64,
    /// Whether `total` is only a lower bound.
    pub at_least: bool,
    /// Whether there are more after those to show.
    pub more: bool,
}

fn integer_value(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Index {
    /// Finds the steps that contain words.
    pub(super) fn find_words(
        &self,
        search: &SearchRequest,
        with: &[Phrase],
        without: &[Phrase],
    ) -> Result<RankedMatches, StoreError> {
        let matching = WordMatches::new(self, search, fts_expression(with, without))?;
        let usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let end = search.skip.saturating_add(search.limit);
        let enough = end.saturating_add(1);
        let newest = search.ranked || (search.among.by == SortKey::Commit && !search.among.oldest_first);
        let (found, is_all) = match (newest, search.ranked) {
            (true, true) => matching.newest_matches(enough, MAX_RANKED_MATCHES.max(enough))?,
            (true, false) => matching.newest_matches(enough, enough)?,
            (false, _) => matching.ordered_matches(&find::order_by(None, &search.among), enough)?,
        };
        let (total, at_least) = match is_all {
            true => (found.len() as u64, false),
            false => matching.count_matches(found.len() as u64)?,
        };
        // The best of the newest matches come first; pages beyond them are not ranked.
        let ranked = if search.ranked { found.len().min(usize(MAX_RANKED_MATCHES)) } else { 0 };
        let mut places = self.rank_matches(&found[..ranked], with, without)?;
        places.extend(found[ranked..].iter().map(|at| (*at, 0.0)));
        let more = places.len() as u64 > end && search.limit > 0;
        let shown = places.into_iter().skip(usize(search.skip)).take(usize(search.limit)).collect();
        Ok(RankedMatches { shown, total, at_least, more })
    }

    /// Sorts the best match first; ties keep their order.
    fn rank_matches(
        &self,
        found: &[i64],
        with: &[Phrase],
        without: &[Phrase],
    ) -> Result<Vec<(i64, f64)>, StoreError> {
        let (documents, words): (i64, i64) =
            (self.db.prepare_cached("SELECT documents, words FROM state")?)
                .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let average = words as f64 / documents.max(1) as f64;
        let mut weighed = Vec::new();
        for phrase in with.iter().chain(without) {
            weighed.push((phrase, weight(documents as f64, self.count_phrase(phrase)?)));
        }
        let ranking = Ranking::new(weighed, average);
        let mut scored: Vec<(i64, f64)> = Vec::with_capacity(found.len());
        for position in found {
            let texts = self.read_texts(*position)?;
            scored.extend(texts.map(|texts| (*position, ranking.score(&take_apart(&texts)))));
        }
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(scored)
    }

    /// The number of steps that contain a phrase, up to the counting limit.
    fn count_phrase(&self, phrase: &Phrase) -> Result<f64, StoreError> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ?1 LIMIT ?2)";
        let wanted = fts_expression(std::slice::from_ref(phrase), &[]);
        let count: i64 = (self.db.prepare_cached(sql)?)
            .query_row(rusqlite::params![wanted, COUNTED as i64], |row| row.get(0))?;
        Ok(count as f64)
    }

    /// The texts of a step.
    pub(super) fn read_texts(&self, position: i64) -> Result<Option<Texts>, StoreError> {
        let mut statement = self.db.prepare_cached("SELECT raw_len, text FROM texts WHERE position = ?1")?;
        let row = statement
            .query_row([position], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
            .optional()?;
        row.map(|(raw_len, text)| unpack(raw_len, &text)).transpose()
    }

    /// Finds the steps that contain a substring. Candidates come from its trigrams, or are all steps if it is too short to
    /// have one; every candidate's text is read.
    pub(super) fn find_substring(
        &self,
        search: &SearchRequest,
        wanted: &str,
    ) -> Result<RankedMatches, StoreError> {
        let among = match search.ranked {
            true => StepQuery { by: SortKey::Commit, oldest_first: false, ..search.among.clone() },
            false => search.among.clone(),
        };
        let conditions = Conditions::of(search.workspace, &among, "log.sessions", Size::Many);
        let Conditions { sql, mut values } =
            conditions.leave_out_forgotten(&self.db, search.workspace, "log.workspaces")?;
        let order = find::order_by(None, &among);
        let by_position = among.by == SortKey::Commit && !among.oldest_first;
        let join = if sql.is_empty() && by_position {
            ""
        } else {
            " CROSS JOIN log.steps s ON s.position = w.rowid"
        };
        let order = if by_position { " ORDER BY w.rowid DESC".to_string() } else { order };
        let statement = match trigram_expression(wanted) {
            Some(expression) => {
                values.insert(0, Value::Text(expression));
                format!("SELECT w.rowid FROM trigrams w{join} WHERE w.trigrams MATCH ?{sql}{order}")
            }
            None => format!("SELECT w.rowid FROM texts w{join} WHERE 1{sql}{order}"),
        };
        let mut statement = self.db.prepare_cached(&statement)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let end = search.skip.saturating_add(search.limit);
        let mut places = RankedMatches::default();
        while let Some(row) = rows.next()? {
            let position = row.get(0)?;
            let Some(texts) = self.read_texts(position)? else { continue };
            if !search.pattern.matches(&texts) {
                continue;
            }
            if places.total >= search.skip && places.total < end {
                places.shown.push((position, 0.0));
            }
            places.more = places.total >= end && search.limit > 0;
            places.total += 1;
            // Enough to show a page, and enough to say that there are many.
            if places.total > end && places.total >= MAX_VERIFIED_TEXTS {
                places.at_least = true;
                break;
            }
        }
        Ok(places)
    }
}

/// The matches of a search for words, with conditions on steps.
struct WordMatches<'i> {
    index: &'i Index,
    expression: String,
    conditions: Conditions,
    /// The range of positions that contains all possible matches.
    range: Option<(i64, i64)>,
}

impl<'i> WordMatches<'i> {
    fn new(index: &'i Index, search: &SearchRequest, expression: String) -> Result<Self, StoreError> {
        let conditions = Conditions::of(search.workspace, &search.among, "log.sessions", Size::Many)
            .leave_out_forgotten(&index.db, search.workspace, "log.workspaces")?;
        let range = match search.among.session {
            Some(session) => {
                let sql = "SELECT min(position), max(position) FROM log.steps WHERE session = ?1";
                let ends =
                    index.db.prepare_cached(sql)?.query_row([session.as_bytes().as_slice()], |row| {
                        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
                    })?;
                Some((ends.0.unwrap_or(0), ends.1.unwrap_or(-1)))
            }
            None => None,
        };
        Ok(Self { index, expression, conditions, range })
    }

    /// SQL that returns the positions of matching texts, and its parameters.
    fn texts_sql(&self) -> (String, Vec<Value>) {
        let mut values = vec![Value::Text(self.expression.clone())];
        let mut sql = "SELECT rowid FROM words WHERE words MATCH ?".to_string();
        if let Some((from, to)) = self.range {
            sql.push_str(" AND rowid BETWEEN ? AND ?");
            values.extend([Value::Integer(from), Value::Integer(to)]);
        }
        (sql, values)
    }

    /// SQL after `SELECT w.rowid`, and its parameters; `near` limits how many of the newest matches are tried.
    fn steps_sql(&self, near: Option<u64>, needs_steps: bool) -> (String, Vec<Value>) {
        let (mut texts, mut values) = self.texts_sql();
        if let Some(near) = near {
            texts.push_str(" ORDER BY rowid DESC LIMIT ?");
            values.push(integer_value(near));
        }
        let join = match needs_steps || self.is_limited() {
            true => " CROSS JOIN log.steps s ON s.position = w.rowid",
            false => "",
        };
        values.extend(self.conditions.values.iter().cloned());
        (format!(" FROM ({texts}) w{join} WHERE 1{}", self.conditions.sql), values)
    }

    fn is_limited(&self) -> bool {
        !self.conditions.sql.is_empty()
    }

    fn run(
        &self,
        near: Option<u64>,
        order: &str,
        needs_steps: bool,
        most: u64,
    ) -> Result<Vec<i64>, StoreError> {
        let (from, mut values) = self.steps_sql(near, needs_steps);
        values.push(integer_value(most));
        let sql = format!("SELECT w.rowid{from}{order} LIMIT ?");
        log::collect(&self.index.db, &sql, params_from_iter(values), |row| row.get(0))
    }

    /// Up to `most` of the newest matches, at least `enough` if there are as many, and whether these are all.
    fn newest_matches(&self, enough: u64, most: u64) -> Result<(Vec<i64>, bool), StoreError> {
        let order = " ORDER BY w.rowid DESC";
        let most = most.saturating_add(1);
        if self.is_limited() && self.has_more_than(MAX_FILTERED_MATCHES)? {
            let mut found = self.run(Some(MAX_FILTERED_MATCHES), order, true, most)?;
            if found.len() as u64 >= enough {
                found.truncate(usize::try_from(most - 1).unwrap_or(usize::MAX));
                return Ok((found, false));
            }
        }
        let mut found = self.run(None, order, false, most)?;
        let is_all = (found.len() as u64) < most;
        found.truncate(usize::try_from(most - 1).unwrap_or(usize::MAX));
        Ok((found, is_all))
    }

    /// The first `most` matches in another order, and whether these are all.
    fn ordered_matches(&self, order: &str, most: u64) -> Result<(Vec<i64>, bool), StoreError> {
        let found = self.run(None, order, true, most)?;
        let is_all = (found.len() as u64) < most;
        Ok((found, is_all))
    }

    /// The number of matches, and whether it is only a lower bound. At least `known` were seen.
    fn count_matches(&self, known: u64) -> Result<(u64, bool), StoreError> {
        let near =
            (self.is_limited() && self.has_more_than(MAX_FILTERED_MATCHES)?).then_some(MAX_FILTERED_MATCHES);
        let (from, mut values) = self.steps_sql(near, false);
        values.push(integer_value(COUNTED + 1));
        let sql = format!("SELECT count(*) FROM (SELECT 1{from} LIMIT ?)");
        let count: i64 =
            self.index.db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
        let count = (count as u64).max(known);
        match count > COUNTED {
            true => Ok((COUNTED.max(known), true)),
            false => Ok((count, near.is_some())),
        }
    }

    /// Whether the words alone match more than `many` steps.
    fn has_more_than(&self, many: u64) -> Result<bool, StoreError> {
        let (texts, mut values) = self.texts_sql();
        values.push(integer_value(many + 1));
        let sql = format!("SELECT count(*) FROM ({texts} LIMIT ?)");
        let count: i64 =
            self.index.db.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
        Ok(count as u64 > many)
    }
}

/// The search as an FTS5 expression. Words contain no punctuation but underscores, so nothing in them has a special
/// meaning.
fn fts_expression(with: &[Phrase], without: &[Phrase]) -> String {
    let quoted =
        |phrase: &Phrase| format!("\"{}\"{}", phrase.words.join(" "), if phrase.prefix { " *" } else { "" });
    let with: Vec<String> = with.iter().map(quoted).collect();
    let with = format!("({})", with.join(" AND "));
    without.iter().fold(with, |all, phrase| format!("({all} NOT {})", quoted(phrase)))
}

/// Maximum number of trigrams of a substring that are searched for; reading the texts decides the rest.
const MAX_TRIGRAMS: usize = 24;

/// The trigrams of this substring as an expression; `None` if it is too short to have one.
fn trigram_expression(wanted: &str) -> Option<String> {
    let folded: Vec<char> = fold(wanted).chars().collect();
    let mut seen = HashSet::new();
    let all: Vec<String> = folded
        .windows(3)
        .map(|three| three.iter().collect())
        .filter(|three: &String| seen.insert(three.clone()))
        .collect();
    // Trigrams spread over the whole substring are more selective than neighbours.
    let step = all.len().div_ceil(MAX_TRIGRAMS).max(1);
    let quoted: Vec<String> =
        all.iter().step_by(step).map(|three| format!("\"{}\"", three.replace('"', "\"\""))).collect();
    (!quoted.is_empty() && !wanted.contains('\0')).then(|| quoted.join(" AND "))
}

/// The steps that match a search.
pub(super) fn find_matches(index: &Index, search: &SearchRequest) -> Result<RankedMatches, StoreError> {
    match &search.pattern {
        Pattern::Words { with, without } => index.find_words(search, with, without),
        Pattern::Substring(wanted) => index.find_substring(search, wanted),
    }
}
