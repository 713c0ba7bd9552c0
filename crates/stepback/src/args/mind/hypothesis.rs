//! The words of `stepback hypothesis` and `stepback evidence`.

use clap::Subcommand;

use super::BoardArgs;

/// Hypotheses.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum HypothesisCommand {
    /// Say what may be true
    #[command(
        after_help = "Examples:\n  stepback hypothesis propose \"the cache is stale after a deploy\"\n  stepback hypothesis propose \"the clock jumps\" --prior 0.2 --tag time\n  stepback hypothesis propose \"only on arm\" --parent H1 --excludes H2"
    )]
    Propose {
        /// What
        statement: String,
        /// How likely it is before any evidence, from 0.001 to 0.999
        #[arg(long, value_name = "P", default_value_t = 0.5, allow_negative_numbers = true)]
        prior: f64,
        /// The hypothesis it is a special case of: it falls with it
        #[arg(long, value_name = "H")]
        parent: Option<String>,
        /// A hypothesis that cannot be true together with it (can be repeated)
        #[arg(long, value_name = "H")]
        excludes: Vec<String>,
        /// A word to find it by (can be repeated)
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List hypotheses, the likeliest open one first
    #[command(
        after_help = "Examples:\n  stepback hypothesis list\n  stepback hypothesis list --at \"2 hours ago\"\n  stepback hypothesis list --tag time --json"
    )]
    List {
        /// As it was at this point
        #[arg(long, value_name = "POINT")]
        at: Option<String>,
        /// Only with this tag
        #[arg(long, value_name = "TAG")]
        tag: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that a hypothesis is being tested
    #[command(after_help = "Examples:\n  stepback hypothesis test H1")]
    Test {
        /// Which
        hypothesis: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Confirm or reject a hypothesis; special cases of a rejected one fall with it
    #[command(
        after_help = "Examples:\n  stepback hypothesis conclude H1 confirmed --because \"the test passes with the cache off\"\n  stepback hypothesis conclude H2 rejected"
    )]
    Conclude {
        /// Which
        hypothesis: String,
        /// confirmed or rejected
        #[arg(value_parser = ["confirmed", "rejected"])]
        how: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Open a hypothesis again; what fell with it comes back
    #[command(after_help = "Examples:\n  stepback hypothesis reopen H2")]
    Reopen {
        /// Which
        hypothesis: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Put a hypothesis aside
    #[command(after_help = "Examples:\n  stepback hypothesis archive H2")]
    Archive {
        /// Which
        hypothesis: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Rank what to test next
    #[command(after_help = "Examples:\n  stepback hypothesis next")]
    Next {
        #[command(flatten)]
        board: BoardArgs,
    },
}

/// Evidence.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum EvidenceCommand {
    /// Add evidence for or against a hypothesis
    #[command(
        after_help = "A strength of 1 makes it twenty times as likely against its opposite, -1 takes that back; what one source says counts once.\n\nExamples:\n  stepback evidence add H1 \"the log shows a hit after the deploy\" --strength 0.6 --step tool:bash:last\n  stepback evidence add H1 \"the key has no version\" --strength 0.8 --code src/cache.rs:42\n  stepback evidence add H2 \"the manual says it is monotonic\" --strength -0.9 --doc \"clock_gettime(2)\""
    )]
    Add {
        /// Of which hypothesis
        hypothesis: String,
        /// What was found
        text: String,
        /// From -1 (clearly against it) to 1 (clearly for it)
        #[arg(long, value_name = "S", allow_negative_numbers = true)]
        strength: f64,
        /// observation, test, measurement, code, documentation or reasoning [default: by its source]
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// What a tool said, at this point
        #[arg(long, value_name = "POINT", group = "source")]
        step: Option<String>,
        /// What a tool said that is not recorded: its name
        #[arg(long, value_name = "NAME", group = "source")]
        tool: Option<String>,
        /// A place in the code
        #[arg(long, value_name = "FILE[:LINE]", group = "source")]
        code: Option<String>,
        /// A document
        #[arg(long, value_name = "NAME", group = "source")]
        doc: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// Say that evidence no longer counts
    #[command(after_help = "Examples:\n  stepback evidence withdraw E3 \"that log was of another run\"")]
    Withdraw {
        /// Which
        evidence: String,
        /// Why
        reason: String,
        #[command(flatten)]
        board: BoardArgs,
    },
    /// List evidence
    #[command(after_help = "Examples:\n  stepback evidence list\n  stepback evidence list H1 --json")]
    List {
        /// Only of this hypothesis
        hypothesis: Option<String>,
        #[command(flatten)]
        board: BoardArgs,
    },
}
