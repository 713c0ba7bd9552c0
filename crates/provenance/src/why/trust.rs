//! Whose words a source has: the user's, the session's own, those of the agent's program, or of others.
//!
//! A text that neither the user nor the session wrote is untrusted: an instruction in it is not one of the user. The rule is
//! part of the answer.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_engine::diff::find_node;
use stepback_model::ids::SessionId;
use stepback_model::path::RelPath;
use stepback_model::record::{StepKind, StepRow};
use stepback_model::tree::TreeNode;
use stepback_store::port::StepQuery;

use super::context::{CallSteps, SeenText, Speaker, join_strings};
use super::tool_kind::{command_paths, judge_tool, reads_network};
use super::turn::Turn;
use crate::blame::{BlameRequest, OriginKind, blame};
use crate::error::ProvenanceError;
use crate::line_map::split_lines;

/// The rule in words, for the answer.
pub(crate) const RULE: &str = "Trusted are the user's prompts, what the session itself wrote, and lines of files that the user or the session wrote while it was recorded. Untrusted are web pages and search results, results of MCP servers, the output of commands that read the network, files outside the workspace or in directories of dependencies, lines that were there before the recording began, and lines of other sessions. What the agent's program adds (instructions, settings) is \"agent\"; what is none of these is \"unknown\".";

/// Directories that hold code of others.
const DEPENDENCY_DIRS: &str = "node_modules vendor third_party site-packages .venv venv target bower_components Pods .cargo dist-packages deps .gradle .m2";
/// The most prompts that are compared with a text.
const MAX_PROMPTS: u64 = 64;
/// The most lines whose authors are looked up in one answer: each follows a file through its versions.
const MAX_BLAMES: usize = 6;

/// Whose words a text has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Trust {
    /// The user's.
    User,
    /// The session's own.
    Own,
    /// Those of the agent's program and its settings.
    Agent,
    /// Not known.
    Unknown,
    /// Those of others.
    Untrusted,
}

impl Trust {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Own => "own",
            Self::Agent => "agent",
            Self::Unknown => "unknown",
            Self::Untrusted => "untrusted",
        }
    }
}

/// What is known of a source.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    /// The kind of source.
    pub kind: &'static str,
    /// Whose words it has.
    pub trust: Trust,
    /// The rule that decided it.
    pub rule: String,
    /// The step at which the model got it.
    pub step: Option<StepRow>,
    /// The tool whose result it is.
    pub tool: Option<String>,
    /// The file.
    pub path: Option<String>,
    /// The address of a web page.
    pub url: Option<String>,
    /// What equal sources have in common: the same file, the same page.
    pub identity: String,
}

/// Judges the sources of one answer.
pub(crate) struct Judge<'w> {
    workspace: &'w Workspace,
    calls: CallSteps,
    /// The first checkpoint whose files are kept.
    first: OnceCell<Option<StepRow>>,
    prompts: HashMap<SessionId, Vec<(StepRow, String)>>,
    blames_left: usize,
}

impl<'w> Judge<'w> {
    pub(crate) fn new(workspace: &'w Workspace) -> Self {
        Self {
            workspace,
            calls: CallSteps::default(),
            first: OnceCell::new(),
            prompts: HashMap::new(),
            blames_left: MAX_BLAMES,
        }
    }

