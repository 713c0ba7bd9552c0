//! A store in a map, and changes made of numbers.

use std::cell::RefCell;
use std::collections::HashMap;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_model::time::Timestamp;
use stepback_reasoning::ids::{BeliefId, EvidenceId, GapId, HypothesisId};
use stepback_reasoning::item::{
    BeliefKind, Criticality, DependencyKind, EvidenceKind, EvidenceOrigin, GapKind, HypothesisStatus, Measure,
};
use stepback_reasoning::{BoardMutation, ItemOrigin};

/// Objects in memory.
#[derive(Default)]
pub struct Objects(RefCell<HashMap<(ObjectKind, Hash), Vec<u8>>>);

impl ObjectSource for Objects {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.0.borrow().get(&(kind, hash)).cloned().ok_or(ObjectError::Missing { kind, hash })
    }
}

impl ObjectSink for Objects {
    fn write(&self, kind: ObjectKind, bytes: &[u8], _: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = Hash::of(kind, bytes);
        self.0.borrow_mut().insert((kind, hash), bytes.to_vec());
        Ok(hash)
    }
}

/// Where the change with this number comes from.
pub fn origin(number: u64) -> ItemOrigin {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ItemOrigin {
        at: Timestamp::from_micros(i64::try_from(number).unwrap() * 1_000_000),
        step: StepId::from_bytes(id),
        during: None,
    }
}

/// A hypothesis.
pub fn propose(statement: &str) -> BoardMutation {
    BoardMutation::ProposeHypothesis {
        statement: statement.into(),
        prior: 0.5,
        parents: Vec::new(),
        excludes: Vec::new(),
        tags: Vec::new(),
    }
}

/// Evidence from a document.
pub fn evidence(hypothesis: u32, strength: f64, document: &str) -> BoardMutation {
    BoardMutation::AddEvidence {
        hypothesis: HypothesisId(hypothesis),
        strength,
        text: format!("{document} says so"),
        kind: EvidenceKind::Documentation,
        source: EvidenceOrigin::Documentation(document.into()),
    }
}

/// A belief.
pub fn belief(kind: BeliefKind, subject: Option<&str>, value: Option<Measure>) -> BoardMutation {
    BoardMutation::AddBelief {
        statement: "something is so".into(),
        kind,
        confidence: 0.9,
        subject: subject.map(str::to_owned),
        value,
        hypothesis: None,
        tags: Vec::new(),
    }
}

/// One belief rests on another.
pub fn depend(belief: u32, on: u32, strength: f64) -> BoardMutation {
    let (belief, on) = (BeliefId(belief), BeliefId(on));
    BoardMutation::Depend { belief, on, kind: DependencyKind::Requires, strength, reason: None }
}

/// A change made of a few numbers; often one that is refused.
pub fn arbitrary(kind: u8, a: u32, b: u32, x: f64) -> BoardMutation {
    match kind % 10 {
        0 => BoardMutation::ProposeHypothesis {
            statement: format!("hypothesis {a}"),
            prior: 0.1 + x.abs() * 0.8,
            parents: (b > 2).then_some(HypothesisId(b)).into_iter().collect(),
            excludes: if a > 3 { vec![HypothesisId(a)] } else { Vec::new() },
            tags: vec![format!("tag{a}")],
        },
        1 | 2 => evidence(a, x, &format!("document {b}")),
        3 => {
            let status = HypothesisStatus::ALL[b as usize % HypothesisStatus::ALL.len()];
            BoardMutation::SetHypothesis { hypothesis: HypothesisId(a), status, reason: Some("so".into()) }
        }
        4 => {
            let kind = BeliefKind::ALL[b as usize % BeliefKind::ALL.len()];
            belief(kind, Some("speed"), Some(Measure::Number(f64::from(a % 3))))
        }
        5 => depend(a, b, x.abs()),
        6 => BoardMutation::RetractBelief { belief: BeliefId(a), reason: None },
        7 => BoardMutation::AddGap {
            question: format!("what about {a}?"),
            kind: GapKind::Cause,
            criticality: Criticality::High,
            blocks: if b > 2 { vec![HypothesisId(b).into()] } else { Vec::new() },
            after: if a > 2 { vec![GapId(a)] } else { Vec::new() },
            strategy: None,
            minutes: None,
        },
        8 => BoardMutation::FillGap { gap: GapId(a), answer: "because".into() },
        _ => BoardMutation::WithdrawEvidence { evidence: EvidenceId(a), reason: "it was wrong".into() },
    }
}
