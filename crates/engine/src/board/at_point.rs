//! Finds the board of a session at a moment: now, a step, a time, or a branch.

use stepback_model::hash::Hash;
use stepback_model::ids::SessionId;
use stepback_model::record::{Session, StepKind};
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::store::BoardLocation;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::EngineError;
use crate::workspace::Workspace;

/// A moment of a session's board.
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

/// A board, and the step that recorded it.
#[derive(Clone, Debug)]
pub struct BoardAtPoint {
    /// The board at the moment asked for; empty if nothing had been recorded by then.
    pub board: ReasoningBoard,
    /// The step that recorded it; `None` if nothing had been recorded by then.
    pub step: Option<StepRow>,
    pub(crate) place: Option<BoardLocation>,
}

impl BoardAtPoint {
    /// Returns the name of the moment for messages: the number of the step.
    pub fn describe(&self) -> String {
        match &self.step {
            Some(stored) => format!("#{}", stored.step.number),
            None => "before the first change of the board".to_owned(),
        }
    }
}

/// A session that another one was forked from; only steps with a number below `before` count.
struct AncestorSession {
    session: Session,
    before: Option<u64>,
}

impl Workspace {
    /// Returns the board of a session at a moment.
    pub fn board_at(&self, session: &Session, moment: &BoardMoment) -> Result<BoardAtPoint, EngineError> {
        self.board_at_reusing(session, moment, &ReasoningBoard::default())
    }

    /// Like [`Self::board_at`], but does not read again what the board shares with `cached`, a board of the same session.
    pub fn board_at_reusing(
        &self,
        session: &Session,
        moment: &BoardMoment,
        cached: &ReasoningBoard,
    ) -> Result<BoardAtPoint, EngineError> {
        let step = match moment {
            BoardMoment::Now => self.find_last_board_change(session, StepQuery::default())?,
            BoardMoment::Step(number) => {
                let end = Some(number.saturating_add(1));
                self.find_last_board_change(session, StepQuery { before: end, ..StepQuery::default() })?
            }
            BoardMoment::Time(at) => {
                self.find_last_board_change(session, StepQuery { until: Some(*at), ..StepQuery::default() })?
            }
            BoardMoment::Branch(name) => match self.store().reference(&self.board_ref(session.id, name))? {
                Some(step) => self.store().step(step)?,
                None => {
                    let tip = self.branch_tip(name)?.map(|tip| tip.step.number);
                    let end = tip.map(|number| number.saturating_add(1));
                    self.find_last_board_change(session, StepQuery { before: end, ..StepQuery::default() })?
                }
            },
        };
        let Some(step) = step else {
            return Ok(BoardAtPoint { board: ReasoningBoard::default(), step: None, place: None });
        };
        let (board, location) = self.board_after(&step, cached)?;
        Ok(BoardAtPoint { board, step: Some(step), place: location })
    }

    /// Returns the board after a change. What it shares with `cached` is not read again.
    pub fn board_after(
        &self,
        change: &StepRow,
        cached: &ReasoningBoard,
    ) -> Result<(ReasoningBoard, Option<BoardLocation>), EngineError> {
        match WorkspaceState::load(self.store(), change.step.state)?.reasoning {
            None => Ok((ReasoningBoard::default(), None)),
            Some(root) => {
                let (board, location) = cached.load_other(self.store(), root)?;
                Ok((board, Some(location)))
            }
        }
    }

    /// Returns the newest reasoning step that matches `query`, of the session or of the sessions it was forked from.
    fn find_last_board_change(
        &self,
        session: &Session,
        query: StepQuery,
    ) -> Result<Option<StepRow>, EngineError> {
        let mut query = StepQuery { kinds: vec![StepKind::Reasoning], limit: Some(1), ..query };
        let mut next_ancestor = Some(AncestorSession { session: session.clone(), before: query.before });
        let mut visited: Vec<SessionId> = Vec::new();
        while let Some(ancestor) = next_ancestor.filter(|ancestor| !visited.contains(&ancestor.session.id)) {
            (query.session, query.before) = (Some(ancestor.session.id), ancestor.before);
            let step = self.store().steps(self.record.id, &query)?.pop();
            if step.is_some() {
                return Ok(step);
            }
            visited.push(ancestor.session.id);
            next_ancestor = self.find_parent_session(&ancestor)?;
        }
        Ok(None)
    }

    /// Returns every reasoning step of a session, and of the sessions it was forked from up to the fork, oldest first.
    pub fn board_changes(&self, session: &Session) -> Result<Vec<StepRow>, EngineError> {
        let mut parts: Vec<Vec<StepRow>> = Vec::new();
        let mut next_ancestor = Some(AncestorSession { session: session.clone(), before: None });
        let mut visited: Vec<SessionId> = Vec::new();
        while let Some(ancestor) = next_ancestor.filter(|ancestor| !visited.contains(&ancestor.session.id)) {
            let query = StepQuery {
                kinds: vec![StepKind::Reasoning],
                session: Some(ancestor.session.id),
                before: ancestor.before,
                oldest_first: true,
                ..StepQuery::default()
            };
            parts.push(self.store().steps(self.record.id, &query)?);
            visited.push(ancestor.session.id);
            next_ancestor = self.find_parent_session(&ancestor)?;
        }
        Ok(parts.into_iter().rev().flatten().collect())
    }

    /// Returns the session that `descendant` was forked from, limited to the steps up to the fork.
    fn find_parent_session(
        &self,
        descendant: &AncestorSession,
    ) -> Result<Option<AncestorSession>, EngineError> {
        let Some((parent, fork_step)) = descendant.session.info.forked_from else { return Ok(None) };
        let fork = self.store().step(fork_step)?.map(|stored| stored.step.number);
        let limit = fork.unwrap_or(u64::MAX - 1) + 1;
        let before = Some(descendant.before.map_or(limit, |before| before.min(limit)));
        Ok(self.store().session(parent)?.map(|session| AncestorSession { session, before }))
    }

    pub(super) fn load_board(
        &self,
        root: Option<Hash>,
    ) -> Result<(ReasoningBoard, Option<BoardLocation>), EngineError> {
        match root {
            None => Ok((ReasoningBoard::default(), None)),
            Some(root) => {
                let (board, location) = ReasoningBoard::load(self.store(), root)?;
                Ok((board, Some(location)))
            }
        }
    }

    /// The name of the reference that holds the board of a session as it was when a branch was left.
    pub(super) fn board_ref(&self, session: SessionId, branch: &str) -> String {
        format!("mind/{session}/{branch}")
    }
}
