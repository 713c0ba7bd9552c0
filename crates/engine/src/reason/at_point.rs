//! Finds the mind of a session at a moment: now, a step, a time, or a branch.

use jiff::tz::TimeZone;
use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::point::{Anchor, PointExpr};
use stepback_model::record::{Session, StepKind};
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_model::time_expr;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::store::BoardLocation;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::EngineError;
use crate::resolve::no_step;
use crate::workspace::{StoreSource, Workspace};

/// A moment of a session's mind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BoardMoment {
    /// The present.
    Now,
    /// After the step with this number.
    Step(u64),
    /// At this time, exactly.
    Time(Timestamp),
    /// When this branch was left.
    Branch(String),
}

/// A mind, and the step that recorded it.
#[derive(Clone, Debug)]
pub struct BoardAtPoint {
    /// The mind at the moment asked for; empty if nothing had been recorded by then.
    pub mind: ReasoningBoard,
    /// The step that recorded it; `None` if nothing had been recorded by then.
    pub step: Option<StepRow>,
    pub(crate) place: Option<BoardLocation>,
}

/// A session that another one was forked from; only steps with a number below `before` count.
struct Forebear {
    session: Session,
    before: Option<u64>,
}

impl Workspace {
    /// Returns the moment that a point names. Unlike for files, a time is exact: thoughts between two checkpoints count.
    pub fn moment(
        &self,
        text: &str,
        now: Timestamp,
        zone: &dyn Fn() -> TimeZone,
    ) -> Result<BoardMoment, EngineError> {
        let point = PointExpr::parse(text).map_err(|error| EngineError::Point(error.to_string()))?;
        let time = |text: &str| time_expr::parse(text, now, &zone()).ok().map(BoardMoment::Time);
        if point.back == 0 && point.session.is_none() {
            match &point.anchor {
                Anchor::Now => return Ok(BoardMoment::Now),
                Anchor::Time(text) => {
                    if let Some(moment) = time(text) {
                        return Ok(moment);
                    }
                }
                Anchor::Branch(name) if self.branch_tip(name)?.is_some() => return self.moment_of(name),
                Anchor::Text { name, .. } if self.branch_tip(name)?.is_some() => return self.moment_of(name),
                Anchor::Text { name, is_time: true } => {
                    let labelled =
                        StepQuery { label: Some(name.clone()), limit: Some(1), ..StepQuery::default() };
                    let is_label = !self.store().steps(self.record.id, &labelled)?.is_empty();
                    if let Some(moment) = time(name).filter(|_| !is_label) {
                        return Ok(moment);
                    }
                }
                Anchor::Step(number) => return self.expect_step(*number),
                _ => {}
            }
        }
        Ok(BoardMoment::Step(self.resolve(text, now, zone)?.step.number))
    }

    fn moment_of(&self, branch: &str) -> Result<BoardMoment, EngineError> {
        Ok(match self.present_branch()? == branch {
            true => BoardMoment::Now,
            false => BoardMoment::Branch(branch.to_owned()),
        })
    }

    /// Returns the moment of a step by its number. Does not use [`Self::resolve`], which needs a checkpoint: a workspace
    /// without one can have steps.
    fn expect_step(&self, number: u64) -> Result<BoardMoment, EngineError> {
        match self.store().step_numbered(self.record.id, number)? {
            Some(_) => Ok(BoardMoment::Step(number)),
            None => Err(EngineError::Point(no_step(number, self.newest_number()?))),
        }
    }

    /// Returns the mind of a session at a moment.
    pub fn mind_at(&self, session: &Session, moment: &BoardMoment) -> Result<BoardAtPoint, EngineError> {
        self.mind_beside(session, moment, &ReasoningBoard::default())
    }

