//! `bench ask`: the time until a question about a recording is answered.

mod blame;
mod facts;

use anyhow::Result;
use serde_json::{Value, json};

use self::blame::BlameResults;
use self::facts::FactsResults;
use crate::report::goals::Goal;
use crate::report::markdown::goal_list;
use crate::run::Run;

/// The results of this benchmark.
pub struct AskResults {
    blame: BlameResults,
    facts: FactsResults,
}

/// Makes the recordings, asks, and returns how long the answers took.
pub fn measure(run: &mut Run<'_>) -> Result<AskResults> {
    Ok(AskResults { blame: blame::measure(run)?, facts: facts::measure(run)? })
}

impl AskResults {
    /// Everything that was measured.
    pub fn to_json(&self) -> Value {
        json!({ "blame": self.blame.to_json(), "facts": self.facts.to_json() })
    }

    /// The goals.
    pub fn judge_goals(&self) -> Vec<Goal> {
        [self.blame.judge_goals(), self.facts.judge_goals()].concat()
    }

    /// The tables of the report.
    pub fn render_report(&self) -> String {
        let mut text = format!("{}\n{}\n", self.blame.render_table(), self.facts.render_table());
        goal_list(&mut text, &self.judge_goals());
        text
    }
}
