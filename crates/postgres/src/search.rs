//! Full-text search: which steps contain the words, how well they match, and what to show of them.
//!
//! The database returns rows of the word index; they are evaluated here, by the same rules as in every other store. So no
//! extension is needed, and no step is missed because a server splits words differently.

use std::collections::{HashMap, HashSet};
use std::pin::pin;

use futures_util::TryStreamExt;
use stepback_model::ids::WorkspaceId;
use stepback_model::search::{Pattern, Phrase};
use stepback_store::StoreError;
use stepback_store::port::{SearchHit, SearchRequest, SearchResult, SortKey, StepQuery, StepRow};
use stepback_store::search::{Ranking, unpack};
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use crate::PostgresStore;
use crate::find::{Conditions, SNAPSHOT, order_by};
use crate::pool::Connection;
use crate::postings::{self, AnyOf, PhraseHit, PhraseMatcher, Stale};
use crate::rows::{self, COLUMNS, Record, WIDTH};
use crate::trigrams::{self, Part};

/// The result of a query: an answer, or the error that something in the database is damaged.
type Answer<T> = Result<Result<T, StoreError>, Error>;

/// Returns early with the inner error if the database is damaged.
macro_rules! sound {
    ($answer:expr) => {
        match $answer {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        }
    };
}

/// Positions of steps with their scores, in display order.
type Ranked = Vec<(i64, f64)>;

impl PostgresStore {
    pub(crate) fn find_texts(&self, search: &SearchRequest) -> Result<SearchResult, StoreError> {
        self.pool.ask(async |connection| {
            // All parts of the answer see the same moment.
            connection.client.batch_execute(SNAPSHOT).await?;
            let ranked_hits = find(connection, search).await?;
            connection.client.batch_execute("COMMIT").await?;
            Ok(ranked_hits)
        })?
    }
}

async fn find(connection: &mut Connection, search: &SearchRequest) -> Answer<SearchResult> {
    let (mut ranked, total) = match &search.pattern {
        Pattern::Words { with, without } => {
            let matching = sound!(by_words(connection, with, without, search.ranked).await?);
            let ranked = sound!(filter_matches(connection, search, matching).await?);
            let total = ranked.len() as u64;
            (ranked, total)
        }
        Pattern::Substring(substring) => sound!(by_substring(connection, search, substring).await?),
    };
    let usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let page: Ranked = ranked.drain(..).skip(usize(search.skip)).take(usize(search.limit)).collect();
    let hits = sound!(load_hits(connection, search, &page).await?);
    let end = search.skip.saturating_add(search.limit);
    Ok(Ok(SearchResult {
        hits,
        total,
        at_least: false,
        next: (end < total && search.limit > 0).then_some(end),
    }))
}

/// Entries of the index that are out of date, because their step was indexed again in another block.
async fn stale_entries(connection: &mut Connection) -> Result<Stale, Error> {
    let rows = connection.rows("SELECT block, position FROM stepback_stale", &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as u64))).collect()
}

