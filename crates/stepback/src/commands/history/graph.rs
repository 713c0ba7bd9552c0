//! The lanes of `stepback timeline`: the current line on the left, other branches and rolled back steps beside it, each
//! leaving at the step where it forked.

use std::fmt::Write;

/// A step to be drawn.
pub struct GraphStep<K> {
    /// The key of the step.
    pub step: K,
    /// The key of the step before it on its line, if that is drawn too.
    pub before: Option<K>,
    /// Whether the step is on the current line.
    pub is_present: bool,
    /// The character that represents the step.
    pub glyph: char,
}

/// The lanes at a step.
pub struct Lanes {
    /// Lanes that join here, drawn above the step.
    pub joins: Option<String>,
    /// The lanes left of the step, the step's own glyph, and the lanes right of it.
    pub row: (String, char, String),
    /// A lane that continues in another one, drawn below the step.
    pub merge: Option<String>,
}

/// The minimum number of lanes that space is reserved for.
const MIN_LANES: usize = 2;

/// Draws steps, newest first.
pub fn draw<K: Copy + PartialEq>(steps: &[GraphStep<K>]) -> Vec<Lanes> {
    // The step that each lane waits for. The first lane is that of the current line.
    let mut waiting: Vec<Option<K>> = vec![None; MIN_LANES];
    let mut drawn = Vec::new();
    for step in steps {
        let own = Some(step.step);
        let lane = match step.is_present {
            true => 0,
            false => (1..waiting.len())
                .find(|lane| waiting[*lane] == own)
                .or_else(|| (1..waiting.len()).find(|lane| waiting[*lane].is_none()))
                .unwrap_or(waiting.len()),
        };
        if lane == waiting.len() {
            waiting.push(None);
        }
        let joined: Vec<usize> =
            (0..waiting.len()).filter(|other| *other != lane && waiting[*other] == own).collect();
        let corner = if waiting[lane].is_some() { '├' } else { '╭' };
        let joins = (!joined.is_empty()).then(|| draw_connector(&waiting, lane, corner, &joined));
        for other in joined {
            waiting[other] = None;
        }
        while waiting.len() > MIN_LANES.max(lane + 1) && waiting.last().is_some_and(Option::is_none) {
            waiting.pop();
        }
        let cell = |lane: &Option<K>| if lane.is_some() { "│ " } else { "  " };
        let left = waiting[..lane].iter().map(cell).collect();
        let right = waiting[lane + 1..].iter().map(cell).collect();
        waiting[lane] = step.before;
        // Two lanes that wait for the same step continue as one.
        let twin = (1..waiting.len()).find(|other| {
            *other != lane && lane > 0 && step.before.is_some() && waiting[*other] == step.before
        });
        let merge = twin.map(|twin| {
            let (stays, goes) = (lane.min(twin), lane.max(twin));
            let text = draw_connector(&waiting, stays, '├', &[goes]);
            waiting[goes] = None;
            text
        });
        while waiting.len() > MIN_LANES && waiting.last().is_some_and(Option::is_none) {
            waiting.pop();
        }
        drawn.push(Lanes { joins, row: (left, step.glyph, right), merge });
    }
    drawn
}

/// Returns a line from one lane to others on its right or left, across the lanes in between.
fn draw_connector<K: PartialEq>(
    waiting: &[Option<K>],
    lane: usize,
    corner: char,
    others: &[usize],
) -> String {
    let first = others.iter().copied().chain([lane]).min().unwrap_or(lane);
    let last = others.iter().copied().chain([lane]).max().unwrap_or(lane);
    let mut text = String::new();
    for (at, waits) in waiting.iter().enumerate() {
        let is_inside = first < at && at < last;
        let cell = match () {
            () if at == lane => corner,
            () if others.contains(&at) && at == last => '╯',
            () if others.contains(&at) && at == first => '╰',
            () if others.contains(&at) => '┴',
            () if is_inside && waits.is_some() => '┼',
            () if is_inside => '─',
            () if waits.is_some() => '│',
            () => ' ',
        };
        let gap = if first <= at && at < last { '─' } else { ' ' };
        // Writing to a string does not fail.
        let _ = write!(text, "{cell}{gap}");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws steps given as `(number, before, is present)`, newest first.
    fn render(steps: &[(u32, u32, bool)]) -> String {
        let drawn = |(step, before, is_present): &(u32, u32, bool)| GraphStep {
            step: *step,
            before: (*before > 0).then_some(*before),
            is_present: *is_present,
            glyph: if *is_present { '●' } else { '○' },
        };
        let all: Vec<GraphStep<u32>> = steps.iter().map(drawn).collect();
        let mut text = String::new();
        for (step, lanes) in all.iter().zip(draw(&all)) {
            let (left, glyph, right) = &lanes.row;
            let row = format!("{left}{glyph} {right}#{}", step.step);
            for line in lanes.joins.iter().chain([&row]).chain(&lanes.merge) {
                text.push_str(&format!("{line}\n"));
            }
        }
        text
    }

    #[test]
    fn what_was_rolled_back_leaves_where_the_line_went_back_to() {
        let drawn = render(&[(5, 2, true), (4, 3, false), (3, 2, false), (2, 1, true), (1, 0, true)]);
        assert_eq!(drawn, "●   #5\n│ ○ #4\n│ ○ #3\n├─╯\n●   #2\n●   #1\n");
    }

    #[test]
    fn a_branch_leaves_where_it_was_made_and_not_at_the_step_drawn_above() {
        // alt was made at #1 after #2, and has #4.
        let drawn = render(&[(4, 1, false), (3, 2, true), (2, 1, true), (1, 0, true)]);
        assert_eq!(drawn, "  ○ #4\n● │ #3\n● │ #2\n├─╯\n●   #1\n");
    }

    #[test]
    fn branches_from_different_steps_are_not_a_chain() {
        let steps = [(6, 1, false), (5, 3, false), (4, 3, true), (3, 2, true), (2, 1, true), (1, 0, true)];
        let drawn = render(&steps);
        assert_eq!(drawn, "  ○ #6\n  │ ○ #5\n● │ │ #4\n├─┼─╯\n● │ #3\n● │ #2\n├─╯\n●   #1\n");
    }

    #[test]
    fn branches_from_one_step_share_the_way_to_it() {
        let drawn = render(&[(4, 1, false), (3, 1, false), (2, 1, true), (1, 0, true)]);
        assert_eq!(drawn, "  ○ #4\n  │ ○ #3\n  ├─╯\n● │ #2\n├─╯\n●   #1\n");
    }

    #[test]
    fn a_branch_from_the_head_begins_there() {
        let drawn = render(&[(2, 1, false), (1, 0, true)]);
        assert_eq!(drawn, "  ○ #2\n╭─╯\n●   #1\n");
    }
}
