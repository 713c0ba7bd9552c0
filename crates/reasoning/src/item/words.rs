//! The enumerations that describe items. Each value has one spelling, on disk, in documents and on the command line.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// All values.
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
    /// The status of a hypothesis.
    HypothesisStatus {
        /// Proposed.
        Active = "active",
        /// Being tested.
        Testing = "testing",
        /// Held to be true.
        Confirmed = "confirmed",
        /// Held to be false.
        Rejected = "rejected",
        /// Set aside.
        Archived = "archived",
    }
);
words!(
    /// The kind of a piece of evidence.
    EvidenceKind {
        /// Something that was seen.
        Observation = "observation",
        /// The result of a test.
        Test = "test",
        /// Something that was measured.
        Measurement = "measurement",
        /// What the code says.
        Code = "code",
        /// What a document says.
        Documentation = "documentation",
        /// Derived by reasoning.
        Reasoning = "reasoning",
    }
);
words!(
    /// The kind of a belief.
    BeliefKind {
        /// Something that was seen.
        Observation = "observation",
        /// Something that follows from other beliefs.
        Inference = "inference",
        /// Something taken for granted.
        Assumption = "assumption",
        /// Something that was done.
        Action = "action",
        /// An expected result.
        Expectation = "expectation",
    }
);
words!(
    /// Whether a belief is held.
    BeliefStatus {
        /// It is held.
        Held = "held",
        /// It turned out to be wrong, or is no longer held.
        Retracted = "retracted",
    }
);
words!(
    /// How one belief depends on another.
    DependencyKind {
        /// It cannot be true without the other.
        Requires = "requires",
        /// It follows from the other.
        DerivedFrom = "derived-from",
        /// It is an effect of the other.
        CausedBy = "caused-by",
        /// The other is one of several things that support it.
        SupportedBy = "supported-by",
    }
);
words!(
    /// How severe a contradiction is.
    Severity {
        /// Worth knowing.
        Low = "low",
        /// Something depends on it.
        Medium = "medium",
        /// A conclusion depends on it.
        High = "high",
        /// Nothing should be based on either side.
        Critical = "critical",
    }
);
words!(
    /// The status of a contradiction.
    ContradictionStatus {
        /// It is not settled.
        Open = "open",
        /// One side was changed.
        Resolved = "resolved",
        /// It was not a contradiction.
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
        /// The environment of something.
        Environment = "environment",
        /// What is required.
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
    /// The status of a gap.
    GapStatus {
        /// Not filled yet.
        Open = "open",
        /// Filled.
        Filled = "filled",
        /// The answer is not needed any more.
        Dropped = "dropped",
    }
);
words!(
    /// The status of an experiment.
    ExperimentStatus {
        /// Not ended yet.
        Running = "running",
        /// The success criterion was met.
        Succeeded = "succeeded",
        /// The success criterion was not met.
        Failed = "failed",
        /// The result does not tell.
        Inconclusive = "inconclusive",
        /// Stopped without a result.
        Abandoned = "abandoned",
    }
);

impl DependencyKind {
    /// The words for it in a sentence.
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
    /// Its weight in a ranking.
    pub fn weight(self) -> f64 {
        [1.0, 2.0, 4.0, 8.0][self as usize]
    }
}

impl Criticality {
    /// Its weight in a ranking.
    pub fn weight(self) -> f64 {
        [1.0, 2.0, 4.0, 8.0][self as usize]
    }
}

impl HypothesisStatus {
    /// Whether it is not concluded yet.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Active | Self::Testing)
    }
}
