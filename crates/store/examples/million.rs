//! How long it takes to find something in a store with a million steps.
//!
//! `cargo run --release -p stepback-store --example million -- DIR [STEPS [INDEXED]]` makes a store in DIR, if there is none,
//! asks the questions of a timeline and a query many times, indexes texts whose words are as unevenly spread as those of
//! people for so many of its steps, asks those of a search, and prints how long all of them took.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for measurements, not part of the product"
)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use stepback_model::hash::Hash;
use stepback_model::record::{Annotation, Session, Step, StepKind, StepMeta, Trigger};
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_model::time::Timestamp;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::{Mutation, SearchDocument, SearchRequest, SortKey, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::sample::Sample;
use stepback_testkit::tree::Draw;

const SESSIONS: usize = 500;
const WORDS: usize = 60_000;
/// Made a second before one another.
const START: i64 = 1_700_000_000_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("a directory");
    let steps: usize = arguments.next().map_or(1_000_000, |text| text.parse().unwrap());
    let indexed: usize = arguments.next().map_or(steps, |text| text.parse().unwrap());
    let dir = Path::new(&dir);
    let is_new = !dir.exists();
    let store = EmbeddedStore::open(dir).unwrap();
    if is_new {
        fill(&store, steps);
    }
    ask(&store);
    index(&store, indexed);
    look(&store);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    for line in status.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS")) {
        println!("{line}");
    }
}

/// The n-th most common word: short ones first, like `fn`, `parse_12` or `handler4711`.
fn word(rank: usize) -> String {
    const COMMON: &[&str] = &[
        "the", "a", "to", "of", "let", "self", "fn", "in", "is", "error", "and", "file", "test", "for", "src",
    ];
    const STEMS: &[&str] = &[
        "parse", "token", "buffer", "handler", "index", "session", "commit", "branch", "config", "socket",
        "render", "query", "cache", "worker", "stream", "decode",
    ];
    match COMMON.get(rank) {
        Some(word) => (*word).to_string(),
        None => format!("{}{}", STEMS[rank % STEMS.len()], rank / STEMS.len()),
    }
}

/// A rank by Zipf's law.
fn rank(draw: &mut Draw) -> usize {
    let uniform = (draw.number() % 1_000_000) as f64 / 1_000_000.0;
    (WORDS as f64).powf(uniform) as usize - 1
}

fn text(draw: &mut Draw) -> String {
    let mut text = String::new();
    for at in 0..10 + draw.below(60) {
        let joint = match at % 9 {
            0 => "\n    ",
            4 => "(&mut ",
            5 => "::",
            7 => ", ",
            _ => " ",
        };
        text.push_str(joint);
        text.push_str(&word(rank(draw)));
    }
    text
}

fn fill(store: &EmbeddedStore, steps: usize) {
    let began = Instant::now();
    let sample = Sample::new(1);
    let (workspace, _) = sample.begin(store, b"/million");
    let sessions: Vec<Session> = (0..SESSIONS)
        .map(|at| Session {
            agent: ["claude", "codex", "gemini"][at % 3].into(),
            ..sample.session(workspace.id)
        })
        .collect();
    let add: Vec<Mutation> = sessions.iter().cloned().map(Mutation::AddSession).collect();
    store.commit(None, &add).unwrap();
    let mut draw = Draw::new(1);
    let kinds = [StepKind::ToolStart, StepKind::ToolEnd, StepKind::ModelEnd, StepKind::UserInput];
    for from in (0..steps).step_by(5000) {
        let mutations: Vec<Mutation> = (from..steps.min(from + 5000))
            .map(|at| {
                let session = &sessions[at * SESSIONS / steps];
                let kind = kinds[at % 4];
                let facts = StepMeta {
                    iteration: (at % 2000) as u64 / 20,
                    tool: Some(["Bash", "Edit", "Read"][draw.below(3)].into()),
                    call: Some(format!("call-{}", at / 2)),
                    failed: draw.once_in(50),
                    duration: Some(draw.below(5_000_000) as u64),
                    ..StepMeta::default()
                };
                let step = Step {
                    kind,
                    at: Timestamp::from_micros(START + at as i64 * 1_000_000),
                    summary: format!("{} {}", kind.as_str(), word(rank(&mut draw))),
                    meta: facts,
                    ..sample.step(session.id, Hash::from_bytes([(at % 251) as u8; 32]))
                };
                let is_checkpoint = at % 10 == 1;
                Mutation::AppendStep {
                    step,
                    annotation: Annotation::default(),
                    trigger: is_checkpoint.then_some(Trigger::Automatic),
                }
            })
            .collect();
        store.commit(None, &mutations).unwrap();
    }
    println!("{steps} steps written in {:.1} s", began.elapsed().as_secs_f64());
}

