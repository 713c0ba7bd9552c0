//! The command `stepback doctor`: reports what keeps stepback from working well here, and how to fix it.
//!
//! The checks are small functions in the modules below, each of which returns findings. A check that fails is a finding too:
//! a damaged store must not hide that an agent's hooks are gone. Without `--fix` nothing is changed: the inbox stays, and
//! interrupted operations are not finished.

mod access;
mod fix;
mod hooks;
mod pending;
mod report;
mod seal;
mod store;
mod system;
mod workspace;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use stepback_engine::workspace::Workspace;
use stepback_model::record::Operation;
use stepback_model::time::Timestamp;
use stepback_store::private_files::{self, AccessSurvey};

use self::report::{Finding, count_findings, print_findings};
use super::watcher::WatcherState;
use super::{CommandResult, DONE};
use crate::args::Arguments;
use crate::args::store::DoctorArgs;
use crate::context::{self, Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output;
use crate::protection::describe_protection;
use crate::store_location::StoreLocation;

/// The exit code if problems remain.
const PROBLEMS: u8 = 1;

/// Runs `stepback doctor`.
pub fn doctor(arguments: &Arguments, wanted: &DoctorArgs) -> CommandResult {
    let examination = Examination::begin(arguments)?;
    let mut findings = examination.findings();
    let mut fixes = None;
    if wanted.fix {
        let done = fix::run_fixes(&examination, &findings, wanted, arguments.json)?;
        if !wanted.dry_run && !done.is_empty() {
            findings = examination.findings_after_fixes();
        }
        fixes = Some(done);
    }
    let counts = count_findings(&findings);
    if arguments.json {
        let watcher = examination.opened.as_ref().ok().map(WatcherState::find);
        let mut document = json!({
            "ok": counts.problems == 0,
            "problems": counts.problems,
            "notes": counts.notes,
            "protection": describe_protection(&examination.location).level.map(|level| level.as_str()),
            "items": findings.iter().map(Finding::document).collect::<Vec<_>>(),
            "watcher": watcher.as_ref().map(|state| state.document(None)),
            "not_watched": watcher.as_ref().and_then(WatcherState::unavailable_reason),
        });
        if let Some(fixes) = &fixes {
            document["fixes"] = fixes.iter().map(fix::AppliedFix::document).collect();
        }
        output::print_document(&document);
    } else {
        print_findings(&findings);
    }
    match counts.problems {
        0 => DONE,
        // The plan was asked for, whatever it says.
        _ if wanted.dry_run => DONE,
        _ => Ok(ExitCode::from(PROBLEMS)),
    }
}

/// What is examined.
pub struct Examination {
    /// The root of the workspace, whether it is recorded or not.
    root: PathBuf,
    location: StoreLocation,
    /// Who can access the store's files; from before the store was opened, which corrects some of it. `None` if there is no
    /// local store.
    survey: Option<io::Result<AccessSurvey>>,
    /// The open store, or why it cannot be opened.
    opened: Result<Context, CommandFailure>,
    /// The workspace, without finishing its operations or recording its inbox; `None` if nothing is recorded here.
    workspace: Option<Result<Workspace, CommandFailure>>,
}

impl Examination {
    fn begin(arguments: &Arguments) -> Result<Self, CommandFailure> {
        let location = StoreLocation::find(arguments.store.as_deref())?;
        let survey = survey(&location);
        let opened = Context::open(arguments, CreateStore::No, "files scanned");
        let (root, workspace) = match &opened {
            Ok(context) => match context.find_workspace_root() {
                Ok(root) => {
                    let found = context.engine().find_workspace(&root).map_err(CommandFailure::from);
                    (root, found.transpose())
                }
                Err(failure) => (context::natural_root(&context.directory), Some(Err(failure))),
            },
            Err(_) => (context::natural_root(&arguments.working_directory()?), None),
        };
        Ok(Self { root, location, survey, opened, workspace })
    }

    /// Makes all checks.
    fn findings(&self) -> Vec<Finding> {
        self.check_all(self.survey.as_ref())
    }

    fn findings_after_fixes(&self) -> Vec<Finding> {
        self.check_all(survey(&self.location).as_ref())
    }

    fn check_all(&self, survey: Option<&io::Result<AccessSurvey>>) -> Vec<Finding> {
        let mut findings = vec![store::describe_level(self)];
        findings.extend(seal::check_seals(self));
        findings.extend(store::check_store(self));
        findings.extend(access::check_access(self, survey));
        findings.extend(store::check_chain(self));
        findings.extend(pending::check_operations(self));
        findings.extend(pending::check_inbox(self));
        findings.extend(pending::check_search_index(self));
        findings.extend(hooks::check_hooks(self));
        findings.extend(workspace::check_workspace(self));
        findings.extend(workspace::check_rules(self));
        findings.extend(workspace::check_clock(self));
        findings.extend(system::check_space(self));
        findings.push(system::check_settings(self));
        findings.extend(system::check_versions(self));
        findings.extend(system::check_watcher(self));
        findings.extend(system::check_inotify_limits());
        number_repeated_ids(&mut findings);
        findings
    }

    /// Returns the open store.
    fn context(&self) -> Result<&Context, CommandFailure> {
        self.opened
            .as_ref()
            .map_err(|_| CommandFailure::new(FailureKind::Store, "the store cannot be opened"))
    }

    /// Returns the recorded workspace.
    fn workspace(&self) -> Result<&Workspace, CommandFailure> {
        match &self.workspace {
            Some(Ok(workspace)) => Ok(workspace),
            Some(Err(failure)) => Err(CommandFailure::new(failure.kind(), failure.message())),
            None => {
                Err(CommandFailure::new(FailureKind::Nothing, "nothing is recorded in this directory yet"))
            }
        }
    }

    /// Returns the operations that a process began and did not finish.
    fn unfinished(&self) -> Result<Vec<Operation>, CommandFailure> {
        let workspace = self.workspace()?;
        Ok(workspace.store().unfinished(workspace.record.id)?)
    }

    /// Returns the current time.
    fn now(&self) -> Timestamp {
        match &self.opened {
            Ok(context) => context.now(),
            Err(_) => crate::system::environment().now(),
        }
    }
}

/// Makes ids unique: the second finding with the id `ignore.unused` becomes `ignore.unused.2`.
fn number_repeated_ids(findings: &mut [Finding]) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for finding in findings {
        let count = counts.entry(finding.id.clone()).or_default();
        *count += 1;
        if *count > 1 {
            finding.id = format!("{}.{count}", finding.id);
        }
    }
}

fn survey(location: &StoreLocation) -> Option<io::Result<AccessSurvey>> {
    let dir = match location {
        StoreLocation::Directory(dir) => dir,
        StoreLocation::Server { local, .. } => local,
    };
    match private_files::survey(dir, rustix::process::geteuid().as_raw()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        surveyed => Some(surveyed),
    }
}
