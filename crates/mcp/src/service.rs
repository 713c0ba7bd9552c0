//! The interface between the protocol and what a server offers.
//!
//! The protocol ([`crate::protocol`]) is written against this trait, so that stepback's tools and the fixtures of the
//! official conformance suite are served by the same code.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::revision::{CLIENT, ProtocolEra};
use crate::rpc::{Params, Refusal, notification};

/// How a server describes itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// The name for programs.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// The version of the server.
    pub version: &'static str,
    /// What a model should know before it uses the server.
    pub instructions: &'static str,
}

impl ServerInfo {
    /// The `serverInfo` document.
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "title": self.title, "version": self.version })
    }
}

/// A request as a service sees it.
pub struct ServiceRequest<'a> {
    /// The protocol era of the request.
    pub era: ProtocolEra,
    /// All parameters of the request.
    pub params: &'a Params,
    /// The name of the client program, as the client states it.
    pub client: Option<&'a str>,
    /// Whether the transport can send notifications, so that the client can subscribe to changes.
    pub can_push: bool,
    /// Sends a message before the response.
    pub send: &'a (dyn Fn(Value) + Sync),
}

impl ServiceRequest<'_> {
    /// Reports progress, if the request has a progress token.
    pub fn report_progress(&self, done: u64, total: u64, message: &str) {
        let token = self.params.get("_meta").and_then(|meta| meta.get("progressToken"));
        if let Some(token) = token.filter(|token| token.is_string() || token.is_number()) {
            let params =
                json!({ "progressToken": token, "progress": done, "total": total, "message": message });
            (self.send)(notification("notifications/progress", params));
        }
    }
}

/// The name of the client program, where requests carry it.
pub fn client_name(params: &Params) -> Option<&str> {
    params.get("_meta")?.get(CLIENT)?.get("name")?.as_str()
}

/// What a server offers. Every method may block on disks and locks, and is called on a thread that may block.
pub trait McpService: Send + Sync {
    /// How the server describes itself.
    fn about(&self) -> ServerInfo;

    /// The tools, always in the same order.
    fn tools(&self) -> Vec<Value>;

    /// Whether a call of a tool may take minutes, so that other requests must not wait for it.
    fn is_slow(&self, tool: &str) -> bool;

    /// Calls a tool. Returns a refusal for an unknown tool; a failure inside a tool is part of its result.
    fn call(
        &self,
        request: &ServiceRequest<'_>,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, Refusal>;

    /// A page of resources: `resources`, and `nextCursor` if there are more.
    fn resources(&self, request: &ServiceRequest<'_>, cursor: Option<&str>) -> Result<Value, Refusal>;

    /// URI templates of resources.
    fn templates(&self) -> Vec<Value>;

    /// The contents of a URI, as a list; `None` if there is nothing.
    fn read(&self, request: &ServiceRequest<'_>, uri: &str) -> Result<Option<Value>, Refusal>;

    /// Whether clients can subscribe to changes of resources.
    fn can_subscribe(&self) -> bool {
        false
    }

    /// The mark of a resource as it is now, which differs once it has changed. `None` if the resource has no notifications.
    fn resource_version(&self, _asked: &ServiceRequest<'_>, _uri: &str) -> Result<Option<String>, Refusal> {
        Ok(None)
    }

    /// Waits at most `patience` until something may have changed since `seen`, and returns the present state.
    fn wait_for_change(&self, _seen: Option<u64>, timeout: Duration) -> Result<u64, Refusal> {
        std::thread::sleep(timeout);
        Ok(0)
    }

    /// The prompts, always in the same order.
    fn prompts(&self) -> Vec<Value>;

    /// One prompt, filled in: `description` and `messages`.
    fn prompt(
        &self,
        request: &ServiceRequest<'_>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Refusal>;

    /// Values for an argument of a prompt or a placeholder of a URI template that start with what was typed.
    fn complete(
        &self,
        request: &ServiceRequest<'_>,
        reference: &Map<String, Value>,
        argument: &str,
        typed: &str,
    ) -> Result<Vec<String>, Refusal>;
}

/// For tests: implements every method except those for tools, with nothing to offer.
#[cfg(test)]
macro_rules! nothing_but_tools {
    () => {
        fn about(&self) -> $crate::service::ServerInfo {
            $crate::service::ServerInfo { name: "t", title: "t", version: "1", instructions: "" }
        }

        fn tools(&self) -> Vec<Value> {
            Vec::new()
        }

        fn resources(&self, _: &ServiceRequest<'_>, _: Option<&str>) -> Result<Value, Refusal> {
            Ok(Value::Null)
        }

        fn templates(&self) -> Vec<Value> {
            Vec::new()
        }

        fn read(&self, _: &ServiceRequest<'_>, _: &str) -> Result<Option<Value>, Refusal> {
            Ok(None)
        }

        fn prompts(&self) -> Vec<Value> {
            Vec::new()
        }

        fn prompt(&self, _: &ServiceRequest<'_>, _: &str, _: &Map<String, Value>) -> Result<Value, Refusal> {
            Ok(Value::Null)
        }

        fn complete(
            &self,
            _: &ServiceRequest<'_>,
            _: &Map<String, Value>,
            _: &str,
            _: &str,
        ) -> Result<Vec<String>, Refusal> {
            Ok(Vec::new())
        }
    };
}

/// For tests: implements every method with nothing to offer.
#[cfg(test)]
macro_rules! nothing {
    () => {
        $crate::service::nothing_but_tools!();

        fn is_slow(&self, _: &str) -> bool {
            false
        }

        fn call(&self, _: &ServiceRequest<'_>, _: &str, _: Map<String, Value>) -> Result<Value, Refusal> {
            Ok(Value::Null)
        }
    };
}

#[cfg(test)]
pub(crate) use {nothing, nothing_but_tools};
