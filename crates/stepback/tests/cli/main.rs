//! The real program from the outside: what it says, and that nothing is lost whatever happens to it.
//!
//! One test binary, because linking is what takes time; `cargo test --test cli faults::` runs one part.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod agent;
mod agent_http;
mod anomalies;
mod bisect;
mod blame;
mod board;
mod budget;
mod checkpoint_limits;
mod command_history;
mod compares;
mod concurrency;
mod damage;
mod demo;
mod described;
mod doctor;
mod faults;
mod flips;
mod grpc_replays;
mod guarded;
mod guarded_shell;
mod hooks_branches;
mod hooks_breakpoints;
mod hooks_control;
mod hooks_crowd;
mod hooks_input;
mod hooks_kept;
mod hooks_merge;
mod hooks_ranges;
mod hooks_secrets;
mod hooks_session;
mod hooks_settings;
mod hostile;
mod hostile_git;
mod hostile_store;
mod in_use;
mod kills;
mod mcp;
mod mcp_branches;
mod mcp_client;
mod mcp_http;
mod mcp_listen;
mod mcp_wire;
mod mirrors;

mod postgres;
mod private;
<<<<<<< HEAD
mod profile;
=======
mod prompts;
>>>>>>> 0830e96c (wip)
mod proxy;
mod proxy_replay;
mod proxy_secrets;
mod proxy_trouble;
mod pseudo_terminal;
mod record_sources;
mod recovery;
mod replays;
mod reported;
mod reporting;
mod reruns;
mod reruns_decisions;
mod reruns_fence;
mod rewind_parts;
mod runs;
mod sandbox;
mod search;
mod seed_commands;
mod serve;
mod serving;
mod session_files;
mod share;
mod talk;
mod tampering;
mod telemetry;
mod torn;
mod transcripts;
mod tui;
mod two_servers;
mod typed_words;
mod watcher_process;
mod watching;
mod whole_states;
mod why;
mod wire;
mod workspaces;
