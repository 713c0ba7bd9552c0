//! Arguments of `stepback board belief` and `stepback board contradiction`.

use clap::Subcommand;

use super::BoardSelector;

/// Beliefs.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BeliefCommand {
    /// Add a belief
    #[command(
        after_help = "With a subject and a value, observations are compared with expectations, and contradictions reported.\n\nExamples:\n  stepback board belief add \"requests are retried\" --kind assumption --confidence 0.7\n  stepback board belief add \"a query takes 5 to 20 ms\" --kind expectation --subject query-ms --range 5..20\n  stepback board belief add \"it took 120 ms\" --kind observation --subject query-ms --value 120"
    )]
    Add {
        /// The belief, as a statement
        statement: String,
        /// observation, inference, assumption, action or expectation
        #[arg(long, value_name = "KIND")]
        kind: String,
        /// Confidence by itself, from 0 to 1
        #[arg(long, value_name = "C", default_value_t = 0.8, allow_negative_numbers = true)]
        confidence: f64,
        /// What is measured or expected
        #[arg(long, value_name = "NAME")]
        subject: Option<String>,
        /// The observed or expected value: a number, true, false, or a word
        #[arg(
            long,
            value_name = "VALUE",
            requires = "subject",
            conflicts_with = "range",
            allow_hyphen_values = true
        )]
        value: Option<String>,
        /// The expected range of a number, such as 5..20
        #[arg(long, value_name = "FROM..TO", requires = "subject", allow_hyphen_values = true)]
        range: Option<String>,
        /// The hypothesis it belongs to
        #[arg(long, value_name = "H")]
        hypothesis: Option<String>,
        /// A tag (can be repeated)
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Record that a belief depends on another
    #[command(
        after_help = "Examples:\n  stepback board belief depend B3 B1\n  stepback board belief depend B3 B2 --kind supported-by --strength 0.6 --because \"the trace shows it\""
    )]
    Depend {
        /// The dependent belief, such as B3
        belief: String,
        /// The belief it depends on
        on: String,
        /// requires, derived-from, caused-by or supported-by
        #[arg(long, value_name = "KIND", default_value = "requires")]
        kind: String,
        /// Strength of the dependency, from 0 to 1
        #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true)]
        strength: f64,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Remove a dependency between two beliefs
    #[command(after_help = "Examples:\n  stepback board belief undepend B3 B1")]
    Undepend {
        /// The dependent belief, such as B3
        belief: String,
        /// The belief it depended on
        on: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Change the confidence of a belief
    #[command(
        after_help = "Examples:\n  stepback board belief revise B1 0.4 --because \"seen to fail once\""
    )]
    Revise {
        /// The belief, such as B1
        belief: String,
        /// The new confidence, from 0 to 1
        #[arg(allow_negative_numbers = true)]
        confidence: f64,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Retract a belief
    #[command(
        after_help = "Examples:\n  stepback board belief retract B1 --because \"the retry is off by default\""
    )]
    Retract {
        /// The belief, such as B1
        belief: String,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Show what is affected if a belief is wrong
    #[command(after_help = "Examples:\n  stepback board belief impact B1")]
    Impact {
        /// The belief, such as B1
        belief: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Show the beliefs at the root of a belief, least confident first
    #[command(after_help = "Examples:\n  stepback board belief roots B3")]
    Roots {
        /// The belief, such as B1
        belief: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List beliefs
    #[command(after_help = "Examples:\n  stepback board belief list --at '#40'")]
    List {
        /// Show the board at this point
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
}

/// Contradictions.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ContradictionCommand {
    /// Add a contradiction between two items
    #[command(
        after_help = "Examples:\n  stepback board contradiction add B1 B4 \"it cannot be retried and fail at once\" --severity high"
    )]
    Add {
        /// The first item
        left: String,
        /// The second item
        right: String,
        /// The reason
        reason: String,
        /// low, medium, high or critical
        #[arg(long, value_name = "S", default_value = "medium")]
        severity: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Record how a contradiction was resolved
    #[command(
        after_help = "Examples:\n  stepback board contradiction resolve C1 \"B1 was about the old client\""
    )]
    Resolve {
        /// The contradiction, such as C1
        contradiction: String,
        /// The resolution
        how: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Dismiss a contradiction that is not real
    #[command(
        after_help = "Examples:\n  stepback board contradiction dismiss C1 \"they are about different hosts\""
    )]
    Dismiss {
        /// The contradiction, such as C1
        contradiction: String,
        /// The reason
        why: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List contradictions
    #[command(after_help = "Examples:\n  stepback board contradiction list")]
    List {
        #[command(flatten)]
        board: BoardSelector,
    },
}
