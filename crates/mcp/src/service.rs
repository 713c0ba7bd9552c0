//! What a server offers, apart from how it is asked for.
//!
//! The protocol ([`crate::protocol`]) is written against this trait, so that the tools of stepback and the fixtures that the
//! official conformance suite wants to see are served by the same code.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::revision::{CLIENT, ProtocolEra};
use crate::rpc::{Params, Refusal, notification};

/// Who offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// The name that programs know it by.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What a model should know before it uses anything.
    pub instructions: &'static str,
}

impl About {
    /// As it is told.
    pub fn document(&self) -> Value {
        json!({ "name": self.name, "title": self.title, "version": self.version })
    }
}

/// A request as a service sees it.
pub struct Asked<'a> {
    /// How it is to be understood.
    pub era: ProtocolEra,
    /// All that it says.
    pub params: &'a Params,
    /// The program that asks, in its own words.
    pub client: Option<&'a str>,
    /// Whether messages can be sent that answer nothing, so that somebody can be told of changes.
    pub pushes: bool,
    /// Takes messages that go out before the answer.
    pub out: &'a (dyn Fn(Value) + Sync),
}

impl Asked<'_> {
    /// Tells how far the work has come, if somebody wants to know.
    pub fn progress(&self, done: u64, total: u64, message: &str) {
        let token = self.params.get("_meta").and_then(|meta| meta.get("progressToken"));
        if let Some(token) = token.filter(|token| token.is_string() || token.is_number()) {
            let params =
                json!({ "progressToken": token, "progress": done, "total": total, "message": message });
            (self.out)(notification("notifications/progress", params));
        }
    }
}

/// The name of the program that asks, where every request says it.
pub fn client_of(params: &Params) -> Option<&str> {
    params.get("_meta")?.get(CLIENT)?.get("name")?.as_str()
}

/// What a server offers. Everything may wait for disks and locks, and is called on a thread where that is no harm.
pub trait Service: Send + Sync {
    /// Who offers.
    fn about(&self) -> About;

    /// The tools, always in the same order.
    fn tools(&self) -> Vec<Value>;

    /// Whether a call of a tool may take minutes, so that others must not wait for it.
    fn is_slow(&self, tool: &str) -> bool;

    /// Calls a tool. A refusal is for a tool that does not exist; what goes wrong in one is part of its result.
    fn call(&self, asked: &Asked<'_>, tool: &str, arguments: Map<String, Value>) -> Result<Value, Refusal>;

    /// A page of resources: `resources`, and `nextCursor` if there are more.
    fn resources(&self, asked: &Asked<'_>, cursor: Option<&str>) -> Result<Value, Refusal>;

    /// Addresses of resources with a blank to fill in.
    fn templates(&self) -> Vec<Value>;

    /// What is at an address: a list of contents. `None` if there is nothing.
    fn read(&self, asked: &Asked<'_>, uri: &str) -> Result<Option<Value>, Refusal>;

    /// Whether somebody can be told of changes of resources.
    fn tells(&self) -> bool {
        false
    }

    /// What stands for a resource as it is now: something else once it has changed. `None` if nobody is told of that.
    fn mark(&self, _asked: &Asked<'_>, _uri: &str) -> Result<Option<String>, Refusal> {
        Ok(None)
    }

    /// Waits until something may have changed since `seen`, but no longer than `patience`, and gives what is seen now.
    fn wait(&self, _seen: Option<u64>, patience: Duration) -> Result<u64, Refusal> {
        std::thread::sleep(patience);
        Ok(0)
    }

    /// The prompts, always in the same order.
    fn prompts(&self) -> Vec<Value>;

    /// One prompt, filled in: `description` and `messages`.
    fn prompt(&self, asked: &Asked<'_>, name: &str, arguments: &Map<String, Value>)
    -> Result<Value, Refusal>;

    /// What a blank of a prompt or an address could be filled with, given how it begins.
    fn complete(
        &self,
        asked: &Asked<'_>,
        reference: &Map<String, Value>,
        argument: &str,
        begins: &str,
    ) -> Result<Vec<String>, Refusal>;
}

/// For tests: everything that a service offers but tools, of which there is nothing.
#[cfg(test)]
macro_rules! nothing_but_tools {
    () => {
        fn about(&self) -> $crate::service::About {
            $crate::service::About { name: "t", title: "t", version: "1", instructions: "" }
        }

        fn tools(&self) -> Vec<Value> {
            Vec::new()
        }

        fn resources(&self, _: &Asked<'_>, _: Option<&str>) -> Result<Value, Refusal> {
            Ok(Value::Null)
        }

        fn templates(&self) -> Vec<Value> {
            Vec::new()
        }

        fn read(&self, _: &Asked<'_>, _: &str) -> Result<Option<Value>, Refusal> {
            Ok(None)
        }

        fn prompts(&self) -> Vec<Value> {
            Vec::new()
        }

        fn prompt(&self, _: &Asked<'_>, _: &str, _: &Map<String, Value>) -> Result<Value, Refusal> {
            Ok(Value::Null)
        }

        fn complete(
            &self,
            _: &Asked<'_>,
            _: &Map<String, Value>,
            _: &str,
            _: &str,
        ) -> Result<Vec<String>, Refusal> {
            Ok(Vec::new())
        }
    };
}

/// For tests: everything that a service offers, of which there is nothing.
#[cfg(test)]
macro_rules! nothing {
    () => {
        $crate::service::nothing_but_tools!();

        fn is_slow(&self, _: &str) -> bool {
            false
        }

        fn call(&self, _: &Asked<'_>, _: &str, _: Map<String, Value>) -> Result<Value, Refusal> {
            Ok(Value::Null)
        }
    };
}

#[cfg(test)]
pub(crate) use {nothing, nothing_but_tools};
