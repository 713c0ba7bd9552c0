//! A real server for a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::sandbox::Sandbox;

/// A server that ends with the test.
pub struct Serving {
    /// Its process.
    pub child: Child,
    /// Where it listens.
    pub url: String,
    /// What proves that we may ask.
    pub token: String,
}

impl Serving {
    /// Starts one over the world's store, with these words besides.
    pub fn start(world: &Sandbox, more: &[&str]) -> Self {
        let mut command = world.command(["serve", "--listen", "127.0.0.1:0", "--json"]);
        let mut child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let word = |name: &str| said[name].as_str().unwrap().to_owned();
        let token = std::fs::read_to_string(word("token_file")).unwrap();
        Self { child, url: word("url"), token: token.trim().to_owned() }
    }

    /// Its address and port.
    pub fn host(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// What it says at an address below `/api/v1`.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.host()).unwrap();
        let request = format!(
            "GET /api/v1{path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            self.host(),
            self.token
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
