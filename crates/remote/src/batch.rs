//! Writing objects. What a batch writes stays in memory, and one request at the end asks which objects are missing on the
//! server; only those are sent, with the commit. A batch that grows large is sent ahead, on a connection of its own.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSink};
use stepback_store::StoreError;
use stepback_store::port::{FinishedBatch, ObjectBatch, ObjectStore};

use crate::client::RemoteStore;
use crate::frame::MAX_OBJECT_BYTES;
use crate::pool::Connection;
use crate::protocol::{BatchStart, StoreRequest, WireObject, append_object_id};

/// A batch with more bytes than this is sent ahead.
const MAX_BUFFERED_BYTES: usize = 8 << 20;
/// A batch with fewer bytes than this does not ask what is stored already: asking takes longer than sending.
const MIN_LOOKUP_BYTES: usize = 64 << 10;

/// A batch of objects being written.
pub(crate) struct RemoteBatch<'a> {
    store: &'a RemoteStore,
    start: BatchStart,
    inner: Mutex<PendingObjects>,
}

#[derive(Default)]
struct PendingObjects {
    seen: HashSet<Hash>,
    objects: Vec<PendingObject>,
    bytes: usize,
    /// The connection whose batch has the objects that were sent ahead.
    ahead: Option<Connection>,
}

struct PendingObject {
    kind: ObjectKind,
    hash: Hash,
    similar: Option<Hash>,
    bytes: Vec<u8>,
}

/// A finished batch that waits for its commit.
#[derive(Default)]
pub(crate) struct UnsentBatch {
    pub start: BatchStart,
    /// The objects that are still to be sent, as the body of a request.
    pub body: Vec<u8>,
    /// The connection whose batch has the rest of the objects.
    pub ahead: Option<Connection>,
}

impl<'a> RemoteBatch<'a> {
    pub fn new(store: &'a RemoteStore, start: BatchStart) -> Self {
        Self { store, start, inner: Mutex::default() }
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingObjects> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the objects that the server has.
    fn drop_stored(&self, pending: &mut PendingObjects) -> Result<(), StoreError> {
        if pending.objects.is_empty() {
            return Ok(());
        }
        let mut body = Vec::new();
        pending.objects.iter().for_each(|object| append_object_id(&mut body, object.kind, object.hash));
        let request = StoreRequest::FindMissing { epoch: self.start.epoch };
        let pool = &self.store.pool;
        let missing: Vec<usize> = match &mut pending.ahead {
            // That connection's batch knows what it was sent before.
            Some(connection) => pool.call_on(connection, &request, &body).map_err(StoreError::from)?.0,
            None => self.store.ask_with(&request, &body)?,
        };
        let missing: HashSet<usize> = missing.into_iter().collect();
        let mut at = 0;
        pending.objects.retain(|_| {
            at += 1;
            missing.contains(&(at - 1))
        });
        Ok(())
    }

    /// Sends what is in memory to the server, where it waits for the commit.
    fn send_ahead(&self, pending: &mut PendingObjects) -> Result<(), StoreError> {
        self.drop_stored(pending)?;
        pending.bytes = 0;
        let objects = std::mem::take(&mut pending.objects);
        let mut rest = objects.as_slice();
        while !rest.is_empty() {
            let mut body = Vec::new();
            while let Some((object, after)) = rest.split_first() {
                if !body.is_empty() && body.len() + object.bytes.len() > MAX_BUFFERED_BYTES {
                    break;
                }
                object.append_to(&mut body);
                rest = after;
            }
            if pending.ahead.is_none() {
                pending.ahead = Some(self.store.pool.lease()?);
            }
            let Some(connection) = &mut pending.ahead else { continue };
            let request = StoreRequest::WriteObjects { start: std::borrow::Cow::Borrowed(&self.start) };
            let written = self.store.pool.call_on::<()>(connection, &request, &body);
            if let Err(error) = written {
                pending.ahead = None;
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl PendingObject {
    fn append_to(&self, body: &mut Vec<u8>) {
        WireObject { kind: self.kind, similar: self.similar, bytes: &self.bytes }.append_to(body);
    }
}

impl ObjectSink for RemoteBatch<'_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = Hash::of(kind, bytes);
        if bytes.len() > MAX_OBJECT_BYTES {
            let reason = format!(
                "an object cannot be larger than {} MiB to be sent to a server",
                MAX_OBJECT_BYTES >> 20
            );
            return Err(ObjectError::corrupt(kind, hash, reason));
        }
        let mut pending = self.lock_pending();
        if pending.seen.insert(hash) {
            pending.bytes += bytes.len() + WireObject::OVERHEAD;
            pending.objects.push(PendingObject { kind, hash, similar, bytes: bytes.to_vec() });
            if pending.bytes > MAX_BUFFERED_BYTES {
                self.send_ahead(&mut pending)?;
            }
        }
        Ok(hash)
    }
}

impl ObjectBatch for RemoteBatch<'_> {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError> {
        // The hash covers the kind, so an object seen with this hash has this kind.
        Ok(self.lock_pending().seen.contains(&hash) || ObjectStore::contains(self.store, kind, hash)?)
    }

    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError> {
        let mut pending = self.lock_pending();
        if pending.bytes > MIN_LOOKUP_BYTES {
            self.drop_stored(&mut pending)?;
        }
        let mut body = Vec::with_capacity(pending.bytes);
        pending.objects.iter().for_each(|object| object.append_to(&mut body));
        let unsent = UnsentBatch { start: self.start.clone(), body, ahead: pending.ahead.take() };
        Ok(FinishedBatch { epoch: self.start.epoch, payload: Box::new(unsent) })
    }
}
