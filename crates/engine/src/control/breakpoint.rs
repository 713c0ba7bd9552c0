//! Breakpoints: conditions that stop a live agent, and how often each was met.

use std::fs;
use std::io;

use globset::GlobBuilder;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use stepback_model::anomaly::AnomalyKind;

use super::Control;
use super::hit_condition::HitCondition;
use super::log_message::check_message;

/// Maximum size of a compiled pattern, in bytes. Matching is linear in the text for every pattern; this bounds the memory.
const PATTERN_LIMIT: usize = 1 << 20;
/// Maximum length of the input that a pattern is matched against, in bytes.
const TEXT_LIMIT: usize = 1 << 20;

const FILE: &str = "breakpoints.json";

/// The condition of a breakpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "on")]
pub enum Condition {
    /// A call of a tool; `*` matches any.
    Tool {
        /// Name of the tool, matched without regard to case.
        name: String,
    },
    /// A model turn is reached.
    Iteration {
        /// Number of the turn.
        number: u64,
    },
    /// An input that matches a regular expression.
    Pattern {
        /// The regular expression.
        pattern: String,
    },
    /// A call failed.
    Error,
    /// A call that names a path.
    Path {
        /// Glob that the path must match.
        glob: String,
    },
    /// The session, or all of a day or of the workspace, has reached a cost.
    Cost {
        /// Cost in dollars.
        usd: f64,
        /// What is added up; `None` is the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per: Option<BudgetScope>,
    },
    /// The context of the session has reached a size, or a number of tokens has been used.
    Tokens {
        /// Number of tokens.
        number: u64,
        /// What is added up; `None` is the size of the context, which is not a sum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per: Option<BudgetScope>,
    },
    /// The last calls of the session are unusual.
    Anomaly {
        /// The kind of anomaly; `None`: any that can be seen while an agent runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<AnomalyKind>,
    },
}

/// What a budget is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetScope {
    /// What the session of the call has used.
    Session,
    /// What all sessions of the workspace have used today, in universal time.
    Day,
    /// What all sessions of the workspace have used so far.
    Workspace,
}

impl BudgetScope {
    /// Every scope.
    pub const ALL: [Self; 3] = [Self::Session, Self::Day, Self::Workspace];

    /// The name that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Day => "day",
            Self::Workspace => "workspace",
        }
    }
}

/// What was used of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BudgetSpending {
    /// Cost, in millionths of a dollar.
    pub cost: u64,
    /// Tokens, read and written.
    pub tokens: u64,
}

/// Whether a call is checked before or after it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BreakSide {
    /// The call is about to run.
    Start,
    /// The call has run.
    End,
}

/// The data on which a breakpoint decides.
pub struct BreakContext<'a> {
    /// Whether the call is about to run or has run.
    pub side: BreakSide,
    /// Name of the tool.
    pub tool: &'a str,
    /// Input of the call, as text.
    pub input: &'a str,
    /// Paths the call names, relative to the workspace if they are inside it.
    pub paths: &'a [String],
    /// Whether the call failed.
    pub failed: bool,
    /// Returns the model turn, and the cost of the session so far in millionths of a dollar; called only when needed.
    pub session: &'a dyn Fn() -> (u64, u64),
    /// Returns the size of the context in tokens, as the model last reported it; called only when needed.
    pub tokens: &'a dyn Fn() -> u64,
    /// Returns the kinds of anomalies that the call completes; called only when needed.
    pub anomalies: &'a dyn Fn() -> Vec<AnomalyKind>,
    /// Returns what was used of a budget; called only when needed.
    pub spent: &'a dyn Fn(BudgetScope) -> BudgetSpending,
    /// The present day, in days since the epoch.
    pub day: i64,
}

/// A condition that stops a live agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Breakpoint {
    /// Id, counted from 1.
    pub id: u64,
    /// The condition.
    #[serde(flatten)]
    pub on: Condition,
    /// The input must match this regular expression as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// How often the condition was met.
    pub hits: u64,
    /// Which hits take effect; `None`: all of them.
    #[serde(default, alias = "from_hit", skip_serializing_if = "Option::is_none")]
    pub hit_condition: Option<HitCondition>,
    /// Whether it is a log point: a hit is recorded and the agent does not stop.
    pub log: bool,
    /// What a log point records, with names in braces; `None`: a summary of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of a budget per day: the last day on which it was used up, in days since the epoch. It takes effect once a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_on: Option<i64>,
}

/// The breakpoints of a workspace.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Breakpoints {
    next: u64,
    /// The breakpoints, in the order they were added.
    pub items: Vec<Breakpoint>,
}

