//! MCP over standard input and output: one message per line.
//!
//! One thread answers requests in the order they arrive, so a client that sends several at once gets the same results as if
//! it had sent them one after the other. A tool that may take minutes gets its own thread. Messages that need no work
//! (`ping`, a cancellation) never wait. The server stops at the end of input, after it has answered all requests before it.

use std::collections::HashSet;
use std::io::{self, BufRead, Read, Write};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use serde_json::Value;

use crate::listen::Listeners;
use crate::protocol;
use crate::revision::{self, ProtocolEra};
use crate::rpc::{self, INTERNAL_ERROR, INVALID_REQUEST, Params, Refusal, RpcMessage};
use crate::service::{McpService, ServiceRequest, client_name};

/// The longest line that is read, in bytes. A longer one is refused and skipped.
pub const MAX_LINE_BYTES: u64 = 16 << 20;

struct PendingRequest {
    id: Value,
    method: String,
    params: Params,
    era: ProtocolEra,
    client: Option<String>,
}

/// The state of the connection.
struct StdioConnection<W> {
    output: Mutex<W>,
    /// Requests that the client cancelled.
    cancelled: Mutex<HashSet<String>>,
    /// Requests that are not answered yet.
    open_requests: Mutex<HashSet<String>>,
    /// Subscriptions to changes.
    listeners: Listeners,
}

/// Serves until the input ends.
pub fn serve(service: &dyn McpService, mut input: impl BufRead, output: impl Write + Send) -> io::Result<()> {
    let connection = StdioConnection {
        output: Mutex::new(output),
        cancelled: Mutex::default(),
        open_requests: Mutex::default(),
        listeners: Listeners::default(),
    };
    let served = thread::scope(|threads| {
        let (queue, work) = mpsc::channel::<PendingRequest>();
        let connection = &connection;
        let _stops = StopGuard(&connection.listeners);
        threads.spawn(move || {
            connection.listeners.send_notifications(service, |message| connection.send(message))
        });
        threads.spawn(move || {
            for request in work {
                connection.process_request(service, &request);
            }
        });
        let mut introduced: Option<Option<String>> = None;
        let mut bytes = Vec::new();
        while read_line(&mut input, &mut bytes)? {
            let message = match bytes.len() as u64 > MAX_LINE_BYTES {
                true => {
                    Err((None, Refusal::new(INVALID_REQUEST, "a message must not be larger than 16 MiB")))
                }
                false => rpc::parse(&bytes),
            };
            match message {
                Ok(RpcMessage::Request { id, method, params }) => {
                    match connection.admit(&mut introduced, &method, &params) {
                        Err(refusal) => connection.send(&rpc::error_response(Some(&id), &refusal)),
                        Ok(era) if era == ProtocolEra::Legacy && method == "ping" => {
                            connection.send(&rpc::response(&id, Ok(serde_json::json!({}))));
                        }
                        Ok(era) => {
                            let client = client_name(&params).map(str::to_owned);
                            let client = client.or_else(|| introduced.clone().flatten());
                            let tool = params.get("name").and_then(Value::as_str).unwrap_or_default();
                            let slow = method == "tools/call" && service.is_slow(tool);
                            let request = PendingRequest { id, method, params, era, client };
                            lock(&connection.open_requests).insert(request.id.to_string());
                            match slow {
                                true => {
                                    drop(threads.spawn(move || connection.process_request(service, &request)))
                                }
                                // Cannot fail: the worker lives as long as the queue.
                                false => drop(queue.send(request)),
                            }
                        }
                    }
                }
                Ok(RpcMessage::Notification { method, params }) => {
                    connection.handle_notification(&method, &params)
                }
                Ok(RpcMessage::Response) => {}
                Err((id, refusal)) => connection.send(&rpc::error_response(id.as_ref(), &refusal)),
            }
        }
        Ok(())
    });
    connection.listeners.end_messages(service).iter().for_each(|message| connection.send(message));
    served
}

