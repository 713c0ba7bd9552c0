//! Requests and replies. The head of a message is JSON: records as the store writes them. The body is bytes: objects as they
//! are, and lists of hashes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, StepId, WorkspaceId};
use stepback_model::time::Timestamp;
use stepback_store::port::{
    BatchAnswers, CommitMark, Mutation, ObjectInfo, ReadVersions, SearchDocument, SearchRequest, StepQuery,
    StoredPlan,
};

use crate::wire_error::WireError;

/// A request. Each is one method of the port, or a part of a batch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreRequest<'a> {
    /// Nothing: says that the connection works.
    Ping,
    /// The bytes of an object, in the body of the reply.
    Read {
        kind: u8,
        hash: Hash,
    },
    /// An object and those that follow it in a chain of messages, as objects in the body.
    ReadMessages {
        hash: Hash,
    },
    Contains {
        kind: u8,
        hash: Hash,
    },
    GcGeneration,
    CacheGeneration,
    DamagedObjects,
    /// All objects, in several replies with [`ObjectInfo`]s in their bodies; the last has none.
    ListObjects,
    /// Of the objects named in the body, those that are not stored, by their index.
    FindMissing {
        epoch: u64,
    },
    /// Adds the objects in the body to the batch of this connection, which begins with the first such request.
    WriteObjects {
        start: Cow<'a, BatchStart>,
    },
    /// Commits the objects in the body, those of this connection's batch if it has one, and the mutations.
    Commit(CommitRequest<'a>),
    CommitSeq,
    WaitForCommit {
        after: CommitMark,
        patience_ms: u64,
    },
    Look {
        steps: Cow<'a, [StepId]>,
        references: Cow<'a, [String]>,
        sessions: Cow<'a, [SessionId]>,
    },
    /// The root in the body.
    WorkspaceAt,
    Workspaces,
    Sessions {
        workspace: WorkspaceId,
    },
    WorkingSessions {
        workspace: WorkspaceId,
    },
    Session {
        session: SessionId,
    },
    Step {
        step: StepId,
    },
    StepNumbered {
        workspace: WorkspaceId,
        number: u64,
    },
    Steps {
        workspace: WorkspaceId,
        query: Cow<'a, StepQuery>,
    },
    Find {
        workspace: Option<WorkspaceId>,
        query: Cow<'a, StepQuery>,
    },
    Follow {
        position: u64,
        most: u64,
    },
    NewestPosition,
    Tally {
        workspace: WorkspaceId,
    },
    Checkpoints {
        workspace: WorkspaceId,
    },
    Operation {
        op: OpId,
    },
    Operations {
        workspace: WorkspaceId,
    },
    Unfinished {
        workspace: WorkspaceId,
    },
    Reference {
        name: Cow<'a, str>,
    },
    References {
        prefix: Cow<'a, str>,
    },
    ChainEntries {
        workspace: WorkspaceId,
        after: u64,
        most: u64,
    },
    ChainHeads {
        workspace: WorkspaceId,
    },
    Unindexed {
        most: usize,
    },
    Index {
        documents: Cow<'a, [SearchDocument]>,
    },
    ForgetIndex,
    Search {
        search: Cow<'a, SearchRequest>,
    },
    PutPlan {
        plan: Cow<'a, StoredPlan>,
    },
    Plan {
        id: Cow<'a, str>,
    },
    RemovePlan {
        id: Cow<'a, str>,
    },
    Plans {
        workspace: WorkspaceId,
    },
    PrunePlans {
        workspace: WorkspaceId,
        oldest: Timestamp,
    },
    /// The hashes of live objects in the body.
    Sweep {
        mark: CommitMark,
    },
    /// The hashes of live objects in the body.
    UsageAfter {
        mutations: Cow<'a, [Mutation]>,
    },
    Usage,
    Check,
    CheckWritable,
    HasLostCommits,
    LostCommits,
    RestoreLostCommits,
    Lenders,
}

/// What a batch relies on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BatchStart {
    pub epoch: u64,
    pub versions: Option<ReadVersions>,
}

impl BatchStart {
    /// The answers that a store compares at the commit.
    pub fn answers(&self) -> BatchAnswers {
        BatchAnswers {
            epoch: self.epoch,
            stored: Default::default(),
            references: Vec::new(),
            sessions: Vec::new(),
            versions: self.versions.clone().unwrap_or_default(),
        }
    }
}

/// A commit.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CommitRequest<'a> {
    /// A random number by which the server recognises a commit that is sent again because its answer was lost.
    pub nonce: String,
    /// What the batch relies on; `None` for a commit without a batch.
    pub start: Option<Cow<'a, BatchStart>>,
    /// Whether objects of this commit were sent ahead on this connection.
    pub has_sent_ahead: bool,
    pub mutations: Cow<'a, [Mutation]>,
}

/// The head of a reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreReply<T> {
    Done(T),
    Failed(WireError),
}

/// An object to be written, in a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WireObject<'a> {
    pub kind: ObjectKind,
    pub similar: Option<Hash>,
    pub bytes: &'a [u8],
}

impl<'a> WireObject<'a> {
    /// The number of bytes besides the content.
    pub const OVERHEAD: usize = 1 + 1 + 32 + 4;