impl Breakpoint {
    /// A breakpoint that is not added yet and stops at every hit.
    pub fn new(on: Condition) -> Self {
        let (condition, hit_condition, message) = (None, None, None);
        let (log, reached_on) = (false, None);
        Self { id: 0, on, condition, enabled: true, hits: 0, hit_condition, log, message, reached_on }
    }

    /// Checks that names, patterns, globs and numbers are valid; the error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if let Some(condition) = &self.condition {
            compile_pattern(condition)?;
        }
        if let Some(message) = &self.message {
            check_message(message)?;
        }
        match &self.on {
            Condition::Tool { name } if name.trim().is_empty() => {
                Err("the name of a tool is empty; use * for any".into())
            }
            Condition::Path { glob } if glob.is_empty() => Err("the path is empty; use * for any".into()),
            Condition::Pattern { pattern } => compile_pattern(pattern).map(drop),
            Condition::Path { glob } => {
                GlobBuilder::new(glob).build().map(drop).map_err(|error| error.to_string())
            }
            // A limit of zero is reached before anything has happened, so that it would stop the first call of every session.
            Condition::Iteration { number: 0 } => {
                Err("the first model turn is iteration 1; give the number of a turn, such as 20".into())
            }
            Condition::Tokens { number: 0, per: Some(_) } => {
                Err("a budget of 0 tokens is used up at the beginning; give a number, such as 5000000".into())
            }
            Condition::Tokens { number: 0, per: None } => {
                Err("every session has reached 0 tokens; give the size to stop at, such as 150000".into())
            }
            Condition::Cost { usd, .. } if !usd.is_finite() || *usd < 0.0 => {
                Err("the cost must be a number of dollars".into())
            }
            Condition::Cost { usd: 0.0, .. } => {
                Err("every session has reached a cost of 0; give the dollars to stop at, such as 2.50".into())
            }
            Condition::Anomaly { kind: Some(kind) } if !AnomalyKind::LIVE.contains(kind) => Err(format!(
                "{kind} needs the history of other sessions and is not seen while an agent runs; use one of {}",
                AnomalyKind::LIVE.map(AnomalyKind::name).join(", ")
            )),
            _ => Ok(()),
        }
    }

    /// Describes the condition in words.
    pub fn describe(&self) -> String {
        let mut text = match &self.on {
            Condition::Tool { name } => format!("tool {name}"),
            Condition::Iteration { number } => format!("iteration {number}"),
            Condition::Pattern { pattern } => format!("pattern {pattern}"),
            Condition::Error => "error".into(),
            Condition::Path { glob } => format!("path {glob}"),
            Condition::Cost { usd, .. } => format!("cost {usd}"),
            Condition::Tokens { number, .. } => format!("tokens {number}"),
            Condition::Anomaly { kind: Some(kind) } => format!("anomaly {kind}"),
            Condition::Anomaly { kind: None } => "anomaly".into(),
        };
        if let Some(scope) = self.budget_scope() {
            text.push_str(&format!(" per {}", scope.as_str()));
        }
        if let Some(condition) = &self.condition {
            text.push_str(&format!(" if the input matches {condition}"));
        }
        text
    }

    /// Returns what is added up for it, if that was given.
    fn budget_scope(&self) -> Option<BudgetScope> {
        match self.on {
            Condition::Cost { per, .. } | Condition::Tokens { per, .. } => per,
            _ => None,
        }
    }

    /// Whether it is disabled when it takes effect: a turn, a cost and a size stay reached. A budget of a day does not.
    fn is_reached_once(&self) -> bool {
        self.budget_scope() != Some(BudgetScope::Day)
            && matches!(
                self.on,
                Condition::Iteration { .. } | Condition::Cost { .. } | Condition::Tokens { .. }
            )
            && !self.is_repeated()
    }

    /// Whether it takes effect again and again.
    fn is_repeated(&self) -> bool {
        matches!(self.hit_condition, Some(HitCondition::Every(_)))
    }

    fn matches(&self, moment: &BreakContext<'_>) -> bool {
        if self.reached_on == Some(moment.day) {
            return false;
        }
        let input = clip_text(moment.input);
        let at_start = moment.side == BreakSide::Start;
        let is_met = match &self.on {
            Condition::Tool { name } => at_start && (name == "*" || name.eq_ignore_ascii_case(moment.tool)),
            Condition::Iteration { number } => at_start && (moment.session)().0 >= *number,
            Condition::Pattern { pattern } => {
                at_start && compile_pattern(pattern).is_ok_and(|regex| regex.is_match(input))
            }
            Condition::Error => moment.failed && !at_start,
            Condition::Path { glob } => {
                let glob = GlobBuilder::new(glob).literal_separator(false).build();
                at_start
                    && glob.is_ok_and(|glob| {
                        let glob = glob.compile_matcher();
                        moment.paths.iter().any(|path| glob.is_match(path))
                    })
            }
            Condition::Cost { usd, per } => {
                let cost = || (moment.spent)(per.unwrap_or(BudgetScope::Session)).cost;
                at_start && cost() as f64 >= usd * 1e6
            }
            Condition::Tokens { number, per: None } => at_start && (moment.tokens)() >= *number,
            Condition::Tokens { number, per: Some(scope) } => {
                at_start && (moment.spent)(*scope).tokens >= *number
            }
            Condition::Anomaly { kind } => {
                let found = if at_start { Vec::new() } else { (moment.anomalies)() };
                kind.map_or(!found.is_empty(), |kind| found.contains(&kind))
            }
        };
        is_met
            && self
                .condition
                .as_ref()
                .is_none_or(|condition| compile_pattern(condition).is_ok_and(|regex| regex.is_match(input)))
    }
}

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    // A breakpoint guards against what an agent may do, and SQL or PowerShell mean the same in any letter case.
    let builder = &mut RegexBuilder::new(pattern);
    let limited = builder.size_limit(PATTERN_LIMIT).dfa_size_limit(PATTERN_LIMIT);
    limited.case_insensitive(true).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "it needs too much memory; use smaller repetitions".to_string(),
        other => other.to_string(),
    })
}