/// Stops notifications when the input ends, also after an error.
struct StopGuard<'l>(&'l Listeners);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<W: Write + Send> StdioConnection<W> {
    /// The protocol era of a request, if the request is allowed now.
    fn admit(
        &self,
        introduced: &mut Option<Option<String>>,
        method: &str,
        params: &Params,
    ) -> Result<ProtocolEra, Refusal> {
        if revision::stated_version(params).is_some() || method == "server/discover" {
            return Ok(ProtocolEra::Modern);
        }
        match method {
            "initialize" => {
                let name = params.get("clientInfo").and_then(|client| client.get("name"));
                *introduced = Some(name.and_then(Value::as_str).map(str::to_owned));
                Ok(ProtocolEra::Legacy)
            }
            "ping" => Ok(ProtocolEra::Legacy),
            _ if introduced.is_some() => Ok(ProtocolEra::Legacy),
            _ => Err(Refusal::new(
                INVALID_REQUEST,
                "the session is not initialized: send \"initialize\" first, or put the revision in params._meta",
            )),
        }
    }

    fn process_request(&self, service: &dyn McpService, request: &PendingRequest) {
        let key = request.id.to_string();
        let unwanted = || lock(&self.cancelled).contains(&key);
        if !unwanted() {
            let out = |message: Value| {
                if !unwanted() {
                    self.send(&message);
                }
            };
            let service_request = ServiceRequest {
                era: request.era,
                params: &request.params,
                client: request.client.as_deref(),
                can_push: true,
                send: &out,
            };
            // A bug in one tool must not end the server.
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                self.answer_request(service, request, &service_request)
            }));
            let result = result
                .unwrap_or_else(|_| Some(Err(Refusal::new(INTERNAL_ERROR, "an internal error occurred"))));
            match result {
                Some(result) if !unwanted() => self.send(&rpc::response(&request.id, result)),
                Some(_) => {}
                None => {
                    // It stays open, unless the client cancelled it meanwhile; holding this lock keeps a cancellation out.
                    let _open = lock(&self.open_requests);
                    if !unwanted() {
                        return;
                    }
                    self.listeners.cancel(&request.id);
                }
            }
        }
        lock(&self.open_requests).remove(&key);
        lock(&self.cancelled).remove(&key);
    }

    /// The response to a request; `None` for one that is answered when the connection ends.
    fn answer_request(
        &self,
        service: &dyn McpService,
        request: &PendingRequest,
        service_request: &ServiceRequest<'_>,
    ) -> Option<Result<Value, Refusal>> {
        match (request.method.as_str(), request.era) {
            ("resources/subscribe", ProtocolEra::Legacy) if service.can_subscribe() => {
                Some(self.listeners.subscribe(service, service_request))
            }
            ("resources/unsubscribe", ProtocolEra::Legacy) if service.can_subscribe() => {
                Some(self.listeners.unsubscribe(service_request))
            }
            ("subscriptions/listen", ProtocolEra::Modern) if service.can_subscribe() => {
                self.listeners.open(service, service_request, &request.id).err().map(Err)
            }
            (method, _) => Some(protocol::handle_request(service, method, service_request)),
        }
    }

    fn handle_notification(&self, method: &str, params: &Params) {
        // A request that is already answered cannot be cancelled; its id would stay in the set for ever.
        if let ("notifications/cancelled", Some(id)) = (method, params.get("requestId")) {
            let key = id.to_string();
            let mut open = lock(&self.open_requests);
            if self.listeners.cancel(id) {
                open.remove(&key);
            } else if open.contains(&key) {
                lock(&self.cancelled).insert(key);
            }
        }
    }

    fn send(&self, message: &Value) {
        let mut output = lock(&self.output);
        // A client that stopped reading closes the input too, which ends the server.
        let _ = writeln!(output, "{message}").and_then(|()| output.flush());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic elsewhere the data is still consistent: no update takes more than one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the next line that is not empty, without its line end. Of a line that is too long, reads one byte more than is
/// allowed. Returns false at the end of input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        line.clear();
        if input.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', line)? == 0 {
            return Ok(false);
        }
        if line.len() as u64 > MAX_LINE_BYTES && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            return Ok(true);
        }
        if !line.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::sync::{Arc, Condvar};

    use serde_json::{Map, json};

    use super::*;
    use crate::service::nothing_but_tools;

    /// Tools that block, and one that panics.
    #[derive(Default)]
    struct Tools {
        begun: (Mutex<u32>, Condvar),
        released: (Mutex<bool>, Condvar),
    }

    impl McpService for Tools {
        nothing_but_tools!();

        fn is_slow(&self, tool: &str) -> bool {
            tool == "slow"
        }

        fn call(&self, _: &ServiceRequest<'_>, tool: &str, _: Map<String, Value>) -> Result<Value, Refusal> {
            if tool == "broken" {
                panic!("broken");
            }
            if tool != "quick" {
                *self.begun.0.lock().unwrap() += 1;
                self.begun.1.notify_all();
                let released = self.released.0.lock().unwrap();
                drop(self.released.1.wait_while(released, |released| !*released).unwrap());
            }
            Ok(json!({ "tool": tool }))
        }
    }

    const HELLO: &str =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;

    fn call(id: u32, tool: &str) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } }).to_string()
    }

    /// The output written so far.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        /// The ids of all responses, and whether each is an error. A line that is still being written is left out.
        fn answers(&self) -> Vec<(Value, bool)> {
            let written = self.0.lock().unwrap();
            let lines = written.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
            let answers = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
            answers.map(|answer| (answer["id"].clone(), answer.get("error").is_some())).collect()
        }
    }

    #[test]
    fn a_tool_that_breaks_takes_no_other_with_it() {
        let input = [HELLO, &call(1, "broken"), &call(2, "quick")].join("\n");
        let output = Shared::default();
        serve(&Tools::default(), input.as_bytes(), output.clone()).unwrap();
        assert_eq!(output.answers(), [(json!(0), false), (json!(1), true), (json!(2), false)]);
    }

    #[test]
    fn what_is_cancelled_is_not_answered_whether_it_runs_or_waits() {
        let tools = Tools::default();
        let (reader, mut writer) = io::pipe().unwrap();
        let output = Shared::default();
        thread::scope(|threads| {
            threads.spawn(|| serve(&tools, BufReader::new(reader), output.clone()).unwrap());
            let cancel = |id: u32| {
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
                    .to_string()
            };
            // 1 runs on its own thread, 2 on the worker, and 3 waits for 2.
            for line in
                [HELLO.to_owned(), call(1, "slow"), call(2, "blocks"), call(3, "quick"), call(4, "quick")]
            {
                writeln!(writer, "{line}").unwrap();
            }
            let begun = tools.begun.0.lock().unwrap();
            drop(tools.begun.1.wait_while(begun, |begun| *begun < 2).unwrap());
            for line in [cancel(1), cancel(3), cancel(99)] {
                writeln!(writer, "{line}").unwrap();
            }
            // A ping never waits, so its response shows that the cancellations before it were processed.
            writeln!(writer, r#"{{"jsonrpc":"2.0","id":5,"method":"ping"}}"#).unwrap();
            while !output.answers().contains(&(json!(5), false)) {
                thread::yield_now();
            }
            drop(writer);
            *tools.released.0.lock().unwrap() = true;
            tools.released.1.notify_all();
        });
        let mut ids: Vec<Value> = output.answers().into_iter().map(|(id, _)| id).collect();
        ids.sort_by_key(Value::as_u64);
        assert_eq!(ids, [json!(0), json!(2), json!(4), json!(5)]);
    }
}
