//! What an agent thought, as far as it is shown.

use serde::Deserialize;

/// The step at which a thought was recorded.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Thought {
    /// Its number.
    pub number: u64,
    /// What was thought.
    pub summary: String,
}

/// Where something came from.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The step.
    pub step: Option<u64>,
    /// The call that was going on.
    pub during: Option<u64>,
}

/// Where evidence comes from.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EvidenceSource {
    /// What it is.
    pub kind: String,
    /// Which.
    pub text: String,
    /// The step of the call.
    pub step: Option<u64>,
}

/// What an item has to do with another one.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Link {
    /// The other.
    pub to: String,
    /// How.
    pub how: String,
    /// How much.
    pub strength: Option<f64>,
    /// Why.
    pub reason: Option<String>,
}

/// Something on a board.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Item {
    /// Its name.
    pub id: String,
    /// How it stands.
    pub status: String,
    /// What it says.
    pub text: String,
    /// What sort it is.
    pub sort: Option<String>,
    /// How much depends on it.
    pub weight: Option<String>,
    /// How sure it is.
    pub confidence: Option<f64>,
    /// How sure by itself.
    pub alone: Option<f64>,
    /// How strongly it speaks for or against something.
    pub strength: Option<f64>,
    /// What else is to be said.
    pub more: Option<String>,
    /// Where evidence comes from.
    pub source: Option<EvidenceSource>,
    /// What it has to do with others.
    pub links: Vec<Link>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Where it came from.
    pub origin: Origin,
    /// What last changed it.
    pub changed: Option<Origin>,
    /// What this step did to it.
    pub change: Option<String>,
}

/// What this step did to something.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Change {
    /// To what.
    pub item: String,
    /// `added`, `changed`, `removed`.
    pub change: String,
    /// In words.
    pub sentence: String,
}

/// The items of one kind.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Which kind.
    pub name: String,
    /// How many there are.
    pub total: u64,
    /// The first of them.
    pub items: Vec<Item>,
}

/// Something to do next.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Next {
    /// About what.
    pub item: String,
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// The board of a moment.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Mind {
    /// The thought that made it what it is.
    pub step: Option<Thought>,
    /// What changed in this step.
    pub changes: Vec<Change>,
    /// How much changed.
    pub changed: u64,
    /// What is on it.
    pub parts: Vec<Part>,
    /// What to do next.
    pub next: Vec<Next>,
}

/// What became of one hypothesis; an entry holds until the next.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfidenceLine {
    /// Which.
    pub hypothesis: String,
    /// At which moments.
    pub at: Vec<usize>,
    /// How likely it was.
    pub confidence: Vec<Option<f64>>,
}

/// How sure a session was over time.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Confidence {
    /// The steps of the moments.
    pub number: Vec<u64>,
    /// Hypotheses.
    pub lines: Vec<ConfidenceLine>,
}

impl Confidence {
    /// How likely a hypothesis was at so many moments up to a step, the last of them at it. Nothing before it was proposed.
    pub fn up_to(&self, hypothesis: &str, step: u64, points: usize) -> Vec<Option<f64>> {
        let moments = self.number.partition_point(|number| *number <= step);
        let line = self.lines.iter().find(|line| line.hypothesis == hypothesis);
        let (Some(line), true) = (line, moments > 0) else { return Vec::new() };
        let points = points.min(moments);
        let at = |point: usize| {
            let moment = (point + 1) * moments / points - 1;
            let entry = line.at.partition_point(|at| *at <= moment).checked_sub(1)?;
            line.confidence.get(entry).copied().flatten()
        };
        (0..points).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_followed_up_to_a_step() {
        let confidence = Confidence {
            number: vec![10, 20, 30, 40],
            lines: vec![ConfidenceLine {
                hypothesis: "H1".into(),
                at: vec![1, 3],
                confidence: vec![Some(0.5), Some(0.9)],
            }],
        };
        assert_eq!(confidence.up_to("H1", 40, 4), [None, Some(0.5), Some(0.5), Some(0.9)]);
        assert_eq!(confidence.up_to("H1", 35, 8), [None, Some(0.5), Some(0.5)]);
        assert_eq!(confidence.up_to("H1", 99, 2), [Some(0.5), Some(0.9)]);
        assert_eq!(confidence.up_to("H1", 9, 4), []);
        assert_eq!(confidence.up_to("H2", 40, 4), []);
    }
}
