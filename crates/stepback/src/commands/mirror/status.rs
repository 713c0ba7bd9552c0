//! `stepback mirror status`, and the lines about mirrors in `stepback status`.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use stepback_mirror::address::MirrorAddress;
use stepback_mirror::archive::MirrorArchive;
use stepback_mirror::settings::{MirrorOverview, MirrorState, list_mirrors};
use stepback_mirror::survey::MirrorSurvey;
use stepback_mirror::{MirrorError, service, sync};
use stepback_model::time::Timestamp;

use super::MirrorableStore;
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::mirroring::storage_access;
use crate::output::{self, Paint};

/// Number of differences that are listed.
const MAX_DIFFERENCES: usize = 100;

/// A mirror, and what was found by looking at it.
struct MirrorFindings {
    overview: MirrorOverview,
    is_known: bool,
    /// Why it cannot be opened.
    unreachable: Option<String>,
    /// How the store differs from it, and what is damaged.
    contradictions: Vec<String>,
    problems: Vec<String>,
    survey: Option<MirrorSurvey>,
    has_vault_files: u64,
}

/// Runs `stepback mirror status`.
pub fn status(store: &MirrorableStore<'_>, places: &[String], verify: bool) -> CommandResult {
    let mut found = Vec::new();
    for (address, is_known) in store.find(places)? {
        found.push(examine(store, &address, is_known, verify)?);
    }
    let is_running = service::is_running(&store.dir);
    if store.arguments.json {
        let items: Vec<Value> = found.iter().map(document).collect();
        output::print_document(&json!({ "items": items, "is_syncing": is_running }));
    } else {
        let now = store.env.now();
        found.iter().for_each(|mirror| print(mirror, now));
    }
    let is_damaged = |mirror: &MirrorFindings| {
        !mirror.contradictions.is_empty()
            || !mirror.problems.is_empty()
            || mirror.overview.state.contradiction.is_some()
            || !mirror.overview.state.problems.is_empty()
    };
    if found.iter().any(is_damaged) {
        return Ok(ExitCode::from(FailureKind::Store as u8));
    }
    if found.iter().any(|mirror| mirror.unreachable.is_some() || mirror.overview.state.failure.is_some()) {
        return Ok(ExitCode::from(FailureKind::System as u8));
    }
    DONE
}

