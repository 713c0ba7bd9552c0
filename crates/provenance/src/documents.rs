//! The origins of lines as the documents that all surfaces print.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stepback_api::blame::{
    BlameDocument, BlamedLineDocument, LineAuthorDocument, LineCommitDocument, LineOriginDocument,
};
use stepback_engine::Workspace;
use stepback_engine::authorship::{Attribution, Author};

use crate::blame::{Blame, BlamedLine, LineOrigin, OriginKind};
use crate::call_origin::CallTracer;
use crate::commit_walk::WalkEnd;
use crate::error::ProvenanceError;
use crate::line_commits::{CommitRule, LineCommit};

/// The document of the lines of a file, with the calls that wrote them.
pub fn blame_document(workspace: &Workspace, blame: &Blame) -> Result<BlameDocument, ProvenanceError> {
    let mut known = HashMap::new();
    let mut tracer = CallTracer::new(workspace);
    let mut origins = Vec::with_capacity(blame.origins.len());
    for origin in &blame.origins {
        let mut authors = Vec::new();
        for author in origin.who.candidates() {
            let document = match known.entry(author.step) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(author_document(&mut tracer, author)?),
            };
            authors.push(document.clone());
        }
        origins.push(origin_document(origin, authors));
    }
    Ok(BlameDocument {
        path: blame.path.to_string(),
        count: blame.count as u64,
        lines: blame.lines.iter().map(line_document).collect(),
        origins,
    })
}

fn line_document(line: &BlamedLine) -> BlamedLineDocument {
    let text = line.text.strip_suffix(b"\n").unwrap_or(&line.text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    BlamedLineDocument {
        number: line.number as u64,
        original: line.original as u64,
        text: String::from_utf8_lossy(text).into_owned(),
        origin: line.origin as u64,
        formatted: line.formatted,
        moved: line.moved,
    }
}

fn origin_document(origin: &LineOrigin, mut authors: Vec<LineAuthorDocument>) -> LineOriginDocument {
    let (kind, fixed_rule) = match origin.kind {
        OriginKind::Change => ("change", None),
        OriginKind::Restored => ("restored", Some("brought back from a version that is not on this line")),
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
    LineOriginDocument {
        kind: kind.to_owned(),
        basis: basis.to_owned(),
        rule: rule.to_owned(),
        step: origin.step.as_ref().map(|stored| stored.step.number),
        at: origin.at,
        path: origin.path.to_string(),
        author,
        candidates: authors,
        commit: origin.commit.as_ref().map(commit_document),
        commit_rule: origin.commit_rule.as_ref().map(describe_rule),
    }
}

fn commit_document(commit: &LineCommit) -> LineCommitDocument {
    LineCommitDocument {
        id: commit.oid.to_string(),
        author: commit.author.clone(),
        email: commit.email.clone(),
        at: commit.at,
        subject: commit.subject.clone(),
        path: commit.path.clone(),
        or_older: commit.or_older.map(|end| describe_end(end).to_owned()),
    }
}

fn describe_rule(rule: &CommitRule) -> String {
    match rule {
        CommitRule::RecordedHead(step) => {
            format!("in git's history of the commit that was checked out at #{step}")
        }
        CommitRule::PresentHead => {
            "in git's history of the present commit; that of the recorded state is not known".to_owned()
        }
        CommitRule::NotCommitted => "it was not committed at that time".to_owned(),
        CommitRule::NoRepository => "there is no git repository".to_owned(),
        CommitRule::NoCommits => "the git repository has no commits".to_owned(),
        CommitRule::Unreadable(reason) => format!("git's history cannot be read: {reason}"),
    }
}

fn describe_end(end: WalkEnd) -> &'static str {
    match end {
        WalkEnd::Shallow => "the clone is shallow and ends here",
        WalkEnd::Missing => "an older commit is missing or cannot be read",
        WalkEnd::Commits => "the search ended here: the limit of commits was reached",
        WalkEnd::Time => "the search ended here: the limit of time was reached",
    }
}

fn author_document(
    tracer: &mut CallTracer<'_>,
    author: &Author,
) -> Result<LineAuthorDocument, ProvenanceError> {
    let origin = tracer.trace(author)?;
    let number =
        |stored: &Option<stepback_model::record::StepRow>| stored.as_ref().map(|stored| stored.step.number);
    let turn = origin.call.as_ref().map(|call| call.step.meta.iteration).filter(|turn| *turn > 0);
    Ok(LineAuthorDocument {
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
