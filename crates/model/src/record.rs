//! The records of the log: workspaces, sessions, steps, checkpoints and operations.
//!
//! Records are small: ids, numbers and times. Everything large is reached through a state hash. Backends that keep records
//! as documents serialise them as JSON, so field names are part of the format (`docs/spec/store.md`).

mod context;
mod operation;
mod session;
mod step;
mod workspace;

pub use self::context::StepContext;
pub use self::operation::{BranchStatus, OpStatus, Operation, OperationAction, StateTransition};
pub use self::session::{
    DaySpending, LaunchCommand, OpenCall, Session, SessionInfo, SkippedEvents, StateRefs,
};
pub use self::step::{Annotation, Step, StepKind, StepMeta, StepRow, Trigger};
pub use self::workspace::WorkspaceRecord;
use crate::hash::Hash;

/// The first 16 bytes of a hash, which are enough for an id.
fn first_half(hash: Hash) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_bytes()[..16]);
    id
}
