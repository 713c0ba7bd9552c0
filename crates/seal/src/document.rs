//! What a seal says, and how it is made from a store.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stepback_model::hash::Hash;
use stepback_model::hex;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::step_chain::{StepLink, operation_digest};
use stepback_model::time::Timestamp;
use stepback_store::port::{ChainEntry, Store};
use stepback_store::{StoreError, step_chain};

/// Number of steps read at a time.
const STEPS: u64 = 2000;

/// The first bytes of a digest, which are enough to name a step that differs: what a seal proves rests on the heads.
pub type ShortDigest = [u8; 8];

/// Why a seal cannot be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bytes are not a seal.
    #[error("this is not a seal: {0}")]
    Malformed(String),
    /// The seal has a format that this program does not know.
    #[error("the seal has format {found}, and this version of stepback knows format {known}")]
    Newer {
        /// The format of the seal.
        found: u64,
        /// The newest format that is known.
        known: u64,
    },
    /// The signature does not belong to the seal and the key.
    #[error("the signature does not match: the seal was changed, or it was signed with another key")]
    Signature,
    /// The key cannot be used.
    #[error("the key cannot be used: {0}")]
    Key(String),
}

/// The record of a workspace at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// When it was made.
    pub sealed_at: Timestamp,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Number of steps in the workspace.
    pub steps: u64,
    /// Sessions that have steps, in order of their first steps.
    pub sessions: Vec<SealedSession>,
    /// The operations of the workspace, oldest first.
    pub operations: SealedOperations,
    /// The references of the store to steps of this workspace.
    pub references: SealedReferences,
    /// Breaks in the chains that were there already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_breaks: Vec<String>,
}

/// A session in a seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSession {
    /// The session.
    pub id: SessionId,
    /// The agent's name.
    pub agent: String,
    /// Number of its steps.
    pub steps: u64,
    /// The last link of a chain over all its steps. It is the head in the store, unless the session has steps from before
    /// stores had links.
    pub head: StepLink,
    /// The numbers of its steps: `1-4,7,9-12`.
    pub numbers: String,
    /// A [`ShortDigest`] of each step, as hex digits without separators.
    pub digests: String,
}

/// The operations in a seal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedOperations {
    /// Number of operations.
    pub count: u64,
    /// A [`ShortDigest`] of each, as hex digits without separators.
    pub digests: String,
    /// The hash of all digests.
    pub hash: String,
}

/// The references in a seal. They move with the work, so a change is no finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedReferences {
    /// Number of references.
    pub count: u64,
    /// The hash of their names and targets.
    pub hash: String,
}

/// Makes the seal of a workspace. `known_breaks` is empty unless the user accepted what [`step_chain::verify`] found.
pub fn take_seal(
    store: &dyn Store,
    workspace: WorkspaceId,
    sealed_at: Timestamp,
    known_breaks: Vec<String>,
) -> Result<Seal, SealError> {
    let agents: HashMap<SessionId, String> =
        store.sessions(workspace)?.into_iter().map(|session| (session.id, session.agent)).collect();
    let mut places: HashMap<SessionId, usize> = HashMap::new();
    let mut sessions: Vec<(SealedSession, Ranges)> = Vec::new();
    let mut steps = 0;
    for_each_entry(store, workspace, &mut |entry| {
        steps += 1;
        let index = *places.entry(entry.session).or_insert_with(|| {
            let session = SealedSession {
                id: entry.session,
                agent: agents.get(&entry.session).cloned().unwrap_or_default(),
                steps: 0,
                head: StepLink::START,
                numbers: String::new(),
                digests: String::new(),
            };
            sessions.push((session, Ranges::default()));
            sessions.len() - 1
        });
        let (session, numbers) = &mut sessions[index];
        let digest = readable_digest(entry);
        session.steps += 1;
        session.head = session.head.next(digest);
        session.digests += &hex::encode(&shorten(digest));
        numbers.add(entry.number);
    })?;
    let sessions = sessions
        .into_iter()
        .map(|(session, numbers)| SealedSession { numbers: numbers.to_text(), ..session });
    Ok(Seal {
        sealed_at,
        workspace,
        steps,
        sessions: sessions.collect(),
        operations: seal_operations(store, workspace, u64::MAX)?,
        references: seal_references(store, workspace)?,
        known_breaks,
    })
}

