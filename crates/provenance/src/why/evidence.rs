//! The sources of a change: the texts that the model had seen in which decisive words of the change stand, ranked.

use std::collections::HashMap;
use std::ops::Range;

use stepback_api::why::{
    WhyContextDocument, WhyPlaceDocument, WhyRunDocument, WhySourceDocument, WhyWordsDocument,
};
use stepback_engine::Workspace;
use stepback_model::clip;

use super::context::{SeenContext, SeenText};
use super::trust::{Judge, Judgement, Trust, strip_line_number};
use super::turn::Turn;
use super::words::{Query, Run, Weights, WordId};
use crate::error::ProvenanceError;

/// The rule in words, for the answer.
pub(crate) const RULE: &str = "A word is a run of letters and digits; case and the signs between words are ignored. Decisive are words that are not common (of English and of programs) and that the file did not have before. A source is a text that the model had seen before the turn and that shares a run of words with the change: with several decisive words of enough weight, or with one that is long or has digits and stands in few of the texts. A word weighs more the fewer texts have it and the longer it is. Shared words show where a change may come from; they do not prove it.";

/// The most sources of one explanation.
const MAX_SOURCES: usize = 12;
/// The most texts whose calls and files are looked up.
const MAX_IDENTIFIED: usize = 64;
/// The most runs of one source.
const MAX_RUNS: usize = 6;
/// The most words without origin that are listed.
const MAX_INVENTED: usize = 20;
/// The most characters of a run, and of an excerpt.
const MAX_RUN_CHARS: usize = 200;
const MAX_EXCERPT_CHARS: usize = 400;

/// A source of a change.
pub(crate) struct Evidence {
    /// The text.
    pub seen: SeenText,
    /// What it is and whose words it has.
    pub judged: Judgement,
    /// The document.
    pub document: WhySourceDocument,
    /// The decisive words that stand in it.
    pub words: Vec<WordId>,
    /// Where its runs stand in it, in bytes.
    pub runs: Vec<Range<usize>>,
}

/// The sources of a change, and how much of it they explain.
pub(crate) struct FoundEvidence {
    /// The sources, the strongest first.
    pub sources: Vec<Evidence>,
    /// The words that were looked for.
    pub words: WhyWordsDocument,
    /// What was searched.
    pub context: WhyContextDocument,
}

/// A text that shares runs with the change.
struct Match {
    seen: SeenText,
    runs: Vec<Run>,
    words: Vec<WordId>,
    score: f64,
}

/// Finds the sources of a change in what the model had seen before a turn.
pub(crate) fn find_evidence(
    workspace: &Workspace,
    judge: &mut Judge<'_>,
    turn: &Turn,
    query: &Query,
) -> Result<FoundEvidence, ProvenanceError> {
    let context = match query.decisive_count() {
        0 => SeenContext::default(),
        _ => SeenContext::collect(workspace, turn, query)?,
    };
    let weights = Weights::new(query, context.distinct(), &context.having);
    let words = describe_words(query, &context.having);
    let context_document = WhyContextDocument {
        recorded_in: context.recorded_in.as_str().to_owned(),
        texts: context.searched,
        left: context.left,
        truncated: context.truncated,
    };
    let mut matches: Vec<Match> =
        context.texts.into_iter().filter_map(|seen| match_text(query, &weights, seen)).collect();
    matches.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| b.seen.order.cmp(&a.seen.order)));
    matches.truncate(MAX_IDENTIFIED);
    let groups = group(judge, turn, matches)?;
    let mut sources = Vec::new();
    for (mut judged, matched, repeats) in choose(groups) {
        let place = place_of(&matched, &judged);
        if let Some(run) = matched.runs.first() {
            judge.judge_line(turn, &mut judged, line_at(&matched.seen.text, run.text.start))?;
        }
        sources.push(describe_source(query, matched, judged, place, repeats));
    }
    let mut found = FoundEvidence { sources, words, context: context_document };
    found.words.found = found.count_words();
    Ok(found)
}

