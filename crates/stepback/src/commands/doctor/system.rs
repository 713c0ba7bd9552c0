//! Checks what surrounds stepback: space, settings, versions, and the watcher with the limits of the system.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfs;
use stepback_agents::Agent;
use stepback_engine::recorder::settings::RecorderSetting;
use stepback_model::time::Timestamp;

use super::Examination;
use super::report::Finding;
use crate::commands::watcher::WatcherState;
use crate::context;
use crate::disk_budget::setting::KEY as BUDGET_KEY;
use crate::output;
use crate::settings::{SETTINGS, Settings};

/// With less free space than this, in bytes, the next checkpoint may fail.
const LEAST_BYTES: u64 = 64 << 20;
/// With less free space than this, in bytes, the user should know.
const FEW_BYTES: u64 = 1 << 30;
/// The same for inodes, on file systems that have a fixed number of them.
const LEAST_INODES: u64 = 100;
const FEW_INODES: u64 = 5_000;

/// Checks free space and inodes where the store and the workspace are, and the budget.
pub fn check_space(examination: &Examination) -> Vec<Finding> {
    let store = examination.location.local_dir();
    // A store that does not exist yet will be on the file system of the directory above it.
    let existing = store.ancestors().find(|dir| dir.exists()).unwrap_or(store);
    let mut findings = Vec::new();
    let is_same = device(existing).is_some() && device(existing) == device(&examination.root);
    let of_store = if is_same { "the store and the workspace" } else { "the store" };
    findings.extend(check_file_system("space", of_store, existing));
    if !is_same {
        findings.extend(check_file_system("space.workspace", "the workspace", &examination.root));
    }
    findings.extend(check_budget(examination));
    findings
}

fn device(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|metadata| metadata.dev())
}

fn check_file_system(id: &str, what: &str, path: &Path) -> Option<Finding> {
    let found: StatVfs = rustix::fs::statvfs(path).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let inodes = (found.f_files > 0).then_some(found.f_favail);
    let inode_text =
        inodes.map_or(String::new(), |inodes| format!(" and {} inodes", output::grouped(inodes)));
    let text = format!("{} free for {what}", output::bytes(free) + &inode_text);
    let is_below = |bytes: u64, count: u64| free < bytes || inodes.is_some_and(|inodes| inodes < count);
    let finding = if is_below(LEAST_BYTES, LEAST_INODES) {
        Finding::problem("space", format!("only {text}; the next checkpoint may fail"))
    } else if is_below(FEW_BYTES, FEW_INODES) {
        Finding::note("space", format!("only {text}"))
    } else {
        return Some(Finding::good("space", text).with_id(id));
    };
    Some(finding.with_id(id).with_hint(
        "free some space; \"stepback prune --dry-run --max-size SIZE\" shows what stepback could give up",
    ))
}

fn check_budget(examination: &Examination) -> Option<Finding> {
    let budget = crate::disk_budget::of_location(&examination.location)?;
    let used = examination.context().ok()?.store().usage().ok()?.total_bytes;
    let text = format!("the store has {} of its {}", output::bytes(used), output::bytes(budget));
    let finding = if used <= budget {
        Finding::good("space", text)
    } else {
        Finding::note("space", text).with_hint(
            "\"stepback prune --budget --dry-run\" shows what can go; \"stepback stats\" says what was tried",
        )
    };
    Some(finding.with_id("space.budget"))
}

/// Checks the settings file of the store.
pub fn check_settings(examination: &Examination) -> Finding {
    match Settings::load(examination.location.local_dir()) {
        Ok(settings) if !settings.problems().is_empty() => {
            Finding::problem("settings", settings.problems().join("; "))
                .with_hint("\"stepback settings KEY VALUE\" corrects one; until then, its default is used")
        }
        Ok(settings) => {
            let (recorder, _) = settings.recorder();
            let numbers = SETTINGS.iter().filter(|known| settings.is_set(known.key));
            let numbers = numbers.map(|known| format!("{} {}", known.key, settings.get(known.key)));
            let budget =
                settings.is_set(BUDGET_KEY).then(|| format!("{BUDGET_KEY} {}", settings.disk_budget()));
            let others = RecorderSetting::ALL.into_iter().filter(|setting| settings.is_set(setting.key()));
            let others = others.map(|setting| format!("{} {}", setting.key(), recorder.text(setting)));
            let shown: Vec<_> = numbers.chain(budget).chain(others).collect();
            let text = if shown.is_empty() { "all defaults".to_owned() } else { shown.join(", ") };
            Finding::good("settings", text)
        }
        Err(failure) => Finding::problem("settings", failure.message())
            .with_hint("correct or remove the file; until then, defaults are used"),
    }
}