/// Calls `visit` for each index row of some words, without loading all of them into memory.
async fn each_row(
    connection: &mut Connection,
    words: &[i32],
    mut visit: impl FnMut(&postings::IndexRow<'_>) -> Result<(), StoreError>,
) -> Answer<()> {
    let sql = "SELECT block, places FROM stepback_postings WHERE word = ANY($1)";
    let statement = connection.prepared(sql).await?;
    let mut rows = pin!(connection.client.query_raw(&statement, [&words]).await?);
    while let Some(row) = rows.try_next().await? {
        let row = postings::IndexRow { block: row.try_get(0)?, places: row.try_get(1)? };
        sound!(visit(&row));
    }
    Ok(Ok(()))
}

/// The steps that contain any of some words.
async fn having_any(connection: &mut Connection, words: &[i32], stale: &Stale) -> Answer<Vec<PhraseHit>> {
    let mut any_of = AnyOf::default();
    sound!(each_row(connection, words, |row| any_of.add(row, stale)).await?);
    Ok(Ok(any_of.finish()))
}

/// The steps that contain a phrase, given as the words that may stand at each of its places.
async fn find_phrase(
    connection: &mut Connection,
    phrase: &[Vec<i32>],
    stale: &Stale,
) -> Answer<Vec<PhraseHit>> {
    if let [words] = phrase {
        return having_any(connection, words, stale).await;
    }
    let mut in_a_row = PhraseMatcher::default();
    for (word_index, words) in phrase.iter().enumerate() {
        if word_index > 0 {
            in_a_row.next_place();
        }
        sound!(each_row(connection, words, |row| in_a_row.add(row, stale)).await?);
    }
    Ok(Ok(in_a_row.finish()))
}

/// The steps that contain all of `with` and none of `without`, in order of their positions.
async fn by_words(
    connection: &mut Connection,
    with: &[Phrase],
    without: &[Phrase],
    scored: bool,
) -> Answer<Ranked> {
    let phrases: Vec<&Phrase> = with.iter().chain(without).collect();
    let stale = stale_entries(connection).await?;
    let mut lists = Vec::with_capacity(phrases.len());
    for phrase in phrases {
        let words = ids_of(connection, phrase).await?;
        lists.push(sound!(find_phrase(connection, &words, &stale).await?));
    }
    let (with, without) = lists.split_at(with.len());
    let Some(fewest) = with.iter().min_by_key(|list| list.len()) else { return Ok(Ok(Vec::new())) };
    let ranking = load_ranking(connection).await?;
    let weights: Vec<f64> = with.iter().map(|list| ranking.weight(list.len() as u64)).collect();
    let fits = |having: &&PhraseHit| {
        with.iter().all(|list| postings::hit_at(list, having.position).is_some())
            && !without.iter().any(|list| postings::hit_at(list, having.position).is_some())
    };
    let score = |having: &PhraseHit| -> f64 {
        if !scored {
            return 0.0;
        }
        let score_of = |(list, weight): (&Vec<PhraseHit>, &f64)| {
            let count = postings::hit_at(list, having.position).map_or(0, |hit| hit.count);
            ranking.score(*weight, count, having.length)
        };
        with.iter().zip(&weights).map(score_of).sum()
    };
    Ok(Ok(fewest.iter().filter(fits).map(|having| (having.position as i64, score(having))).collect()))
}

async fn load_ranking(connection: &mut Connection) -> Result<Ranking, Error> {
    let row = connection.client.query_one("SELECT documents, words FROM stepback_index", &[]).await?;
    let (documents, words) = (row.try_get::<_, i64>(0)? as f64, row.try_get::<_, i64>(1)? as f64);
    Ok(Ranking { documents, average: words / documents })
}

/// The ids of the words that may stand at each place of a phrase.
async fn ids_of(connection: &mut Connection, phrase: &Phrase) -> Result<Vec<Vec<i32>>, Error> {
    let sql = "SELECT word, id FROM stepback_words WHERE word = ANY($1)";
    let mut ids: HashMap<String, i32> = HashMap::new();
    for row in connection.rows(sql, &[&phrase.words]).await? {
        ids.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let mut places: Vec<Vec<i32>> =
        phrase.words.iter().map(|word| ids.get(word).copied().into_iter().collect()).collect();
    if let Some((begin, place)) = phrase.words.last().zip(places.last_mut()).filter(|_| phrase.prefix) {
        *place = trigrams::words_of(connection, &Part::Beginning(begin.clone())).await?;
    }
    Ok(places)
}

/// Those of `matching` that pass the search's filters, in the requested order.
async fn filter_matches(
    connection: &mut Connection,
    search: &SearchRequest,
    matching: Ranked,
) -> Answer<Ranked> {
    let mut ranked = matching;
    let mut conditions = Conditions::default();
    let positions: Vec<i64> = ranked.iter().map(|(position, _)| *position).collect();
    let name = conditions.name(positions, Type::INT8_ARRAY);
    conditions.add_query(search.workspace, &search.among);
    if conditions.sql.is_empty() && search.ranked {
        best_first(&mut ranked);
        return Ok(Ok(ranked));
    }
    let order = if search.ranked { String::new() } else { order_by(false, &search.among) };
    let sql = format!(
        "SELECT s.position FROM stepback_steps s WHERE s.position = ANY({name}){}{order}",
        conditions.sql
    );
    let scores: HashMap<i64, f64> = ranked.into_iter().collect();
    let mut remaining = Vec::new();
    for row in connection.client.query_typed(&sql, &conditions.values()).await? {
        let position: i64 = row.try_get(0)?;
        remaining.push((position, scores.get(&position).copied().unwrap_or_default()));
    }
    if search.ranked {
        best_first(&mut remaining);
    }
    Ok(Ok(remaining))
}

/// Sorts by score; ties are newest first.
fn best_first(ranked: &mut Ranked) {
    ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
}

/// The steps that contain a substring, and their number. Its parts narrow down which texts have to be read.
async fn by_substring(
    connection: &mut Connection,
    search: &SearchRequest,
    substring: &str,
) -> Answer<(Ranked, u64)> {
    let mut candidates: Option<HashSet<u64>> = None;
    let mut certain = HashSet::new();
    let (needed, stale) = (trigrams::substring_parts(substring), stale_entries(connection).await?);
    for part in &needed {
        let Some(words) = trigrams::few_words(connection, part).await? else { continue };
        let word_ids: Vec<i32> = words.short.iter().chain(&words.cut).copied().collect();
        let positions = |list: Vec<PhraseHit>| list.into_iter().map(|having| having.position).collect();
        let has: HashSet<u64> = positions(sound!(having_any(connection, &word_ids, &stale).await?));
        if matches!(part, Part::Inside(_)) {
            // The whole substring is inside of one word, and the index has these words uncut.
            certain = positions(sound!(having_any(connection, &words.short, &stale).await?));
        }
        candidates = Some(match candidates {
            None => has,
            Some(before) => before.intersection(&has).copied().collect(),
        });
    }
    let ordered = match search.ranked {
        true => StepQuery { by: SortKey::Commit, oldest_first: false, ..search.among.clone() },
        false => search.among.clone(),
    };
    let mut conditions = Conditions::default();
    let limited = match &candidates {
        None => "true".to_string(),
        Some(candidates) => {
            let positions: Vec<i64> = candidates.iter().map(|position| *position as i64).collect();
            format!("t.position = ANY({})", conditions.name(positions, Type::INT8_ARRAY))
        }
    };
    conditions.add_query(search.workspace, &ordered);
    // Texts that certainly match need not be read.
    let certain_name = conditions
        .name(certain.iter().map(|position| *position as i64).collect::<Vec<_>>(), Type::INT8_ARRAY);
    let sql = format!(
        "SELECT t.position, t.raw_len, CASE WHEN t.position = ANY({certain_name}) THEN NULL ELSE t.text END
         FROM stepback_texts t JOIN stepback_steps s ON s.position = t.position WHERE {limited}{}{}",
        conditions.sql,
        order_by(false, &ordered)
    );
    let mut ranked = Vec::new();
    let mut rows = pin!(connection.client.query_typed_raw(&sql, conditions.values()).await?);
    while let Some(row) = rows.try_next().await? {
        let text: Option<&[u8]> = row.try_get(2)?;
        let fits = match text {
            None => true,
            Some(text) => {
                let texts = sound!(unpack(i64::from(row.try_get::<_, i32>(1)?), text));
                search.pattern.matches(&texts)
            }
        };
        if fits {
            ranked.push((row.try_get(0)?, 0.0));
        }
    }
    let total = ranked.len() as u64;
    Ok(Ok((ranked, total)))
}

/// What is shown of steps, in the given order.
async fn load_hits(
    connection: &mut Connection,
    search: &SearchRequest,
    ranked: &Ranked,
) -> Answer<Vec<SearchHit>> {
    let sql = format!(
        "SELECT {COLUMNS}, s.workspace, s.position, t.raw_len, t.text
         FROM stepback_steps s JOIN stepback_texts t ON t.position = s.position WHERE s.position = ANY($1)"
    );
    let positions: Vec<i64> = ranked.iter().map(|(position, _)| *position).collect();
    let rows = connection.rows(&sql, &[&positions]).await?;
    let read = |row: &Row, score: f64| -> Result<SearchHit, StoreError> {
        let texts = unpack(i64::from(rows::get::<i32>(row, WIDTH + 2)?), rows::get(row, WIDTH + 3)?)?;
        Ok(SearchHit {
            workspace: rows::id(row, WIDTH, WorkspaceId::from_slice)?,
            stored: StepRow::read(row)?,
            score,
            snippets: search.pattern.snippets(&texts),
        })
    };
    let mut by_position: HashMap<i64, &Row> = HashMap::new();
    for row in &rows {
        by_position.insert(row.try_get(WIDTH + 1)?, row);
    }
    let ranked = ranked.iter().filter_map(|(position, score)| Some((by_position.get(position)?, *score)));
    Ok(ranked.map(|(row, score)| read(row, score)).collect())
}
