//! Checks whether there is a seal of the workspace: a signed statement of what was recorded.

use stepback_seal::{Seal, SignedSeal, git_ref};

use super::Examination;
use super::report::Finding;
use crate::output;

/// At most this many seals are read.
const MAX_SEALS: usize = 20;

/// Looks for seals in the repository of the workspace. Seals elsewhere cannot be known here.
pub fn check_seals(examination: &Examination) -> Option<Finding> {
    let workspace = examination.workspace().ok()?;
    let names = git_ref::list_seals(&examination.root);
    let mut newest: Option<(String, Seal)> = None;
    let mut unreadable = None;
    for name in names.iter().take(MAX_SEALS) {
        let read = git_ref::read_seal(&examination.root, name).map_err(|error| error.to_string());
        match read.and_then(|text| SignedSeal::parse(&text).map_err(|error| error.to_string())) {
            Err(error) => unreadable = Some(format!("{name}: {error}")),
            Ok(signed) if signed.seal.workspace != workspace.record.id => {}
            Ok(signed) => {
                if newest.as_ref().is_none_or(|(_, seal)| seal.sealed_at < signed.seal.sealed_at) {
                    newest = Some((name.clone(), signed.seal));
                }
            }
        }
    }
    Some(match (newest, unreadable) {
        (Some((name, seal)), _) => Finding::good(
            "seal",
            format!(
                "{name} has the first {} of this workspace, sealed {}",
                output::count(seal.steps, "step"),
                seal.sealed_at.ago(examination.now())
            ),
        )
        .with_hint(format!("\"stepback seal --verify {name}\" compares the record with it")),
        (None, Some(error)) => Finding::note("seal", format!("a seal cannot be read: {error}"))
            .with_hint("use the copy of the seal that you keep elsewhere"),
        (None, None) => Finding::note("seal", "the repository of this workspace has no seal")
            .with_hint(
                "to be able to prove later what was recorded, make one and keep it elsewhere: stepback seal --to FILE",
            ),
    })
}