    /// Like [`Self::mind_at`], but does not read again what the mind shares with `known`, a mind of the same session.
    pub fn mind_beside(
        &self,
        session: &Session,
        moment: &BoardMoment,
        known: &ReasoningBoard,
    ) -> Result<BoardAtPoint, EngineError> {
        let step = match moment {
            BoardMoment::Now => self.last_thought(session, StepQuery::default())?,
            BoardMoment::Step(number) => {
                let before = Some(number.saturating_add(1));
                self.last_thought(session, StepQuery { before, ..StepQuery::default() })?
            }
            BoardMoment::Time(at) => {
                self.last_thought(session, StepQuery { until: Some(*at), ..StepQuery::default() })?
            }
            BoardMoment::Branch(name) => match self.store().reference(&self.mind_ref(session.id, name))? {
                Some(step) => self.store().step(step)?,
                None => {
                    let tip = self.branch_tip(name)?.map(|tip| tip.step.number);
                    let before = tip.map(|number| number.saturating_add(1));
                    self.last_thought(session, StepQuery { before, ..StepQuery::default() })?
                }
            },
        };
        let Some(step) = step else {
            return Ok(BoardAtPoint { mind: ReasoningBoard::default(), step: None, place: None });
        };
        let (mind, place) = self.mind_of(&step, known)?;
        Ok(BoardAtPoint { mind, step: Some(step), place })
    }

    /// Returns the mind after a thought. What it shares with `known` is not read again.
    pub(super) fn mind_of(
        &self,
        thought: &StepRow,
        known: &ReasoningBoard,
    ) -> Result<(ReasoningBoard, Option<BoardLocation>), EngineError> {
        match WorkspaceState::load(self.store(), thought.step.state)?.reasoning {
            None => Ok((ReasoningBoard::default(), None)),
            Some(root) => {
                let (mind, place) = known.load_other(&StoreSource(self.store()), root)?;
                Ok((mind, Some(place)))
            }
        }
    }

    /// Returns the newest reasoning step that matches `query`, of the session or of the sessions it was forked from.
    fn last_thought(&self, session: &Session, query: StepQuery) -> Result<Option<StepRow>, EngineError> {
        let mut query = StepQuery { kinds: vec![StepKind::Reasoning], limit: Some(1), ..query };
        let mut of = Some(Forebear { session: session.clone(), before: query.before });
        let mut seen: Vec<SessionId> = Vec::new();
        while let Some(one) = of.filter(|one| !seen.contains(&one.session.id)) {
            (query.session, query.before) = (Some(one.session.id), one.before);
            let found = self.store().steps(self.record.id, &query)?.pop();
            if found.is_some() {
                return Ok(found);
            }
            seen.push(one.session.id);
            of = self.forebear(&one)?;
        }
        Ok(None)
    }

    /// Returns every reasoning step of a session, and of the sessions it was forked from up to the fork, oldest first.
    pub(super) fn thoughts(&self, session: &Session) -> Result<Vec<StepRow>, EngineError> {
        let mut parts: Vec<Vec<StepRow>> = Vec::new();
        let mut of = Some(Forebear { session: session.clone(), before: None });
        let mut seen: Vec<SessionId> = Vec::new();
        while let Some(one) = of.filter(|one| !seen.contains(&one.session.id)) {
            let query = StepQuery {
                kinds: vec![StepKind::Reasoning],
                session: Some(one.session.id),
                before: one.before,
                oldest_first: true,
                ..StepQuery::default()
            };
            parts.push(self.store().steps(self.record.id, &query)?);
            seen.push(one.session.id);
            of = self.forebear(&one)?;
        }
        Ok(parts.into_iter().rev().flatten().collect())
    }

    /// Returns the session that `of` was forked from, limited to the steps up to the fork.
    fn forebear(&self, of: &Forebear) -> Result<Option<Forebear>, EngineError> {
        let Some((parent, at)) = of.session.info.forked_from else { return Ok(None) };
        let fork = self.store().step(at)?.map(|stored| stored.step.number);
        let until = fork.unwrap_or(u64::MAX - 1) + 1;
        let before = Some(of.before.map_or(until, |before| before.min(until)));
        Ok(self.store().session(parent)?.map(|session| Forebear { session, before }))
    }

    pub(super) fn load_mind(
        &self,
        root: Option<Hash>,
    ) -> Result<(ReasoningBoard, Option<BoardLocation>), EngineError> {
        match root {
            None => Ok((ReasoningBoard::default(), None)),
            Some(root) => {
                let (mind, place) = ReasoningBoard::load(&StoreSource(self.store()), root)?;
                Ok((mind, Some(place)))
            }
        }
    }

    /// The name of the reference that holds the mind of a session as it was when a branch was left.
    pub(super) fn mind_ref(&self, session: SessionId, branch: &str) -> String {
        format!("mind/{session}/{branch}")
    }
}