    pub fn append_to(&self, body: &mut Vec<u8>) {
        body.push(self.kind as u8);
        body.push(u8::from(self.similar.is_some()));
        body.extend_from_slice(self.similar.map_or([0; 32], |hash| *hash.as_bytes()).as_slice());
        // A body is shorter than 4 GiB, and so are the objects in it.
        body.extend_from_slice(&(self.bytes.len() as u32).to_be_bytes());
        body.extend_from_slice(self.bytes);
    }

    /// Takes the first object from the rest of a body; `None` if it is not one.
    pub fn take_from(rest: &mut &'a [u8]) -> Option<Self> {
        let (head, after) = rest.split_at_checked(Self::OVERHEAD)?;
        let kind = ObjectKind::from_u8(head[0])?;
        let similar = match head[1] {
            0 => None,
            1 => Some(Hash::from_slice(&head[2..34])?),
            _ => return None,
        };
        let length = u32::from_be_bytes([head[34], head[35], head[36], head[37]]) as usize;
        let (bytes, after) = after.split_at_checked(length)?;
        *rest = after;
        Some(Self { kind, similar, bytes })
    }
}

/// The kind and hash of an object, in a body.
pub(crate) const OBJECT_ID_LEN: usize = 33;

/// Appends the kind and hash of an object.
pub(crate) fn append_object_id(body: &mut Vec<u8>, kind: ObjectKind, hash: Hash) {
    body.push(kind as u8);
    body.extend_from_slice(hash.as_bytes());
}

/// The kinds and hashes in a body; `None` if it is malformed.
pub(crate) fn read_object_ids(body: &[u8]) -> Option<Vec<(ObjectKind, Hash)>> {
    if !body.len().is_multiple_of(OBJECT_ID_LEN) {
        return None;
    }
    let ids = body.chunks_exact(OBJECT_ID_LEN);
    ids.map(|id| Some((ObjectKind::from_u8(id[0])?, Hash::from_slice(&id[1..])?))).collect()
}

/// The hashes in a body; `None` if it is malformed.
pub(crate) fn read_hashes<C: FromIterator<Hash>>(body: &[u8]) -> Option<C> {
    if !body.len().is_multiple_of(32) {
        return None;
    }
    body.chunks_exact(32).map(Hash::from_slice).collect()
}

/// Hashes as a body.
pub(crate) fn write_hashes<'h>(hashes: impl IntoIterator<Item = &'h Hash>) -> Vec<u8> {
    hashes.into_iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// The length of an [`ObjectInfo`] in a body.
const INFO_LEN: usize = OBJECT_ID_LEN + 8 + 1 + 32;

/// Appends what a list says about an object.
pub(crate) fn append_info(body: &mut Vec<u8>, info: &ObjectInfo) {
    append_object_id(body, info.kind, info.hash);
    body.extend_from_slice(&info.raw_len.to_be_bytes());
    body.push(u8::from(info.base.is_some()));
    body.extend_from_slice(info.base.map_or([0; 32], |base| *base.as_bytes()).as_slice());
}

/// The objects that a body lists; `None` if it is malformed.
pub(crate) fn read_infos(body: &[u8]) -> Option<Vec<ObjectInfo>> {
    if !body.len().is_multiple_of(INFO_LEN) {
        return None;
    }
    let infos = body.chunks_exact(INFO_LEN).map(|bytes| {
        let (id, rest) = bytes.split_at(OBJECT_ID_LEN);
        let (length, rest) = rest.split_at(8);
        Some(ObjectInfo {
            kind: ObjectKind::from_u8(id[0])?,
            hash: Hash::from_slice(&id[1..])?,
            raw_len: u64::from_be_bytes(length.try_into().ok()?),
            base: if rest[0] == 0 { None } else { Some(Hash::from_slice(&rest[1..])?) },
        })
    });
    infos.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_read_back_and_wrong_bytes_do_not() {
        let similar = Some(Hash::of(ObjectKind::Tree, b"t"));
        let objects = [
            WireObject { kind: ObjectKind::Tree, similar, bytes: b"tree" },
            WireObject { kind: ObjectKind::Blob, similar: None, bytes: b"" },
        ];
        let mut body = Vec::new();
        objects.iter().for_each(|object| object.append_to(&mut body));
        let mut rest = body.as_slice();
        for object in &objects {
            assert_eq!(WireObject::take_from(&mut rest).as_ref(), Some(object));
        }
        assert!(rest.is_empty());
        for cut in 1..WireObject::OVERHEAD + 4 {
            assert_eq!(WireObject::take_from(&mut &body[..cut]), None);
        }
        body[0] = 99;
        assert_eq!(WireObject::take_from(&mut body.as_slice()), None);
        assert_eq!(read_object_ids(&[1; 34]), None);
        assert_eq!(read_hashes::<Vec<_>>(&[1; 33]), None);
    }

    #[test]
    fn lists_of_objects_read_back() {
        let hash = Hash::of(ObjectKind::Blob, b"a");
        let infos = [
            ObjectInfo { kind: ObjectKind::Blob, hash, raw_len: 7, base: None },
            ObjectInfo { kind: ObjectKind::Json, hash, raw_len: u64::MAX, base: Some(hash) },
        ];
        let mut body = Vec::new();
        infos.iter().for_each(|info| append_info(&mut body, info));
        assert_eq!(read_infos(&body).unwrap(), infos);
        assert_eq!(read_infos(&body[1..]), None);
    }
}
