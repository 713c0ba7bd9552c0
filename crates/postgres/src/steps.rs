//! Steps as columns, so that one statement appends any number of them.

use stepback_model::ids::WorkspaceId;
use stepback_model::json::ValueRoot;
use stepback_model::record::{Annotation, Step, Trigger};

use crate::mutations::{Owned, Planned};
use crate::text;

/// Steps to be inserted, as columns.
#[derive(Default)]
pub(crate) struct Steps {
    ids: Vec<Vec<u8>>,
    workspaces: Vec<Vec<u8>>,
    sessions: Vec<Vec<u8>>,
    /// How many steps of the same workspace come after each.
    after: Vec<i64>,
    parents: Vec<Option<Vec<u8>>>,
    kinds: Vec<&'static str>,
    times: Vec<i64>,
    states: Vec<Vec<u8>>,
    summaries: Vec<String>,
    labels: Vec<Option<String>>,
    notes: Vec<Option<String>>,
    tags: Vec<String>,
    triggers: Vec<Option<&'static str>>,
    iterations: Vec<i64>,
    workers: Vec<Option<String>>,
    calls: Vec<Option<String>>,
    tools: Vec<Option<String>>,
    failed: Vec<bool>,
    durations: Vec<Option<i64>>,
    details: Vec<Option<Vec<u8>>>,
}

impl Steps {
    /// Adds a step.
    pub fn push(
        &mut self,
        step: &Step,
        workspace: WorkspaceId,
        after: i64,
        annotation: &Annotation,
        trigger: Option<Trigger>,
    ) {
        let kept = |words: &Option<String>| words.as_deref().map(|words| text::stored(words).into_owned());
        self.ids.push(step.id.as_bytes().to_vec());
        self.workspaces.push(workspace.as_bytes().to_vec());
        self.sessions.push(step.session.as_bytes().to_vec());
        self.after.push(after);
        self.parents.push(step.parent.map(|id| id.as_bytes().to_vec()));
        self.kinds.push(step.kind.as_str());
        self.times.push(step.at.as_micros());
        self.states.push(step.state.as_bytes().to_vec());
        self.summaries.push(text::stored(&step.summary).into_owned());
        self.labels.push(kept(&annotation.label));
        self.notes.push(kept(&annotation.note));
        self.tags.push(text::document(&annotation.tags));
        self.triggers.push(trigger.map(Trigger::as_str));
        self.iterations.push(step.meta.iteration as i64);
        self.workers.push(kept(&step.meta.worker));
        self.calls.push(kept(&step.meta.call));
        self.tools.push(kept(&step.meta.tool));
        self.failed.push(step.meta.failed);
        self.durations.push(step.meta.duration.map(|micros| micros as i64));
        self.details.push(step.meta.detail.map(ValueRoot::to_bytes));
    }

    /// The statement that appends them all; `None` if there are none.
    pub fn planned(self) -> Option<Planned> {
        if self.ids.is_empty() {
            return None;
        }
        // Sorted before positions are taken, so that positions follow the numbers.
        let sql = "INSERT INTO stepback_steps (id, workspace, session, number, parent, kind, at, state, summary, label, note,
                tags, trigger_kind, iteration, worker, call, tool, failed, duration, detail, position)
            SELECT a, b, c, last - d, e, f, g, h, i, j, k, l::jsonb, m, n, o, p, q, r, s, t, nextval('stepback_positions')
            FROM (SELECT new.*, w.steps AS last FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::text[], $7::bigint[], $8::bytea[],
                $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[],
                $17::text[], $18::boolean[], $19::bigint[], $20::bytea[]) WITH ORDINALITY
                AS new (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, place)
                JOIN stepback_workspaces w ON w.id = new.b ORDER BY place) steps";
        Some(Planned::new(sql, self.values()))
    }

    /// The columns of the only step, in the argument order of the function for a single step.
    pub fn only(self) -> Vec<Owned> {
        fn only<T>(column: Vec<T>) -> Option<T> {
            column.into_iter().next()
        }
        vec![
            Box::new(only(self.ids)),
            Box::new(only(self.workspaces)),
            Box::new(only(self.sessions)),
            Box::new(only(self.parents).flatten()),
            Box::new(only(self.kinds)),
            Box::new(only(self.times)),
            Box::new(only(self.states)),
            Box::new(only(self.summaries)),
            Box::new(only(self.labels).flatten()),
            Box::new(only(self.notes).flatten()),
            Box::new(only(self.tags)),
            Box::new(only(self.triggers).flatten()),
            Box::new(only(self.iterations)),
            Box::new(only(self.workers).flatten()),
            Box::new(only(self.calls).flatten()),
            Box::new(only(self.tools).flatten()),
            Box::new(only(self.failed)),
            Box::new(only(self.durations).flatten()),
            Box::new(only(self.details).flatten()),
        ]
    }

    /// The columns, in the argument order of the other statements that append steps.
    pub fn values(self) -> Vec<Owned> {
        vec![
            Box::new(self.ids),
            Box::new(self.workspaces),
            Box::new(self.sessions),
            Box::new(self.after),
            Box::new(self.parents),
            Box::new(self.kinds),
            Box::new(self.times),
            Box::new(self.states),
            Box::new(self.summaries),
            Box::new(self.labels),
            Box::new(self.notes),
            Box::new(self.tags),
            Box::new(self.triggers),
            Box::new(self.iterations),
            Box::new(self.workers),
            Box::new(self.calls),
            Box::new(self.tools),
            Box::new(self.failed),
            Box::new(self.durations),
            Box::new(self.details),
        ]
    }
}
