//! The log in memory, and how mutations change it.

use std::collections::{BTreeMap, HashMap, HashSet};

use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_model::record::{OpStatus, Operation, Session, StepRow, WorkspaceRecord};
use stepback_model::step_chain::{StepLink, step_digest};

use crate::error::StoreError;
use crate::port::{Mutation, Receipt};
use crate::scan::ScanRows;

/// All records of a store.
#[derive(Debug, Default, Clone)]
pub(super) struct MemoryLog {
    pub workspaces: Vec<WorkspaceRecord>,
    pub sessions: Vec<Session>,
    pub steps: Vec<StepRow>,
    /// The link of each step, at the same place as in `steps`.
    pub links: Vec<StepLink>,
    /// How many steps each session has, and the link of the newest.
    pub heads: HashMap<SessionId, (u64, StepLink)>,
    pub refs: BTreeMap<String, StepId>,
    pub operations: Vec<Operation>,
}

impl MemoryLog {
    pub fn rows(&self) -> ScanRows<'_> {
        ScanRows { workspaces: &self.workspaces, sessions: &self.sessions, steps: &self.steps }
    }

    /// Applies a mutation, and adds the numbers it assigns to `receipt`.
    pub fn apply(&mut self, mutation: &Mutation, receipt: &mut Receipt) -> Result<(), StoreError> {
        match mutation {
            Mutation::AddWorkspace(workspace) => {
                let same = |known: &WorkspaceRecord| known.root == workspace.root || known.id == workspace.id;
                refuse_duplicate(self.workspaces.iter().any(same), "this workspace")?;
                self.workspaces.push(workspace.clone());
                self.workspaces.sort_by_key(|workspace| (workspace.created_at, workspace.id));
            }
            Mutation::SetWorkspaceRoot { workspace, root } => {
                let same = |known: &WorkspaceRecord| known.root == *root && known.id != *workspace;
                refuse_duplicate(self.workspaces.iter().any(same), "this workspace")?;
                for known in self.workspaces.iter_mut().filter(|known| known.id == *workspace) {
                    known.root.clone_from(root);
                }
            }
            Mutation::AddSession(session) => {
                refuse_duplicate(self.sessions.iter().any(|known| known.id == session.id), "this session")?;
                self.sessions.push(session.clone());
                self.sessions.sort_by_key(|session| (session.started_at, session.id));
            }
            Mutation::SetSessionInfo { session, info } => {
                for known in self.sessions.iter_mut().filter(|known| known.id == *session) {
                    known.info = (**info).clone();
                }
            }
            Mutation::AppendStep { step, annotation, trigger } => {
                refuse_duplicate(self.steps.iter().any(|known| known.step.id == step.id), "this step")?;
                let session = self.sessions.iter().find(|session| session.id == step.session);
                let Some(workspace) = session.map(|session| session.workspace) else {
                    return Err(StoreError::Corrupt {
                        what: "a step of a session that does not exist".into(),
                    });
                };
                let last = self.of_workspace(workspace).next_back();
                let number = last.map_or(0, |stored| stored.step.number) + 1;
                let mut step = step.clone();
                step.number = number;
                receipt.steps.push(number);
                let (linked, head) = self.heads.entry(step.session).or_insert((0, StepLink::START));
                *linked += 1;
                *head = head.next(step_digest(&step, *trigger));
                self.links.push(*head);
                self.steps.push(StepRow {
                    step,
                    annotation: annotation.clone(),
                    trigger: *trigger,
                    hidden_by: None,
                    purged: false,
                });
            }
            Mutation::Annotate { step, annotation } => self.each_of(&[*step], |stored| {
                stored.annotation = annotation.clone();
            }),
            Mutation::SetHidden { steps, by } => self.each_of(steps, |stored| stored.hidden_by = *by),
            Mutation::Purge { steps } => self.each_of(steps, |stored| {
                stored.purged |= stored.hidden_by.is_some();
            }),
            Mutation::SetRef { name, expected, value } => {
                if self.refs.get(name) != expected.as_ref() {
                    return Err(StoreError::Moved { name: name.clone() });
                }
                self.refs.insert(name.clone(), *value);
            }
            Mutation::DropRef { name } => {
                self.refs.remove(name);
            }
            Mutation::AppendOp(op) => {
                refuse_duplicate(self.operations.iter().any(|known| known.id == op.id), "this operation")?;
                let last = self.operations.iter().rev().find(|known| known.workspace == op.workspace);
                let mut op = op.clone();
                op.number = last.map_or(0, |known| known.number) + 1;
                receipt.ops.push(op.number);
                self.operations.push(op);
            }
            Mutation::SetOpStatus { op, status } => {
                for known in self.operations.iter_mut().filter(|known| known.id == *op) {
                    known.status = *status;
                    if *status != OpStatus::Applying {
                        known.journal = None;
                    }
                }
            }
            Mutation::SetOpUndone { op, undone } => {
                for known in self.operations.iter_mut().filter(|known| known.id == *op) {
                    known.undone = *undone;
                }
            }
        }
        Ok(())
    }

    /// Steps of a workspace, oldest first.
    pub fn of_workspace(&self, workspace: WorkspaceId) -> impl DoubleEndedIterator<Item = &StepRow> {
        let sessions: HashSet<SessionId> = (self.sessions.iter())
            .filter(|session| session.workspace == workspace)
            .map(|session| session.id)
            .collect();
        self.steps.iter().filter(move |stored| sessions.contains(&stored.step.session))
    }

    fn each_of(&mut self, steps: &[StepId], change: impl Fn(&mut StepRow)) {
        let wanted: HashSet<&StepId> = steps.iter().collect();
        self.steps.iter_mut().filter(|stored| wanted.contains(&stored.step.id)).for_each(change);
    }
}

fn refuse_duplicate(taken: bool, what: &'static str) -> Result<(), StoreError> {
    if taken { Err(StoreError::Exists { what }) } else { Ok(()) }
}
