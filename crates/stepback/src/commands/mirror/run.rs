//! `stepback mirror run`: keeps mirrors up to date until it is interrupted, for a service of the system.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stepback_mirror::MirrorError;
use stepback_mirror::service::{MirrorService, ServiceEnd};
use stepback_mirror::settings::{ConfiguredMirror, MirrorSettings};
use stepback_mirror::sync::SyncReport;

use super::MirrorableStore;
use crate::commands::serve::register_stop_flag;
use crate::commands::{CommandResult, DONE};
use crate::mirroring::storage_access;
use crate::output;

/// The pause after the service ended by itself: the store was removed, or another process syncs.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs `stepback mirror run`.
pub fn run(store: &MirrorableStore<'_>, places: &[String]) -> CommandResult {
    let stop = register_stop_flag()?;
    let mut mirrors = None;
    if places.is_empty() {
        store.find(&[])?;
    } else {
        let mut settings = MirrorSettings { id: String::new(), mirrors: Vec::new() };
        for (address, _) in store.find(places)? {
            // Creates the mirror in an empty place, and refuses that of another store.
            let archive = store.connect(&address, false)?;
            let added_at = store.env.now();
            settings.mirrors.push(ConfiguredMirror { address: address.to_string(), added_at });
            drop(archive);
        }
        mirrors = Some(settings);
    }
    if !store.arguments.json {
        output::print_status("Mirroring; press Ctrl-C to stop.");
    }
    let observer = |place: &str, outcome: &Result<SyncReport, MirrorError>| report(place, outcome);
    let service = MirrorService {
        dir: &store.dir,
        env: store.env.clone(),
        stop: &stop,
        idle: None,
        mirrors,
        access: storage_access(),
        observer: Some(&observer),
    };
    while !stop.load(Ordering::Relaxed) {
        match service.run() {
            Ok(ServiceEnd::AlreadyRunning | ServiceEnd::Finished) => {}
            // The store may be there again later: it was removed, or is being replaced.
            Err(error) => output::print_status(format!("Warning: {error}; retrying")),
        }
        pause(&stop);
    }
    DONE
}

fn pause(stop: &AtomicBool) {
    if !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
    }
}

fn report(place: &str, outcome: &Result<SyncReport, MirrorError>) {
    match outcome {
        Ok(report) => {
            if let Some(contradiction) = &report.contradiction {
                output::print_status(format!(
                    "Warning: {place}: the store contradicts the mirror: {contradiction}"
                ));
            }
            for problem in &report.problems {
                output::print_status(format!("Warning: {place}: not mirrored: {problem}"));
            }
            if let Some(reason) = &report.new_generation {
                output::print_status(format!("{place}: began a new generation: {reason}"));
            }
        }
        Err(error) => output::print_status(format!("Warning: {place}: {error}; retrying")),
    }
}
