//! Arguments of `stepback board hypothesis` and `stepback board evidence`.

use clap::Subcommand;

use super::BoardSelector;

/// Hypotheses.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum HypothesisCommand {
    /// Propose a hypothesis
    #[command(
        after_help = "Examples:\n  stepback board hypothesis propose \"the cache is stale after a deploy\"\n  stepback board hypothesis propose \"the clock jumps\" --prior 0.2 --tag time\n  stepback board hypothesis propose \"only on arm\" --parent H1 --excludes H2"
    )]
    Propose {
        /// The hypothesis, as a statement
        statement: String,
        /// Probability before any evidence, from 0.001 to 0.999
        #[arg(long, value_name = "P", default_value_t = 0.5, allow_negative_numbers = true)]
        prior: f64,
        /// A hypothesis it is a special case of; it is rejected along with it (can be repeated)
        #[arg(long = "parent", value_name = "H")]
        parents: Vec<String>,
        /// A hypothesis that cannot also be true (can be repeated)
        #[arg(long, value_name = "H")]
        excludes: Vec<String>,
        /// A tag (can be repeated)
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List hypotheses, the most likely open one first
    #[command(
        after_help = "Examples:\n  stepback board hypothesis list\n  stepback board hypothesis list --at \"2 hours ago\"\n  stepback board hypothesis list --tag time --json"
    )]
    List {
        /// Show the board at this point
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        /// Only with this tag
        #[arg(long, value_name = "TAG")]
        tag: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Word a hypothesis in another way; its old wording is kept
    #[command(
        after_help = "Examples:\n  stepback board hypothesis edit H1 \"the cache is stale for an hour after a deploy\""
    )]
    Edit {
        /// The hypothesis, such as H1
        hypothesis: String,
        /// Its new wording, as a statement
        statement: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Mark a hypothesis as being tested
    #[command(after_help = "Examples:\n  stepback board hypothesis test H1")]
    Test {
        /// The hypothesis, such as H1
        hypothesis: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Confirm or reject a hypothesis; special cases are rejected along with it
    #[command(
        after_help = "Examples:\n  stepback board hypothesis conclude H1 confirmed --because \"the test passes with the cache off\"\n  stepback board hypothesis conclude H2 rejected"
    )]
    Conclude {
        /// The hypothesis, such as H1
        hypothesis: String,
        /// confirmed or rejected
        #[arg(value_parser = ["confirmed", "rejected"])]
        how: String,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Reopen a hypothesis, and the special cases that were rejected along with it
    #[command(after_help = "Examples:\n  stepback board hypothesis reopen H2")]
    Reopen {
        /// The hypothesis, such as H1
        hypothesis: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Archive a hypothesis
    #[command(after_help = "Examples:\n  stepback board hypothesis archive H2")]
    Archive {
        /// The hypothesis, such as H1
        hypothesis: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Rank hypotheses to test next
    #[command(after_help = "Examples:\n  stepback board hypothesis next")]
    Next {
        #[command(flatten)]
        board: BoardSelector,
    },
}

/// Evidence.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum EvidenceCommand {
    /// Add evidence for or against a hypothesis
    #[command(
        after_help = "A strength of 1 multiplies the odds by 20, -1 divides them by 20. Evidence from the same source counts once.\n\nExamples:\n  stepback board evidence add H1 \"the log shows a hit after the deploy\" --strength 0.6 --step tool:bash:last\n  stepback board evidence add H1 \"the key has no version\" --strength 0.8 --code src/cache.rs:42\n  stepback board evidence add H2 \"the manual says it is monotonic\" --strength -0.9 --doc \"clock_gettime(2)\""
    )]
    Add {
        /// The hypothesis, such as H1
        hypothesis: String,
        /// What was found
        text: String,
        /// From -1 (strongly against) to 1 (strongly for)
        #[arg(long, value_name = "S", allow_negative_numbers = true)]
        strength: f64,
        /// observation, test, measurement, code, documentation or reasoning [default: by its source]
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Source: the tool output recorded at this point
        #[arg(long, value_name = "POINT", group = "source")]
        step: Option<String>,
        /// Source: output of this tool that is not recorded
        #[arg(long, value_name = "NAME", group = "source")]
        tool: Option<String>,
        /// Source: a location in the code
        #[arg(long, value_name = "FILE[:LINE]", group = "source")]
        code: Option<String>,
        /// Source: a document
        #[arg(long, value_name = "NAME", group = "source")]
        doc: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// Withdraw evidence, so that it no longer counts
    #[command(
        after_help = "Examples:\n  stepback board evidence withdraw E3 \"that log was of another run\""
    )]
    Withdraw {
        /// The evidence, such as E3
        evidence: String,
        /// The reason
        reason: String,
        #[command(flatten)]
        board: BoardSelector,
    },
    /// List evidence
    #[command(
        after_help = "Examples:\n  stepback board evidence list\n  stepback board evidence list H1 --json"
    )]
    List {
        /// Only for this hypothesis
        hypothesis: Option<String>,
        #[command(flatten)]
        board: BoardSelector,
    },
}
