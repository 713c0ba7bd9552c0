//! A one-entry cache for details: those of neighbouring steps share a page, which a caller that reads them one after the other
//! should unpack only once.

use std::cell::RefCell;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSource};

/// Reads objects and caches the JSON node that was read last.
pub struct LastRead<'a> {
    source: &'a dyn ObjectSource,
    last: RefCell<Option<(Hash, Vec<u8>)>>,
}

impl<'a> LastRead<'a> {
    /// Creates an empty cache over `source`.
    pub fn new(source: &'a dyn ObjectSource) -> Self {
        Self { source, last: RefCell::default() }
    }
}

impl ObjectSource for LastRead<'_> {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        if kind != ObjectKind::Json {
            return self.source.read(kind, hash);
        }
        if let Some((cached_hash, bytes)) = &*self.last.borrow()
            && *cached_hash == hash
        {
            return Ok(bytes.clone());
        }
        let bytes = self.source.read(kind, hash)?;
        *self.last.borrow_mut() = Some((hash, bytes.clone()));
        Ok(bytes)
    }
}
