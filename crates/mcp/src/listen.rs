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
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);
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
    has_unread_marks: bool,
}

impl Subscription {
    /// Opens the subscription that a request asks for, with the resources that can be watched.
    pub fn open(service: &dyn McpService, request: &ServiceRequest<'_>, id: &Value) -> Result<Self, Refusal> {
        revision::check_meta(request.params)?;
        let Some(Value::Object(requested)) = request.params.get("notifications") else {
            return Err(Refusal::invalid_params("\"notifications\" must be given, as an object"));
        };
        let addresses = match requested.get("resourceSubscriptions") {
            None => &[][..],
            Some(Value::Array(addresses)) => addresses,
            Some(_) => {
                return Err(Refusal::invalid_params("\"resourceSubscriptions\" must be a list of addresses"));
            }
        };
        if addresses.len() > MAX_SUBSCRIPTION_URIS {
            return Err(Refusal::invalid_params(format!(
                "a subscription can have at most {MAX_SUBSCRIPTION_URIS} resources"
            )));
        }
        let mut marks = BTreeMap::new();
        for address in addresses {
            let address =
                address.as_str().ok_or_else(|| Refusal::invalid_params("an address must be a text"))?;
            if let Some(mark) = service.resource_version(request, address)? {
                marks.insert(address.to_owned(), mark);
            }
        }
        let (params, client) = (request.params.clone(), request.client.map(str::to_owned));
        Ok(Self { id: Some(id.clone()), params, client, marks, has_unread_marks: false })
    }

    /// The first message: which resources the client will be notified about.
    pub fn acknowledgement(&self) -> Value {
        let mut notifications = json!({});
        if !self.marks.is_empty() {
            notifications["resourceSubscriptions"] = self.marks.keys().cloned().collect();
        }
        let params = self.add_subscription_id(json!({ "notifications": notifications }));
        notification("notifications/subscriptions/acknowledged", params)
    }

    /// The last message: the subscription has ended.
    pub fn end_message(&self, service: &dyn McpService) -> Option<Value> {
        let id = self.id.as_ref()?;
        Some(rpc::response(id, Ok(protocol::complete_result(service, self.add_subscription_id(json!({}))))))
    }

    /// Whether some mark could not be read, and has to be read again even if nothing else is recorded.
    pub fn is_behind(&self) -> bool {
        self.has_unread_marks
    }

    /// Messages about what changed since marks were last compared. A mark that cannot be read now is read again later.
    pub fn collect_notifications(&mut self, service: &dyn McpService) -> Vec<Value> {
        let era = if self.id.is_some() { ProtocolEra::Modern } else { ProtocolEra::Legacy };
        let client = self.client.as_deref();
        let service_request =
            ServiceRequest { era, params: &self.params, client, can_push: true, send: &|_| {} };
        let mut changed = Vec::new();
        self.has_unread_marks = false;
        for (address, known_mark) in &mut self.marks {
            match service.resource_version(&service_request, address) {
                Ok(Some(mark)) if mark != *known_mark => {
                    *known_mark = mark;
                    changed.push(address.clone());
                }
                Ok(_) => {}
                Err(_) => self.has_unread_marks = true,
            }
        }
        let updated = |uri: String| {
            notification("notifications/resources/updated", self.add_subscription_id(json!({ "uri": uri })))
        };
        changed.into_iter().map(updated).collect()
    }

    fn add_subscription_id(&self, mut params: Value) -> Value {
        if let Some(id) = &self.id {
            params["_meta"] = json!({ SUBSCRIPTION_ID_KEY: id });
        }
        params
    }
}

/// All subscriptions of one connection.
#[derive(Debug, Default)]
pub struct Listeners {
    state: Mutex<ListenerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ListenerState {
    subscriptions: Vec<Subscription>,
    /// A subscription was added since marks were last compared.
    has_new: bool,
    is_stopped: bool,
}

impl Listeners {
    fn state(&self) -> MutexGuard<'_, ListenerState> {
        // After a panic elsewhere the state is still usable: a mark that was not compared is compared again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes the connection to a URI.
    pub fn subscribe(
        &self,
        service: &dyn McpService,
        request: &ServiceRequest<'_>,
    ) -> Result<Value, Refusal> {
        let address = requested_uri(request)?;
        let Some(mark) = service.resource_version(request, address)? else {
            let clipped: String = address.chars().take(200).collect();
            return Err(Refusal::invalid_params(format!("{clipped} does not support subscriptions")));
        };
        let mut state = self.state();
        if !state.subscriptions.iter().any(|subscription| subscription.id.is_none()) {
            let client = request.client.map(str::to_owned);
            let (params, marks) = (Params::new(), BTreeMap::new());
            state.subscriptions.push(Subscription {
                id: None,
                params,
                client,
                marks,
                has_unread_marks: false,
            });
        }
        if let Some(connection_subscription) =
            state.subscriptions.iter_mut().find(|subscription| subscription.id.is_none())
        {
            if connection_subscription.marks.len() >= MAX_SUBSCRIPTION_URIS
                && !connection_subscription.marks.contains_key(address)
            {
                return Err(Refusal::invalid_params(format!(
                    "a connection can subscribe to at most {MAX_SUBSCRIPTION_URIS} resources"
                )));
            }
            connection_subscription.marks.insert(address.to_owned(), mark);
        }
        self.wake(state);
        Ok(json!({}))
    }