    /// What a text is, without whose words it has where that takes longer to find out.
    pub(crate) fn identify(&mut self, turn: &Turn, seen: &SeenText) -> Result<Judgement, ProvenanceError> {
        let judged = |kind, trust, rule: &str| Judgement {
            kind,
            trust,
            rule: rule.to_owned(),
            step: seen.step.clone(),
            tool: None,
            path: None,
            url: None,
            identity: format!("{kind} {}", seen.text),
        };
        Ok(match seen.speaker {
            Speaker::User => match self.find_prompt(turn, &seen.text)? {
                Some(prompt) => Judgement {
                    step: Some(prompt),
                    ..judged("prompt", Trust::User, "it is a recorded prompt of the user")
                },
                None if turn.worker.is_some() => {
                    judged("own-text", Trust::Own, "the main agent wrote this prompt for its sub-agent")
                }
                None if turn.request.is_some() => judged(
                    "injected",
                    Trust::Agent,
                    "a message in the user's name that is no recorded prompt: the agent's program added it",
                ),
                None => judged("prompt", Trust::User, "the agent's conversation has it as a prompt"),
            },
            Speaker::System => {
                judged("instructions", Trust::Agent, "instructions that the agent's program sent")
            }
            Speaker::Injected => {
                judged("injected", Trust::Agent, "a text that the agent's program or a hook added")
            }
            Speaker::Summary => judged(
                "summary",
                Trust::Own,
                "the summary of a compacted conversation, which the model wrote; what it summarized is not followed",
            ),
            Speaker::Model => judged("own-text", Trust::Own, "an earlier answer of the model"),
            Speaker::ModelCall => Judgement {
                step: self.start_of(turn, seen)?,
                ..judged("own-call", Trust::Own, "the input of an earlier call of the model")
            },
            Speaker::Result => self.identify_result(turn, seen)?,
        })
    }

    fn start_of(&mut self, turn: &Turn, seen: &SeenText) -> Result<Option<StepRow>, ProvenanceError> {
        if seen.step.is_some() {
            return Ok(seen.step.clone());
        }
        let Some(call) = &seen.call else { return Ok(None) };
        Ok(self.calls.find(self.workspace, turn, call)?.map(|(start, _)| start))
    }

    /// The recorded prompt that a text is or contains.
    fn find_prompt(&mut self, turn: &Turn, text: &str) -> Result<Option<StepRow>, ProvenanceError> {
        if !self.prompts.contains_key(&turn.session.id) {
            let query = StepQuery {
                session: Some(turn.session.id),
                kinds: vec![StepKind::UserInput],
                before: Some(turn.before),
                limit: Some(MAX_PROMPTS),
                ..StepQuery::default()
            };
            let mut prompts = Vec::new();
            for stored in self.workspace.store().steps(self.workspace.record.id, &query)? {
                let detail = self.workspace.load_detail(&stored.step)?.unwrap_or_default();
                prompts.push((stored, join_strings(&detail["input"]).trim().to_owned()));
            }
            self.prompts.insert(turn.session.id, prompts);
        }
        let text = text.trim();
        // An agent may frame a prompt, but a long text that contains a short prompt by chance is not the user's.
        let is_same = |prompt: &str| {
            !prompt.is_empty()
                && (text == prompt || (2 * prompt.len() >= text.len() && text.contains(prompt)))
        };
        let prompts = self.prompts.get(&turn.session.id).map(Vec::as_slice).unwrap_or_default();
        Ok(prompts.iter().find(|(_, prompt)| is_same(prompt)).map(|(stored, _)| stored.clone()))
    }

    fn identify_result(&mut self, turn: &Turn, seen: &SeenText) -> Result<Judgement, ProvenanceError> {
        let found = match &seen.call {
            Some(call) => self.calls.find(self.workspace, turn, call)?,
            None => None,
        };
        let (start, end) = match found {
            Some((start, end)) => (Some(start), end),
            None => (seen.step.clone(), None),
        };
        let tool = start.as_ref().and_then(|start| start.step.meta.tool.clone());
        let input = match &start {
            Some(start) => self.workspace.load_detail(&start.step)?.unwrap_or_default()["input"].take(),
            None => Value::Null,
        };
        let mut judged = judge_tool(&turn.session.agent, tool.as_deref().unwrap_or_default(), &input);
        if judged.identity.is_empty() {
            judged.identity = format!("{} {}", tool.as_deref().unwrap_or_default(), seen.text);
        }
        judged.path = judged.path.map(|path| self.relative(&path));
        Ok(Judgement { step: end.or(start), tool, ..judged })
    }

    /// A path relative to the workspace; one outside stays as it is.
    fn relative(&self, path: &str) -> String {
        let inside = Path::new(path).strip_prefix(&self.workspace.root).ok();
        let inside = inside.map(|inside| inside.to_string_lossy().into_owned());
        inside.unwrap_or_else(|| path.strip_prefix("./").unwrap_or(path).to_owned())
    }

