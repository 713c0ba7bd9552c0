//! The records in the log of a bundle, one per line.

use serde::{Deserialize, Serialize};
use stepback_engine::reachability::Marker;
use stepback_model::ids::{OpId, StepId, WorkspaceId};
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, Operation, Session, SessionInfo, Step, Trigger, WorkspaceRecord};
use stepback_model::time::Timestamp;

/// One line. A workspace comes before everything in it; a step after its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "they are read and written one at a time")]
pub enum Record {
    /// The following records belong to this workspace.
    Workspace(ExportedWorkspace),
    /// A session, with all its steps.
    Session(Session),
    /// A step with its annotation.
    Step(ExportedStep),
    /// An operation, such as a rewind or an undo.
    Operation(Operation),
    /// A named reference to a step.
    Reference(Reference),
}

/// A workspace, as exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExportedWorkspace {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// Path of its root on the machine where it was recorded.
    pub root: String,
    /// Time at which stepback first used it.
    pub created_at: Timestamp,
}

/// A step with its annotation and checkpoint data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExportedStep {
    /// The step.
    #[serde(flatten)]
    pub step: Step,
    /// Label, note and tags.
    pub annotation: Annotation,
    /// What made it a checkpoint; `None` if it is none.
    pub trigger: Option<Trigger>,
    /// The operation that hid it; `None` if it is visible.
    pub hidden_by: Option<OpId>,
    /// Whether a prune freed its state.
    pub purged: bool,
}

/// The purpose of a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceKind {
    /// The step that the workspace was at.
    Head,
    /// The tip of a branch.
    Branch,
    /// The branch that the workspace was on, by its name.
    Present,
}

/// A named reference to a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// Purpose of the reference.
    pub what: ReferenceKind,
    /// Name of the branch; empty for the head.
    pub name: String,
    /// The step it refers to.
    pub step: StepId,
}

/// The header before the parts of a git file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GitFile {
    /// Name in the vault.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

fn encode_json_line(value: &impl Serialize) -> Vec<u8> {
    // Records and their ids always serialise.
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

impl Record {
    /// Encodes the record as a line.
    pub fn encode_line(&self) -> Vec<u8> {
        encode_json_line(self)
    }
}

impl GitFile {
    /// Encodes the record as a line.
    pub fn encode_line(&self) -> Vec<u8> {
        encode_json_line(self)
    }
}

impl ExportedWorkspace {
    /// The exported form of a workspace.
    pub fn from_record(workspace: &WorkspaceRecord) -> Self {
        let root = stepback_model::path::display_bytes(&workspace.root).into_owned();
        Self { id: workspace.id, root, created_at: workspace.created_at }
    }
}

impl ExportedStep {
    /// The exported form of a stored step.
    pub fn from_row(stored: &StepRow) -> Self {
        let StepRow { step, annotation, trigger, hidden_by, purged } = stored.clone();
        Self { step, annotation, trigger, hidden_by, purged }
    }

    /// Converts it back to a stored step.
    pub fn to_row(&self) -> StepRow {
        let Self { step, annotation, trigger, hidden_by, purged } = self.clone();
        StepRow { step, annotation, trigger, hidden_by, purged }
    }
}

/// Returns the session data that is exported. Data that only makes sense on the machine where the session ran is removed:
/// where its files are, how it was started, what is in progress. Otherwise an import would act on another user's values for
/// these.
pub fn portable_info(info: &SessionInfo) -> SessionInfo {
    SessionInfo {
        transcript: None,
        started: None,
        turn: None,
        cursor: None,
        open: Vec::new(),
        imported: true,
        ..info.clone()
    }
}

/// All records of one workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceLog {
    /// The workspace.
    pub workspace: ExportedWorkspace,
    /// The exported sessions.
    pub sessions: Vec<Session>,
    /// Steps, each after its parent. Steps that belong to none of the sessions are the user's.
    pub steps: Vec<ExportedStep>,
    /// Operations, oldest first.
    pub operations: Vec<Operation>,
    /// Head, branches and present branch.
    pub references: Vec<Reference>,
}

impl WorkspaceLog {
    /// Returns all records, in the order of the lines.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        [Record::Workspace(self.workspace.clone())]
            .into_iter()
            .chain(self.sessions.iter().cloned().map(Record::Session))
            .chain(self.steps.iter().cloned().map(Record::Step))
            .chain(self.operations.iter().cloned().map(Record::Operation))
            .chain(self.references.iter().cloned().map(Record::Reference))
    }

    /// Adds everything that the records need to `marker`.
    pub fn push_roots(&self, marker: &mut Marker<'_>) {
        for session in &self.sessions {
            marker.push_session(&session.info);
        }
        for moment in &self.steps {
            marker.push_step(&moment.step, moment.purged);
        }
    }
}
