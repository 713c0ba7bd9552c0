//! Structurally shared JSON: an agent's memory, its beliefs, its task.
//!
//! A value is stored as a tree of [`ObjectKind::Json`] nodes, so that a state at every step costs only what changed:
//!
//! - **Equal values have equal hashes.** Object keys are sorted by their bytes, whatever order they came in; loading
//!   gives a value that is equal to the one stored.
//! - A part of a value whose encoding has at most 256 bytes is kept inside its parent; a larger one is an
//!   object of its own, stored once however often it occurs. A string over 4 KiB is a blob of its own.
//! - An array or object with more than 128 members, or over 8 KiB, is split into groups of members with boundaries that
//!   its content decides (the hash of an array's element, the key of an object's field), and groups of groups. Changing
//!   one leaf of a huge value writes one group on each level.
//! - Small values that are written together can stand on a [`ValuePage`]; a [`ValueRoot`] says where a value is.
//!
//! # Numbers
//!
//! Integers from -2⁶³ to 2⁶⁴ - 1 are exact: 9007199254740993 stays what it is (RFC 8785 would round it). Every other
//! number is the 64-bit float that `serde_json` read. `1` and `1.0` are different values, as they are for `serde_json`;
//! `-0.0` and `0.0` are equal there, so both are stored as `0.0`.
//!
//! # Limits
//!
//! Values nest at most [`MAX_DEPTH`] containers deep, and their encoding, with shared parts counted each time, is at most
//! [`MAX_BYTES`]. Both are checked when storing and again when loading: a small store of shared nodes could otherwise
//! unfold into more than memory holds.

mod assemble;
mod diff;
mod node;
mod page;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use assemble::{Piece, assemble, fields};
pub use diff::{ValueDifference, diff};
pub use node::children;
pub use page::{NoRoot, ValuePage, ValueRoot};
pub use read::{get, load, load_page};
pub use write::{store, store_fields};

use crate::object::ObjectError;

#[cfg(doc)]
use crate::ObjectKind;

/// Maximum nesting of arrays and objects.
pub const MAX_DEPTH: usize = 128;
/// Maximum size of the encoding of one value, in bytes, with shared parts counted each time they occur.
pub const MAX_BYTES: usize = 256 << 20;

/// Why a JSON value could not be stored, loaded or searched.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// An object could not be read or written.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The value nests too deep.
    #[error("the JSON value nests more than {MAX_DEPTH} arrays and objects deep")]
    TooDeep,
    /// The value is too large.
    #[error("the JSON value is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// A number that is neither a 64-bit integer nor a finite float.
    #[error("the JSON number {0} cannot be stored exactly")]
    Number(serde_json::Number),
    /// The text is not a JSON pointer (RFC 6901).
    #[error("{pointer:?} is not a JSON pointer: {reason}")]
    Pointer {
        /// The text.
        pointer: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}
