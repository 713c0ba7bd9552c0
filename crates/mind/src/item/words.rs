//! The words that items are described with. Each has one spelling, on disk, in documents and on the command line.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The stable name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            /// Parses the stable name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }
    };
}

words!(
    /// How far a hypothesis got.
    HypothesisStatus {
        /// Proposed.
        Active = "active",
        /// Being tested.
        Testing = "testing",
        /// Held to be true.
        Confirmed = "confirmed",
        /// Held to be false.
        Rejected = "rejected",
        /// Put aside.
        Archived = "archived",
    }
);
words!(
    /// What a piece of evidence is.
    EvidenceKind {
        /// Something that was seen.
        Observation = "observation",
        /// What a test showed.
        Test = "test",
        /// Something that was measured.
        Measurement = "measurement",
        /// What the code says.
        Code = "code",
        /// What a document says.
        Documentation = "documentation",
        /// What follows by thought.
        Reasoning = "reasoning",
    }
);
words!(
    /// What a belief is.
    BeliefKind {
        /// Something that was seen.
        Observation = "observation",
        /// Something that follows.
        Inference = "inference",
        /// Something taken for granted.
        Assumption = "assumption",
        /// Something that was done.
        Action = "action",
        /// Something that should come out.
        Expectation = "expectation",
    }
);
words!(
    /// Whether a belief is held.
    BeliefStatus {
        /// It is.
        Held = "held",
        /// It turned out to be wrong, or nobody holds it any more.
        Retracted = "retracted",
    }
);
words!(
    /// How one belief rests on another.
    DependencyKind {
        /// It cannot be true without it.
        Requires = "requires",
        /// It follows from it.
        DerivedFrom = "derived-from",
        /// It is an effect of it.
        CausedBy = "caused-by",
        /// It is one of several things that speak for it.
        SupportedBy = "supported-by",
    }
);
words!(
    /// How bad a contradiction is.
    Severity {
        /// Worth knowing.
        Low = "low",
        /// Something rests on it.
        Medium = "medium",
        /// A conclusion rests on it.
        High = "high",
        /// Nothing should be built on either side.
        Critical = "critical",
    }
);
words!(
    /// Whether a contradiction stands.
    ContradictionStatus {
        /// It does.
        Open = "open",
        /// One side gave way.
        Resolved = "resolved",
        /// It was none.
        Dismissed = "dismissed",
    }
);
words!(
    /// What kind of knowledge is missing.
    GapKind {
        /// A fact.
        Fact = "fact",
        /// How something behaves.
        Behavior = "behavior",
        /// Why something happens.
        Cause = "cause",
        /// What surrounds it.
        Environment = "environment",
        /// What is wanted.
        Requirement = "requirement",
        /// What a change would affect.
        Impact = "impact",
    }
);
words!(
    /// How much depends on a gap.
    Criticality {
        /// Little.
        Low = "low",
        /// Something.
        Medium = "medium",
        /// Much.
        High = "high",
        /// Everything.
        Critical = "critical",
    }
);
words!(
    /// Whether a gap is filled.
    GapStatus {
        /// Not yet.
        Open = "open",
        /// It is.
        Filled = "filled",
        /// Nobody needs to know any more.
        Dropped = "dropped",
    }
);
words!(
    /// How an experiment stands.
    ExperimentStatus {
        /// It goes on.
        Running = "running",
        /// What should come out came out.
        Succeeded = "succeeded",
        /// It did not.
        Failed = "failed",
        /// It does not tell.
        Inconclusive = "inconclusive",
        /// It was given up.
        Abandoned = "abandoned",
    }
);

impl DependencyKind {
    /// Its words in a sentence.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Requires => "requires",
            Self::DerivedFrom => "is derived from",
            Self::CausedBy => "is caused by",
            Self::SupportedBy => "is supported by",
        }
    }
}

impl Severity {
    /// How much it counts in a ranking.
    pub fn weight(self) -> f64 {
        [1.0, 2.0, 4.0, 8.0][self as usize]
    }
}

impl Criticality {
    /// How much it counts in a ranking.
    pub fn weight(self) -> f64 {
        [1.0, 2.0, 4.0, 8.0][self as usize]
    }
}

impl HypothesisStatus {
    /// Whether it is still open.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Active | Self::Testing)
    }
}
