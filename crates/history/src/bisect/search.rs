//! The search: which moment to try next, from the verdicts so far. It knows nothing of files or commands.

use std::collections::BTreeSet;

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeVerdict {
    /// The moment works.
    Good,
    /// The moment does not work.
    Bad,
    /// The probe could not decide.
    Skip,
}

/// A search between a good moment and a later bad one. Moments are numbered from 0.
#[derive(Clone, Debug)]
pub struct BisectSearch {
    good: usize,
    bad: usize,
    skipped: BTreeSet<usize>,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BisectResult {
    /// This moment is the first bad one.
    First(usize),
    /// One of these is the first bad one: probes of those in between could not decide.
    AnyOf(Vec<usize>),
}

impl BisectSearch {
    /// Starts a search between `good` and `bad`, whose verdicts are known.
    pub fn new(good: usize, bad: usize) -> Self {
        Self { good, bad, skipped: BTreeSet::new() }
    }

    /// Returns the moments to try next, at most `limit` at once; empty when the search is over.
    pub fn next(&self, limit: usize) -> Vec<usize> {
        let open: Vec<usize> =
            (self.good + 1..self.bad).filter(|moment| !self.skipped.contains(moment)).collect();
        let count = limit.max(1).min(open.len());
        // Evenly spread, so that each verdict rules out as many moments as possible.
        let mut chosen: Vec<usize> =
            (1..=count).filter_map(|part| open.get(part * open.len() / (count + 1)).copied()).collect();
        chosen.dedup();
        chosen
    }

    /// Adds the verdict of a probe.
    pub fn record_verdict(&mut self, moment: usize, verdict: ProbeVerdict) {
        match verdict {
            ProbeVerdict::Good => self.good = self.good.max(moment),
            ProbeVerdict::Bad => self.bad = self.bad.min(moment),
            ProbeVerdict::Skip => {
                self.skipped.insert(moment);
            }
        }
    }

    /// Returns how many moments are still undecided.
    pub fn remaining(&self) -> usize {
        (self.good + 1..self.bad).filter(|moment| !self.skipped.contains(moment)).count()
    }

    /// Returns the result, once [`Self::next`] returns no more moments.
    pub fn result(&self) -> BisectResult {
        match self.bad.saturating_sub(self.good) {
            0 | 1 => BisectResult::First(self.bad),
            _ => BisectResult::AnyOf((self.good + 1..=self.bad).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(len: usize, first_bad: usize, skip: &[usize], jobs: usize) -> (BisectResult, usize) {
        let mut search = BisectSearch::new(0, len - 1);
        let mut probes = 0;
        loop {
            let next = search.next(jobs);
            if next.is_empty() {
                return (search.result(), probes);
            }
            for moment in next {
                probes += 1;
                let verdict = match moment {
                    _ if skip.contains(&moment) => ProbeVerdict::Skip,
                    _ if moment >= first_bad => ProbeVerdict::Bad,
                    _ => ProbeVerdict::Good,
                };
                search.record_verdict(moment, verdict);
            }
        }
    }

    #[test]
    fn the_first_bad_moment_is_found_wherever_it_is() {
        for len in 2..60 {
            for first_bad in 1..len {
                for jobs in [1, 2, 3] {
                    let (found, probes) = run(len, first_bad, &[], jobs);
                    assert_eq!(found, BisectResult::First(first_bad), "{len} {first_bad} {jobs}");
                    assert!(jobs > 1 || probes <= len.ilog2() as usize + 1, "{probes} probes for {len}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_told_leaves_a_choice() {
        assert_eq!(run(10, 5, &[4, 5, 6], 1).0, BisectResult::AnyOf(vec![4, 5, 6, 7]));
        assert_eq!(run(10, 5, &[2], 1).0, BisectResult::First(5));
        assert_eq!(run(3, 1, &[1], 1).0, BisectResult::AnyOf(vec![1, 2]));
    }
}
