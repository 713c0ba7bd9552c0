//! `stepback watcher`: the process that watches large workspaces, and how `status` and `doctor` show it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_model::time::Timestamp;
use stepback_watcher::client::{SLOW_SCAN, WatcherClient, WatcherPresence};
use stepback_watcher::launch::LaunchRecord;
use stepback_watcher::process;
use stepback_watcher::report::WatcherReport;
use stepback_watcher::server::lock_holder;

use super::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::settings::Settings;
use crate::watcher::WatcherMode;

/// How long to wait for a watcher to end after it was asked to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// What is known about the watcher of a store.
pub struct WatcherState {
    mode: WatcherMode,
    presence: WatcherPresence,
    /// The process that holds the watcher's lock, whether or not it answers.
    holder: Option<u32>,
    record: LaunchRecord,
}

impl WatcherState {
    /// Queries the watcher, and reads what hooks recorded about starting one.
    pub fn find(context: &Context) -> Self {
        let dir = context.store_location().local_dir();
        let mode = WatcherMode::detect(&Settings::load_or_default(dir));
        let presence = match mode {
            WatcherMode::Off(_) => WatcherPresence::Absent,
            _ => WatcherClient::new(dir).presence(),
        };
        Self { mode, presence, holder: lock_holder(dir), record: LaunchRecord::load(dir) }
    }

    /// Returns the watcher's report, if it answers.
    pub fn report(&self) -> Option<&WatcherReport> {
        match &self.presence {
            WatcherPresence::Running(report) => Some(report),
            _ => None,
        }
    }

    /// Whether a watcher should be running by now but something prevents it.
    pub fn is_failing(&self) -> bool {
        match self.presence {
            WatcherPresence::Running(_) => false,
            WatcherPresence::Absent => self.can_start() && self.record.failure.is_some(),
            WatcherPresence::Silent | WatcherPresence::OtherVersion => true,
        }
    }

    /// Whether slow scans start a watcher.
    pub fn can_start(&self) -> bool {
        matches!(self.mode, WatcherMode::Start | WatcherMode::StartAlways)
    }

    /// Returns in one line why no watcher answers; `None` if one does.
    pub fn unavailable_reason(&self) -> Option<String> {
        let process = self.holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        Some(match (&self.presence, self.mode) {
            (WatcherPresence::Running(_), _) => return None,
            (_, WatcherMode::Off(why)) => format!("turned off: {why}"),
            (WatcherPresence::Silent, _) => {
                format!("not responding{process}; \"stepback watcher stop\" stops it")
            }
            (WatcherPresence::OtherVersion, _) => {
                format!("a watcher of another stepback version is running{process}; it is not used")
            }
            (WatcherPresence::Absent, WatcherMode::QueryOnly(why)) => format!("not started: {why}"),
            (WatcherPresence::Absent, _) => self.absence_reason(),
        })
    }

    fn absence_reason(&self) -> String {
        let slow = SLOW_SCAN.as_millis();
        let LaunchRecord { tries, failure, .. } = &self.record;
        let wait = self.record.pause().as_secs();
        match (tries, failure) {
            (0, _) => format!("not running; it starts after a scan that takes more than {slow} ms"),
            (_, Some(failure)) => format!("{failure}; retry {}", format_retry_delay(wait)),
            (1, None) if wait > 0 => "starting".to_owned(),
            (tries, None) => format!(
                "it exited shortly after its start, {}; retry {}",
                if *tries == 1 { "once".to_owned() } else { format!("{tries} times") },
                format_retry_delay(wait)
            ),
        }
    }

    /// Returns the state as JSON: null if no watcher answers.
    pub fn document(&self, root: Option<&Path>) -> Value {
        let Some(report) = self.report() else { return Value::Null };
        let sight = |sight: &Result<u64, String>, value: &mut Value| match sight {
            Ok(directories) => value["directories"] = json!(directories),
            Err(reason) => {
                value["directories"] = json!(0);
                value["reason"] = json!(reason);
            }
        };
        let roots: Vec<Value> = (report.roots.iter())
            .map(|known| {
                let shown = known.root.display().to_string();
                let mut value = json!({ "id": shown, "root": shown });
                sight(&known.sight, &mut value);
                value
            })
            .collect();
        let mut value = json!({
            "pid": report.pid,
            "version": report.version,
            "automatic": report.automatic,
            "since": started_at(report),
            "memory_bytes": report.memory,
            "questions": report.questions,
            "roots": roots,
        });
        if let Some(root) = root {
            sight(&report.sight_of(root), &mut value);
        }
        value
    }

