//! Compares two branches by their tips: where they diverge, and how their files and conversations differ now.

use std::collections::HashSet;

use stepback_engine::Workspace;
use stepback_model::ids::StepId;
use stepback_model::record::StepRow;

use super::ends::{Ends, compare_ends};
use super::side::ComparedRun;
use crate::error::HistoryError;

/// How two branches are related, and how they differ.
#[derive(Clone, Debug)]
pub struct TipComparison {
    /// The newest checkpoint that both have; `None` if they share none.
    pub fork: Option<StepRow>,
    /// How many checkpoints each has after it.
    pub since_fork: [usize; 2],
    /// The differences between their tips.
    pub ends: Ends,
}

/// Compares two branches of a workspace, given by their tips.
pub fn compare_tips(workspace: &Workspace, a: &StepRow, b: &StepRow) -> Result<TipComparison, HistoryError> {
    let lines = [workspace.ancestry(a)?, workspace.ancestry(b)?];
    let on_b: HashSet<StepId> = lines[1].iter().map(|stored| stored.step.id).collect();
    let fork = lines[0].iter().find(|stored| on_b.contains(&stored.step.id));
    let since = |line: &[StepRow]| {
        line.iter().take_while(|stored| fork.is_none_or(|fork| fork.step.id != stored.step.id)).count()
    };
    let [a, b] = lines.each_ref().map(|line| ComparedRun::from_line(workspace, "", line));
    Ok(TipComparison {
        fork: fork.cloned(),
        since_fork: lines.each_ref().map(|line| since(line)),
        ends: compare_ends(workspace.store(), &a?, &b?)?,
    })
}
