//! The hash chain of a session's steps, by which a later change of the record is noticed.
//!
//! Every step has a *digest* of all that never changes in it, and a *link*: SHA-256 over the link of the step before it in
//! the same session and its own digest. A link therefore covers the step, the hash of its state, the hash of its detail, and
//! every step before. What may change later (labels, notes, tags, hidden and purged steps) is not covered, and neither is
//! the number, which the store assigns. Specified in `docs/spec/store.md`, "Step chain".
//!
//! Links are SHA-256 and not BLAKE3 so that PostgreSQL can compute them where it appends the steps.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::from_text::from_text;
use crate::hash::Hash;
use crate::hex;
use crate::json::ValueRoot;
use crate::record::{Operation, Step, Trigger};

/// Domain of the digest of a step: fixed, public, 32 bytes.
const STEP_DOMAIN: &[u8; 32] = b"stepback step digest v1.........";
/// Domain of the digest of an operation.
const OPERATION_DOMAIN: &[u8; 32] = b"stepback operation digest v1....";

/// A link of a session's chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepLink([u8; 32]);

impl StepLink {
    /// Stands before the first step of a session.
    pub const START: Self = Self([0; 32]);

    /// The link of the step with this digest that follows the step with this link.
    pub fn next(self, digest: Hash) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(digest.as_bytes());
        Self(hasher.finalize().into())
    }

    /// Wraps a slice read from storage; `None` unless it has exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        hex::decode_array(text.as_bytes()).map(Self)
    }
}

impl fmt::Display for StepLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for StepLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl serde::Serialize for StepLink {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for StepLink {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, |text| Self::from_hex(text).ok_or("a link has 64 hex digits"))
    }
}

/// The digest of everything in a step that never changes: the keyed BLAKE3 hash of its fields, in a fixed order.
pub fn step_digest(step: &Step, trigger: Option<Trigger>) -> Hash {
    let meta = &step.meta;
    let mut fields = FieldHasher::new(STEP_DOMAIN);
    fields.add(Some(step.id.as_bytes()));
    fields.add(Some(step.session.as_bytes()));
    fields.add(step.parent.as_ref().map(|parent| parent.as_bytes().as_slice()));
    fields.add(Some(step.kind.as_str().as_bytes()));
    fields.add(Some(&step.at.as_micros().to_le_bytes()));
    fields.add(Some(step.state.as_bytes()));
    fields.add(Some(step.summary.as_bytes()));
    fields.add(trigger.map(|trigger| trigger.as_str().as_bytes()));
    fields.add(Some(&meta.iteration.to_le_bytes()));
    for text in [&meta.worker, &meta.call, &meta.tool] {
        fields.add(text.as_ref().map(|text| text.as_bytes()));
    }
    fields.add(Some(&[u8::from(meta.failed)]));
    fields.add(meta.duration.map(u64::to_le_bytes).as_ref().map(<[u8; 8]>::as_slice));
    fields.add(meta.detail.map(ValueRoot::to_bytes).as_deref());
    // Steps without any of them have the digest that they had before these fields existed.
    if !meta.context.is_empty() {
        meta.context.ids().for_each(|id| fields.add(id.map(str::as_bytes)));
    }
    fields.finish()
}

/// The digest of everything in an operation that never changes: status, journal and whether it is undone are not covered.
pub fn operation_digest(operation: &Operation) -> Hash {
    // Plain data with string keys always serialises, in the order of its declaration.
    let action = serde_json::to_string(&operation.action).unwrap_or_default();
    let mut fields = FieldHasher::new(OPERATION_DOMAIN);
    fields.add(Some(operation.id.as_bytes()));
    fields.add(Some(operation.workspace.as_bytes()));
    fields.add(Some(&operation.number.to_le_bytes()));
    fields.add(Some(&operation.at.as_micros().to_le_bytes()));
    fields.add(Some(operation.summary.as_bytes()));
    fields.add(Some(action.as_bytes()));
    fields.finish()
}

/// Hashes a list of fields so that no two lists give the same bytes: an absent field is one byte 0, any other one byte 1,
/// its length in eight bytes, and its bytes.
struct FieldHasher(blake3::Hasher);

impl FieldHasher {
    fn new(domain: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_keyed(domain))
    }

    fn add(&mut self, field: Option<&[u8]>) {
        let Some(bytes) = field else {
            self.0.update(&[0]);
            return;
        };
        self.0.update(&[1]);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> Hash {
        Hash::from_bytes(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::ObjectKind;
    use crate::ids::{SessionId, StepId};
    use crate::record::{StepKind, StepMeta};
    use crate::time::Timestamp;

    fn step() -> Step {
        Step {
            id: StepId::from_bytes([1; 16]),
            session: SessionId::from_bytes([2; 16]),
            number: 7,
            parent: None,
            kind: StepKind::ToolEnd,
            at: Timestamp::from_micros(1_700_000_000_000_000),
            state: Hash::of(ObjectKind::State, b"state"),
            summary: "Bash: cargo test".into(),
            meta: StepMeta { tool: Some("Bash".into()), ..StepMeta::default() },
        }
    }

    #[test]
    fn every_lasting_field_counts_and_the_number_does_not() {
        let original = step_digest(&step(), None);
        let other = |change: &dyn Fn(&mut Step)| {
            let mut changed = step();
            change(&mut changed);
            step_digest(&changed, None)
        };
        assert_eq!(other(&|step| step.number = 8), original);
        let root = ValueRoot { node: Hash::of(ObjectKind::Json, b"1"), part: None };
        let part = ValueRoot { part: Some(0), ..root };
        let mut seen =
            std::collections::HashSet::from([original, step_digest(&step(), Some(Trigger::Manual))]);
        let changes: [&dyn Fn(&mut Step); 20] = [
            &|step| step.id = StepId::from_bytes([9; 16]),
            &|step| step.session = SessionId::from_bytes([9; 16]),
            &|step| step.parent = Some(StepId::from_bytes([9; 16])),
            &|step| step.kind = StepKind::ToolStart,
            &|step| step.at = Timestamp::from_micros(1),
            &|step| step.state = Hash::of(ObjectKind::State, b"other"),
            &|step| step.summary.push('!'),
            &|step| step.meta.iteration = 1,
            &|step| step.meta.worker = Some("Bash".into()),
            &|step| step.meta.call = Some("Bash".into()),
            &|step| step.meta.tool = None,
            // The same text in another field.
            &|step| step.meta.worker = step.meta.tool.take(),
            &|step| step.meta.failed = true,
            &|step| step.meta.duration = Some(0),
            &|step| step.meta.detail = Some(root),
            &|step| step.meta.detail = Some(part),
            &|step| step.meta.context.task = Some("Bash".into()),
            &|step| step.meta.context.trace = Some("Bash".into()),
            &|step| step.meta.context.span = Some("Bash".into()),
            &|step| step.meta.context.parent_span = Some("Bash".into()),
        ];
        for (index, change) in changes.iter().enumerate() {
            assert!(seen.insert(other(change)), "change {index}");
        }
    }

    /// Stores keep these bytes: a change is a change of the format.
    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let digest = step_digest(&step(), Some(Trigger::Automatic));
        let link = StepLink::START.next(digest);
        assert_eq!(digest.to_string(), "319cd63c470ae239cd61af608cb6b045368fb8e1c3847d726d3cf7132df6fd47");
        assert_eq!(link.to_string(), "180bb0d25eb6939b28d6416ba8139b17797fed38732d72f7e3e90957dc0436fa");
        assert_eq!(StepLink::from_hex(&link.to_string()), Some(link));
        assert_ne!(link.next(digest), link);
    }
}