    /// Completes the judgement of a source with the author of `line`, the line in which its strongest run stands.
    pub(crate) fn judge_line(
        &mut self,
        turn: &Turn,
        judged: &mut Judgement,
        line: &str,
    ) -> Result<(), ProvenanceError> {
        match judged.kind {
            "file" => {
                let (path, line) = match &judged.path {
                    Some(path) => (path.clone(), strip_line_number(line).1),
                    // What a search found names the file on each line.
                    None => match split_search_line(line) {
                        Some((path, line)) => (self.relative(path), line),
                        None => return Ok(()),
                    },
                };
                (judged.trust, judged.rule) = self.judge_file_line(turn, judged, &path, line)?;
                judged.path = Some(path);
            }
            "command" if judged.trust == Trust::Unknown => {
                // A command that prints a file of the workspace.
                for path in command_paths(&judged.identity) {
                    let path = self.relative(path);
                    let line = strip_line_number(line).1;
                    if self.has_line(self.checkpoint_at(turn, judged)?.as_ref(), &path, line)? {
                        let (trust, rule) = self.judge_file_line(turn, judged, &path, line)?;
                        (judged.trust, judged.kind) = (trust, "file");
                        judged.rule = format!("the command names the file, which has the line; {rule}");
                        judged.path = Some(path);
                        break;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judge_file_line(
        &mut self,
        turn: &Turn,
        judged: &Judgement,
        path: &str,
        line: &str,
    ) -> Result<(Trust, String), ProvenanceError> {
        let untrusted = |rule: &str| (Trust::Untrusted, rule.to_owned());
        if Path::new(path).is_absolute() || path.starts_with("../") || path.starts_with('~') {
            return Ok(untrusted("the file is outside the workspace, so who wrote it is not recorded"));
        }
        if path.split('/').any(|name| DEPENDENCY_DIRS.split(' ').any(|dir| dir == name)) {
            return Ok(untrusted("the file is in a directory of dependencies"));
        }
        if self.has_line(self.first_checkpoint()?.as_ref(), path, line)? {
            return Ok(untrusted(
                "the line was there before the recording began, so who wrote it is not recorded",
            ));
        }
        let Some(at) = self.checkpoint_at(turn, judged)? else {
            return Ok((Trust::Unknown, "no state of the file is kept".to_owned()));
        };
        let Some(number) = self.line_number(&at, path, line)? else {
            return Ok(untrusted("the recording does not cover the file, or not this line of it"));
        };
        if self.blames_left == 0 {
            return Ok((
                Trust::Unknown,
                "its author was not looked up: too many sources are files".to_owned(),
            ));
        }
        self.blames_left -= 1;
        let Ok(rel_path) = RelPath::parse(path) else {
            return Ok(untrusted("the path is no path in the workspace"));
        };
        let found = blame(
            self.workspace,
            &BlameRequest { path: rel_path, at: Some(at), lines: Some(number..=number) },
        )?;
        let Some(origin) = found.origins.first() else {
            return Ok((Trust::Unknown, "its author is not known".to_owned()));
        };
        let step = origin.step.as_ref().map_or(0, |stored| stored.step.number);
        Ok(match (origin.kind, origin.who.candidates()) {
            (OriginKind::BeforeRecording, _) => {
                untrusted("the line was there before the recording began, so who wrote it is not recorded")
            }
            (OriginKind::Restored, _) => (Trust::Unknown, format!("#{step} brought the line back")),
            (_, []) => {
                (Trust::User, format!("#{step} first has the line, and no call of an agent was running"))
            }
            (_, [author]) if author.session == turn.session.id => {
                let call = self.workspace.store().step(author.step)?;
                let input = match &call {
                    Some(call) => self.workspace.load_detail(&call.step)?.unwrap_or_default()["input"].take(),
                    None => Value::Null,
                };
                let number = call.map_or(step, |call| call.step.number);
                match reads_network(&input) {
                    true => untrusted(&format!(
                        "the call #{number} of the session wrote the line and reads the network"
                    )),
                    false => (Trust::Own, format!("the call #{number} of the session wrote the line")),
                }
            }
            (_, authors) if authors.iter().any(|author| author.session == turn.session.id) => {
                (Trust::Unknown, format!("calls of several sessions may have written the line (#{step})"))
            }
            _ => untrusted(&format!("another session wrote the line (#{step})")),
        })
    }

    /// The checkpoint with the files as they were when the model got a source.
    fn checkpoint_at(&self, turn: &Turn, judged: &Judgement) -> Result<Option<StepRow>, ProvenanceError> {
        let step = judged.step.as_ref().unwrap_or(&turn.step);
        Ok(self.workspace.nearest_checkpoint(step).ok().filter(|stored| !stored.purged))
    }

    fn first_checkpoint(&self) -> Result<Option<StepRow>, ProvenanceError> {
        if let Some(first) = self.first.get() {
            return Ok(first.clone());
        }
        let query = StepQuery {
            checkpoint: Some(true),
            hidden: Some(false),
            oldest_first: true,
            limit: Some(1),
            ..StepQuery::default()
        };
        let first = self.workspace.store().steps(self.workspace.record.id, &query)?.pop();
        let first = first.filter(|stored| !stored.purged);
        Ok(self.first.get_or_init(|| first).clone())
    }

    fn has_line(&self, at: Option<&StepRow>, path: &str, line: &str) -> Result<bool, ProvenanceError> {
        match at {
            Some(at) => Ok(self.line_number(at, path, line)?.is_some()),
            None => Ok(false),
        }
    }

    /// The number of a line of a file at a checkpoint, from 1. White space around it is ignored.
    fn line_number(&self, at: &StepRow, path: &str, line: &str) -> Result<Option<usize>, ProvenanceError> {
        const MAX_FILE_BYTES: u64 = 4 << 20;
        let line = line.trim();
        let Some(files) = self.workspace.load_state(at)?.files else { return Ok(None) };
        let Ok(path) = RelPath::parse(path) else { return Ok(None) };
        let source = super::context::StoreObjects(self.workspace.store());
        let node = find_node(&source, files, &path)?;
        let Some(node @ TreeNode::File { size, .. }) = &node else { return Ok(None) };
        if *size > MAX_FILE_BYTES || line.is_empty() {
            return Ok(None);
        }
        let bytes = self.workspace.read_node(node)?;
        let is_line = |found: &&[u8]| found.trim_ascii() == line.as_bytes();
        Ok(split_lines(&bytes).iter().position(is_line).map(|index| index + 1))
    }
}

/// Splits a line of a file as tools show it into its number and its text: `  12→text`, `12\ttext`, `12: text`.
pub(crate) fn strip_line_number(line: &str) -> (Option<u64>, &str) {
    let rest = line.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(digits);
    let text = ["→", "\t", ": ", "| ", "|"].iter().find_map(|mark| after.strip_prefix(mark));
    match (number.parse(), text) {
        (Ok(number), Some(text)) => (Some(number), text),
        _ => (None, line),
    }
}

/// Splits a line that a search found: `path:12:text` or `path:text`.
fn split_search_line(line: &str) -> Option<(&str, &str)> {
    let (path, rest) = line.trim_start().split_once(':')?;
    let (number, text) = rest.split_once([':', '-']).unwrap_or(("", rest));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let text = if is_number { text } else { rest };
    (!path.is_empty() && !path.contains(' ')).then_some((path, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_file_is_found_behind_its_number() {
        assert_eq!(strip_line_number("    12→let x = 1;"), (Some(12), "let x = 1;"));
        assert_eq!(strip_line_number("7\tlet x"), (Some(7), "let x"));
        assert_eq!(strip_line_number("7 apples"), (None, "7 apples"));
        assert_eq!(strip_line_number("99999999999999999999999: x"), (None, "99999999999999999999999: x"));
        assert_eq!(split_search_line("src/a.rs:12:let x: u8"), Some(("src/a.rs", "let x: u8")));
        assert_eq!(split_search_line("src/a.rs:let x: u8"), Some(("src/a.rs", "let x: u8")));
        assert_eq!(split_search_line("no files found"), None);
    }
}
