//! A cache of recently read trees.
//!
//! One command reads the same trees many times: as the base of others, as one side of a comparison, as the start of an
//! edit. Each may have a chain of bases, so what was read and verified once is kept for a while. A check of the store
//! clears the cache first, so that it reads everything from the disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stepback_model::hash::Hash;

/// Maximum size of a cached object, in bytes.
const MAX_OBJECT_BYTES: usize = 64 << 10;
/// When the cache exceeds this many bytes, it is cleared: the next objects are as likely to be read again.
const MAX_CACHE_BYTES: usize = 4 << 20;

/// A bounded cache of objects.
#[derive(Debug, Default)]
pub struct Recent {
    inner: Mutex<CachedObjects>,
}

#[derive(Debug, Default)]
struct CachedObjects {
    objects: HashMap<Hash, Arc<[u8]>>,
    bytes: usize,
}

impl Recent {
    /// The bytes of an object, if it is cached. Its hash includes its kind.
    pub fn get(&self, hash: Hash) -> Option<Arc<[u8]>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).objects.get(&hash).cloned()
    }

    /// Adds an object whose bytes were verified to have this hash.
    pub fn put(&self, hash: Hash, bytes: &[u8]) {
        if bytes.len() > MAX_OBJECT_BYTES {
            return;
        }
        let mut kept = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + bytes.len() > MAX_CACHE_BYTES {
            *kept = CachedObjects::default();
        }
        if kept.objects.insert(hash, bytes.into()).is_none() {
            kept.bytes += bytes.len();
        }
    }

    /// Clears the cache: the objects may have been deleted or damaged.
    pub fn clear(&self) {
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = CachedObjects::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stepback_model::ObjectKind;

    #[test]
    fn what_is_small_is_kept_until_there_is_too_much() {
        let recent = Recent::default();
        let hash = |name: &[u8]| Hash::of(ObjectKind::Blob, name);
        recent.put(hash(b"small"), b"small");
        recent.put(hash(b"large"), &vec![0; MAX_OBJECT_BYTES + 1]);
        assert_eq!(recent.get(hash(b"small")).as_deref(), Some(&b"small"[..]));
        assert!(recent.get(hash(b"large")).is_none());
        for i in 0..=(MAX_CACHE_BYTES / MAX_OBJECT_BYTES) as u32 {
            recent.put(hash(&i.to_le_bytes()), &vec![0; MAX_OBJECT_BYTES]);
        }
        assert!(recent.get(hash(b"small")).is_none());
    }
}
