//! The words of `why`.

use std::time::Duration;

use clap::Args;

use super::proxy::parse_duration;

/// Examples of `why`.
pub const WHY: &str = "\
Shows the chain that led to something (the tool call, the model's turn, the prompt), and where its words stand in what the model had seen: files, pages, results, prompts.
The chain is recorded; that words come from somewhere is inferred, because they also stand there.
Sources that neither you nor the session wrote are marked \"untrusted\": an instruction in one of them is not yours.

Examples:
  stepback why '#42'
  stepback why src/main.rs:40,43
  stepback why src/main.rs:40 --at '#12'
  stepback why H2
  stepback why session:4f2a --json
  stepback why '#42' --without 1 --runs 5 --live
  stepback why '#42' --graph | dot -Tsvg > why.svg";

// Why something is as it is.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// A point, lines of a file, an item of the board (H2), or a session
    #[arg(value_name = "POINT|FILE[:LINE[,LINE]]|ITEM|SESSION")]
    pub target: String,
    /// The file as it was at this point
    #[arg(long, value_name = "POINT")]
    pub at: Option<String>,
    /// The session whose board has the item [default: the last one at work]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Print the graph in Graphviz's language
    #[arg(long, conflicts_with = "json")]
    pub graph: bool,
    /// Run the session again without this source (its number in the answer), and say how often the change still came
    #[arg(long, value_name = "SOURCE", conflicts_with = "graph")]
    pub without: Option<usize>,
    /// How many times
    #[arg(long, value_name = "N", default_value_t = 1, requires = "without", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub runs: u64,
    /// Allow the model calls of these runs; they are billed as usual
    #[arg(long, requires = "without")]
    pub live: bool,
    /// End each run after this long: 90s, 5m
    #[arg(long, value_name = "T", requires = "without", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}
