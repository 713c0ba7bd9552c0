//! Why something is as it is: the chain that led to it, and what the model had seen.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// The origin of a step, of lines, of an item of the board, or of a session, as a graph.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyDocument {
    /// What was asked about.
    pub target: WhyTargetDocument,
    /// One explanation for each call, turn or item that was found; empty if nothing recorded led to it.
    pub explanations: Vec<WhyExplanationDocument>,
    /// What the explanations name, each once.
    pub nodes: Vec<WhyNodeDocument>,
    /// How the nodes are linked: from each thing to what it comes from.
    pub edges: Vec<WhyEdgeDocument>,
    /// What limits the answer: what was not recorded, was freed, or was left out.
    pub notes: Vec<String>,
    /// The rules by which everything `inferred` was inferred.
    pub rules: Vec<WhyRuleDocument>,
}

/// What was asked about.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyTargetDocument {
    /// `step`, `lines`, `item` or `session`.
    pub kind: String,
    /// The text that was given.
    pub text: String,
    /// The id of the node.
    pub node: String,
    /// The number of the step.
    pub step: Option<u64>,
    /// The file.
    pub path: Option<String>,
    /// The first line.
    pub first_line: Option<u64>,
    /// The last line.
    pub last_line: Option<u64>,
    /// The item of the board.
    pub item: Option<String>,
    /// The id of the session.
    pub session: Option<String>,
}

/// What led to one call, turn or item, and where its words stand in what the model had seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyExplanationDocument {
    /// The ids of the nodes from the thing itself back to the prompt, in this order.
    pub chain: Vec<String>,
    /// The ids of the nodes in which decisive words stand, the strongest first.
    pub sources: Vec<String>,
    /// The ids of the items of the board that the turn cites, or that were changed close to it.
    pub board: Vec<String>,
    /// The words that were looked for.
    pub words: WhyWordsDocument,
    /// What was searched.
    pub context: WhyContextDocument,
}

/// The words of a change that were looked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyWordsDocument {
    /// How many different decisive words the change has: those that are not common and that the file did not have before.
    pub decisive: u64,
    /// How many of them stand in at least one of the sources.
    pub found: u64,
    /// Decisive words that stand nowhere in what was searched: the model's own, as far as it is recorded. At most 20.
    pub invented: Vec<String>,
    /// How many there are of those.
    pub invented_count: u64,
    /// Whether only a part of the change was looked at, because it is too large.
    pub truncated: bool,
}

/// What a model had seen before a turn, as far as it is recorded.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyContextDocument {
    /// Where it was recorded: `request` (the request of the model call), `conversation` (the agent's own conversation),
    /// `steps` (the inputs and outputs of earlier steps), or `none`.
    pub recorded_in: String,
    /// How many texts were searched.
    pub texts: u64,
    /// How many of them had left the context, because the conversation was compacted.
    pub left: u64,
    /// Whether older texts were not searched, because there are too many.
    pub truncated: bool,
}

/// A node of the graph.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyNodeDocument {
    /// Its id in this document.
    pub id: String,
    /// `lines`, `change`, `call`, `model-turn`, `prompt`, `session`, `item`, `step` or `source`.
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// Its text, shortened: the prompt, what the model said, the statement of an item.
    pub text: Option<String>,
    /// What the model thought in the turn, shortened, if it was recorded.
    pub thinking: Option<String>,
    /// The number of its step.
    pub step: Option<u64>,
    /// The id of its session.
    pub session: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The sub-agent; none for the main agent.
    pub worker: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The file.
    pub path: Option<String>,
    /// The item of the board.
    pub item: Option<String>,
    /// When it happened.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    /// What a source says, and whose words those are.
    pub source: Option<WhySourceDocument>,
}