impl FoundEvidence {
    fn count_words(&self) -> u64 {
        let mut words: Vec<WordId> =
            self.sources.iter().flat_map(|source| source.words.iter().copied()).collect();
        words.sort_unstable();
        words.dedup();
        words.len() as u64
    }

    /// The source outside the session that an own text of the session most likely repeats: it came before, and has at least
    /// half of the decisive words of the own text.
    pub(crate) fn origin_of_own(&self, own: &Evidence) -> Option<usize> {
        if own.judged.trust != Trust::Own || !own.judged.kind.starts_with("own-") {
            return None;
        }
        let shared = |other: &Evidence| own.words.iter().filter(|word| other.words.contains(word)).count();
        let earlier = self.sources.iter().enumerate().filter(|(_, other)| {
            other.judged.trust != Trust::Own
                && other.seen.order < own.seen.order
                && other.seen.message.is_some() == own.seen.message.is_some()
        });
        let best = earlier
            .map(|(index, other)| (shared(other), index))
            .max_by_key(|(count, index)| (*count, usize::MAX - index))?;
        (best.0 > 0 && 2 * best.0 >= own.words.len()).then_some(best.1)
    }
}

fn describe_words(query: &Query, having: &[u32]) -> WhyWordsDocument {
    let invented: Vec<&str> = query
        .decisive_words()
        .into_iter()
        .filter(|(word, _)| having.get(*word as usize).is_none_or(|count| *count == 0))
        .map(|(_, text)| text)
        .collect();
    WhyWordsDocument {
        decisive: query.decisive_count() as u64,
        found: 0,
        invented_count: invented.len() as u64,
        invented: invented.into_iter().take(MAX_INVENTED).map(|word| clip::first(word, 80)).collect(),
        truncated: query.truncated,
    }
}

fn match_text(query: &Query, weights: &Weights, seen: SeenText) -> Option<Match> {
    let runs = query.shared_runs(&seen.text, weights, MAX_RUNS);
    if runs.is_empty() {
        return None;
    }
    // A long run is stronger than the same words scattered.
    let score: f64 = runs.iter().map(|run| run.weight * (1.0 + 0.1 * run.len().min(20) as f64)).sum();
    let words = query.words_of_runs(&runs);
    let score = if seen.in_context { score } else { score * 0.7 };
    Some(Match { seen, runs, words, score })
}

/// Joins the texts that are the same thing (a file that was read twice): the last one before the turn stands for them, unless
/// an earlier one matches clearly better.
fn group(
    judge: &mut Judge<'_>,
    turn: &Turn,
    matches: Vec<Match>,
) -> Result<Vec<(Judgement, Match, u64)>, ProvenanceError> {
    let mut groups: Vec<(Judgement, Match, u64)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for matched in matches {
        let judged = judge.identify(turn, &matched.seen)?;
        match known.get(&judged.identity) {
            Some(index) => {
                let (best_judged, best, repeats) = &mut groups[*index];
                *repeats += 1;
                if matched.seen.order > best.seen.order && matched.score >= 0.9 * best.score {
                    (*best_judged, *best) = (judged, matched);
                }
            }
            None => {
                known.insert(judged.identity.clone(), groups.len());
                groups.push((judged, matched, 0));
            }
        }
    }
    Ok(groups)
}

