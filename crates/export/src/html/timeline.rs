//! The session as a drawing: when the model answered, when tools ran, where the user spoke and where something failed.
//!
//! It is SVG with attributes only, because the policy of the page allows no styles inside elements. Long times in which nothing
//! happened are drawn shorter, and the drawing says so.

use std::time::Duration;

use stepback_model::clip;
use stepback_model::quantity::{count, duration};

use super::NumberedItem;
use super::escape::push_text;
use crate::recording::{ItemContent, RecordedItem};

/// The width of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
/// The narrowest bar.
const MIN_BAR: f64 = 1.5;
/// Where the lanes are: prompts, the model, tools, and everything else.
const LANES: [u32; 4] = [0, 18, 38, 58];
/// The last lane.
const MARKS: usize = 3;
/// How much of the time in which something happened a time in which nothing did may take.
const IDLE_SHARE: f64 = 0.04;

/// A time in which something happened, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interval {
    start: i64,
    end: i64,
}

/// When an item happened; `None` if that is unknown. An answer whose duration was not recorded began when the item above it
/// ended: hooks report calls, and between two calls is the model.
fn interval(item: &RecordedItem, before: Option<Interval>) -> Option<Interval> {
    let at = item.at?.as_micros();
    if let (ItemContent::Answer(answer), Some(before), None) = (&item.content, before, item.duration())
        && !answer.is_open
        && before.end <= at
    {
        return Some(Interval { start: before.end, end: at });
    }
    let took = i64::try_from(item.duration().unwrap_or(0)).unwrap_or(i64::MAX);
    // An item of one step ends at its time, one of two steps begins at it.
    Some(match item.end_step {
        Some(_) => Interval { start: at, end: at.saturating_add(took) },
        None => Interval { start: at.saturating_sub(took), end: at },
    })
}

/// A scale on which long idle times are short.
struct TimeScale {
    /// Ends of pieces: real time, and position.
    pieces: Vec<(i64, f64)>,
    idle_times: u64,
    idle_micros: u64,
}

impl TimeScale {
    fn new(intervals: &[Interval]) -> Option<Self> {
        let mut sorted = intervals.to_vec();
        sorted.sort_by_key(|interval| interval.start);
        let first = sorted.first()?.start;
        // Merged into times in which something happened.
        let mut busy: Vec<Interval> = Vec::new();
        for interval in sorted {
            match busy.last_mut() {
                Some(last) if interval.start <= last.end => last.end = last.end.max(interval.end),
                _ => busy.push(interval),
            }
        }
        let length = |interval: &Interval| interval.end.saturating_sub(interval.start) as f64;
        let busy_time: f64 = busy.iter().map(length).sum();
        let gaps = busy.windows(2).map(|pair| pair[1].start.saturating_sub(pair[0].end) as f64);
        let all_idle: f64 = gaps.clone().sum();
        let limit = if busy_time > 0.0 { (busy_time * IDLE_SHARE).max(1e6) } else { all_idle.max(1.0) };
        let drawn_idle: f64 = gaps.map(|gap| gap.min(limit)).sum();
        let scale = WIDTH / (busy_time + drawn_idle).max(1.0);
        let (mut pieces, mut x, mut idle_times, mut idle_micros) = (vec![(first, 0.0)], 0.0, 0, 0u64);
        let mut before = first;
        for interval in &busy {
            let gap = interval.start.saturating_sub(before);
            if gap as f64 > limit {
                idle_times += 1;
                idle_micros = idle_micros.saturating_add(gap.unsigned_abs());
            }
            x += (gap as f64).min(limit) * scale;
            pieces.push((interval.start, x));
            x += length(interval) * scale;
            pieces.push((interval.end, x));
            before = interval.end;
        }
        Some(Self { pieces, idle_times, idle_micros })
    }

    fn position(&self, at: i64) -> f64 {
        let next = self.pieces.partition_point(|(time, _)| *time < at);
        let Some((to, x_to)) = self.pieces.get(next) else { return WIDTH };
        let Some((from, x_from)) = next.checked_sub(1).and_then(|before| self.pieces.get(before)) else {
            return *x_to;
        };
        let share = at.saturating_sub(*from) as f64 / (to.saturating_sub(*from) as f64).max(1.0);
        x_from + (x_to - x_from) * share
    }
}

