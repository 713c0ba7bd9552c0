//! Errors of changes to a mind. Each message says what to do instead.

use stepback_model::json::JsonError;

use crate::ids::{ItemId, ItemKind};

/// Why a mind could not be changed, read or written.
#[derive(Debug, thiserror::Error)]
pub enum MindError {
    /// A text that is not a name of an item.
    #[error(
        "\"{0}\" is not the name of an item: names are a letter and a number, such as H2, E7, B3, C1, G4, V1, N5 or X1"
    )]
    NoName(String),
    /// An item of another kind was required.
    #[error("{item} is not a {}; their names are {}1, {}2, …", wanted.noun(), wanted.letter(), wanted.letter())]
    WrongKind {
        /// The item that was given.
        item: ItemId,
        /// The kind that is required.
        wanted: ItemKind,
    },
    /// The item does not exist.
    #[error("there is no {} {item}{}", item.kind.noun(), known(item.kind, *newest))]
    Unknown {
        /// The item that was requested.
        item: ItemId,
        /// The highest number of its kind.
        newest: u32,
    },
    /// The item existed and was taken back.
    #[error("{0} was taken back")]
    TakenBack(ItemId),
    /// A number is out of range.
    #[error("the {what} must be a number from {least} to {most}, not {given}")]
    Number {
        /// The name of the quantity.
        what: &'static str,
        /// The lowest allowed value.
        least: f64,
        /// The highest allowed value.
        most: f64,
        /// The value that was given.
        given: f64,
    },
    /// A text that is empty, too long or not printable.
    #[error("the {what} {how}")]
    Text {
        /// The name of the field.
        what: &'static str,
        /// What is wrong with the text.
        how: String,
    },
    /// An item cannot depend on itself.
    #[error("{0} cannot depend on itself")]
    Itself(ItemId),
    /// Dependencies would form a cycle.
    #[error("this would be a cycle: {}", join_with_arrows(.0))]
    Cycle(Vec<ItemId>),
    /// The status of an item does not allow the change.
    #[error("{item} is {is}: {rule}")]
    State {
        /// The item.
        item: ItemId,
        /// Its present status.
        is: &'static str,
        /// What would be allowed.
        rule: String,
    },
    /// A limit is exceeded.
    #[error("there are already {most} {what}, the maximum for one board; {remedy}")]
    TooMany {
        /// The kind of things there are too many of.
        what: &'static str,
        /// The limit.
        most: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Any other change that does not make sense.
    #[error("{0}")]
    Senseless(String),
    /// Stored bytes that are not a mind, or are of a newer format.
    #[error("the stored reasoning cannot be read: {0}")]
    Unreadable(String),
    /// The object store failed.
    #[error(transparent)]
    Json(#[from] JsonError),
}

fn known(kind: ItemKind, newest: u32) -> String {
    match newest {
        0 => format!("; there is no {} yet", kind.noun()),
        newest => format!("; the newest is {}{newest}", kind.letter()),
    }
}

fn join_with_arrows(items: &[ItemId]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}