/// Says which versions are there. No agent is run, and git neither.
pub fn check_versions(examination: &Examination) -> Vec<Finding> {
    let mut parts = vec![format!("stepback {}", env!("CARGO_PKG_VERSION"))];
    if let Some(Ok(Some(format))) = examination.context().ok().map(|context| context.store().format()) {
        parts.push(format!("store formats up to {}", format.known));
    }
    for agent in Agent::ALL {
        let Some(program) = context::find_on_path(agent.name()) else { continue };
        parts.push(match find_agent_version(&program) {
            Some(version) => format!("{agent} {version}"),
            None => format!("{agent} (version unknown)"),
        });
    }
    let has_git = context::find_on_path("git").is_some();
    parts.extend(has_git.then(|| "git is installed".to_owned()));
    let mut findings = vec![Finding::good("versions", parts.join(", "))];
    if !has_git {
        findings.push(
            Finding::note("versions", "git is not installed")
                .with_id("versions.git")
                .with_hint("stepback itself does not run it; repositories are covered all the same"),
        );
    }
    findings
}

/// Returns the version of an agent as its files name it: the package that its script belongs to, or the name of its file.
fn find_agent_version(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    let is_version = |text: &str| {
        let parts: Vec<&str> = text.split('.').collect();
        parts.len() >= 3 && parts.iter().all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
    };
    if let Some(name) = real.file_name().and_then(|name| name.to_str()).filter(|name| is_version(name)) {
        return Some(name.to_owned());
    }
    let packages: Vec<PathBuf> =
        real.ancestors().skip(1).take(4).map(|dir| dir.join("package.json")).collect();
    let package = packages.into_iter().find(|file| {
        fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() < 1 << 20)
    })?;
    let package: serde_json::Value = serde_json::from_slice(&fs::read(package).ok()?).ok()?;
    let version = package["version"].as_str()?;
    is_version(version).then(|| version.to_owned())
}

/// Checks the watcher, if the store is open.
pub fn check_watcher(examination: &Examination) -> Vec<Finding> {
    let Ok(context) = examination.context() else { return Vec::new() };
    let state = WatcherState::find(context);
    let mut findings = vec![describe_watcher(&state, examination.now())];
    if let Some(report) = state.report() {
        findings.extend(report.roots.iter().filter_map(|known| {
            let reason = known.sight.as_ref().err()?;
            let text = format!("{}: {reason}", known.root.display());
            Some(Finding::note("watcher", text).with_id("watcher.root"))
        }));
    }
    findings
}

fn describe_watcher(state: &WatcherState, now: Timestamp) -> Finding {
    match (state.process_summary(now), state.unavailable_reason()) {
        (Some(line), _) => Finding::good("watcher", line),
        (None, why) if state.is_failing() => {
            Finding::problem("watcher", why.unwrap_or_default()).with_hint("hooks scan every file instead")
        }
        // It is started when it is needed.
        (None, why) if state.can_start() => Finding::good("watcher", why.unwrap_or_default()),
        (None, why) => Finding::note("watcher", why.unwrap_or_default()),
    }
}

/// Checks the system's inotify limits, which restrict watching.
pub fn check_inotify_limits() -> Option<Finding> {
    let limit = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
    };
    let (watches, instances) = (limit("max_user_watches")?, limit("max_user_instances")?);
    let text = format!(
        "the system allows {} watched directories and {} inotify instances per user",
        output::grouped(watches),
        output::grouped(instances)
    );
    Some(match watches < 20_000 {
        true => Finding::note("inotify", text)
            .with_hint("for large workspaces: sudo sysctl fs.inotify.max_user_watches=524288"),
        false => Finding::good("inotify", text),
    })
}
