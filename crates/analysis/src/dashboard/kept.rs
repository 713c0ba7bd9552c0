//! The summaries of a workspace's sessions, kept in a file beside their facts, so that a dashboard need not read the facts.
//!
//! The file is a cache: it is used only if its hash is right, the store still has its last step, and prices are the same as when
//! it was written.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_store::Store;

use super::summary::SessionSummary;
use crate::load::kept::WorkspaceCache;

/// The name of the file.
const FILE: &str = "summaries";
/// The format, which the file begins with; docs/spec/facts.md specifies it.
const MAGIC: &[u8] = b"stbsums1";
/// Bytes of the hash after it.
const HASH_BYTES: usize = 32;

/// The summaries of all sessions of a workspace, up to a step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct KeptSummaries {
    /// The number of the last step of the workspace.
    pub until: u64,
    /// The id of that step.
    pub last: Option<StepId>,
    /// A fingerprint of the prices.
    pub prices: u64,
    /// The summaries.
    pub sessions: HashMap<SessionId, SessionSummary>,
}

impl KeptSummaries {
    /// Reads the summaries of a workspace; `None` if there are none, or they cannot be used.
    pub fn read(
        cache: &WorkspaceCache,
        store: &dyn Store,
        workspace: WorkspaceId,
        prices: u64,
    ) -> Option<Self> {
        let bytes = cache.read_file(FILE)?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (hash, text) = rest.split_at_checked(HASH_BYTES)?;
        if Hash::of(ObjectKind::Blob, text).as_bytes() != hash {
            return None;
        }
        let kept: Self = serde_json::from_slice(text).ok()?;
        let last = store.step_numbered(workspace, kept.until).ok()?.map(|stored| stored.step.id);
        (kept.prices == prices && last == kept.last).then_some(kept)
    }

    /// Keeps the summaries. A directory that cannot be written to is no error.
    pub fn write(&self, cache: &WorkspaceCache) {
        let Ok(text) = serde_json::to_vec(self) else { return };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(Hash::of(ObjectKind::Blob, &text).as_bytes());
        bytes.extend_from_slice(&text);
        cache.write_file(FILE, &bytes);
    }
}
