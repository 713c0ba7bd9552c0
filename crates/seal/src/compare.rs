//! What changed in a store since a seal was made.
//!
//! Steps are compared by number and by digest, so that every one that is altered, missing, added or renumbered is named. If
//! all digests are as they were, the heads are compared as well: digests in a seal are short, heads are not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use stepback_model::ids::SessionId;
use stepback_model::step_chain::StepLink;
use stepback_store::port::Store;

use crate::document::{
    Seal, SealError, ShortDigest, for_each_entry, parse_digests, parse_numbers, readable_digest,
    seal_operations, seal_references, shorten,
};

/// What happened to a step or an operation that was there when the seal was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SealFindingKind {
    /// A step is not what it was.
    Altered,
    /// A step is missing.
    Removed,
    /// A step was added between those that were there.
    Added,
    /// A step has another number.
    Renumbered,
    /// The head of a session is another one, although no step differs in its short digest.
    HeadMismatch,
    /// An operation of stepback itself was altered, removed or added.
    OperationChanged,
}

/// One difference between a seal and the store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SealFinding {
    /// What happened.
    pub kind: SealFindingKind,
    /// The session; `None` for an operation.
    pub session: Option<SessionId>,
    /// The number of the step when it was sealed, or of the one that was added; of an operation, its number.
    pub step: u64,
    /// The number of the step now, if it is another one.
    pub now: Option<u64>,
}

impl fmt::Display for SealFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, .. } = self;
        match self.kind {
            SealFindingKind::Altered => write!(f, "step #{step} was altered")?,
            SealFindingKind::Removed => write!(f, "step #{step} was removed")?,
            SealFindingKind::Added => write!(f, "step #{step} was added")?,
            SealFindingKind::Renumbered => {
                write!(f, "step #{step} was renumbered to #{}", self.now.unwrap_or_default())?;
            }
            SealFindingKind::HeadMismatch => {
                write!(f, "the steps up to #{step} do not have the sealed head")?
            }
            SealFindingKind::OperationChanged => write!(f, "operation {step} was changed")?,
        }
        match self.session {
            Some(session) => write!(f, " (session {})", session.short()),
            None => Ok(()),
        }
    }
}

/// The result of [`compare`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SealComparison {
    /// What is not as it was sealed, in order of numbers.
    pub findings: Vec<SealFinding>,
    /// Number of steps that were sealed.
    pub sealed_steps: u64,
    /// Number of steps that were recorded since.
    pub steps_since: u64,
    /// Number of operations since.
    pub operations_since: u64,
    /// Whether references, such as the tips of branches, moved since. They do with every checkpoint.
    pub references_moved: bool,
}

/// A step as it was sealed.
struct SealedStep {
    session: SessionId,
    digest: ShortDigest,
}

/// Compares the workspace of a seal with what the store has now. The signature is not verified.
pub fn compare(seal: &Seal, store: &dyn Store) -> Result<SealComparison, SealError> {
    let mut sealed: BTreeMap<u64, SealedStep> = BTreeMap::new();
    for session in &seal.sessions {
        let digests = parse_digests(&session.digests)?;
        let numbers = parse_numbers(&session.numbers, digests.len() as u64)?;
        for (number, digest) in numbers.into_iter().zip(digests) {
            sealed.insert(number, SealedStep { session: session.id, digest });
        }
    }
    let newest = sealed.last_key_value().map_or(0, |(number, _)| *number);
    // Steps that are not where they were, by digest. Two steps have the same one only by design.
    let numbers: HashMap<ShortDigest, u64> =
        sealed.iter().map(|(number, step)| (step.digest, *number)).collect();
    let mut matched: HashSet<u64> = HashSet::with_capacity(sealed.len());
    let mut others: Vec<(u64, SessionId, ShortDigest)> = Vec::new();
    let mut heads: HashMap<SessionId, StepLink> = HashMap::new();
    let mut comparison = SealComparison { sealed_steps: sealed.len() as u64, ..SealComparison::default() };
    for_each_entry(store, seal.workspace, &mut |entry| {
        let full = readable_digest(entry);
        let digest = shorten(full);
        let number = entry.number;
        match sealed.get(&number) {
            Some(step) if step.digest == digest => {
                matched.insert(number);
                let head = heads.entry(entry.session).or_insert(StepLink::START);
                *head = head.next(full);
            }
            None if number > newest && !numbers.contains_key(&digest) => comparison.steps_since += 1,
            _ => others.push((number, entry.session, digest)),
        }
    })?;
    let findings = &mut comparison.findings;
    let mut rest = Vec::new();
    for (number, session, digest) in others {
        match numbers.get(&digest).filter(|sealed_number| matched.insert(**sealed_number)) {
            Some(sealed_number) => findings.push(SealFinding {
                kind: SealFindingKind::Renumbered,
                session: Some(session),
                step: *sealed_number,
                now: Some(number),
            }),
            None => rest.push((number, session)),
        }
    }
    for (number, session) in rest {
        let (kind, session) = match sealed.get(&number).filter(|_| matched.insert(number)) {
            Some(step) => (SealFindingKind::Altered, step.session),
            None => (SealFindingKind::Added, session),
        };
        findings.push(SealFinding { kind, session: Some(session), step: number, now: None });
    }
    for (number, step) in &sealed {
        if !matched.contains(number) {
            let (kind, session) = (SealFindingKind::Removed, Some(step.session));
            findings.push(SealFinding { kind, session, step: *number, now: None });
        }
    }
    findings.sort_by_key(|finding| finding.step);
    for session in &seal.sessions {
        let is_untouched = !findings.iter().any(|finding| finding.session == Some(session.id));
        if is_untouched && heads.get(&session.id).copied().unwrap_or(StepLink::START) != session.head {
            let (kind, session_id) = (SealFindingKind::HeadMismatch, Some(session.id));
            findings.push(SealFinding { kind, session: session_id, step: newest, now: None });
        }
    }
    compare_operations(seal, store, &mut comparison)?;
    comparison.references_moved = seal_references(store, seal.workspace)? != seal.references;
    Ok(comparison)
}

fn compare_operations(
    seal: &Seal,
    store: &dyn Store,
    comparison: &mut SealComparison,
) -> Result<(), SealError> {
    let operations = &seal.operations;
    let now = seal_operations(store, seal.workspace, operations.count)?;
    let operation_count = store.operations(seal.workspace)?.len() as u64;
    comparison.operations_since = operation_count.saturating_sub(now.count);
    if now == *operations {
        return Ok(());
    }
    let (sealed_digests, present_digests) =
        (parse_digests(&operations.digests)?, parse_digests(&now.digests)?);
    let first = sealed_digests
        .iter()
        .zip(&present_digests)
        .take_while(|(sealed_digests, present_digests)| sealed_digests == present_digests)
        .count() as u64;
    let kind = SealFindingKind::OperationChanged;
    comparison.findings.push(SealFinding { kind, session: None, step: first + 1, now: None });
    Ok(())
}
