//! The lines of a bundle's log.

use serde::{Deserialize, Serialize};
use stepback_model::ids::{OpId, StepId, WorkspaceId};
use stepback_model::record::{
    Annotation, Checkpoint, Operation, Session, SessionInfo, Step, Trigger, Workspace,
};
use stepback_model::time::Timestamp;
use stepback_store::port::StoredCheckpoint;

use crate::reachability::Marker;

/// One line. A workspace comes before everything in it; a step after the one it grew from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "they are read and written one at a time")]
pub enum Record {
    /// What follows belongs to this workspace.
    Workspace(Place),
    /// A session, with all its steps.
    Session(Session),
    /// A step.
    Step(Moment),
    /// Something stepback did.
    Operation(Operation),
    /// A name for a step.
    Reference(Reference),
}

/// A workspace, as it is told to others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Its id.
    pub id: WorkspaceId,
    /// Where it was.
    pub root: String,
    /// When stepback first saw it.
    pub created_at: Timestamp,
}

/// A step with what is said about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// The step.
    #[serde(flatten)]
    pub step: Step,
    /// Label, note and tags.
    pub annotation: Annotation,
    /// What made it a checkpoint.
    pub trigger: Option<Trigger>,
    /// The operation that hid it.
    pub hidden_by: Option<OpId>,
    /// Whether its state was given up.
    pub purged: bool,
}

/// What a reference is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Where the workspace stood.
    Head,
    /// A branch.
    Branch,
    /// The name of the branch it stood on.
    Present,
}

/// A name for a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// For what.
    pub what: What,
    /// The name of the branch; empty for the head.
    pub name: String,
    /// The step.
    pub step: StepId,
}

/// What stands before the parts of a git file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GitFile {
    /// Its name in the vault.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Records and their ids always serialise.
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

impl Record {
    /// It as a line.
    pub fn line(&self) -> Vec<u8> {
        line(self)
    }
}

impl GitFile {
    /// It as a line.
    pub fn line(&self) -> Vec<u8> {
        line(self)
    }
}

impl Place {
    /// Of a workspace.
    pub fn of(workspace: &Workspace) -> Self {
        let root = stepback_model::path::display_bytes(&workspace.root).into_owned();
        Self { id: workspace.id, root, created_at: workspace.created_at }
    }
}

impl Moment {
    /// Of a row.
    pub fn of(stored: &StoredCheckpoint) -> Self {
        let Checkpoint { step, annotation, trigger, hidden_by } = stored.checkpoint.clone();
        Self { step, annotation, trigger, hidden_by, purged: stored.purged }
    }

    /// As a row.
    pub fn stored(&self) -> StoredCheckpoint {
        let Self { step, annotation, trigger, hidden_by, purged } = self.clone();
        StoredCheckpoint { checkpoint: Checkpoint { step, annotation, trigger, hidden_by }, purged }
    }
}

/// What is told of a session. What only makes sense where it ran is not: where its files are, how it was started, what is under
/// way. Somebody else's word for these would be followed here.
pub fn told(info: &SessionInfo) -> SessionInfo {
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

/// Everything of one workspace.
#[derive(Clone, Debug)]
pub struct Log {
    /// It.
    pub place: Place,
    /// Sessions.
    pub sessions: Vec<Session>,
    /// Steps, each after the one it grew from. Those of none of the sessions are the person's.
    pub steps: Vec<Moment>,
    /// Operations, oldest first.
    pub operations: Vec<Operation>,
    /// Names.
    pub references: Vec<Reference>,
}

impl Log {
    /// Its lines.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        [Record::Workspace(self.place.clone())]
            .into_iter()
            .chain(self.sessions.iter().cloned().map(Record::Session))
            .chain(self.steps.iter().cloned().map(Record::Step))
            .chain(self.operations.iter().cloned().map(Record::Operation))
            .chain(self.references.iter().cloned().map(Record::Reference))
    }

    /// Tells `marker` what it needs.
    pub fn push_to(&self, marker: &mut Marker<'_>) {
        for session in &self.sessions {
            marker.push_session(&session.info);
        }
        for moment in &self.steps {
            marker.push_step(&moment.step, moment.purged);
        }
    }
}
