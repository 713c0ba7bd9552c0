//! The requests of one connection, each carried out by a method of the store.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use serde::Serialize;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::StoreError;
use stepback_store::port::{ObjectBatch, Questions, Receipt, Store};

use crate::access::{self, AccessRole};
use crate::frame::write_message;
use crate::protocol::{
    CommitRequest, StoreReply, StoreRequest, WireObject, append_info, read_hashes, read_object_ids,
};
use crate::service::ServiceState;
use crate::stream::ByteStream;
use crate::wire_error::WireError;

/// A list of objects is sent in parts of about this many bytes.
const LIST_PART_BYTES: usize = 256 << 10;
/// A client asks again when it has waited this long for a commit.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// A chain of messages is sent in parts of at most this many messages and bytes.
const MAX_CHAIN_MESSAGES: usize = 256;
const MAX_CHAIN_BYTES: usize = 1 << 20;

/// Carries out the requests of one connection.
pub(crate) struct ConnectionHandler<'s> {
    state: &'s ServiceState,
    store: &'s dyn Store,
    role: AccessRole,
    /// Objects that were sent ahead of their commit. If the connection ends first, they are discarded.
    batch: Option<Box<dyn ObjectBatch + 's>>,
}

/// A reply that is ready to be sent.
struct EncodedReply {
    head: Vec<u8>,
    body: Vec<u8>,
}

fn encode<T: Serialize>(reply: &StoreReply<T>, body: Vec<u8>) -> EncodedReply {
    // Records are plain data with string keys, which always serialise.
    EncodedReply { head: serde_json::to_vec(reply).unwrap_or_default(), body }
}

fn done<T: Serialize>(value: T) -> Result<EncodedReply, WireError> {
    Ok(encode(&StoreReply::Done(value), Vec::new()))
}

fn done_with_body(body: Vec<u8>) -> Result<EncodedReply, WireError> {
    Ok(encode(&StoreReply::Done(()), body))
}

fn malformed(what: &str) -> WireError {
    WireError::Other { message: format!("the request is malformed: {what}") }
}

fn kind_of(kind: u8) -> Result<ObjectKind, WireError> {
    ObjectKind::from_u8(kind).ok_or_else(|| malformed("an unknown kind of object"))
}

impl<'s> ConnectionHandler<'s> {
    pub fn new(state: &'s ServiceState, role: AccessRole) -> Self {
        Self { state, store: &*state.config.store, role, batch: None }
    }