fn clip_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_LIMIT)]
}

impl Control {
    /// Reads the breakpoints. A file that cannot be read is an error, not an empty list.
    pub fn breakpoints(&self) -> io::Result<Breakpoints> {
        match fs::read(self.dir.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Breakpoints::default()),
            Err(error) => Err(error),
        }
    }

    /// Changes the breakpoints under a lock that excludes other processes.
    pub fn change_breakpoints<T>(&self, change: impl FnOnce(&mut Breakpoints) -> T) -> io::Result<T> {
        let lock = self.lock()?;
        let mut breakpoints = self.breakpoints()?;
        let result = change(&mut breakpoints);
        match breakpoints.items.is_empty() {
            true => drop(self.remove_file(FILE)?),
            false => {
                self.write_file(FILE, &serde_json::to_vec_pretty(&breakpoints).map_err(io::Error::other)?)?
            }
        }
        drop(lock);
        self.disarm_if_empty();
        Ok(result)
    }

    /// Counts a hit for each breakpoint whose condition is met, and returns those that take effect: stops and log points.
    pub fn record_hits(&self, moment: &BreakContext<'_>) -> io::Result<Vec<Breakpoint>> {
        let is_hit = |breakpoint: &Breakpoint| breakpoint.enabled && breakpoint.matches(moment);
        if !self.breakpoints()?.items.iter().any(is_hit) {
            return Ok(Vec::new());
        }
        self.change_breakpoints(|breakpoints| {
            let mut effective = Vec::new();
            for breakpoint in breakpoints.items.iter_mut().filter(|breakpoint| is_hit(breakpoint)) {
                breakpoint.hits += 1;
                if breakpoint.hit_condition.is_none_or(|condition| condition.is_met(breakpoint.hits)) {
                    // These are reached once; after resuming, the agent should not stop at every later call.
                    if breakpoint.is_reached_once() {
                        breakpoint.enabled = false;
                    }
                    if breakpoint.budget_scope() == Some(BudgetScope::Day) && !breakpoint.is_repeated() {
                        breakpoint.reached_on = Some(moment.day);
                    }
                    effective.push(breakpoint.clone());
                }
            }
            effective
        })
    }
}

impl Breakpoints {
    /// Adds a breakpoint under the next id, which it returns.
    pub fn add(&mut self, breakpoint: Breakpoint) -> u64 {
        self.next += 1;
        let id = self.next;
        self.items.push(Breakpoint { id, ..breakpoint });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_with_a_first_hit_are_still_read() {
        let stored = r#"{"id": 3, "on": "tool", "name": "Bash", "enabled": true, "hits": 1, "from_hit": 2, "log": false}"#;
        let read: Breakpoint = serde_json::from_str(stored).unwrap();
        assert_eq!(read.hit_condition, Some(HitCondition::From(2)));
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["hit_condition"], ">=2");
        assert_eq!(serde_json::from_value::<Breakpoint>(written).unwrap(), read);
    }
}
