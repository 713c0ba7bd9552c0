//! Which lines a session wrote, as a record of Agent Trace (version 0.1.0): files, ranges of lines, and who contributed them.
//!
//! The lines are those of the session's last checkpoint that still come from it, as [`stepback_provenance::blame`] finds them.
//! Lines of the user, of other sessions and from before the recording are not in the record. Ranges that rest on an inference
//! (only calls of this session were running) are told apart from those that rest on a call that names the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};
use stepback_engine::authorship::Attribution;
use stepback_engine::{Workspace, diff};
use stepback_model::ids::StepId;
use stepback_model::path::RelPath;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::TreeNode;
use stepback_provenance::{BlameRequest, ProvenanceError, blame};

use crate::error::ExportError;
use crate::redactor::Redactor;
use crate::session_steps::SessionSteps;

/// The version of the specification.
pub const VERSION: &str = "0.1.0";
/// The name of our metadata in a record.
const METADATA: &str = "dev.stepback";
/// The longest id of a model.
const MAX_MODEL_CHARS: usize = 250;

/// Returns the record of a session. `version` is that of the program.
pub fn record(
    workspace: &Workspace,
    steps: &SessionSteps<'_>,
    session: &Session,
    version: &str,
) -> Result<Value, ExportError> {
    let last = steps.rows.iter().rfind(|row| row.is_checkpoint() && !row.purged && row.hidden_by.is_none());
    let mut files = Vec::new();
    let mut left_out: Vec<Value> = Vec::new();
    let redactor = steps.redactor();
    if let Some(last) = last {
        let models = models_by_turn(steps, session);
        for path in changed_paths(workspace, steps)? {
            match trace_file(workspace, session, last, &path, &models) {
                Ok(Some(conversations)) => {
                    files.push(
                        json!({ "path": redactor.text(&path.display()), "conversations": conversations }),
                    );
                }
                Ok(None) => {}
                Err(reason) => {
                    let reason = reason?;
                    left_out.push(
                        json!({ "path": redactor.text(&path.display()), "reason": redactor.text(&reason) }),
                    );
                }
            }
        }
    }
    let at = session
        .info
        .seen_at
        .or_else(|| steps.rows.last().map(|row| row.step.at))
        .unwrap_or(session.started_at);
    let mut metadata = json!({ "session": session.id, "agent_session": session.info.external, "basis": "lines at the last checkpoint of the session" });
    if let Some(last) = last {
        metadata["checkpoint"] = json!(last.step.number);
        if let Some(commit) = head_commit(workspace, last)? {
            // Not as "vcs": the lines may not be committed there.
            metadata["checked_out_commit"] = json!(commit);
        }
    }
    if !left_out.is_empty() {
        metadata["files_left_out"] = json!(left_out);
    }
    Ok(json!({
        "version": VERSION,
        "id": record_id(session, last),
        "timestamp": at.to_string(),
        "tool": { "name": session.agent },
        "files": files,
        "metadata": { METADATA: metadata, "generator": { "name": "stepback", "version": version } },
    }))
}

/// Paths that any checkpoint of the session found changed and the last one has.
fn changed_paths(workspace: &Workspace, steps: &SessionSteps<'_>) -> Result<BTreeSet<RelPath>, ExportError> {
    let mut paths = BTreeSet::new();
    let mut files: HashMap<StepId, Option<stepback_model::hash::Hash>> = HashMap::new();
    for row in steps.rows.iter().filter(|row| row.is_checkpoint() && !row.purged) {
        let after = load_files(workspace, row)?;
        let before = match row.step.parent {
            Some(parent) => match files.get(&parent) {
                Some(known) => *known,
                None => nearest_files(workspace, parent)?,
            },
            None => None,
        };
        files.insert(row.step.id, after);
        let (Some(before), Some(after)) = (before, after) else { continue };
        let [before, after] =
            [before, after].map(|files| WorkspaceState { files: Some(files), ..WorkspaceState::default() });
        let Ok(changes) = diff::compare_visible_files(workspace.store(), &before, &after) else { continue };
        let is_file = |node: &Option<TreeNode>| matches!(node, Some(TreeNode::File { .. }));
        paths.extend(changes.into_iter().filter(|change| is_file(&change.after)).map(|change| change.path));
    }
    Ok(paths)
}

/// The files of a step, or of the nearest one that it grew from.
fn nearest_files(
    workspace: &Workspace,
    step: StepId,
) -> Result<Option<stepback_model::hash::Hash>, ExportError> {
    let mut next = Some(step);
    while let Some(id) = next {
        let Some(row) = workspace.store().step(id)?.filter(|row| !row.purged) else { return Ok(None) };
        if let Some(files) = load_files(workspace, &row)? {
            return Ok(Some(files));
        }
        next = row.step.parent;
    }
    Ok(None)
}

