//! All steps of a session in one compact document, from which a timeline of a hundred thousand steps can be drawn.
//!
//! `timeline` returns everything about some steps; this returns for every step only the position and the look of its mark.

use std::collections::HashMap;

use axum::extract::State;
use stepback_engine::branch_graph::BranchLines;
use stepback_history::timeline::{TimelineCursor, is_error};
use stepback_model::ids::StepId;
use stepback_store::port::{StepQuery as Steps, StepRow};

use super::timeline::Lanes;
use crate::documents::timeline::{ForkDocument, MarksDocument, SummaryDocument, TipDocument};
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The bits of `MarksDocument::flags`.
const FAILED: u8 = 1;
const KEPT: u8 = 2;
const ROLLED_BACK: u8 = 4;
const ANNOTATED: u8 = 8;

/// All steps of a session as columns of numbers, one entry for each step, oldest first: for drawing the whole session.
#[utoipa::path(get, path = "/sessions/{session}/marks", tag = "steps",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = MarksDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<MarksDocument>, Problem> {
    work.run(move |engine| {
        let (workspace, session) = state::session(engine, &id)?;
        let query =
            Steps { session: Some(session.id), oldest_first: true, hidden: Some(false), ..Steps::default() };
        let cursor = TimelineCursor::new(engine.store.steps(workspace.record.id, &query)?);
        let lines = workspace.lines_of(session.id)?;
        let lanes = Lanes::of(cursor.steps(), &lines);
        let (mut kinds, mut tools) = (Names::default(), Names::default());
        let kept = cursor.steps().iter().filter(|stored| stored.is_checkpoint()).count();
        let mut marks = MarksDocument {
            session: session.id.to_string(),
            summary: SummaryDocument::of(&cursor.summary(), kept as u64),
            branches: TipDocument::all(&lines.branches),
            forks: forks(cursor.steps(), &lines),
            ..MarksDocument::default()
        };
        let (mut number, mut at) = (0, 0);
        for stored in cursor.steps() {
            let step = &stored.step;
            let since = u64::try_from(cursor.since_start(stored).as_micros()).unwrap_or(u64::MAX);
            marks.number.push(step.number - number);
            number = step.number;
            // Steps are ordered by number; a clock that was set back must not make a time negative.
            marks.at_us.push(since.saturating_sub(at));
            at = at.max(since);
            marks.kind.push(kinds.place(step.kind.as_str()));
            marks.tool.push(step.meta.tool.as_deref().map_or(0, |tool| tools.place(tool) + 1));
            marks.lane.push(lanes.place(stored));
            marks.duration_us.push(step.meta.duration.unwrap_or(0));
            let annotation = &stored.annotation;
            let annotated =
                annotation.label.is_some() || annotation.note.is_some() || !annotation.tags.is_empty();
            let bit = |holds: bool, bit: u8| if holds { bit } else { 0 };
            marks.flags.push(
                bit(is_error(step), FAILED)
                    | bit(stored.trigger.is_some(), KEPT)
                    | bit(lines.is_rolled_back(stored), ROLLED_BACK)
                    | bit(annotated, ANNOTATED),
            );
        }
        marks.lanes = lanes.documents;
        (marks.kinds, marks.tools) = (kinds.all, tools.all);
        Ok(Json(marks))
    })
    .await
}

/// Names, indexed in the order of their first use.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, u64>,
}

impl Names {
    fn place(&mut self, name: &str) -> u64 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }
}

/// Returns the checkpoints that did not grow from the checkpoint before, or that are on another branch. Rewinds and switches
/// are steps of the user's session, so the parent of a step is searched beyond them, up to a step of this session.
fn forks(steps: &[StepRow], lines: &BranchLines) -> Vec<ForkDocument> {
    let kept = steps.iter().filter(|stored| stored.is_checkpoint());
    let mut known: HashMap<StepId, usize> = HashMap::new();
    let mut last = None;
    let mut forks = Vec::new();
    for stored in kept {
        let (step, branch) = (&stored.step, lines.branch_of(stored));
        if let Some((parent, from)) = lines.grown_from(step.id, |id| known.contains_key(&id))
            && (last != Some(parent) || known.get(&parent) != Some(&branch))
        {
            forks.push(ForkDocument { from, to: step.number });
        }
        known.insert(step.id, branch);
        last = Some(step.id);
    }
    forks
}