/// The first `count` operations of a workspace, as a seal has them.
pub(crate) fn seal_operations(
    store: &dyn Store,
    workspace: WorkspaceId,
    count: u64,
) -> Result<SealedOperations, SealError> {
    let mut operations = store.operations(workspace)?;
    operations.sort_by_key(|operation| operation.number);
    operations.retain(|operation| operation.number <= count);
    let mut hasher = blake3::Hasher::new();
    let mut digests = String::new();
    for operation in &operations {
        let digest = operation_digest(operation);
        hasher.update(digest.as_bytes());
        digests += &hex::encode(&shorten(digest));
    }
    let hash = hasher.finalize().to_hex().to_string();
    Ok(SealedOperations { count: operations.len() as u64, digests, hash })
}

/// The references of a workspace, as a seal has them.
pub(crate) fn seal_references(
    store: &dyn Store,
    workspace: WorkspaceId,
) -> Result<SealedReferences, SealError> {
    let mut references = store.references("")?;
    let workspace_id = workspace.to_string();
    references.retain(|(name, _)| name.contains(&workspace_id));
    let mut hasher = blake3::Hasher::new();
    for (name, step) in &references {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(step.as_bytes());
    }
    Ok(SealedReferences { count: references.len() as u64, hash: hasher.finalize().to_hex().to_string() })
}

/// Calls `visit` with every step of a workspace, in order of numbers.
pub(crate) fn for_each_entry(
    store: &dyn Store,
    workspace: WorkspaceId,
    visit: &mut dyn FnMut(&ChainEntry),
) -> Result<(), SealError> {
    let mut last_number = 0;
    loop {
        let entries = store.chain_entries(workspace, last_number, STEPS)?;
        entries.iter().for_each(&mut *visit);
        match entries.last() {
            Some(last) if last.number > last_number && i64::try_from(last.number).is_ok() => {
                last_number = last.number
            }
            _ => return Ok(()),
        }
    }
}

/// The digest of a step; zeroes for one that cannot be read, which no step has.
pub(crate) fn readable_digest(entry: &ChainEntry) -> Hash {
    entry.digest.unwrap_or(Hash::from_bytes([0; 32]))
}

/// The first bytes of a digest.
pub(crate) fn shorten(digest: Hash) -> ShortDigest {
    let mut short = ShortDigest::default();
    let len = short.len();
    short.copy_from_slice(&digest.as_bytes()[..len]);
    short
}

/// Parses the digests of a seal.
pub(crate) fn parse_digests(text: &str) -> Result<Vec<ShortDigest>, SealError> {
    let malformed = || SealError::Malformed("its digests are not hex digits".into());
    if !text.len().is_multiple_of(16) {
        return Err(malformed());
    }
    text.as_bytes().chunks(16).map(|digits| hex::decode_array(digits).ok_or_else(malformed)).collect()
}

/// Parses the numbers of a session's steps; there are `count`.
pub(crate) fn parse_numbers(text: &str, count: u64) -> Result<Vec<u64>, SealError> {
    let malformed = || SealError::Malformed("its numbers of steps cannot be read".into());
    let mut numbers = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) =
            (first.parse().map_err(|_| malformed())?, last.parse().map_err(|_| malformed())?);
        // A forged range must not fill the memory.
        if last < first || last - first >= count.saturating_sub(numbers.len() as u64) {
            return Err(malformed());
        }
        numbers.extend(first..=last);
    }
    if numbers.len() as u64 == count { Ok(numbers) } else { Err(malformed()) }
}

/// Numbers in ascending order, as ranges.
#[derive(Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn add(&mut self, number: u64) {
        match self.0.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => self.0.push((number, number)),
        }
    }

    fn to_text(&self) -> String {
        let range = |(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.0.iter().map(range).collect::<Vec<_>>().join(",")
    }
}

/// What is wrong with the chains of a workspace now, as sentences.
pub fn find_breaks(store: &dyn Store, workspace: WorkspaceId) -> Result<Vec<String>, SealError> {
    let report = step_chain::verify(store, workspace)?;
    Ok(report.breaks.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_as_ranges() {
        let numbers = [1, 2, 3, 7, 9, 10];
        let mut ranges = Ranges::default();
        numbers.into_iter().for_each(|number| ranges.add(number));
        assert_eq!(ranges.to_text(), "1-3,7,9-10");
        assert_eq!(parse_numbers("1-3,7,9-10", 6).unwrap(), numbers);
        assert_eq!(parse_numbers("", 0).unwrap(), [0; 0]);
        for wrong in ["1-99999999999", "3-1", "x", "1-3", "1,2,3,4,5,6,7"] {
            assert!(parse_numbers(wrong, 6).is_err(), "{wrong}");
        }
    }
}
