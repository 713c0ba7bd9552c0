//! The words of `stepback belief` and `stepback contradiction`.

use clap::Subcommand;

use super::BoardArgs;

/// Beliefs.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BeliefCommand {
    /// Say what is held to be true
    #[command(
        after_help = "With a subject and a value, observations and expectations are compared, and contradictions found.\n\nExamples:\n  stepback belief add \"requests are retried\" --kind assumption --confidence 0.7\n  stepback belief add \"a query takes 5 to 20 ms\" --kind expectation --subject query-ms --range 5..20\n  stepback belief add \"it took 120 ms\" --kind observation --subject query-ms --value 120"
    )]
    Add {
        /// What
        statement: String,
        /// observation, inference, assumption, action or expectation
        #[arg(long, value_name = "KIND")]
        kind: String,
        /// How sure it is by itself, from 0 to 1
        #[arg(long, value_name = "C", default_value_t = 0.8, allow_negative_numbers = true)]
        confidence: f64,
        /// What is measured or expected
        #[arg(long, value_name = "NAME")]
        subject: Option<String>,
        /// What was seen or is expected of it: a number, true, false, or a word
        #[arg(
            long,
            value_name = "VALUE",
            requires = "subject",
            conflicts_with = "range",
            allow_hyphen_values = true
        )]
        value: Option<String>,
        /// A number that is expected between two: 5..20
        #[arg(long, value_name = "FROM..TO", requires = "subject", allow_hyphen_values = true)]
        range: Option<String>,
        /// The hypothesis it belongs to
        #[arg(long, value_name = "H")]
        hypothesis: Option<String>,
        /// A word to find it by (can be repeated)
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that one belief rests on another
    #[command(
        after_help = "Examples:\n  stepback belief depend B3 B1\n  stepback belief depend B3 B2 --kind supported-by --strength 0.6 --because \"the trace shows it\""
    )]
    Depend {
        /// The one
        belief: String,
        /// The one it rests on
        on: String,
        /// requires, derived-from, caused-by or supported-by
        #[arg(long, value_name = "KIND", default_value = "requires")]
        kind: String,
        /// How much, from 0 to 1
        #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true)]
        strength: f64,
        /// Why
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that one belief no longer rests on another
    #[command(after_help = "Examples:\n  stepback belief undepend B3 B1")]
    Undepend {
        /// The one
        belief: String,
        /// The other
        on: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say how sure a belief is now
    #[command(after_help = "Examples:\n  stepback belief revise B1 0.4 --because \"seen to fail once\"")]
    Revise {
        /// Which
        belief: String,
        /// From 0 to 1
        #[arg(allow_negative_numbers = true)]
        confidence: f64,
        /// Why
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that a belief is no longer held
    #[command(
        after_help = "Examples:\n  stepback belief retract B1 --because \"the retry is off by default\""
    )]
    Retract {
        /// Which
        belief: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Show what falls if a belief is wrong
    #[command(after_help = "Examples:\n  stepback belief impact B1")]
    Impact {
        /// Which
        belief: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Show what a belief rests on in the end, the shakiest first
    #[command(after_help = "Examples:\n  stepback belief roots B3")]
    Roots {
        /// Which
        belief: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List beliefs
    #[command(after_help = "Examples:\n  stepback belief list --at '#40'")]
    List {
        /// As it was at this point
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
}

/// Contradictions.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ContradictionCommand {
    /// Say that two things cannot both be true
    #[command(
        after_help = "Examples:\n  stepback contradiction add B1 B4 \"it cannot be retried and fail at once\" --severity high"
    )]
    Add {
        /// The one
        left: String,
        /// The other
        right: String,
        /// Why
        reason: String,
        /// low, medium, high or critical
        #[arg(long, value_name = "S", default_value = "medium")]
        severity: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say how a contradiction was resolved
    #[command(after_help = "Examples:\n  stepback contradiction resolve C1 \"B1 was about the old client\"")]
    Resolve {
        /// Which
        contradiction: String,
        /// How
        how: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that a contradiction is none
    #[command(
        after_help = "Examples:\n  stepback contradiction dismiss C1 \"they are about different hosts\""
    )]
    Dismiss {
        /// Which
        contradiction: String,
        /// Why
        why: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List contradictions
    #[command(after_help = "Examples:\n  stepback contradiction list")]
    List {
        #[command(flatten)]
        board: BoardArgs,
    },
}