fn examine(
    store: &MirrorableStore<'_>,
    address: &MirrorAddress,
    is_known: bool,
    verify: bool,
) -> Result<MirrorFindings, CommandFailure> {
    let name = address.to_string();
    let newest = store.store.newest_link()?.commit;
    let state = if is_known { MirrorState::load(&store.dir, &name) } else { MirrorState::default() };
    let id = store.settings()?.filter(|_| is_known).map(|settings| settings.id).unwrap_or_default();
    let commits_behind = newest.saturating_sub(state.commit);
    let mut found = MirrorFindings {
        overview: MirrorOverview { address: name.clone(), commits_behind, state },
        is_known,
        unreachable: None,
        contradictions: Vec::new(),
        problems: Vec::new(),
        survey: None,
        has_vault_files: 0,
    };
    let archive = match service::open_mirror(&name, &id, &storage_access()) {
        Ok(archive) => archive,
        Err(error) => {
            found.unreachable = Some(error.to_string());
            return Ok(found);
        }
    };
    found.take_position(&archive, newest);
    match verify {
        false => {
            found.contradictions.extend(sync::compare_with_store(&store.store, &archive.cursor)?);
            found
                .problems
                .extend(archive.unreadable.iter().map(|number| format!("segment {number} is damaged")));
        }
        true => match MirrorSurvey::take(&archive, true) {
            Ok(survey) => found.take_survey(store, &archive, survey)?,
            Err(MirrorError::Damaged { what }) => found.problems.push(what),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(found)
}

impl MirrorFindings {
    /// Takes over what the mirror itself says, which is newer than what the last sync noted.
    fn take_position(&mut self, archive: &MirrorArchive, newest: u64) {
        let state = &mut self.overview.state;
        (state.commit, state.generation) = (archive.cursor.commit.commit, archive.cursor.generation);
        (state.segments, state.bytes) = (archive.segments, archive.bytes);
        state.steps = archive.cursor.steps();
        state.synced_at = state.synced_at.max(archive.written_at);
        self.overview.commits_behind = newest.saturating_sub(state.commit);
    }

    fn take_survey(
        &mut self,
        store: &MirrorableStore<'_>,
        archive: &MirrorArchive,
        survey: MirrorSurvey,
    ) -> Result<(), CommandFailure> {
        self.problems.extend(survey.report.problems.iter().cloned());
        for generation in &survey.report.generations {
            if let Some(obstacle) = &generation.obstacle {
                self.problems.push(format!("generation {}: {obstacle}", generation.number));
            }
        }
        let newest = archive.cursor.generation;
        self.contradictions = survey.differences(&store.store, newest, MAX_DIFFERENCES)?;
        for other in survey.contradictions(newest) {
            self.contradictions
                .push(format!("generation {newest} lacks steps of {}", survey.describe(other)));
        }
        if self.contradictions.is_empty() {
            self.contradictions.extend(sync::compare_with_store(&store.store, &archive.cursor)?);
        }
        self.has_vault_files = survey.vault_files.len() as u64;
        self.survey = Some(survey);
        Ok(())
    }
}

fn document(mirror: &MirrorFindings) -> Value {
    let mut value = json!(mirror.overview);
    value["id"] = json!(mirror.overview.address);
    value["is_configured"] = json!(mirror.is_known);
    value["is_reachable"] = json!(mirror.unreachable.is_none());
    value["unreachable_reason"] = json!(mirror.unreachable);
    value["contradictions"] = json!(mirror.contradictions);
    value["damage"] = json!(mirror.problems);
    value["verified"] = json!(mirror.survey.as_ref().map(|survey| &survey.report));
    value
}

fn print(mirror: &MirrorFindings, now: Timestamp) {
    let paint = Paint::stdout();
    let state = &mirror.overview.state;
    output::print_line(paint.strong(&mirror.overview.address));
    let line = |text: String| output::print_line(format!("  {text}"));
    line(format!(
        "{}{}",
        describe_lag(&mirror.overview),
        state.synced_at.map(|at| format!(", synced {}", at.ago(now))).unwrap_or_default()
    ));
    line(format!(
        "{}, {} in {}, generation {}",
        output::count(state.steps, "step"),
        output::bytes(state.bytes),
        output::count(state.segments, "segment"),
        state.generation
    ));
    if let Some(reason) = &mirror.unreachable {
        line(format!("{} {reason}", paint.bad("not reachable:")));
    }
    if let Some(failure) = state.failure.as_ref().filter(|_| mirror.unreachable.is_none()) {
        line(format!("{} since {}: {}", paint.bad("not synced"), failure.since.ago(now), failure.message));
    }
    if let Some(survey) = &mirror.survey {
        line(format!(
            "verified {}, {} and {}",
            output::count(survey.report.segments, "segment"),
            output::count(survey.report.objects, "object"),
            output::count(mirror.has_vault_files, "file").replace("file", "git file")
        ));
        if survey.report.generations.len() > 1 {
            survey.report.generations.iter().for_each(|generation| line(survey.describe(generation)));
        }
    }
    for problem in &mirror.problems {
        line(format!("{} {problem}", paint.bad("damaged:")));
    }
    let earlier = state.contradiction.iter().map(|text| format!("{text} (reported by a sync)"));
    for contradiction in mirror.contradictions.iter().cloned().chain(earlier) {
        line(format!("{} {contradiction}", paint.bad("contradiction:")));
    }
    for problem in &state.problems {
        line(format!("{} {problem}", paint.bad("not mirrored:")));
    }
}

/// How far a mirror is behind, in words.
fn describe_lag(overview: &MirrorOverview) -> String {
    match overview.commits_behind {
        0 => "up to date".to_owned(),
        behind => format!("{} behind", output::count(behind, "commit")),
    }
}

/// Returns the mirrors of the store of a command as JSON, without reaching them.
pub fn overview_document(context: &Context) -> Value {
    json!(find_overviews(context))
}

fn find_overviews(context: &Context) -> Vec<MirrorOverview> {
    let dir: &Path = context.store_location().local_dir();
    let newest = context.store().commit_seq().map_or(0, |mark| mark.0);
    list_mirrors(dir, newest).unwrap_or_default()
}

/// Prints a line for each mirror of the store that is not as it should be.
pub fn print_warnings(context: &Context) {
    let paint = Paint::stderr();
    for mirror in find_overviews(context) {
        let (name, state) = (&mirror.address, &mirror.state);
        if let Some(failure) = &state.failure {
            output::print_status(format!(
                "{} nothing was copied to the mirror {name} since {} ({}): {}",
                paint.note("Warning:"),
                failure.since.ago(context.now()),
                describe_lag(&mirror),
                failure.message
            ));
        }
        if state.contradiction.is_some() || !state.problems.is_empty() {
            output::print_status(format!(
                "{} the mirror {name} and the store differ; \"stepback mirror status\" shows how.",
                paint.note("Warning:")
            ));
        }
    }
}
