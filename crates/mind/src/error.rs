//! Why a change of a mind is refused. Each says what to do instead.

use stepback_model::json::JsonError;

use crate::ids::{Item, Kind};

/// Why a mind could not be changed, read or written.
#[derive(Debug, thiserror::Error)]
pub enum MindError {
    /// A text that names no item.
    #[error(
        "\"{0}\" is no name of an item: names are a letter and a number, such as H2, E7, B3, C1, G4, V1, N5 or X1"
    )]
    NoName(String),
    /// An item of another kind was asked for.
    #[error("{item} is no {}: those are called {}1, {}2, …", wanted.noun(), wanted.letter(), wanted.letter())]
    WrongKind {
        /// The item that was named.
        item: Item,
        /// What it should be.
        wanted: Kind,
    },
    /// There is no such item.
    #[error("there is no {} {item}{}", item.kind.noun(), known(item.kind, *newest))]
    Unknown {
        /// What was asked for.
        item: Item,
        /// The newest number of its kind.
        newest: u32,
    },
    /// The item was there and was taken back.
    #[error("{0} was taken back")]
    TakenBack(Item),
    /// A number that cannot be one of its kind.
    #[error("the {what} must be a number from {least} to {most}, not {given}")]
    Number {
        /// What it is.
        what: &'static str,
        /// The least it can be.
        least: f64,
        /// The most it can be.
        most: f64,
        /// What was given.
        given: f64,
    },
    /// A text that is empty, too long or not printable.
    #[error("the {what} {how}")]
    Text {
        /// What it is.
        what: &'static str,
        /// What is wrong with it.
        how: String,
    },
    /// Something cannot depend on itself.
    #[error("{0} cannot depend on itself")]
    Itself(Item),
    /// Dependencies would lead in a circle.
    #[error("that would be a circle: {}", arrows(.0))]
    Cycle(Vec<Item>),
    /// The state of an item does not allow it.
    #[error("{item} is {is}: {rule}")]
    State {
        /// Which item.
        item: Item,
        /// Its state.
        is: &'static str,
        /// What would be allowed.
        rule: String,
    },
    /// Too many of something.
    #[error("there are {most} {what} already, which is as many as one board can have; {remedy}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there can be.
        most: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// Anything else that does not make sense.
    #[error("{0}")]
    Senseless(String),
    /// Stored bytes that are no mind, or a newer one.
    #[error("the stored reasoning cannot be read: {0}")]
    Unreadable(String),
    /// The object store failed.
    #[error(transparent)]
    Json(#[from] JsonError),
}

fn known(kind: Kind, newest: u32) -> String {
    match newest {
        0 => format!("; there is no {} yet", kind.noun()),
        newest => format!("; the newest is {}{newest}", kind.letter()),
    }
}

fn arrows(items: &[Item]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}
