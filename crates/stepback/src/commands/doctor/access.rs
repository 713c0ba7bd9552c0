//! Checks who can access the store's files, and what kind of file system they are on.

use std::io;
use std::path::Path;

use stepback_store::private_files::AccessSurvey;

use super::Examination;
use super::fix::{Fix, FixAction};
use super::report::Finding;
use crate::output;

/// File systems on which SQLite's locks or its shared memory may not work between machines.
const NETWORK_FILE_SYSTEMS: [(u64, &str); 10] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7461_636f, "OCFS2"),
];

/// Checks permissions, owner and file system of the store's directory.
pub fn check_access(examination: &Examination, survey: Option<&io::Result<AccessSurvey>>) -> Vec<Finding> {
    let dir = examination.location.local_dir();
    let survey = match survey {
        None => return Vec::new(),
        Some(Err(error)) => {
            return vec![
                Finding::problem("access", format!("{} cannot be read: {error}", dir.display()))
                    .with_hint("correct the permissions of the directory, or run stepback as its owner"),
            ];
        }
        Some(Ok(survey)) => survey,
    };
    let mut findings = Vec::new();
    findings.extend(describe_owner(survey));
    findings.extend(describe_exposed(dir, survey));
    if findings.is_empty() {
        let all = if survey.is_complete { "" } else { " the first 50,000 files of" };
        findings.push(Finding::good("access", format!("only you can access{all} {}", dir.display())));
    }
    findings.extend(describe_file_system(dir));
    findings
}

fn describe_owner(survey: &AccessSurvey) -> Option<Finding> {
    let (path, owner) = survey.foreign.first()?;
    let more = match survey.foreign.len() {
        1 => String::new(),
        count => format!(" and {}", output::count(count as u64 - 1, "other path")),
    };
    let found = Finding::problem("access", format!("{}{more} belongs to user {owner}", path.display()));
    Some(found.with_id("access.owner").with_hint("change the owner with chown, or run stepback as that user"))
}

fn describe_exposed(dir: &Path, survey: &AccessSurvey) -> Option<Finding> {
    let first = survey.exposed.first()?;
    let count = output::count(survey.exposed.len() as u64, "path");
    let shown = match survey.exposed.len() {
        1 => format!("{} has mode {:04o}", first.path.display(), first.mode),
        _ => format!("{count} of the store, first {} with mode {:04o}", first.path.display(), first.mode),
    };
    let found = match survey.is_directory_exposed {
        true => Finding::problem("access", format!("other users can access the store: {shown}"))
            .with_hint("it contains every version of your files: it must have mode 0700, files 0600"),
        // Nothing is reached through a directory with mode 0700.
        false => Finding::note(
            "access",
            format!("files would be accessible to other users if the store's directory were: {shown}"),
        ),
    };
    let undo = format!("chmod {:o} {}", first.mode, first.path.display());
    Some(found.with_id("access.permissions").with_fix(Some(Fix {
        description: format!("take the access of other users to {count} of {} away", dir.display()),
        undo: match survey.exposed.len() {
            1 => undo,
            _ => format!("{undo}, and the same for the others; no part of stepback needs it"),
        },
        action: FixAction::TightenPermissions(survey.exposed.clone()),
    })))
}

fn describe_file_system(dir: &Path) -> Option<Finding> {
    let kind = rustix::fs::statfs(dir).ok()?.f_type as u64 & 0xffff_ffff;
    let (_, name) = NETWORK_FILE_SYSTEMS.into_iter().find(|(number, _)| *number == kind)?;
    let text = format!("{} is on a network file system ({name})", dir.display());
    Some(Finding::note("access", text).with_id("access.network").with_hint(
        "use the store from one machine only; a local disk is faster and safer (STEPBACK_HOME), and several machines \
         can share a database (--store postgres://…)",
    ))
}
