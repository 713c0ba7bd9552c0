//! Deterministic made-up content: a tiny random generator, and text that looks and compresses like source.
//!
//! Benchmarks must build the same tree on every machine and in every year, so nothing here depends on a
//! library whose sequence could change.

/// SplitMix64: small, fast, and good enough for content and choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for one purpose; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: f64) -> bool {
        self.unit() * 100.0 < percent
    }

    /// A number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Roughly normal around 0 with deviation 1: the sum of twelve uniform numbers.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// One element of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Bytes that do not compress.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

const WORDS: &[&str] = &[
    "account", "batch", "buffer", "cache", "channel", "client", "column", "config", "context", "cursor",
    "decode", "device", "digest", "domain", "driver", "encode", "entry", "event", "export", "field",
    "filter", "format", "frame", "handle", "header", "import", "index", "input", "label", "layer", "limit",
    "loader", "logger", "map", "merge", "message", "metric", "model", "node", "notify", "object", "offset",
    "option", "output", "packet", "parse", "path", "plugin", "pool", "query", "queue", "range", "reader",
    "record", "region", "render", "reply", "request", "resolve", "result", "route", "schema", "scope",
    "server", "session", "signal", "socket", "source", "state", "stream", "table", "target", "task", "token",
    "trace", "tree", "update", "user", "value", "vector", "view", "window", "worker", "writer",
];

/// A lower-case name of one to three words.
pub fn name(random: &mut Random) -> String {
    let mut name = (*random.pick(WORDS)).to_owned();
    for _ in 0..random.below(3) {
        name.push('_');
        let word: &&str = random.pick(WORDS);
        name.push_str(word);
    }
    name
}

/// Source-like text of about `size` bytes.
pub fn source(random: &mut Random, size: usize) -> Vec<u8> {
    let mut text = String::with_capacity(size + 160);
    // A file uses mostly a few names of its own, which is what makes real source compress well.
    let vocabulary: Vec<String> = (0..6 + size / 400).map(|_| name(random)).collect();
    while text.len() < size {
        write_function(random, &vocabulary, &mut text);
    }
    text.into_bytes()
}

fn write_function(random: &mut Random, vocabulary: &[String], text: &mut String) {
    use std::fmt::Write;
    let (a, b, c) = (random.pick(vocabulary), random.pick(vocabulary), random.pick(vocabulary));
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "/// Takes the {} of a {} and gives the {}.",
        with_spaces(a),
        with_spaces(b),
        with_spaces(c)
    );
    let _ = writeln!(
        text,
        "pub fn {a}_{b}({c}: &{}, size: usize) -> Result<{}> {{",
        to_camel_case(b),
        to_camel_case(a)
    );
    for _ in 0..3 + random.below(12) {
        let (x, y, number) = (random.pick(vocabulary), random.pick(vocabulary), random.below(10_000));
        let _ = match random.below(6) {
            0 => writeln!(text, "    let {x} = {c}.{y}(size + {number})?;"),
            1 => writeln!(
                text,
                "    if {x}.is_empty() || {y} > {number} {{\n        return Err({}::new());\n    }}",
                to_camel_case(y)
            ),
            2 => writeln!(
                text,
                "    for {x} in {y}.iter().skip({number}) {{\n        {c}.push({x}.clone());\n    }}"
            ),
            3 => {
                writeln!(
                    text,
                    "    // The {} needs the {} before {number:x} is read.",
                    with_spaces(x),
                    with_spaces(y)
                )
            }
            4 => writeln!(text, "    {x}.insert(\"{y}-{:016x}\", {number});", random.next()),
            _ => writeln!(text, "    assert_eq!({x}.{y}(), {number}, \"{} differs\");", with_spaces(y)),
        };
    }
    let _ = writeln!(text, "    Ok({}::from({c}))\n}}\n", to_camel_case(a));
}

fn with_spaces(name: &str) -> String {
    name.replace('_', " ")
}

fn to_camel_case(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_content() {
        let make = |seed| source(&mut Random::new(seed), 5_000);
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert!((5_000..7_000).contains(&make(3).len()));
    }

    #[test]
    fn numbers_stay_in_their_range_and_spread() {
        let mut random = Random::new(7);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[random.below(10)] += 1;
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert!((0..1_000).map(|_| random.normal()).sum::<f64>().abs() < 150.0);
    }
}
