//! Verifies the hash chains of a workspace's sessions, and names the steps that were altered, removed, inserted or reordered
//! since they were recorded.
//!
//! Steps are read in batches; what is kept is a few values for each session, and the steps around a break. A step whose
//! stored link does not follow from the link before it is a break. Which steps are to blame is decided from the
//! `WINDOW` steps of the session that follow: the true predecessor of each is searched for among them.
//!
//! A chain is evidence against a change that does not recompute it. Whoever can write to the store can also compute new
//! links and heads; against that, a head is sealed elsewhere (`stepback seal`).

use std::collections::HashMap;
use std::fmt;

use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::step_chain::StepLink;

use crate::error::StoreError;
use crate::port::{ChainEntry, ChainHead, Store};

/// Number of steps read at a time.
const STEPS: u64 = 2000;
/// Number of steps of a session that are compared with each other after a break.
const WINDOW: usize = 64;
/// Number of breaks that are listed; more are only counted.
const MAX_BREAKS: usize = 1000;

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ChainReport {
    /// Number of steps.
    pub steps: u64,
    /// Number of steps that have a link.
    pub linked: u64,
    /// What does not match.
    pub breaks: Vec<ChainBreak>,
    /// Number of breaks beyond those that are listed.
    pub omitted: u64,
}

/// What happened to steps after they were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakKind {
    /// The content of a step is not what was recorded.
    Altered,
    /// Steps are missing.
    Removed,
    /// Steps are there that were never recorded.
    Inserted,
    /// A step stands before one that it was recorded after.
    Reordered,
    /// The newest link of a session is not the one that the session names as its head.
    HeadMismatch,
}

/// A place where the record was changed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ChainBreak {
    /// What happened.
    pub kind: BreakKind,
    /// The session; `None` for a missing step that cannot be attributed to one.
    pub session: Option<SessionId>,
    /// The number of the first step concerned; with `at_end`, of the last one that is not.
    pub step: u64,
    /// How many steps are concerned.
    pub count: u64,
    /// Whether these are the last steps of the session, after `step`; their numbers are not known or not consecutive.
    pub at_end: bool,
}

impl fmt::Display for ChainBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, count, .. } = self;
        match self.kind {
            BreakKind::HeadMismatch => f.write_str("the chain does not end at its head")?,
            _ if self.at_end => {
                let steps = if *count == 1 { "step was" } else { "steps were" };
                write!(f, "{count} {steps} {} after #{step}", self.verb())?;
            }
            _ if *count == 1 => write!(f, "step #{step} was {}", self.verb())?,
            _ => write!(f, "steps #{step} to #{} were {}", step + count - 1, self.verb())?,
        }
        match self.session {
            Some(session) => write!(f, " (session {})", session.short()),
            None => Ok(()),
        }
    }
}

impl ChainBreak {
    fn new(kind: BreakKind, session: Option<SessionId>, step: u64) -> Self {
        Self { kind, session, step, count: 1, at_end: false }
    }

    fn verb(&self) -> &'static str {
        match self.kind {
            BreakKind::Altered => "altered",
            BreakKind::Removed => "removed",
            BreakKind::Inserted => "inserted",
            BreakKind::Reordered | BreakKind::HeadMismatch => "reordered",
        }
    }
}

/// Compares the steps of a workspace with the chains of its sessions. Steps that are committed meanwhile are no break.
pub fn verify(store: &dyn Store, workspace: WorkspaceId) -> Result<ChainReport, StoreError> {
    let mut verifier = ChainVerifier::new(store.chain_heads(workspace)?);
    let mut after = 0;
    loop {
        let entries = store.chain_entries(workspace, after, STEPS)?;
        let Some(last) = entries.last() else { break };
        if last.number <= after || i64::try_from(last.number).is_err() {
            // Only rows with numbers that no store assigns: the next batch would be the same.
            entries.into_iter().for_each(|entry| verifier.add(entry));
            break;
        }
        after = last.number;
        entries.into_iter().for_each(|entry| verifier.add(entry));
    }
    Ok(verifier.finish(store.chain_heads(workspace)?))
}