    /// Carries out a request, and sends the reply. An error ends the connection.
    pub fn handle(&mut self, stream: &mut impl ByteStream, head: &[u8], body: &[u8]) -> io::Result<()> {
        let reply = match serde_json::from_slice::<StoreRequest<'_>>(head) {
            Ok(StoreRequest::ListObjects) => self.list_objects(stream)?,
            Ok(request) => self.answer(request, body),
            Err(error) => Err(malformed(&error.to_string())),
        };
        let reply = reply.unwrap_or_else(|error| encode(&StoreReply::<()>::Failed(error), Vec::new()));
        write_message(stream, &reply.head, &reply.body)
    }

    fn answer(&mut self, request: StoreRequest<'_>, body: &[u8]) -> Result<EncodedReply, WireError> {
        let (store, role) = (self.store, self.role);
        match request {
            StoreRequest::Ping => done(()),
            StoreRequest::Read { kind, hash } => done_with_body(store.read(kind_of(kind)?, hash)?),
            StoreRequest::ReadMessages { hash } => done_with_body(self.read_messages(hash)?),
            StoreRequest::Contains { kind, hash } => done(store.contains(kind_of(kind)?, hash)?),
            StoreRequest::GcGeneration => done(store.gc_generation()?),
            StoreRequest::CacheGeneration => done(store.cache_generation()?),
            StoreRequest::DamagedObjects => done(store.damaged_objects()),
            StoreRequest::FindMissing { epoch } => done(self.find_missing(epoch, body)?),
            StoreRequest::WriteObjects { start } => {
                if self.batch.is_none() {
                    self.batch = Some(store.begin_on(&start.answers())?);
                }
                let written = self.batch.as_deref().map_or(Ok(()), |batch| write_objects(batch, body));
                if written.is_err() {
                    self.batch = None;
                }
                done(written?)
            }
            StoreRequest::Commit(commit) => done(self.commit(commit, body)?),
            StoreRequest::CommitSeq => done(store.commit_seq()?),
            StoreRequest::WaitForCommit { after, patience_ms } => {
                done(store.wait_for_commit(after, Duration::from_millis(patience_ms).min(MAX_WAIT))?)
            }
            StoreRequest::Look { steps, references, sessions } => done(store.look(&Questions {
                steps: &steps,
                references: &references,
                sessions: &sessions,
            })?),
            StoreRequest::WorkspaceAt => done(store.workspace_at(body)?),
            StoreRequest::Workspaces => done(store.workspaces()?),
            StoreRequest::Sessions { workspace } => done(store.sessions(workspace)?),
            StoreRequest::WorkingSessions { workspace } => done(store.working_sessions(workspace)?),
            StoreRequest::Session { session } => done(store.session(session)?),
            StoreRequest::Step { step } => done(store.step(step)?),
            StoreRequest::StepNumbered { workspace, number } => done(store.step_numbered(workspace, number)?),
            StoreRequest::Steps { workspace, query } => done(store.steps(workspace, &query)?),
            StoreRequest::Find { workspace, query } => done(store.find(workspace, &query)?),
            StoreRequest::Follow { position, most } => done(store.follow(position, most)?),
            StoreRequest::NewestPosition => done(store.newest_position()?),
            StoreRequest::Tally { workspace } => done(store.tally(workspace)?),
            StoreRequest::Checkpoints { workspace } => done(store.checkpoints(workspace)?),
            StoreRequest::Operation { op } => done(store.operation(op)?),
            StoreRequest::Operations { workspace } => done(store.operations(workspace)?),
            StoreRequest::Unfinished { workspace } => done(store.unfinished(workspace)?),
            StoreRequest::Reference { name } => done(store.reference(&name)?),
            StoreRequest::References { prefix } => done(store.references(&prefix)?),
            StoreRequest::ChainEntries { workspace, after, most } => {
                done(store.chain_entries(workspace, after, most)?)
            }
            StoreRequest::ChainHeads { workspace } => done(store.chain_heads(workspace)?),
            StoreRequest::Unindexed { most } => match (role, &self.state.config.update_index) {
                (AccessRole::Full, _) => done(store.unindexed(most)?),
                // The texts of a step follow from what is stored. The server gathers them itself, so that a client cannot make
                // a search miss or invent anything.
                (AccessRole::Append, update) => {
                    update.as_ref().map_or(Ok(()), |update| update())?;
                    done(Vec::<()>::new())
                }
            },
            StoreRequest::Index { documents } => {
                role.require_full("a change to the search index")?;
                done(store.index(&documents)?)
            }
            StoreRequest::ForgetIndex => {
                role.require_full("the removal of the search index")?;
                done(store.forget_index()?)
            }
            StoreRequest::Search { search } => done(store.search(&search)?),
            StoreRequest::PutPlan { plan } => done(store.put_plan(&plan)?),
            StoreRequest::Plan { id } => done(store.plan(&id)?),
            StoreRequest::RemovePlan { id } => done(store.remove_plan(&id)?),
            StoreRequest::Plans { workspace } => done(store.plans(workspace)?),
            StoreRequest::PrunePlans { workspace, oldest } => done(store.prune_plans(workspace, oldest)?),
            StoreRequest::Sweep { mark } => {
                role.require_full("the removal of objects")?;
                let live = read_hashes(body).ok_or_else(|| malformed("the list of hashes"))?;
                done(store.sweep(&live, mark)?)
            }
            StoreRequest::UsageAfter { mutations } => {
                let live = read_hashes(body).ok_or_else(|| malformed("the list of hashes"))?;
                done(store.usage_after(&mutations, &live)?)
            }
            StoreRequest::Usage => done(store.usage()?),
            StoreRequest::Check => done(store.check()?),
            StoreRequest::CheckWritable => done(store.check_writable()?),
            StoreRequest::HasLostCommits => done(store.has_lost_commits()?),
            StoreRequest::LostCommits => done(store.lost_commits()?),
            StoreRequest::RestoreLostCommits => {
                role.require_full("the repair of the store")?;
                done(store.restore_lost_commits()?)
            }
            StoreRequest::Lenders => done(store.lenders()?),
            StoreRequest::ListObjects => Err(malformed("a list of objects")),
        }
    }

    fn list_objects(&self, stream: &mut impl ByteStream) -> io::Result<Result<EncodedReply, WireError>> {
        let (mut part, mut sent) = (Vec::with_capacity(LIST_PART_BYTES + 100), Ok(()));
        let head = encode(&StoreReply::Done(()), Vec::new()).head;
        let visited = self.store.for_each_object(&mut |info| {
            append_info(&mut part, &info);
            if part.len() >= LIST_PART_BYTES && sent.is_ok() {
                sent = write_message(stream, &head, &part);
                part.clear();
            }
        });
        sent?;
        if let Err(error) = visited {
            return Ok(Err(error.into()));
        }
        if !part.is_empty() {
            write_message(stream, &head, &part)?;
        }
        Ok(done(()))
    }

    /// An object of a chain of messages and those that follow it, so that a conversation is not one round trip per message.
    fn read_messages(&self, first: Hash) -> Result<Vec<u8>, WireError> {
        let (mut body, mut count) = (Vec::new(), 0);
        self.store.read_chain(ObjectKind::Message, first, &mut |_, bytes| {
            WireObject { kind: ObjectKind::Message, similar: None, bytes: &bytes }.append_to(&mut body);
            count += 1;
            let is_full = count >= MAX_CHAIN_MESSAGES || body.len() >= MAX_CHAIN_BYTES;
            // What does not decode ends the part; the client reports it.
            Ok(stepback_model::conversation::previous(&bytes).filter(|_| !is_full))
        })?;
        Ok(body)
    }

    fn find_missing(&self, epoch: u64, body: &[u8]) -> Result<Vec<usize>, WireError> {
        let ids = read_object_ids(body).ok_or_else(|| malformed("the list of objects"))?;
        let own;
        // A batch does not count an object that was found damaged as stored.
        let batch = match &self.batch {
            Some(batch) => &**batch,
            None => {
                own = self.store.begin_since(epoch)?;
                &*own
            }
        };
        let mut missing = Vec::new();
        for (at, (kind, hash)) in ids.into_iter().enumerate() {
            if !batch.contains(kind, hash)? {
                missing.push(at);
            }
        }
        Ok(missing)
    }

    fn commit(&mut self, commit: CommitRequest<'_>, body: &[u8]) -> Result<Receipt, WireError> {
        let ahead = self.batch.take().filter(|_| commit.has_sent_ahead);
        let (state, store, role) = (self.state, self.store, self.role);
        state.ledger.run_once(&commit.nonce, || {
            let batch = match (ahead, &commit.start) {
                (Some(batch), _) => Some(batch),
                (None, _) if commit.has_sent_ahead => {
                    return Err(StoreError::Server {
                        what: "the commit is incomplete".into(),
                        why: "the objects that were sent ahead are gone".into(),
                        remedy: "retry",
                    });
                }
                (None, Some(start)) => Some(store.begin_on(&start.answers())?),
                (None, None) => None,
            };
            let finished = match batch {
                Some(batch) => {
                    write_objects(&*batch, body)?;
                    Some(batch.finish()?)
                }
                None => None,
            };
            match role {
                AccessRole::Full => store.commit(finished, &commit.mutations),
                AccessRole::Append => {
                    let _lock = state.appending.lock().unwrap_or_else(PoisonError::into_inner);
                    access::check_append(store, &commit.mutations)?;
                    store.commit(finished, &commit.mutations)
                }
            }
        })
    }
}

/// Adds the objects in `body` to a batch, which computes the hash of each.
fn write_objects(batch: &dyn ObjectBatch, body: &[u8]) -> Result<(), StoreError> {
    let mut rest = body;
    while !rest.is_empty() {
        let object = WireObject::take_from(&mut rest).ok_or_else(|| StoreError::Server {
            what: "the objects cannot be stored".into(),
            why: "the request is malformed".into(),
            remedy: "use the same version of stepback on both sides",
        })?;
        batch.write(object.kind, object.bytes, object.similar)?;
    }
    Ok(())
}
