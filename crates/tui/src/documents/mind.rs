//! The documents about an agent's board, reduced to the fields that are shown.

use serde::Deserialize;

/// The step at which a thought was recorded.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Thought {
    /// The number of the step.
    pub number: u64,
    /// A summary of the thought.
    pub summary: String,
}

/// Where an item came from.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The number of the step that recorded it.
    pub step: Option<u64>,
    /// The number of the call that was running at the time.
    pub during: Option<u64>,
}

/// The source of evidence.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EvidenceSource {
    /// The kind of source.
    pub kind: String,
    /// The source itself, as text.
    pub text: String,
    /// The number of the step of the call.
    pub step: Option<u64>,
}

/// A relation of an item to another one.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Link {
    /// The id of the other item.
    pub to: String,
    /// The kind of relation.
    pub how: String,
    /// The strength of the relation.
    pub strength: Option<f64>,
    /// The reason for the relation.
    pub reason: Option<String>,
}

/// An item on a board.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Item {
    /// The id of the item.
    pub id: String,
    /// The status of the item.
    pub status: String,
    /// The text of the item.
    pub text: String,
    /// The subtype of the item.
    pub sort: Option<String>,
    /// How much depends on it.
    pub weight: Option<String>,
    /// The confidence in it.
    pub confidence: Option<f64>,
    /// The confidence in it by itself.
    pub alone: Option<f64>,
    /// How strongly it supports or contradicts something.
    pub strength: Option<f64>,
    /// Additional text.
    pub more: Option<String>,
    /// The source of evidence; `None` for other items.
    pub source: Option<EvidenceSource>,
    /// Its relations to other items.
    pub links: Vec<Link>,
    /// Tags to find it by.
    pub tags: Vec<String>,
    /// Where it came from.
    pub origin: Origin,
    /// What last changed it.
    pub changed: Option<Origin>,
    /// How this step changed it.
    pub change: Option<String>,
}

/// A change that this step made to an item.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Change {
    /// The id of the item.
    pub item: String,
    /// `added`, `changed`, `removed`.
    pub change: String,
    /// A description of the change.
    pub sentence: String,
}

/// The items of one kind.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The name of the kind.
    pub name: String,
    /// How many items there are in total.
    pub total: u64,
    /// The first of the items.
    pub items: Vec<Item>,
}

/// A recommended action.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Next {
    /// The id of the item it is about.
    pub item: String,
    /// The action.
    pub what: String,
    /// The reason for the action.
    pub why: String,
}

/// The board at a moment.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Mind {
    /// The step that last changed it.
    pub step: Option<Thought>,
    /// The changes that this step made.
    pub changes: Vec<Change>,
    /// The number of changes.
    pub changed: u64,
    /// The items of the board, by kind.
    pub parts: Vec<Part>,
    /// Recommended actions.
    pub next: Vec<Next>,
}

/// The confidence in one hypothesis over time; each entry holds until the next.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfidenceLine {
    /// The id of the hypothesis.
    pub hypothesis: String,
    /// The indices of the moments.
    pub at: Vec<usize>,
    /// The confidence at these moments.
    pub confidence: Vec<Option<f64>>,
}

/// The confidence of a session over time.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Confidence {
    /// The numbers of the steps of the moments.
    pub number: Vec<u64>,
    /// The hypotheses, one line each.
    pub lines: Vec<ConfidenceLine>,
}

impl Confidence {
    /// Returns the confidence in a hypothesis at `points` moments up to a step, the last of them at that step. `None`
    /// before the hypothesis was proposed.
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