/// The chain of one session, as far as it was read.
#[derive(Default)]
struct SessionWalk {
    /// The last step.
    last: Option<ChainEntry>,
    /// The link before the last step (`None` at the start of the session), and the number of its step.
    before_last: (Option<StepLink>, u64),
    /// Number of steps with a link so far.
    linked: u64,
    /// The link at the place where the chain ended when verification began, and the number of its step.
    at_head: Option<(StepLink, u64)>,
    /// The link before the window, and the number of its step.
    before_window: (Option<StepLink>, u64),
    /// The steps since the one before a break, until there are enough to decide about it.
    window: Vec<ChainEntry>,
    /// Steps that do not follow from the one before: the number of that one, and their own.
    suspects: Vec<(u64, u64)>,
    /// Number of steps that were found to be inserted.
    inserted: u64,
    /// Whether a break was found in this session.
    is_broken: bool,
}

/// Reads entries in order of their numbers.
struct ChainVerifier {
    heads: HashMap<SessionId, ChainHead>,
    walks: HashMap<SessionId, SessionWalk>,
    /// Order in which sessions were first seen, so that results have an order.
    order: Vec<SessionId>,
    last_number: u64,
    /// Ranges of numbers that no step has: the first one, and the one after the last.
    missing: Vec<(u64, u64)>,
    report: ChainReport,
}

impl ChainVerifier {
    fn new(heads: Vec<ChainHead>) -> Self {
        Self {
            heads: heads.into_iter().map(|head| (head.session, head)).collect(),
            walks: HashMap::new(),
            order: Vec::new(),
            last_number: 0,
            missing: Vec::new(),
            report: ChainReport::default(),
        }
    }

    fn add(&mut self, entry: ChainEntry) {
        self.report.steps += 1;
        if entry.number <= self.last_number || i64::try_from(entry.number).is_err() {
            self.report.push(ChainBreak::new(BreakKind::Inserted, Some(entry.session), entry.number));
            return;
        }
        if entry.number > self.last_number + 1 {
            self.missing.push((self.last_number + 1, entry.number));
        }
        self.last_number = entry.number;
        let Some(link) = entry.link else {
            // Since a store has links, every step that it appends has one.
            if self.report.linked > 0 {
                self.report.push(ChainBreak::new(BreakKind::Inserted, Some(entry.session), entry.number));
                self.walks.entry(entry.session).or_default().is_broken = true;
            }
            return;
        };
        self.report.linked += 1;
        let walk = self.walks.entry(entry.session).or_insert_with(|| {
            self.order.push(entry.session);
            SessionWalk::default()
        });
        let (previous, number) = walk.last.map_or((None, 0), |last| (last.link, last.number));
        if !walk.window.is_empty() {
            walk.window.push(entry);
        } else if !follows(previous.unwrap_or(StepLink::START), &entry) {
            // The step before is judged again: it may have been put there, with a link that follows.
            walk.before_window = walk.before_last;
            walk.window.extend(walk.last);
            walk.window.push(entry);
        }
        walk.before_last = (previous, number);
        walk.last = Some(entry);
        walk.linked += 1;
        if self.heads.get(&entry.session).is_some_and(|head| head.linked == walk.linked) {
            walk.at_head = Some((link, entry.number));
        }
        if walk.window.len() == WINDOW {
            walk.judge_window(&mut self.report);
        }
    }

