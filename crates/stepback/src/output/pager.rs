//! Long output in a pager, as git shows it.
//!
//! The pager decides what is long: `less` runs with `-F`, so that what fits on the screen is printed and nothing else happens.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::context::find_on_path;

/// Whether stdout leads to a terminal through a pager.
static IS_PAGED: AtomicBool = AtomicBool::new(false);

/// Whether what is printed on stdout is for a person at a terminal, directly or through a pager.
pub fn is_stdout_terminal() -> bool {
    IS_PAGED.load(Ordering::Relaxed) || io::stdout().is_terminal()
}

/// A running pager that shows stdout. Dropping it waits until the user leaves it.
#[derive(Debug)]
pub struct OutputPager {
    child: Child,
}

impl OutputPager {
    /// Starts the user's pager if stdout is a terminal: `$STEPBACK_PAGER`, `$PAGER`, or `less`. `None` if there is none, or if it
    /// is `cat` or empty.
    pub fn start() -> Option<Self> {
        if !io::stdout().is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return None;
        }
        let chosen = ["STEPBACK_PAGER", "PAGER"].iter().find_map(|name| std::env::var(name).ok());
        let command = match chosen {
            Some(chosen) => chosen,
            None => find_on_path("less").map(|_| "less".to_owned())?,
        };
        let command = command.trim();
        if command.is_empty() || command == "cat" {
            return None;
        }
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).stdin(Stdio::piped());
        // Quit if it fits on one screen, show colours, leave the text on the screen.
        for (name, options) in [("LESS", "FRX"), ("LV", "-c")] {
            if std::env::var_os(name).is_none() {
                shell.env(name, options);
            }
        }
        let mut child = shell.spawn().ok()?;
        let pipe = child.stdin.take()?;
        rustix::stdio::dup2_stdout(&pipe).ok()?;
        IS_PAGED.store(true, Ordering::Relaxed);
        Some(Self { child })
    }
}

impl Drop for OutputPager {
    fn drop(&mut self) {
        let _ = io::stdout().flush();
        // The pager's input ends when nothing has the pipe open any more. Nothing is printed on stdout after this.
        let _ = rustix::stdio::dup2_stdout(io::stderr());
        let _ = self.child.wait();
    }
}