/// Ranks the sources, and leaves out those that add nothing: weaker ones all of whose words stand in stronger ones.
fn choose(mut groups: Vec<(Judgement, Match, u64)>) -> Vec<(Judgement, Match, u64)> {
    // What the session said itself passes on what it had from elsewhere.
    let rank = |judged: &Judgement, matched: &Match| match judged.trust {
        Trust::Own => matched.score * 0.5,
        _ => matched.score,
    };
    groups.sort_by(|(a, x, _), (b, y, _)| {
        rank(b, y).total_cmp(&rank(a, x)).then_with(|| y.seen.order.cmp(&x.seen.order))
    });
    let best = groups.first().map_or(0.0, |(judged, matched, _)| rank(judged, matched));
    let mut covered: Vec<WordId> = Vec::new();
    let mut kept = Vec::new();
    for (judged, matched, repeats) in groups {
        let adds = matched.words.iter().any(|word| !covered.contains(word));
        let is_strong = rank(&judged, &matched) >= 0.4 * best;
        if kept.len() < MAX_SOURCES && (adds || is_strong) {
            covered.extend(matched.words.iter().copied());
            kept.push((judged, matched, repeats));
        }
    }
    kept
}

fn place_of(matched: &Match, judged: &Judgement) -> WhyPlaceDocument {
    let text = &matched.seen.text;
    let Some(run) = matched.runs.first() else { return WhyPlaceDocument::default() };
    let last = run.text.end.saturating_sub(1).max(run.text.start);
    let start = line_start(text, run.text.start);
    let end = text[last..].find('\n').map_or(text.len(), |at| last + at);
    let lines = &text[start..end];
    let excerpt = match lines.chars().count() > MAX_EXCERPT_CHARS {
        // A line can be a whole document: what stands around the run.
        true => around(text, run, start, end),
        false => lines.to_owned(),
    };
    let file_line = match judged.kind {
        "file" => strip_line_number(line_at(text, run.text.start)).0,
        _ => None,
    };
    WhyPlaceDocument {
        message: matched.seen.message,
        part: matched.seen.part,
        offset: run.text.start as u64,
        line: line_number(text, run.text.start),
        file_line,
        url: judged.url.clone(),
        excerpt: clip::first(excerpt.trim_end_matches('\r'), MAX_EXCERPT_CHARS),
    }
}

/// What stands around a run in a long line.
fn around(text: &str, run: &Run, start: usize, end: usize) -> String {
    const BEFORE: usize = 120;
    let from = text.floor_char_boundary(run.text.start.saturating_sub(BEFORE)).max(start);
    let to = text.ceil_char_boundary((from + MAX_EXCERPT_CHARS).min(end));
    let mark = if from > start { "…" } else { "" };
    format!("{mark}{}", &text[from..to])
}

/// The line of a text in which an offset is, without its break.
fn line_at(text: &str, offset: usize) -> &str {
    let start = line_start(text, offset);
    let line = text[start..].split('\n').next().unwrap_or_default();
    line.strip_suffix('\r').unwrap_or(line)
}

fn line_start(text: &str, offset: usize) -> usize {
    text[..offset].rfind('\n').map_or(0, |at| at + 1)
}

fn line_number(text: &str, offset: usize) -> u64 {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}

fn describe_source(
    query: &Query,
    matched: Match,
    judged: Judgement,
    place: WhyPlaceDocument,
    repeats: u64,
) -> Evidence {
    let text = &matched.seen.text;
    let round = |value: f64| (value * 100.0).round() / 100.0;
    let runs = matched.runs.iter().map(|run| WhyRunDocument {
        text: clip::first(&text[run.text.clone()], MAX_RUN_CHARS),
        in_change: clip::first(query.slice(&run.change), MAX_RUN_CHARS),
        words: run.len() as u64,
        offset: run.text.start as u64,
        line: line_number(text, run.text.start),
        weight: round(run.weight),
    });
    let document = WhySourceDocument {
        kind: judged.kind.to_owned(),
        trust: judged.trust.as_str().to_owned(),
        trust_rule: judged.rule.clone(),
        untrusted: judged.trust == Trust::Untrusted,
        place,
        runs: runs.collect(),
        score: round(matched.score),
        found: matched.words.len() as u64,
        repeats,
        in_context: matched.seen.in_context,
    };
    let runs_at = matched.runs.iter().map(|run| run.text.clone()).collect();
    Evidence { runs: runs_at, words: matched.words, seen: matched.seen, judged, document }
}