/// Adds the drawing; nothing for a session with fewer than two items.
pub fn push(out: &mut String, items: &[NumberedItem<'_>]) {
    let mut timed: Vec<(usize, &RecordedItem, Interval)> = Vec::with_capacity(items.len());
    for (index, item) in items {
        let before = timed.last().map(|(_, _, before)| *before);
        timed.extend(interval(item, before).map(|interval| (*index, *item, interval)));
    }
    let is_inferred =
        |item: &RecordedItem| matches!(item.content, ItemContent::Answer(_)) && item.duration().is_none();
    let has_inferred = timed.iter().any(|(_, item, _)| is_inferred(item));
    let intervals: Vec<Interval> = timed.iter().map(|(_, _, interval)| *interval).collect();
    let Some(scale) = TimeScale::new(&intervals).filter(|_| timed.len() > 1) else { return };
    out.push_str("<figure class=\"timeline\">\n<svg viewBox=\"0 0 1000 76\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"The session over time\">\n");
    for y in &LANES[1..] {
        out.push_str(&format!("<rect class=\"lane\" x=\"0\" y=\"{y}\" width=\"1000\" height=\"16\"/>\n"));
    }
    // What is drawn at the same place is drawn once.
    let mut last_end = [f64::MIN; 4];
    let mut draw = |index: usize, item: &RecordedItem, lane: usize, class: &str, interval: Interval| {
        let x = scale.position(interval.start);
        let width = (scale.position(interval.end) - x).max(MIN_BAR);
        if x + width <= last_end[lane] + 0.25 && class != "bad" {
            return;
        }
        last_end[lane] = last_end[lane].max(x + width);
        let y = LANES[lane];
        out.push_str(&format!(
            "<a href=\"#i{index}\"><rect class=\"{class}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"16\"><title>"
        ));
        push_text(out, &describe(item));
        out.push_str("</title></rect></a>\n");
    };
    for (index, item, interval) in &timed {
        if let Some((lane, class)) = lane(item) {
            draw(*index, item, lane, class, *interval);
        }
        // A call that ends with a checkpoint has a mark of its own.
        if item.checkpoint.is_some() && !matches!(item.content, ItemContent::Event(_)) {
            draw(*index, item, MARKS, "mark", Interval { start: interval.end, end: interval.end });
        }
    }
    out.push_str("</svg>\n<figcaption><span class=\"key prompt\">prompts</span> <span class=\"key model\">model</span> <span class=\"key tool\">tools</span> <span class=\"key mark\">checkpoints, stops</span> <span class=\"key bad\">errors</span>");
    if has_inferred {
        out.push_str("<br>Where the duration of an answer was not recorded, it is drawn from the end of what stands above it.");
    }
    if scale.idle_times > 0 {
        out.push_str(&format!(
            "<br>{} without activity ({}) drawn shorter.",
            count(scale.idle_times, "period"),
            duration(Duration::from_micros(scale.idle_micros))
        ));
    }
    out.push_str("</figcaption>\n</figure>\n");
}

/// The lane of an item, and its class.
fn lane(item: &RecordedItem) -> Option<(usize, &'static str)> {
    let bad = item.is_error();
    match &item.content {
        ItemContent::Prompt(_) => Some((0, "prompt")),
        ItemContent::Answer(_) => Some((1, if bad { "bad" } else { "model" })),
        ItemContent::Call(_) => Some((2, if bad { "bad" } else { "tool" })),
        ItemContent::Event(_) if bad => Some((MARKS, "bad")),
        ItemContent::Event(event) => {
            use stepback_model::record::StepKind::{BreakpointHit, Gap, Rewind};
            let is_mark = item.checkpoint.is_some() || matches!(event.kind, BreakpointHit | Gap | Rewind);
            is_mark.then_some((MARKS, "mark"))
        }
    }
}

fn describe(item: &RecordedItem) -> String {
    let what = match &item.content {
        ItemContent::Prompt(text) => format!("prompt: {}", text.trim().lines().next().unwrap_or_default()),
        ItemContent::Answer(answer) => answer.model.clone().unwrap_or_else(|| "model".to_owned()),
        ItemContent::Call(call) => call.summary.clone(),
        ItemContent::Event(event) => event.summary.clone(),
    };
    let took = item.duration().map(|took| format!(", {}", duration(Duration::from_micros(took))));
    format!("{}{}", clip::first(&what, 80), took.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_drawn_shorter_and_time_never_goes_back() {
        let second = 1_000_000;
        let intervals = [
            Interval { start: 0, end: 10 * second },
            Interval { start: 3600 * second, end: 3610 * second },
            Interval { start: 5 * second, end: 8 * second },
        ];
        let scale = TimeScale::new(&intervals).unwrap();
        assert_eq!(scale.idle_times, 1);
        let places: Vec<f64> =
            [0, 10, 3600, 3605, 3610].iter().map(|at| scale.position(at * second)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(places[2] - places[1] < 60.0, "{places:?}");
        assert!((places[4] - WIDTH).abs() < 1e-6);
    }

    #[test]
    fn clocks_that_are_wrong_do_no_harm() {
        let scale =
            TimeScale::new(&[Interval { start: i64::MIN, end: i64::MAX }, Interval { start: 0, end: 0 }]);
        let x = scale.unwrap().position(5);
        assert!((0.0..=WIDTH).contains(&x));
        let scale = TimeScale::new(&[Interval { start: 7, end: 7 }, Interval { start: 7, end: 7 }]).unwrap();
        assert!(scale.position(7).is_finite());
        assert!(TimeScale::new(&[]).is_none());
    }
}
