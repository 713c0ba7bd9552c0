//! What is unusual in a session: the kinds of anomalies, their limits, and the detectors that read calls one by one.
//!
//! The detectors of [`monitor`] are used for whole sessions and, with the last calls only, while an agent runs; so a breakpoint
//! stops for the reasons that a report gives. Each needs constant time for a call, and memory for what is distinct. What needs
//! other sessions to compare with is in the crate `analysis`.

pub mod call;
mod edits;
mod failures;
mod finding;
mod loops;
pub mod monitor;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use call::ObservedCall;
pub use finding::{CallFinding, DetectionRule};
pub use monitor::CallMonitor;

/// A kind of anomaly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalyKind {
    /// The same calls with the same results, again and again.
    Loop,
    /// A file or the whole state goes back and forth between two or three versions.
    AlternatingEdits,
    /// A call fails again and again, and each attempt is longer, larger or later than the one before.
    GrowingRetries,
    /// Far more calls fail than usual.
    ErrorBurst,
    /// A check fails again and again, and its results are ones that were seen before.
    NoProgress,
    /// Edits that are taken back.
    UndoneEdits,
    /// A call that took much longer than other calls of the same tool or model.
    SlowCall,
    /// A model call that cost much more than other calls of the same model.
    CostlyCall,
    /// The context grows by what it already contained, or by what is never used.
    ContextGrowth,
}

impl AnomalyKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Loop,
        Self::AlternatingEdits,
        Self::GrowingRetries,
        Self::ErrorBurst,
        Self::NoProgress,
        Self::UndoneEdits,
        Self::SlowCall,
        Self::CostlyCall,
        Self::ContextGrowth,
    ];

    /// The kinds that can be seen while an agent runs, from its last calls alone.
    pub const LIVE: [Self; 6] = [
        Self::Loop,
        Self::AlternatingEdits,
        Self::GrowingRetries,
        Self::ErrorBurst,
        Self::NoProgress,
        Self::UndoneEdits,
    ];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::AlternatingEdits => "alternating-edits",
            Self::GrowingRetries => "growing-retries",
            Self::ErrorBurst => "error-burst",
            Self::NoProgress => "no-progress",
            Self::UndoneEdits => "undone-edits",
            Self::SlowCall => "slow-call",
            Self::CostlyCall => "costly-call",
            Self::ContextGrowth => "context-growth",
        }
    }

    /// Reads a name; `None` if it is not one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What the limit of the kind counts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Loop => "times",
            Self::AlternatingEdits | Self::UndoneEdits => "edits",
            Self::GrowingRetries => "attempts",
            Self::ErrorBurst => "failures",
            Self::NoProgress => "runs",
            Self::SlowCall | Self::CostlyCall => "times the median",
            Self::ContextGrowth => "KiB",
        }
    }

    /// The limit if the user set none.
    pub const fn default_limit(self) -> u64 {
        match self {
            Self::Loop | Self::NoProgress => 5,
            Self::AlternatingEdits | Self::GrowingRetries => 4,
            Self::ErrorBurst | Self::SlowCall => 6,
            Self::UndoneEdits => 8,
            Self::CostlyCall => 5,
            Self::ContextGrowth => 128,
        }
    }
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How far an anomaly is over its limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalySeverity {
    /// Less than twice the limit.
    Low,
    /// Twice the limit or more.
    Medium,
    /// Four times the limit or more.
    High,
}

impl AnomalySeverity {
    /// The severity of what was measured, against a limit.
    pub fn of(measured: f64, limit: f64) -> Self {
        match measured / limit {
            ratio if ratio >= 4.0 => Self::High,
            ratio if ratio >= 2.0 => Self::Medium,
            _ => Self::Low,
        }
    }

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// From where on something is an anomaly: one number for each kind, in its [unit](AnomalyKind::unit).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnomalyLimits([u64; AnomalyKind::ALL.len()]);

impl Default for AnomalyLimits {
    fn default() -> Self {
        Self(AnomalyKind::ALL.map(AnomalyKind::default_limit))
    }
}

impl AnomalyLimits {
    /// The smallest limit of any kind: two of a thing are no pattern yet.
    pub const MIN: u64 = 3;

    /// Returns the limit of a kind; `None` if the kind is off.
    pub fn get(&self, kind: AnomalyKind) -> Option<u64> {
        Some(self.0[kind as usize]).filter(|limit| *limit > 0)
    }

    /// Sets the limit of a kind; 0 turns it off, and a smaller one than [`Self::MIN`] counts as that.
    pub fn set(&mut self, kind: AnomalyKind, limit: u64) {
        self.0[kind as usize] = if limit == 0 { 0 } else { limit.max(Self::MIN) };
    }

    /// The same limits, with only some kinds on.
    pub fn only(&self, kinds: &[AnomalyKind]) -> Self {
        let mut limits = self.clone();
        for kind in AnomalyKind::ALL.into_iter().filter(|kind| !kinds.contains(kind)) {
            limits.set(kind, 0);
        }
        limits
    }
}