/// Something that the model had seen, in which decisive words of the change stand.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhySourceDocument {
    /// `prompt`, `instructions` (the system prompt), `injected` (a text that the agent or a hook added), `file`, `web`, `mcp`,
    /// `command`, `tool-result`, `summary` (of a compaction), `own-text` (an earlier answer of the model) or `own-call` (an
    /// earlier call of the model).
    pub kind: String,
    /// `user`, `own` (the session's own words), `agent` (the agent's program and its settings), `unknown` or `untrusted`.
    pub trust: String,
    /// The rule by which that was decided.
    pub trust_rule: String,
    /// Whether the words come from neither the user nor the session: a web page, an MCP server, a file of others.
    pub untrusted: bool,
    /// Where the words stand.
    pub place: WhyPlaceDocument,
    /// The longest runs of words that the source and the change share, the strongest first.
    pub runs: Vec<WhyRunDocument>,
    /// How strongly it matches; comparable only within one explanation.
    pub score: f64,
    /// How many of the decisive words stand in it.
    pub found: u64,
    /// How many earlier texts say the same; this one was the last before the turn.
    pub repeats: u64,
    /// Whether it was still in the context. It was not if the conversation was compacted since.
    pub in_context: bool,
}

/// A place in what the model had seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyPlaceDocument {
    /// The number of the message, from 1, in the conversation or in the request.
    pub message: Option<u64>,
    /// The number of the part of that message, from 0.
    pub part: u64,
    /// The offset of the strongest run in the text, in bytes.
    pub offset: u64,
    /// Its line in the text, from 1.
    pub line: u64,
    /// The line in the file, from 1, if the text shows a file with its line numbers.
    pub file_line: Option<u64>,
    /// The address of a web page.
    pub url: Option<String>,
    /// The lines in which the strongest run stands, shortened.
    pub excerpt: String,
}

/// A run of words that a source and the change share.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyRunDocument {
    /// The run as it stands in the source, shortened.
    pub text: String,
    /// The same run as it stands in the change, shortened.
    pub in_change: String,
    /// How many words it has.
    pub words: u64,
    /// Its offset in the source, in bytes.
    pub offset: u64,
    /// Its line in the source, from 1.
    pub line: u64,
    /// Its weight: the sum of the weights of its decisive words.
    pub weight: f64,
}

/// A link from something to what it comes from.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyEdgeDocument {
    /// The id of the node that comes from the other one.
    pub from: String,
    /// The id of the node that it comes from.
    pub to: String,
    /// `written-by`, `requested-by`, `prompted-by`, `part-of`, `words-from`, `cites`, `supported-by`, `depends-on`,
    /// `changed-near` or `recorded-during`.
    pub relation: String,
    /// `recorded` if ids in the record link the two, or `inferred`.
    pub basis: String,
    /// The rule by which it was inferred, or what was recorded.
    pub rule: String,
}

/// A rule of inference.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyRuleDocument {
    /// `words`, `trust` or `board`.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// How often a change still came when the model did not see a source.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyTrialDocument {
    /// What was asked about.
    pub target: String,
    /// The source that was left out: its file, or its kind.
    pub source: String,
    /// The lines that were left out.
    pub omitted: Vec<String>,
    /// In how many runs the change came.
    pub came: u64,
    /// In how many runs it is known whether it came.
    pub of: u64,
    /// In how many runs it is not known, because they did not complete.
    pub unknown: u64,
    /// When a change came.
    pub definition: String,
    /// How many answers of a model were recorded from there on.
    pub expected_model_calls: u64,
    /// What those cost, in dollars; none if it is not known of each.
    pub expected_cost_usd: Option<f64>,
    /// The runs.
    pub runs: Vec<WhyTrialRunDocument>,
}

/// A run without a source.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WhyTrialRunDocument {
    /// Its branch.
    pub branch: String,
    /// `completed`, `diverged` or `failed`.
    pub status: String,
    /// Why it failed, or where it diverged.
    pub reason: Option<String>,
    /// Whether the change came; none if the run did not complete.
    pub came: Option<bool>,
    /// How many calls a model answered.
    pub live_calls: u64,
}
