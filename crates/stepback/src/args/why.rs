//! The words of `why`.

use clap::Args;

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
}
