//! Connecting a store with a place: an empty one becomes a mirror, a mirror must be one that the store can continue.

use std::sync::Arc;

use stepback_model::env::Env;
use stepback_model::hex;
use stepback_store::embedded::EmbeddedStore;

use crate::archive::MirrorArchive;
use crate::error::MirrorError;
use crate::storage::MirrorStorage;
use crate::sync;

/// Whether a store may continue a mirror that has another history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptOther {
    /// It may: what it has becomes a new generation beside the others.
    Yes,
    /// It is refused.
    No,
}

/// Opens the mirror in a storage for a store, or creates it if the storage is empty. `id` is that of the store's other
/// mirrors; `None` if it has none.
pub fn join(
    store: &EmbeddedStore,
    storage: Arc<dyn MirrorStorage>,
    id: Option<&str>,
    accept: AcceptOther,
    env: &dyn Env,
) -> Result<MirrorArchive, MirrorError> {
    let place = storage.place();
    let Some(archive) = MirrorArchive::open(storage.clone())? else {
        if !storage.is_empty()? {
            let reason = "there are other files; choose an empty directory or another prefix".to_owned();
            return Err(MirrorError::NotAMirror { place, reason });
        }
        let fresh = hex::encode(&env.fresh_id());
        return MirrorArchive::create(storage, id.unwrap_or(&fresh), env.now());
    };
    if id.is_some_and(|id| id != archive.id) {
        let reason = "the mirrors that this store has already have another id".to_owned();
        return Err(MirrorError::OtherStore { place, reason });
    }
    if accept == AcceptOther::No && !sync::can_continue(store, &archive.cursor)? {
        let reason = "this store does not have the steps that were mirrored there".to_owned();
        return Err(MirrorError::OtherStore { place, reason });
    }
    Ok(archive)
}
