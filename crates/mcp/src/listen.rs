//! Change notifications: which client subscribed to which resources, and the last known mark of each.
//!
//! Up to 2025-11-25 a client subscribes to one URI at a time, for its connection. From 2026-07-28 on it opens
//! subscriptions, each with all of its URIs, and every message names its subscription. The only state kept for a resource
//! is a mark, which differs once the resource has changed; marks are compared again whenever something was recorded.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::protocol;
use crate::revision::{self, ProtocolEra};
use crate::rpc::{self, Params, Refusal, notification};
use crate::service::{McpService, ServiceRequest};

/// How long one wait for something new lasts.
pub const LOOK: Duration = Duration::from_millis(250);
/// How long to wait before a retry when the store does not answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The most URIs of one subscription.
const MAX_SUBSCRIPTION_URIS: usize = 100;
/// The most subscriptions of one connection.
const MAX_SUBSCRIPTIONS: usize = 100;
/// The `_meta` key under which a message names its subscription.
const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// A set of resources that a client wants to be notified about.
#[derive(Debug)]
pub struct Subscription {
    /// The id of the request that opened it; `None` for URIs that a connection subscribed to one by one.
    id: Option<Value>,
    params: Params,
    client: Option<String>,
    marks: BTreeMap<String, String>,
    /// Whether some mark could not be read the last time.
    unseen: bool,
}

impl Subscription {
    /// Opens the subscription that a request asks for, with the resources that can be watched.
    pub fn open(service: &dyn McpService, asked: &ServiceRequest<'_>, id: &Value) -> Result<Self, Refusal> {
        revision::check(asked.params)?;
        let Some(Value::Object(wanted)) = asked.params.get("notifications") else {
            return Err(Refusal::params("\"notifications\" must be given, as an object"));
        };
        let addresses = match wanted.get("resourceSubscriptions") {
            None => &[][..],
            Some(Value::Array(addresses)) => addresses,
            Some(_) => return Err(Refusal::params("\"resourceSubscriptions\" must be a list of addresses")),
        };
        if addresses.len() > MAX_SUBSCRIPTION_URIS {
            return Err(Refusal::params(format!(
                "a subscription can have at most {MAX_SUBSCRIPTION_URIS} resources"
            )));
        }
        let mut marks = BTreeMap::new();
        for address in addresses {
            let address = address.as_str().ok_or_else(|| Refusal::params("an address must be a text"))?;
            if let Some(mark) = service.mark(asked, address)? {
                marks.insert(address.to_owned(), mark);
            }
        }
        let (params, client) = (asked.params.clone(), asked.client.map(str::to_owned));
        Ok(Self { id: Some(id.clone()), params, client, marks, unseen: false })
    }

    /// The first message: which resources the client will be notified about.
    pub fn acknowledged(&self) -> Value {
        let mut told = json!({});
        if !self.marks.is_empty() {
            told["resourceSubscriptions"] = self.marks.keys().cloned().collect();
        }
        let params = self.stamped(json!({ "notifications": told }));
        notification("notifications/subscriptions/acknowledged", params)
    }

    /// The last message: the subscription has ended.
    pub fn ended(&self, service: &dyn McpService) -> Option<Value> {
        let id = self.id.as_ref()?;
        Some(rpc::answer(id, Ok(protocol::complete_result(service, self.stamped(json!({}))))))
    }

    /// Whether some mark could not be read, and has to be read again even if nothing else is recorded.
    pub fn is_behind(&self) -> bool {
        self.unseen
    }

    /// Messages about what changed since marks were last compared. A mark that cannot be read now is read again later.
    pub fn news(&mut self, service: &dyn McpService) -> Vec<Value> {
        let era = if self.id.is_some() { ProtocolEra::Modern } else { ProtocolEra::Legacy };
        let client = self.client.as_deref();
        let asked = ServiceRequest { era, params: &self.params, client, pushes: true, out: &|_| {} };
        let mut changed = Vec::new();
        self.unseen = false;
        for (address, seen) in &mut self.marks {
            match service.mark(&asked, address) {
                Ok(Some(mark)) if mark != *seen => {
                    *seen = mark;
                    changed.push(address.clone());
                }
                Ok(_) => {}
                Err(_) => self.unseen = true,
            }
        }
        let updated = |uri: String| {
            notification("notifications/resources/updated", self.stamped(json!({ "uri": uri })))
        };
        changed.into_iter().map(updated).collect()
    }

    fn stamped(&self, mut params: Value) -> Value {
        if let Some(id) = &self.id {
            params["_meta"] = json!({ SUBSCRIPTION_ID_KEY: id });
        }
        params
    }
}

/// All subscriptions of one connection.
#[derive(Debug, Default)]
pub struct Listeners {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    all: Vec<Subscription>,
    /// A subscription was added since marks were last compared.
    fresh: bool,
    over: bool,
}

impl Listeners {
    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic elsewhere the state is still usable: a mark that was not compared is compared again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes the connection to a URI.
    pub fn subscribe(&self, service: &dyn McpService, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
        let address = address(asked)?;
        let Some(mark) = service.mark(asked, address)? else {
            let shown: String = address.chars().take(200).collect();
            return Err(Refusal::params(format!("{shown} does not support subscriptions")));
        };
        let mut state = self.state();
        if !state.all.iter().any(|known| known.id.is_none()) {
            let client = asked.client.map(str::to_owned);
            let (params, marks) = (Params::new(), BTreeMap::new());
            state.all.push(Subscription { id: None, params, client, marks, unseen: false });
        }
        if let Some(own) = state.all.iter_mut().find(|known| known.id.is_none()) {
            if own.marks.len() >= MAX_SUBSCRIPTION_URIS && !own.marks.contains_key(address) {
                return Err(Refusal::params(format!(
                    "a connection can subscribe to at most {MAX_SUBSCRIPTION_URIS} resources"
                )));
            }
            own.marks.insert(address.to_owned(), mark);
        }
        self.woken(state);
        Ok(json!({}))
    }

