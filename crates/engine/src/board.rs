//! The reasoning board of an agent as part of its session: changed step by step, readable at any moment, restored and taken back.
//!
//! Every change is a step of kind `reasoning` whose state has the board after it. Such a step has no files of its own; if a
//! change is worth a checkpoint and files have changed, a checkpoint is made first. So the board at a moment is that of the
//! newest such step at or before it, and pruning checkpoints never loses reasoning.
//!
//! This is what recording and moves need: a rewind, a switch or an undo can take the board along. What else can be done with a
//! board is in the crate `stepback-board`.

mod at_point;
mod editor;
mod merge_branch;
mod replace;

pub use self::at_point::{BoardAtPoint, BoardMoment};
pub use self::editor::{BoardEdit, BoardEditor};
pub use self::replace::BoardReplacement;