    /// Decides about what is left. `heads` were read after the last step.
    fn finish(mut self, heads: Vec<ChainHead>) -> ChainReport {
        let later: HashMap<SessionId, ChainHead> =
            heads.into_iter().map(|head| (head.session, head)).collect();
        // Sessions all of whose steps are gone.
        let mut emptied: Vec<SessionId> =
            self.heads.values().filter(|head| head.linked > 0).map(|head| head.session).collect();
        emptied.retain(|session| !self.walks.contains_key(session));
        emptied.sort_unstable();
        self.order.extend(emptied);
        for session in std::mem::take(&mut self.order) {
            let mut walk = self.walks.remove(&session).unwrap_or_default();
            walk.judge_window(&mut self.report);
            let last = walk.last.map_or(0, |last| last.number);
            let known = self.heads.get(&session).map_or(0, |head| head.linked);
            let mut short = known.saturating_sub(walk.linked - walk.inserted.min(walk.linked));
            for (before, number) in std::mem::take(&mut walk.suspects) {
                let found = self.take_missing(before, number, short);
                if found.is_empty() {
                    self.report.push(ChainBreak::new(BreakKind::Altered, Some(session), number));
                }
                for (first, count) in found {
                    short -= count;
                    let removed = ChainBreak::new(BreakKind::Removed, Some(session), first);
                    self.report.push(ChainBreak { count, ..removed });
                }
                walk.is_broken = true;
            }
            if short > 0 {
                for (first, count) in self.take_missing(last, u64::MAX, short) {
                    short -= count;
                    let removed = ChainBreak::new(BreakKind::Removed, Some(session), first);
                    self.report.push(ChainBreak { count, ..removed });
                }
                if short > 0 {
                    let removed = ChainBreak::new(BreakKind::Removed, Some(session), last);
                    self.report.push(ChainBreak { count: short, at_end: true, ..removed });
                }
                walk.is_broken = true;
            }
            let recorded = later.get(&session).map_or(0, |head| head.linked);
            let extra = walk.linked.saturating_sub(walk.inserted).saturating_sub(recorded);
            if extra > 0 {
                let inserted = ChainBreak::new(BreakKind::Inserted, Some(session), last);
                self.report.push(match extra {
                    1 => inserted,
                    _ => ChainBreak {
                        step: walk.at_head.map_or(0, |(_, number)| number),
                        count: extra,
                        at_end: true,
                        ..inserted
                    },
                });
                walk.is_broken = true;
            }
            let head = self.heads.get(&session).and_then(|head| head.head);
            if !walk.is_broken && known > 0 && walk.at_head.map(|(link, _)| link) != head {
                self.report.push(ChainBreak::new(BreakKind::HeadMismatch, Some(session), last));
            }
        }
        for (first, end) in std::mem::take(&mut self.missing) {
            let removed = ChainBreak::new(BreakKind::Removed, None, first);
            self.report.push(ChainBreak { count: end - first, ..removed });
        }
        self.report
    }

    /// Takes up to `most` of the missing numbers between two steps, as first numbers and lengths.
    fn take_missing(&mut self, after: u64, before: u64, most: u64) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        let mut left = most;
        let mut rest = Vec::new();
        for (first, end) in self.missing.drain(..) {
            let count = if first > after && end <= before { (end - first).min(left) } else { 0 };
            if count > 0 {
                taken.push((first, count));
                left -= count;
            }
            if first + count < end {
                rest.push((first + count, end));
            }
        }
        self.missing = rest;
        taken
    }
}

impl SessionWalk {
    /// Says of each step in the window what happened to it, and empties the window.
    fn judge_window(&mut self, report: &mut ChainReport) {
        let window = std::mem::take(&mut self.window);
        let before_window = self.before_window.0.unwrap_or(StepLink::START);
        let predecessors: Vec<Option<usize>> =
            window.iter().map(|entry| predecessor(before_window, &window, entry)).collect();
        for (index, entry) in window.iter().enumerate() {
            let session = Some(entry.session);
            // Places are counted from the step before the window, which is 0.
            let own = index + 1;
            let has_successor = predecessors.contains(&Some(own));
            let next = predecessors.get(own).copied().flatten();
            // The next step follows from an earlier one: this one was put between them.
            let is_skipped = !has_successor && next.is_some_and(|next| next < own);
            match predecessors[index] {
                Some(before) if before == index && !is_skipped => continue,
                _ if is_skipped => {
                    self.inserted += 1;
                    report.push(ChainBreak::new(BreakKind::Inserted, session, entry.number));
                }
                Some(before) if before > own => {
                    report.push(ChainBreak::new(BreakKind::Reordered, session, entry.number));
                }
                // It follows from an earlier step; what stands between them is to blame.
                Some(_) => {}
                None => {
                    let before = match index {
                        0 => self.before_window.1,
                        _ => window[index - 1].number,
                    };
                    self.suspects.push((before, entry.number));
                }
            }
            self.is_broken = true;
        }
    }
}

/// The place in the window of the step that `entry` was recorded after: 0 for the one before the window.
fn predecessor(before: StepLink, window: &[ChainEntry], entry: &ChainEntry) -> Option<usize> {
    let links = std::iter::once(Some(before)).chain(window.iter().map(|entry| entry.link));
    links.enumerate().find(|(_, link)| link.is_some_and(|link| follows(link, entry))).map(|(place, _)| place)
}

/// Whether the stored link of a step follows from this link and from what the step is now.
fn follows(previous: StepLink, entry: &ChainEntry) -> bool {
    entry.digest.is_some_and(|digest| entry.link == Some(previous.next(digest)))
}

impl ChainReport {
    fn push(&mut self, found: ChainBreak) {
        if self.breaks.len() < MAX_BREAKS {
            self.breaks.push(found);
        } else {
            self.omitted += 1;
        }
    }
}

#[cfg(test)]
mod tests;
