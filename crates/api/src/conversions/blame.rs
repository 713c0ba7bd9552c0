//! The origins of lines as documents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stepback_engine::Workspace;
use stepback_engine::authorship::{Attribution, Author};
use stepback_provenance::{Blame, BlamedLine, LineOrigin, OriginKind, ProvenanceError, trace_call};

use crate::blame::{BlameDocument, BlamedLineDocument, LineAuthorDocument, LineOriginDocument};

impl BlameDocument {
    /// The document of the lines of a file, with the calls that wrote them.
    pub fn from_blame(workspace: &Workspace, blame: &Blame) -> Result<Self, ProvenanceError> {
        let mut known = HashMap::new();
        let mut origins = Vec::with_capacity(blame.origins.len());
        for origin in &blame.origins {
            let mut authors = Vec::new();
            for author in origin.who.candidates() {
                let document = match known.entry(author.step) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(LineAuthorDocument::from_author(workspace, author)?),
                };
                authors.push(document.clone());
            }
            origins.push(LineOriginDocument::from_origin(origin, authors));
        }
        Ok(Self {
            path: blame.path.to_string(),
            count: blame.count as u64,
            lines: blame.lines.iter().map(BlamedLineDocument::from_line).collect(),
            origins,
        })
    }
}

impl BlamedLineDocument {
    fn from_line(line: &BlamedLine) -> Self {
        let text = line.text.strip_suffix(b"\n").unwrap_or(&line.text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        Self {
            number: line.number as u64,
            original: line.original as u64,
            text: String::from_utf8_lossy(text).into_owned(),
            origin: line.origin as u64,
            formatted: line.formatted,
            moved: line.moved,
        }
    }
}

impl LineOriginDocument {
    fn from_origin(origin: &LineOrigin, mut authors: Vec<LineAuthorDocument>) -> Self {
        let (kind, fixed_rule) = match origin.kind {
            OriginKind::Change => ("change", None),
            OriginKind::Restored => {
                ("restored", Some("brought back from a version that is not on this line"))
            }
            OriginKind::BeforeRecording => ("before-recording", Some("in the oldest recorded state")),
            OriginKind::NotRecorded => ("not-recorded", None),
        };
        let (basis, rule) = match (fixed_rule, &origin.who) {
            (Some(rule), _) => ("recorded", rule),
            (None, Attribution::Call(_)) if origin.is_named => ("recorded", "the call names the file"),
            (None, Attribution::Call(_)) => ("inferred", "only calls of this session were running"),
            (None, Attribution::OneOf(_)) => ("inferred", "several calls were running"),
            (None, Attribution::Unreported) => ("inferred", "no call of an agent was running"),
        };
        let author = match &origin.who {
            Attribution::Call(_) => authors.pop(),
            _ => None,
        };
        Self {
            kind: kind.to_owned(),
            basis: basis.to_owned(),
            rule: rule.to_owned(),
            step: origin.step.as_ref().map(|stored| stored.step.number),
            at: origin.at,
            path: origin.path.to_string(),
            author,
            candidates: authors,
        }
    }
}

impl LineAuthorDocument {
    fn from_author(workspace: &Workspace, author: &Author) -> Result<Self, ProvenanceError> {
        let origin = trace_call(workspace, author)?;
        let number = |stored: &Option<stepback_model::record::StepRow>| {
            stored.as_ref().map(|stored| stored.step.number)
        };
        let turn = origin.call.as_ref().map(|call| call.step.meta.iteration).filter(|turn| *turn > 0);
        Ok(Self {
            session: author.session.to_string(),
            agent: origin.session.as_ref().map(|session| session.agent.clone()).unwrap_or_default(),
            agent_session: origin.session.as_ref().and_then(|session| session.info.external.clone()),
            tool: author.tool.clone(),
            call: number(&origin.call),
            turn,
            model: number(&origin.model),
            prompt: number(&origin.prompt),
            prompt_text: origin.prompt.map(|stored| stored.step.summary),
        })
    }
}