    /// Returns the watcher process on one line, for the user.
    pub fn process_summary(&self, now: Timestamp) -> Option<String> {
        let report = self.report()?;
        let what = if report.automatic { "process" } else { "server, process" };
        Some(format!(
            "{what} {}, {}, started {}, queried {}",
            report.pid,
            output::bytes(report.memory),
            started_at(report).ago(now),
            if report.questions == 1 {
                "once".to_owned()
            } else {
                format!("{} times", output::grouped(report.questions))
            }
        ))
    }
}

fn started_at(report: &WatcherReport) -> Timestamp {
    Timestamp::from_micros(i64::try_from(report.since).unwrap_or(0).saturating_mul(1_000_000))
}

fn format_retry_delay(seconds: u64) -> String {
    match seconds {
        0 => "at the next slow scan".to_owned(),
        1..=90 => format!("in {seconds} s"),
        _ => format!("in {} min", seconds.div_ceil(60)),
    }
}

/// Runs `stepback watcher`.
pub fn show(context: &Context) -> CommandResult {
    let state = WatcherState::find(context);
    if context.json {
        output::print_document(
            &json!({ "watcher": state.document(None), "not_watched": state.unavailable_reason() }),
        );
        return DONE;
    }
    let paint = Paint::stdout();
    match (state.process_summary(context.now()), state.report()) {
        (Some(line), Some(report)) => {
            output::print_line(format!("Watcher: {line}"));
            for known in &report.roots {
                let shown = match &known.sight {
                    Ok(directories) => {
                        output::count(*directories, "directory").replace("directorys", "directories")
                    }
                    Err(reason) => format!("not watched: {reason}"),
                };
                output::print_line(format!("  {}  {}", known.root.display(), paint.dim(shown)));
            }
        }
        _ => output::print_line(format!("Watcher: {}", state.unavailable_reason().unwrap_or_default())),
    }
    DONE
}

/// Runs `stepback watcher stop`.
pub fn stop(context: &Context) -> CommandResult {
    let dir = context.store_location().local_dir();
    let pid = stop_watcher(dir)?;
    if context.json {
        output::print_document(&json!({ "stopped": pid.is_some(), "pid": pid }));
        return DONE;
    }
    match pid {
        Some(pid) => {
            output::print_line(format!("Stopped the watcher, process {pid}."));
            output::print_status(Paint::stderr().dim(
                "The next slow scan starts another one; \"stepback settings watcher 0\" prevents this.",
            ));
        }
        None => output::print_line("No watcher is running."),
    }
    DONE
}

/// Ends the watcher of the store in `dir`, if a hook started it. Returns its process id.
pub fn stop_watcher(dir: &Path) -> Result<Option<u32>, CommandFailure> {
    let client = WatcherClient::new(dir);
    let holder = match client.presence() {
        WatcherPresence::Absent => return Ok(None),
        WatcherPresence::Running(report) => Some(report.pid),
        WatcherPresence::Silent | WatcherPresence::OtherVersion => lock_holder(dir),
    };
    match client.stop() {
        Ok(false) => {
            return Err(CommandFailure::new(FailureKind::Refused, "the watcher is part of a server")
                .with_hint("stop that server, or start it with --no-watcher"));
        }
        Ok(true) => {
            let started = Instant::now();
            while lock_holder(dir).is_some() {
                if started.elapsed() > EXIT_TIMEOUT {
                    process::kill_silent(dir);
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Err(_) if process::kill_silent(dir).is_some() => {}
        Err(error) => {
            return Err(CommandFailure::new(
                FailureKind::System,
                format!("the watcher is not responding: {error}"),
            )
            .with_hint("if it is part of a server, stop that server"));
        }
    }
    Ok(holder)
}
