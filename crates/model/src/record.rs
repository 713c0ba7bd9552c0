//! The records of the log: workspaces, sessions, steps, checkpoints and operations.
//!
//! These are facts with numbers and times; everything large hangs off a state hash. Records are serialised as JSON where
//! a backend keeps them as documents, so field names are part of the format (`docs/spec/store.md`).

mod operation;
mod session;
mod step;
mod workspace;

pub use self::operation::{Action, OpStatus, Operation, StateTransition};
pub use self::session::{LaunchCommand, OpenCall, Session, SessionInfo, StateRefs};
pub use self::step::{Annotation, Checkpoint, Step, StepKind, StepMeta, Trigger};
pub use self::workspace::Workspace;
use crate::hash::Hash;

/// Enough of a hash for an id.
fn first_half(hash: Hash) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_bytes()[..16]);
    id
}
