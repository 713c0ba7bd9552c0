//! A client of `stepback mcp`: lines in, lines out.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};
use stepback_mcp::schema;

use crate::sandbox::Sandbox;

/// A server and the two ends of the line to it.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    asked: u64,
    /// The tools it lists.
    pub tools: Vec<Value>,
}

impl Client {
    /// Starts a server and introduces itself as `name`.
    #[track_caller]
    pub fn introduced(world: &Sandbox, name: &str, options: &[&str]) -> Self {
        let mut client = Self::started(world, options, &[]);
        client.introduce(name);
        client
    }

    /// Starts a server.
    pub fn started(world: &Sandbox, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = world.command([&["mcp"], options].concat());
        command.envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { input: child.stdin.take(), output, child, asked: 0, tools: Vec::new() }
    }

    /// Introduces itself.
    #[track_caller]
    pub fn introduce(&mut self, name: &str) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": name, "version": "1" },
        });
        let answer = self.ask("initialize", params);
        self.tell("notifications/initialized");
        self.tools = self.ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone();
        answer
    }

    /// Sends a line as it is.
    pub fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").and_then(|()| input.flush()).unwrap();
    }

    /// The next line.
    #[track_caller]
    pub fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    /// Tells something that wants no answer.
    pub fn tell(&mut self, method: &str) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method }).to_string());
    }

    /// Asks something and waits for the answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }).to_string(),
        );
        let answer = self.hear();
        assert_eq!(answer["id"], self.asked, "{answer}");
        answer
    }

    /// Calls a tool; what it gives must fit its schema.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        assert_eq!(result["isError"], false, "{tool}: {answer:#}");
        assert!(!result["content"][0]["text"].as_str().unwrap().is_empty(), "{answer:#}");
        let described = self.tools.iter().find(|known| known["name"] == tool).unwrap();
        let structured = result["structuredContent"].clone();
        assert_eq!(
            schema::find_mismatch(&described["outputSchema"], &structured),
            None,
            "{tool}: {structured:#}"
        );
        structured
    }

    /// Calls a tool that must refuse, and gives what it says.
    #[track_caller]
    pub fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert_eq!(answer["result"]["isError"], true, "{tool}: {answer:#}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Ends the input and waits for the end; the rest of what it said.
    #[track_caller]
    pub fn end(mut self) -> Vec<Value> {
        drop(self.input.take());
        let rest =
            self.output.by_ref().lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ended already, or it does so because its input did.
        let _ = self.child.wait();
    }
}
