//! A server of a store in a temporary directory, and clients of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stepback_remote::{
    AccessRole, ClientConfig, RemoteAddress, RemoteStore, ServiceConfig, StoreService, UnixStoreListener,
};
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;

/// The token for the role `full`.
pub const OWNER_TOKEN: &str = concat!("0123456789abcdef", "0123456789abcdef");

pub struct TestServer {
    pub dir: tempfile::TempDir,
    pub store: Arc<EmbeddedStore>,
    pub listener: Option<UnixStoreListener>,
    clients: AtomicU32,
}

impl TestServer {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(&dir.path().join("store")).unwrap());
        let mut server = Self { dir, store, listener: None, clients: AtomicU32::new(0) };
        server.restart();
        server
    }

    /// Stops the service, and starts another one on the same store.
    pub fn restart(&mut self) {
        self.listener = None;
        self.listener = Some(UnixStoreListener::start(&self.socket(), service(self.store.clone())).unwrap());
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s.sock")
    }

    pub fn config(&self) -> ClientConfig {
        let number = self.clients.fetch_add(1, Ordering::SeqCst);
        let local = self.dir.path().join(format!("client-{number}"));
        ClientConfig::new(RemoteAddress::Unix(self.socket()), &local)
    }

    /// A client that may do everything.
    pub fn owner(&self) -> RemoteStore {
        let config = ClientConfig { token: Some(OWNER_TOKEN.into()), ..self.config() };
        let store = RemoteStore::connect(&config).unwrap();
        assert_eq!(store.role(), AccessRole::Full);
        store
    }

    /// A client like that of an agent.
    pub fn agent(&self) -> RemoteStore {
        let store = RemoteStore::connect(&self.config()).unwrap();
        assert_eq!(store.role(), AccessRole::Append);
        store
    }
}

pub fn service(store: Arc<dyn Store>) -> StoreService {
    StoreService::new(ServiceConfig {
        store,
        store_id: "test".into(),
        tokens: vec![(OWNER_TOKEN.into(), AccessRole::Full)],
        update_index: None,
    })
    .unwrap()
}
