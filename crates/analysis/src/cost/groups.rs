//! Groups that whole model calls belong to: model, agent, session, branch, prompt, day.

use std::collections::BTreeMap;

use stepback_model::ids::{SessionId, WorkspaceId};

use super::{CostGrouping, CostKey, CostSum, has_failed};
use crate::facts::{ModelCallFact, SessionFacts};

/// Adds the calls of a session to the rows of a report.
pub(super) struct CallGroups<'a> {
    pub facts: &'a SessionFacts,
    pub by: CostGrouping,
    pub branch_of: &'a dyn Fn(&SessionFacts, &ModelCallFact) -> Option<String>,
}

impl CallGroups<'_> {
    /// Adds the calls that count.
    pub fn add_to(&self, rows: &mut BTreeMap<CostKey, CostSum>, counted: &[bool]) {
        let calls = self.facts.model_calls.iter().zip(counted).filter(|(_, counts)| **counts);
        for (call, _) in calls {
            let sum = CostSum::of(call, has_failed(self.facts, call));
            rows.entry(self.key(call)).or_default().add(sum);
        }
    }

    fn key(&self, call: &ModelCallFact) -> CostKey {
        let facts = self.facts;
        let workspace = facts.workspace.unwrap_or(WorkspaceId::from_bytes([0; 16]));
        let session = facts.session.unwrap_or(SessionId::from_bytes([0; 16]));
        match self.by {
            CostGrouping::Model => CostKey::Name(call.model.map(|model| facts.name(Some(model)).to_owned())),
            CostGrouping::Agent => CostKey::Name(Some(facts.agent.clone())),
            CostGrouping::Session => CostKey::Session(workspace, session),
            CostGrouping::Branch => CostKey::Name((self.branch_of)(facts, call)),
            CostGrouping::Day => {
                // The date is what a timestamp begins with, up to the time.
                let text = call.at.to_string();
                CostKey::Name(Some(text.split('T').next().unwrap_or_default().to_owned()))
            }
            CostGrouping::Prompt | CostGrouping::Tool => {
                let prompt = facts.steps.get(call.step as usize).and_then(|step| step.prompt);
                let prompt = prompt.and_then(|prompt| facts.steps.get(prompt as usize));
                CostKey::Prompt(workspace, session, prompt.map(|prompt| prompt.number))
            }
        }
    }
}
