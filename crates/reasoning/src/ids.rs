//! Names of items: a letter for the kind and a number, short enough to say and type (`H2`, `E7`).
//!
//! Numbers count up within one mind and are never reused on the same line of history. Two branches may give the same number
//! to different items; a merge renumbers them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stepback_model::from_text::from_text;

use crate::error::MindError;

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ItemKind {
    /// Something that may be true.
    Hypothesis,
    /// Something that speaks for or against a hypothesis.
    Evidence,
    /// Something held to be true.
    Belief,
    /// Two items that cannot both be true.
    Contradiction,
    /// Something that is not known.
    Gap,
    /// A check that can be run.
    Verification,
    /// The result of running a check.
    Run,
    /// A note.
    Note,
    /// A branch on which a hypothesis is tested.
    Experiment,
}

impl ItemKind {
    /// Every kind, in the order a board shows them.
    pub const ALL: [Self; 9] = [
        Self::Hypothesis,
        Self::Evidence,
        Self::Belief,
        Self::Contradiction,
        Self::Gap,
        Self::Verification,
        Self::Run,
        Self::Note,
        Self::Experiment,
    ];

    /// The letter in names of this kind.
    pub fn letter(self) -> char {
        match self {
            Self::Hypothesis => 'H',
            Self::Evidence => 'E',
            Self::Belief => 'B',
            Self::Contradiction => 'C',
            Self::Gap => 'G',
            Self::Verification => 'V',
            Self::Run => 'R',
            Self::Note => 'N',
            Self::Experiment => 'X',
        }
    }

    /// The noun for this kind.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Hypothesis => "hypothesis",
            Self::Evidence => "evidence",
            Self::Belief => "belief",
            Self::Contradiction => "contradiction",
            Self::Gap => "gap",
            Self::Verification => "verification",
            Self::Run => "run",
            Self::Note => "note",
            Self::Experiment => "experiment",
        }
    }

    /// The name of a list of this kind, on disk and in documents.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Hypothesis => "hypotheses",
            Self::Evidence => "evidence",
            Self::Belief => "beliefs",
            Self::Contradiction => "contradictions",
            Self::Gap => "gaps",
            Self::Verification => "verifications",
            Self::Run => "runs",
            Self::Note => "notes",
            Self::Experiment => "experiments",
        }
    }
}

/// The name of any item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId {
    /// The kind of the item.
    pub kind: ItemKind,
    /// The number, from 1.
    pub number: u32,
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.letter(), self.number)
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ItemId {
    type Err = MindError;

    fn from_str(text: &str) -> Result<Self, MindError> {
        let invalid = || MindError::NoName(text.chars().take(40).collect());
        let mut letters = text.chars();
        let letter = letters.next().ok_or_else(invalid)?.to_ascii_uppercase();
        let kind = ItemKind::ALL.into_iter().find(|kind| kind.letter() == letter).ok_or_else(invalid)?;
        let digits = letters.as_str();
        let is_canonical = !digits.starts_with('0') && digits.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_canonical).ok_or_else(invalid)?;
        Ok(Self { kind, number })
    }
}

impl Serialize for ItemId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ItemId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, str::parse)
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl From<$name> for ItemId {
            fn from(id: $name) -> Self {
                Self { kind: ItemKind::$kind, number: id.0 }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                ItemId::from(*self).fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                ItemId::from(*self).fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = MindError;

            fn from_str(text: &str) -> Result<Self, MindError> {
                match text.parse()? {
                    ItemId { kind: ItemKind::$kind, number } => Ok(Self(number)),
                    other => Err(MindError::WrongKind { item: other, wanted: ItemKind::$kind }),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, str::parse)
            }
        }
    };
}

name_type!(
    /// Names a hypothesis.
    HypothesisId, Hypothesis
);
name_type!(
    /// Names a piece of evidence.
    EvidenceId, Evidence
);
name_type!(
    /// Names a belief.
    BeliefId, Belief
);
name_type!(
    /// Names a contradiction.
    ContradictionId, Contradiction
);
name_type!(
    /// Names a gap.
    GapId, Gap
);
name_type!(
    /// Names a verification.
    VerificationId, Verification
);
name_type!(
    /// Names a run of a verification.
    RunId, Run
);
name_type!(
    /// Names a note.
    NoteId, Note
);
name_type!(
    /// Names an experiment.
    ExperimentId, Experiment
);
