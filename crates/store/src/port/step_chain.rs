//! The hash chains of sessions, as they are stored.

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::step_chain::StepLink;

use crate::error::StoreError;

/// Reads the chains of sessions; [`crate::step_chain::verify`] compares them with the steps.
///
/// A commit that appends steps gives each its link and moves the heads of their sessions, in the order of their numbers. It
/// reads the head of a session once, however many steps it appends.
pub trait StepChainStore {
    /// The steps of a workspace whose number is above `after`, in order of their numbers; at most `most`. With `after` 0,
    /// steps with numbers below 1, which no store assigns, come first.
    fn chain_entries(
        &self,
        workspace: WorkspaceId,
        after: u64,
        most: u64,
    ) -> Result<Vec<ChainEntry>, StoreError>;
    /// The heads of all sessions of a workspace, in no particular order.
    fn chain_heads(&self, workspace: WorkspaceId) -> Result<Vec<ChainHead>, StoreError>;
}

/// A step as part of the chain of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChainEntry {
    /// The session of the step.
    pub session: SessionId,
    /// The number of the step in its workspace.
    pub number: u64,
    /// The digest of the step as it is stored now; `None` if its row cannot be read.
    pub digest: Option<Hash>,
    /// The link that was stored with it; `None` for a step from before stores had links.
    pub link: Option<StepLink>,
}

/// The head of a session's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChainHead {
    /// The session.
    pub session: SessionId,
    /// Number of steps with a link.
    pub linked: u64,
    /// The link of the newest step; `None` if no step has one.
    pub head: Option<StepLink>,
}
