//! Commits with a definite outcome, even if the connection is lost before the answer arrives.
//!
//! A commit has a random number. If its answer is lost, it is sent again with the same number, and a server that is still the
//! same process answers with the outcome of the first attempt. If the server was restarted meanwhile, the first attempt either
//! took effect or did not: the records that it adds say which, because an id is taken once.

use std::borrow::Cow;

use stepback_model::hex;
use stepback_model::record::WorkspaceRecord;
use stepback_store::StoreError;
use stepback_store::port::{
    FinishedBatch, Mutation, ObjectStore, OperationStore, Receipt, SessionStore, StepStore,
};

use crate::batch::UnsentBatch;
use crate::client::RemoteStore;
use crate::pool::{CallError, Connection};
use crate::protocol::{CommitRequest, StoreRequest};

impl RemoteStore {
    pub(crate) fn commit_all(
        &self,
        batch: Option<FinishedBatch>,
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        let has_batch = batch.is_some();
        let unsent = batch.and_then(|batch| batch.payload.downcast::<UnsentBatch>().ok());
        let UnsentBatch { start, body, ahead } = unsent.map(|unsent| *unsent).unwrap_or_default();
        if mutations.is_empty() && body.is_empty() && ahead.is_none() {
            // Nothing to write, but objects that the batch found stored may have been freed.
            return match has_batch && start.epoch != self.gc_generation()? {
                true => Err(StoreError::Collected),
                false => Ok(Receipt::default()),
            };
        }
        let mutations = self.mutations_in_store(mutations);
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| StoreError::io("commit to", self.pool.shown())(std::io::Error::other(error)))?;
        let request = StoreRequest::Commit(CommitRequest {
            nonce: hex::encode(&nonce),
            start: has_batch.then_some(Cow::Borrowed(&start)),
            has_sent_ahead: ahead.is_some(),
            mutations: Cow::Borrowed(&mutations),
        });
        match ahead {
            Some(connection) => self.commit_on(connection, &request, &body, &mutations),
            None => self.commit_anywhere(&request, &body, &mutations),
        }
    }

    fn commit_anywhere(
        &self,
        request: &StoreRequest<'_>,
        body: &[u8],
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        let mut first_instance = None;
        self.pool.with_retry(|connection| {
            let instance = connection.welcome.instance.clone();
            let is_retry = first_instance.is_some();
            let is_restarted = first_instance.get_or_insert_with(|| instance.clone()) != &instance;
            if is_restarted && !has_ids(mutations) {
                // Nothing would show that it took effect already, and it could undo what another process did since.
                return Err(CallError::Failed(self.uncertain()));
            }
            match self.pool.call_on::<Receipt>(connection, request, body) {
                Ok((receipt, _)) => Ok(receipt),
                // The first attempt took effect after all, and conflicts with its own retry.
                Err(CallError::Failed(error @ (StoreError::Exists { .. } | StoreError::Moved { .. })))
                    if is_retry =>
                {
                    self.find_receipt(mutations).map_err(CallError::Failed)?.ok_or(CallError::Failed(error))
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Commits on the connection that has the objects. If it is lost, they are too, so there is no second attempt; but whether
    /// the first one took effect can be found out.
    fn commit_on(
        &self,
        mut connection: Connection,
        request: &StoreRequest<'_>,
        body: &[u8],
        mutations: &[Mutation],
    ) -> Result<Receipt, StoreError> {
        let lost = match self.pool.call_on::<Receipt>(&mut connection, request, body) {
            Ok((receipt, _)) => {
                self.pool.put_back(connection);
                return Ok(receipt);
            }
            Err(CallError::Failed(error)) => return Err(error),
            Err(CallError::Lost(error)) => error,
        };
        // The same process answers with the outcome, and refuses it as incomplete if it never received it.
        let StoreRequest::Commit(commit) = request else { return Err(lost) };
        let again = StoreRequest::Commit(CommitRequest {
            nonce: commit.nonce.clone(),
            start: commit.start.clone(),
            has_sent_ahead: true,
            mutations: Cow::Borrowed(mutations),
        });
        let outcome =
            self.pool.with_retry(|other| match other.welcome.instance == connection.welcome.instance {
                true => Ok(Some(self.pool.call_on::<Receipt>(other, &again, &[])?.0)),
                false => Ok(None),
            });
        match outcome {
            Ok(Some(receipt)) => Ok(receipt),
            Ok(None) if has_ids(mutations) => self.find_receipt(mutations)?.ok_or(lost),
            Ok(None) => Err(self.uncertain()),
            Err(error) => Err(error),
        }
    }

    /// The error for a commit of which it cannot be found out whether it took effect.
    fn uncertain(&self) -> StoreError {
        StoreError::Server {
            what: format!("the server of the store at {} was restarted during a commit", self.pool.shown()),
            why: "whether the commit took effect is not known".into(),
            remedy: "look at the result (\"stepback op log\", \"stepback log\"), and repeat the command if it is missing",
        }
    }

    /// The numbers that a commit assigned, if all of its records are there.
    fn find_receipt(&self, mutations: &[Mutation]) -> Result<Option<Receipt>, StoreError> {
        let mut receipt = Receipt::default();
        for mutation in mutations {
            let is_there = match mutation {
                Mutation::AppendStep { step, .. } => {
                    let found = self.step(step.id)?;
                    receipt.steps.extend(found.as_ref().map(|stored| stored.step.number));
                    found.is_some()
                }
                Mutation::AppendOp(operation) => {
                    let found = self.operation(operation.id)?;
                    receipt.ops.extend(found.as_ref().map(|stored| stored.number));
                    found.is_some()
                }
                Mutation::AddSession(session) => self.session(session.id)?.is_some(),
                Mutation::AddWorkspace(workspace) => {
                    self.workspaces()?.iter().any(|known| known.id == workspace.id)
                }
                _ => true,
            };
            if !is_there {
                return Ok(None);
            }
        }
        Ok(Some(receipt).filter(|_| has_ids(mutations)))
    }

    /// The mutations with roots as the store has them.
    fn mutations_in_store<'m>(&self, mutations: &'m [Mutation]) -> Cow<'m, [Mutation]> {
        let is_changed = |mutation: &Mutation| match mutation {
            Mutation::AddWorkspace(WorkspaceRecord { root, .. })
            | Mutation::SetWorkspaceRoot { root, .. } => self.root_in_store(root) != *root,
            _ => false,
        };
        if !mutations.iter().any(is_changed) {
            return Cow::Borrowed(mutations);
        }
        let mut mutations = mutations.to_vec();
        for mutation in &mut mutations {
            if let Mutation::AddWorkspace(WorkspaceRecord { root, .. })
            | Mutation::SetWorkspaceRoot { root, .. } = mutation
            {
                *root = self.root_in_store(root);
            }
        }
        Cow::Owned(mutations)
    }
}

/// Whether a commit adds records whose ids show that it took effect.
fn has_ids(mutations: &[Mutation]) -> bool {
    mutations.iter().any(|mutation| {
        matches!(
            mutation,
            Mutation::AppendStep { .. }
                | Mutation::AppendOp(_)
                | Mutation::AddSession(_)
                | Mutation::AddWorkspace(_)
        )
    })
}
