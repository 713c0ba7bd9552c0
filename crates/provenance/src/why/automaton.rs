//! The suffix automaton of the words of a change, which finds the longest runs that a text shares with it in one pass.

use std::collections::HashMap;

use super::words::WordId;

/// The suffix automaton of a sequence of words: it knows every run of words in it.
pub(super) struct Automaton {
    states: Vec<AutomatonState>,
}

struct AutomatonState {
    next: HashMap<WordId, u32>,
    link: Option<u32>,
    length: usize,
    /// Where in the sequence a run of this state ends first.
    end: usize,
}

/// A place in the automaton.
#[derive(Clone, Copy, Default)]
pub(super) struct Walk {
    state: u32,
    /// How many words match up to here.
    pub(super) length: usize,
}

impl Automaton {
    pub(super) fn new(words: impl Iterator<Item = WordId>) -> Self {
        let root = AutomatonState { next: HashMap::new(), link: None, length: 0, end: 0 };
        let mut automaton = Self { states: vec![root] };
        let mut last = 0;
        for (at, word) in words.enumerate() {
            last = automaton.add(last, word, at);
        }
        automaton
    }

    fn push(&mut self, state: AutomatonState) -> u32 {
        self.states.push(state);
        u32::try_from(self.states.len() - 1).unwrap_or(u32::MAX)
    }

    /// Appends a word after the state of the whole sequence so far; returns the state of the longer one.
    fn add(&mut self, last: u32, word: WordId, at: usize) -> u32 {
        let length = self.states[last as usize].length + 1;
        let new = self.push(AutomatonState { next: HashMap::new(), link: Some(0), length, end: at });
        let mut from = Some(last);
        while let Some(state) = from {
            match self.states[state as usize].next.get(&word).copied() {
                None => {
                    self.states[state as usize].next.insert(word, new);
                    from = self.states[state as usize].link;
                }
                Some(target) => {
                    let link = self.split(state, target, word);
                    self.states[new as usize].link = Some(link);
                    return new;
                }
            }
        }
        new
    }

    /// The state that a new state links to, which is `target` or the part of it that `state` reaches by `word`.
    fn split(&mut self, state: u32, target: u32, word: WordId) -> u32 {
        let length = self.states[state as usize].length + 1;
        let old = &self.states[target as usize];
        if old.length == length {
            return target;
        }
        let copy = AutomatonState { next: old.next.clone(), link: old.link, length, end: old.end };
        let copy = self.push(copy);
        self.states[target as usize].link = Some(copy);
        let mut from = Some(state);
        while let Some(state) = from {
            match self.states[state as usize].next.get_mut(&word) {
                Some(next) if *next == target => *next = copy,
                _ => break,
            }
            from = self.states[state as usize].link;
        }
        copy
    }

    /// Goes on by a word of a text; `None` is a word that the sequence does not have.
    pub(super) fn advance(&self, walk: &mut Walk, word: Option<WordId>) {
        let Some(word) = word else {
            *walk = Walk::default();
            return;
        };
        loop {
            let state = &self.states[walk.state as usize];
            if let Some(next) = state.next.get(&word) {
                *walk = Walk { state: *next, length: walk.length + 1 };
                return;
            }
            match state.link {
                Some(link) => *walk = Walk { state: link, length: self.states[link as usize].length },
                None => {
                    *walk = Walk::default();
                    return;
                }
            }
        }
    }

    /// The index of the last word of the present run, where it stands in the sequence first.
    pub(super) fn end_of(&self, walk: &Walk) -> Option<usize> {
        (walk.length > 0).then(|| self.states[walk.state as usize].end)
    }
}