fn index(store: &EmbeddedStore, most: usize) {
    let began = Instant::now();
    let (mut count, mut bytes) = (0, 0);
    let mut draw = Draw::new(2);
    loop {
        let steps = store.unindexed(2000).unwrap();
        if steps.is_empty() || count >= most {
            break;
        }
        let documents: Vec<SearchDocument> = steps
            .into_iter()
            .map(|stored| {
                let output = text(&mut draw);
                bytes += output.len();
                let texts = Texts::from([
                    (TextField::Output, output),
                    (TextField::Summary, stored.step.summary.clone()),
                ]);
                SearchDocument { stored, texts }
            })
            .collect();
        count += documents.len();
        store.index(&documents).unwrap();
        if count % 100_000 == 0 {
            println!("  {count} indexed after {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    if count > 0 {
        let seconds = began.elapsed().as_secs_f64();
        println!("{count} steps with {} MB of text indexed in {seconds:.1} s", bytes >> 20);
    }
}

/// Runs `work` many times; prints the middle, the 99th of a hundred and the longest.
fn time(name: &str, times: usize, mut work: impl FnMut(usize) -> u64) {
    let mut took = Vec::with_capacity(times);
    let mut found = 0;
    for at in 0..times {
        let began = Instant::now();
        found = work(at);
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    println!(
        "{name:<44} p50 {:>8.2} ms  p99 {:>8.2} ms  max {:>8.2} ms  ({found})",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// How often each question is asked.
const TIMES: usize = 100;

fn ask(store: &EmbeddedStore) {
    let workspace = store.workspaces().unwrap()[0].id;
    let sessions = store.sessions(workspace).unwrap();
    let all = || StepQuery { limit: Some(100), ..StepQuery::default() };
    let page = |query: &StepQuery| store.find(Some(workspace), query).unwrap().total;
    time("timeline page of a session", TIMES, |at| {
        let session = sessions[1 + at * 7 % SESSIONS].id;
        let query = StepQuery { session: Some(session), oldest_first: true, after: Some(50), ..all() };
        store.steps(workspace, &query).unwrap().len() as u64
    });
    time("one step by its number", TIMES, |at| {
        u64::from(store.step_numbered(workspace, 1 + at as u64 * 9973).unwrap().is_some())
    });
    time("query: newest", TIMES, |_| page(&all()));
    time("query: one session", TIMES, |at| page(&StepQuery { session: Some(sessions[1 + at].id), ..all() }));
    time("query: one kind", TIMES, |_| page(&StepQuery { kinds: vec![StepKind::ToolEnd], ..all() }));
    time("query: a kind that is not there", TIMES, |_| {
        page(&StepQuery { kinds: vec![StepKind::Gap], ..all() })
    });
    time("query: errors", TIMES, |_| page(&StepQuery { failed: Some(true), ..all() }));
    time("query: tool and agent", TIMES, |_| {
        page(&StepQuery { tool: Some("bash".into()), agent: Some("codex".into()), ..all() })
    });
    time("query: a tool that is not there", TIMES, |_| {
        page(&StepQuery { tool: Some("nope".into()), ..all() })
    });
    time("query: an hour", TIMES, |at| {
        let since = START + at as i64 * 9_000_000_000;
        let [since, until] = [since, since + 3_600_000_000].map(|at| Some(Timestamp::from_micros(at)));
        page(&StepQuery { since, until, ..all() })
    });
    time("query: longest", TIMES, |_| page(&StepQuery { by: SortKey::Duration, ..all() }));
    time("query: latest", TIMES, |_| page(&StepQuery { by: SortKey::Time, ..all() }));
    time("query: one call", TIMES, |at| {
        page(&StepQuery { call: Some(format!("call-{}", at * 4001)), ..all() })
    });
    time("query: a label", TIMES, |_| page(&StepQuery { label: Some("none".into()), ..all() }));
    time("query: checkpoints", TIMES, |_| {
        page(&StepQuery { checkpoint: Some(true), hidden: Some(false), ..all() })
    });
    time("query: everywhere", TIMES, |_| store.find(None, &all()).unwrap().total);
}

fn look(store: &EmbeddedStore) {
    let workspace = store.workspaces().unwrap()[0].id;
    let sessions = store.sessions(workspace).unwrap();
    let look = |pattern: Pattern, among: StepQuery| {
        store.search(&SearchRequest { among, ..SearchRequest::new(pattern, 20) }).unwrap().total
    };
    let words = |text: &str| Pattern::words(text).unwrap();
    let any = StepQuery::default;
    time("search: a rare word", TIMES, |at| look(words(&word(30_000 + at * 100)), any()));
    time("search: a word of the middle", TIMES, |at| look(words(&word(300 + at * 3)), any()));
    time("search: the commonest word", TIMES, |_| look(words("the"), any()));
    time("search: two common words", TIMES, |_| look(words("error file"), any()));
    time("search: a common and a rare word", TIMES, |at| {
        look(words(&format!("the {}", word(20_000 + at * 50))), any())
    });
    time("search: a phrase", TIMES, |_| look(words("\"the error\""), any()));
    time("search: a beginning", TIMES, |_| look(words("parse1*"), any()));
    time("search: common without common", TIMES, |_| look(words("the -a"), any()));
    time("search: common in one session", TIMES, |at| {
        look(words("the"), StepQuery { session: Some(sessions[1 + at].id), ..any() })
    });
    time("search: common in errors of an agent", TIMES, |_| {
        look(words("the"), StepQuery { failed: Some(true), agent: Some("codex".into()), ..any() })
    });
    time("search: common, newest first", TIMES, |_| {
        store.search(&SearchRequest { ranked: false, ..SearchRequest::new(words("the"), 20) }).unwrap().total
    });
    time("search: page 50 of a common word", TIMES, |_| {
        store.search(&SearchRequest { skip: 1000, ..SearchRequest::new(words("the"), 20) }).unwrap().total
    });
    let substring = |text: &str| Pattern::substring(text).unwrap();
    time("substring: rare", TIMES, |at| look(substring(&format!("er{}(&", 900 + at)), any()));
    time("substring: common", TIMES, |_| look(substring("(&mut"), any()));
    time("substring: not there", TIMES, |_| look(substring("qqqzzz"), any()));
    time("substring: common parts, not there", TIMES, |_| look(substring("(&mut error::the (&mut"), any()));
    time("substring: two characters", TIMES, |_| look(substring("::"), any()));
    time("substring: two characters, not there", 5, |_| look(substring("%%"), any()));
}