    /// Ends the subscription of the connection to a URI.
    pub fn unsubscribe(&self, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
        let address = address(asked)?;
        let mut state = self.state();
        for own in state.all.iter_mut().filter(|known| known.id.is_none()) {
            own.marks.remove(address);
        }
        state.all.retain(|known| known.id.is_some() || !known.marks.is_empty());
        Ok(json!({}))
    }

    /// Opens a subscription; its acknowledgement is sent at once.
    pub fn open(
        &self,
        service: &dyn McpService,
        asked: &ServiceRequest<'_>,
        id: &Value,
    ) -> Result<(), Refusal> {
        let subscription = Subscription::open(service, asked, id)?;
        let mut state = self.state();
        if state.all.len() >= MAX_SUBSCRIPTIONS {
            return Err(Refusal::params(format!(
                "the limit of {MAX_SUBSCRIPTIONS} subscriptions is reached"
            )));
        }
        (asked.out)(subscription.acknowledged());
        state.all.push(subscription);
        self.woken(state);
        Ok(())
    }

    fn woken(&self, mut state: MutexGuard<'_, State>) {
        state.fresh = true;
        self.changed.notify_all();
    }

    /// Ends the subscription that a request opened; returns false if there is none.
    pub fn cancel(&self, id: &Value) -> bool {
        let mut state = self.state();
        let before = state.all.len();
        state.all.retain(|known| known.id.as_ref() != Some(id));
        state.all.len() < before
    }

    /// Sends notifications of changes until [`Self::stop`] is called.
    pub fn tell(&self, service: &dyn McpService, send: impl Fn(&Value)) {
        let mut seen = None;
        loop {
            let state = self.state();
            let idle = |state: &mut State| state.all.is_empty() && !state.over;
            let state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            if state.over {
                return;
            }
            drop(state);
            let Ok(now) = service.wait(seen, LOOK) else {
                std::thread::sleep(RETRY_DELAY);
                continue;
            };
            let mut state = self.state();
            if seen.replace(now) != Some(now) || std::mem::take(&mut state.fresh) {
                // An error in one resource must not end the connection.
                let look = AssertUnwindSafe(|| {
                    state.all.iter_mut().flat_map(|known| known.news(service)).for_each(|news| send(&news));
                });
                let _ = panic::catch_unwind(look);
                state.fresh |= state.all.iter().any(Subscription::is_behind);
            }
        }
    }

    /// Stops all notifications.
    pub fn stop(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    /// The last messages of all subscriptions that are still open.
    pub fn ended(&self, service: &dyn McpService) -> Vec<Value> {
        self.state().all.drain(..).filter_map(|known| known.ended(service)).collect()
    }
}

fn address<'a>(asked: &ServiceRequest<'a>) -> Result<&'a str, Refusal> {
    let address = asked.params.get("uri").and_then(Value::as_str);
    address.ok_or_else(|| Refusal::params("\"uri\" must be given, as a text"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use serde_json::Map;

    use super::*;
    use crate::service::nothing;

    /// A resource that changes, in a store that sometimes does not answer.
    #[derive(Default)]
    struct Changing {
        version: AtomicU64,
        recorded: AtomicU64,
        fails: AtomicBool,
        looks: AtomicU64,
    }

    impl McpService for Changing {
        nothing!();

        fn mark(&self, _: &ServiceRequest<'_>, _: &str) -> Result<Option<String>, Refusal> {
            self.looks.fetch_add(1, Ordering::SeqCst);
            if self.fails.load(Ordering::SeqCst) {
                return Err(Refusal::params("the store is busy"));
            }
            Ok(Some(self.version.load(Ordering::SeqCst).to_string()))
        }

        fn wait(&self, _: Option<u64>, _: Duration) -> Result<u64, Refusal> {
            std::thread::yield_now();
            Ok(self.recorded.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn what_could_not_be_looked_at_is_told_as_soon_as_it_can_be() {
        let (service, listeners) = (Changing::default(), Listeners::default());
        let told = Mutex::new(Vec::new());
        let params = Params::from_iter([("uri".to_owned(), json!("a:b"))]);
        let asked = ServiceRequest {
            era: ProtocolEra::Legacy,
            params: &params,
            client: None,
            pushes: true,
            out: &|_| {},
        };
        listeners.subscribe(&service, &asked).unwrap();
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| listeners.tell(&service, |news| told.lock().unwrap().push(news.clone())));
            service.fails.store(true, Ordering::SeqCst);
            service.version.store(1, Ordering::SeqCst);
            service.recorded.store(1, Ordering::SeqCst);
            let before = service.looks.load(Ordering::SeqCst);
            until(&|| service.looks.load(Ordering::SeqCst) > before + 2);
            assert!(told.lock().unwrap().is_empty(), "there is nothing to send");
            // Nothing else is recorded after this.
            service.fails.store(false, Ordering::SeqCst);
            until(&|| !told.lock().unwrap().is_empty());
            listeners.stop();
        });
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 1, "once");
        assert_eq!(told[0]["params"]["uri"], "a:b");
    }
}
