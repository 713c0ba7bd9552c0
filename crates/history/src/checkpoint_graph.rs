//! The checkpoints of a workspace as a graph: the line that each is on, and the checkpoint that it follows.

use std::collections::{HashMap, HashSet};

use stepback_engine::{EngineError, Workspace};
use stepback_model::ids::StepId;
use stepback_model::record::StepRow;

/// A checkpoint and its place in the graph.
#[derive(Clone, Debug)]
pub struct CheckpointNode {
    /// The checkpoint.
    pub stored: StepRow,
    /// The branch it is on; `None` if it was rolled back.
    pub branch: Option<String>,
    /// Whether it is on the line that leads to the head.
    pub is_on_line: bool,
    /// Whether it was rolled back.
    pub is_rolled_back: bool,
    /// The visible checkpoint before it, by id and number; `None` if it is the first on its line.
    pub follows: Option<(StepId, u64)>,
}

/// Returns the visible checkpoints of a workspace, newest first.
pub fn checkpoint_graph(workspace: &Workspace) -> Result<Vec<CheckpointNode>, EngineError> {
    let (steps, lines) = (workspace.checkpoints()?, workspace.load_lines()?);
    let visible: HashMap<StepId, &StepRow> = steps.iter().map(|stored| (stored.step.id, stored)).collect();
    let is_rolled_back = |id: StepId| visible.get(&id).is_some_and(|stored| lines.is_rolled_back(stored));
    let line: Vec<StepId> = (lines.present_line().iter().copied())
        .filter(|id| visible.contains_key(id) && !is_rolled_back(*id))
        .collect();
    let next: HashMap<StepId, StepId> =
        line.iter().zip(line.iter().skip(1)).map(|(newer, older)| (*newer, *older)).collect();
    let line: HashSet<StepId> = line.into_iter().collect();
    let nodes = steps.iter().map(|stored| {
        let id = stored.step.id;
        let (is_on_line, is_rolled_back) = (line.contains(&id), is_rolled_back(id));
        let follows = match is_on_line {
            true => next.get(&id).copied(),
            false => lines.find_ancestor(id, |id| visible.contains_key(&id)).map(|(id, _)| id),
        };
        let branch = match (is_on_line, is_rolled_back) {
            (true, _) => lines.branches.iter().find(|line| line.present),
            (false, true) => None,
            (false, false) => lines.branches.get(lines.branch_of(stored)),
        };
        CheckpointNode {
            branch: branch.map(|line| line.name.clone()),
            is_on_line,
            is_rolled_back,
            follows: follows.and_then(|id| Some((id, visible.get(&id)?.step.number))),
            stored: stored.clone(),
        }
    });
    Ok(nodes.collect())
}