    /// Ends the subscription of the connection to a URI.
    pub fn unsubscribe(&self, request: &ServiceRequest<'_>) -> Result<Value, Refusal> {
        let address = requested_uri(request)?;
        let mut state = self.state();
        for subscription in state.subscriptions.iter_mut().filter(|subscription| subscription.id.is_none()) {
            subscription.marks.remove(address);
        }
        state
            .subscriptions
            .retain(|subscription| subscription.id.is_some() || !subscription.marks.is_empty());
        Ok(json!({}))
    }

    /// Opens a subscription; its acknowledgement is sent at once.
    pub fn open(
        &self,
        service: &dyn McpService,
        request: &ServiceRequest<'_>,
        id: &Value,
    ) -> Result<(), Refusal> {
        let subscription = Subscription::open(service, request, id)?;
        let mut state = self.state();
        if state.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            return Err(Refusal::invalid_params(format!(
                "the limit of {MAX_SUBSCRIPTIONS} subscriptions is reached"
            )));
        }
        (request.send)(subscription.acknowledgement());
        state.subscriptions.push(subscription);
        self.wake(state);
        Ok(())
    }

    fn wake(&self, mut state: MutexGuard<'_, ListenerState>) {
        state.has_new = true;
        self.changed.notify_all();
    }

    /// Ends the subscription that a request opened; returns false if there is none.
    pub fn cancel(&self, id: &Value) -> bool {
        let mut state = self.state();
        let count_before = state.subscriptions.len();
        state.subscriptions.retain(|subscription| subscription.id.as_ref() != Some(id));
        state.subscriptions.len() < count_before
    }

    /// Sends notifications of changes until [`Self::stop`] is called.
    pub fn send_notifications(&self, service: &dyn McpService, send: impl Fn(&Value)) {
        let mut last_seen = None;
        loop {
            let state = self.state();
            let idle = |state: &mut ListenerState| state.subscriptions.is_empty() && !state.is_stopped;
            let state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            if state.is_stopped {
                return;
            }
            drop(state);
            let Ok(now) = service.wait_for_change(last_seen, POLL_INTERVAL) else {
                std::thread::sleep(RETRY_DELAY);
                continue;
            };
            let mut state = self.state();
            if last_seen.replace(now) != Some(now) || std::mem::take(&mut state.has_new) {
                // An error in one resource must not end the connection.
                let look = AssertUnwindSafe(|| {
                    state
                        .subscriptions
                        .iter_mut()
                        .flat_map(|subscription| subscription.collect_notifications(service))
                        .for_each(|news| send(&news));
                });
                let _ = panic::catch_unwind(look);
                state.has_new |= state.subscriptions.iter().any(Subscription::is_behind);
            }
        }
    }

    /// Stops all notifications.
    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.changed.notify_all();
    }

    /// The last messages of all subscriptions that are still open.
    pub fn end_messages(&self, service: &dyn McpService) -> Vec<Value> {
        self.state()
            .subscriptions
            .drain(..)
            .filter_map(|subscription| subscription.end_message(service))
            .collect()
    }
}

fn requested_uri<'a>(request: &ServiceRequest<'a>) -> Result<&'a str, Refusal> {
    let address = request.params.get("uri").and_then(Value::as_str);
    address.ok_or_else(|| Refusal::invalid_params("\"uri\" must be given, as a text"))
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

        fn resource_version(&self, _: &ServiceRequest<'_>, _: &str) -> Result<Option<String>, Refusal> {
            self.looks.fetch_add(1, Ordering::SeqCst);
            if self.fails.load(Ordering::SeqCst) {
                return Err(Refusal::invalid_params("the store is busy"));
            }
            Ok(Some(self.version.load(Ordering::SeqCst).to_string()))
        }

        fn wait_for_change(&self, _: Option<u64>, _: Duration) -> Result<u64, Refusal> {
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
            can_push: true,
            send: &|_| {},
        };
        listeners.subscribe(&service, &asked).unwrap();
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                listeners.send_notifications(&service, |news| told.lock().unwrap().push(news.clone()))
            });
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
