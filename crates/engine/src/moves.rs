//! The one way to move a workspace: rewind, undo, redo and switch of branches, for every command and every server.
//!
//! A caller turns its input into a [`MoveRequest`]. [`Workspace::plan_move`] answers with a [`PlannedMove`], which says exactly
//! what would happen and changes nothing; [`Workspace::apply_move`] does it and returns a [`MoveReport`]. What needs
//! knowledge of agents, such as continuing a conversation, is left to the caller.
//!
//! The caller may confirm in the same process, or later in any other: [`Workspace::save_plan`] keeps the request in the store
//! under the id of the plan, and [`Workspace::confirm_move`] plans again and compares. No lock is held in between.
//!
//! [`Workspace::plan_move`]: crate::Workspace::plan_move
//! [`Workspace::apply_move`]: crate::Workspace::apply_move
//! [`Workspace::save_plan`]: crate::Workspace::save_plan
//! [`Workspace::confirm_move`]: crate::Workspace::confirm_move

mod apply;
pub(crate) mod part_steps;
mod parts;
mod plan;
mod request;
mod shown;

pub use self::apply::MoveReport;
pub use self::part_steps::MovedPart;
pub use self::parts::{PartsError, PlannedPart, RewindParts, SessionPart};
pub use self::plan::{MoveRiders, PlannedMove};
pub use self::request::{MoveAction, MoveKind, MoveRequest, MovingAgent};
pub use self::shown::{Confirmation, ShownPlan};