fn load_files(
    workspace: &Workspace,
    row: &StepRow,
) -> Result<Option<stepback_model::hash::Hash>, ExportError> {
    match WorkspaceState::load(workspace.store(), row.step.state) {
        Ok(state) => Ok(state.files),
        Err(stepback_model::object::ObjectError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The model that worked at each turn, as far as model calls were recorded.
struct TurnModels {
    by_turn: BTreeMap<u64, String>,
    usual: Option<String>,
}

impl TurnModels {
    fn at(&self, turn: u64) -> Option<&str> {
        self.by_turn.get(&turn).map(String::as_str).or(self.usual.as_deref())
    }
}

fn models_by_turn(steps: &SessionSteps<'_>, session: &Session) -> TurnModels {
    let ends =
        steps.rows.iter().filter(|row| row.step.kind == StepKind::ModelEnd && row.step.meta.worker.is_none());
    let by_turn = ends.filter_map(|row| Some((row.step.meta.iteration, row.step.meta.tool.clone()?)));
    TurnModels { by_turn: by_turn.collect(), usual: session.info.model.clone() }
}

/// Who wrote some lines: the model, whether that is recorded, and the prompt.
type Origin = (Option<String>, bool, Option<StepId>);

/// The conversations of one file, with their ranges; `None` if no line comes from the session. The inner error is the reason why
/// the file has no lines.
fn trace_file(
    workspace: &Workspace,
    session: &Session,
    last: &StepRow,
    path: &RelPath,
    models: &TurnModels,
) -> Result<Option<Vec<Value>>, Result<String, ExportError>> {
    let request = BlameRequest { path: path.clone(), at: Some(last.clone()), lines: None };
    let found = match blame::blame(workspace, &request) {
        Ok(found) => found,
        // It was deleted again.
        Err(ProvenanceError::NoFile { .. } | ProvenanceError::NotAFile { .. }) => return Ok(None),
        Err(ProvenanceError::Engine(error)) => return Err(Err(error.into())),
        Err(reason) => return Err(Ok(reason.to_string())),
    };
    let mut turns: HashMap<StepId, u64> = HashMap::new();
    let mut ranges: BTreeMap<Origin, Vec<(usize, usize)>> = BTreeMap::new();
    for line in &found.lines {
        let Some(origin) = found.origins.get(line.origin) else { continue };
        let Attribution::Call(author) = &origin.who else { continue };
        if author.session != session.id {
            continue;
        }
        let turn = match turns.get(&author.step) {
            Some(turn) => *turn,
            None => {
                let row = workspace.store().step(author.step).map_err(|error| Err(error.into()))?;
                let turn = row.map_or(0, |row| row.step.meta.iteration);
                turns.insert(author.step, turn);
                turn
            }
        };
        let key = (models.at(turn).map(str::to_owned), origin.is_named, author.prompt);
        let known = ranges.entry(key).or_default();
        match known.last_mut() {
            Some((_, end)) if *end + 1 == line.number => *end = line.number,
            _ => known.push((line.number, line.number)),
        }
    }
    if ranges.is_empty() {
        return Ok(None);
    }
    let redactor = Redactor::new(&workspace.engine);
    let mut conversations = Vec::new();
    for ((model, is_recorded, prompt), ranges) in ranges {
        let mut contributor = json!({ "type": "ai" });
        if let Some(model) = model {
            let model: String = redactor.text(&model).chars().take(MAX_MODEL_CHARS).collect();
            contributor["model_id"] = json!(model);
        }
        let ranges: Vec<Value> =
            ranges.iter().map(|(start, end)| json!({ "start_line": start, "end_line": end })).collect();
        let mut related =
            vec![json!({ "type": "session", "url": format!("urn:stepback:session:{}", session.id) })];
        if let Some(prompt) = prompt {
            related.push(json!({ "type": "prompt", "url": format!("urn:stepback:step:{prompt}") }));
        }
        let basis = if is_recorded { "recorded" } else { "inferred" };
        related.push(json!({ "type": "attribution", "url": format!("urn:stepback:basis:{basis}") }));
        conversations.push(json!({ "contributor": contributor, "ranges": ranges, "related": related }));
    }
    Ok(Some(conversations))
}

/// The commit that was checked out at a checkpoint.
fn head_commit(workspace: &Workspace, row: &StepRow) -> Result<Option<String>, ExportError> {
    let Some(git) = WorkspaceState::load(workspace.store(), row.step.state)?.git else { return Ok(None) };
    let Ok(state) = GitState::load(workspace.store(), git) else { return Ok(None) };
    let own = state.repositories.into_iter().find(|repository| repository.path == b".git");
    Ok(own.and_then(|repository| repository.summary.commit))
}

/// An id that is the same for every export of the same state of a session.
fn record_id(session: &Session, last: Option<&StepRow>) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    hasher.update(session.id.to_string());
    if let Some(last) = last {
        hasher.update(last.step.id.to_string());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize()[..16]);
    // Version 8 of RFC 9562: an id whose bits have a meaning of our own.
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = stepback_model::hex::encode(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
