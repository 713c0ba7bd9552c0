//! How long questions take when there is much to look through: `scale URL STEPS` fills an empty database with steps and their
//! texts (or uses what an earlier run left there), then asks many different questions of each kind.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made says so by ending")]

use std::time::Instant;

use stepback_model::hash::Hash;
use stepback_model::ids::WorkspaceId;
use stepback_model::record::{Annotation, Session, Step, StepKind, StepMeta};
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_model::time::Timestamp;
use stepback_postgres::PostgresStore;
use stepback_store::port::{Mutation, SearchDocument, SearchRequest, SortKey, StepQuery};
use stepback_store::prelude::*;
use stepback_testkit::sample::Sample;

const WORKSPACES: u64 = 10;
const SESSIONS: u64 = 20;
const ASKED: u64 = 300;
const KINDS: [StepKind; 5] =
    [StepKind::ModelStart, StepKind::ToolStart, StepKind::ToolEnd, StepKind::ModelEnd, StepKind::Error];
const TOOLS: [&str; 5] = ["Bash", "Edit", "Read", "Write", "Grep"];

/// A number that looks random.
fn mixed(seed: u64) -> u64 {
    let seed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (seed ^ (seed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}

/// A word of which a few are frequent and most are rare.
fn word(seed: u64) -> String {
    let rank = 50_000f64.powf((mixed(seed) % 10_000) as f64 / 10_000.0) as u64;
    format!("w{:x}", mixed(rank) % 0xfff_ffff)
}

fn text(seed: u64) -> String {
    (0..60).map(|index| word(seed * 64 + index)).collect::<Vec<_>>().join(" ")
}

fn fill(store: &PostgresStore, steps: u64) {
    let sample = Sample::new(1);
    let mut sessions = Vec::new();
    for number in 0..WORKSPACES {
        let (workspace, first) = sample.begin(store, format!("/w{number}").as_bytes());
        sessions.push(first);
        for other in 1..SESSIONS {
            let agent = ["claude-code", "codex", "gemini"][other as usize % 3].to_string();
            let session = Session { agent, ..sample.session(workspace.id) };
            store.commit(None, &[Mutation::AddSession(session.clone())]).unwrap();
            sessions.push(session);
        }
    }
    let started = Instant::now();
    for batch in 0..steps / 500 {
        let session = &sessions[(mixed(batch) % (WORKSPACES * SESSIONS)) as usize];
        let step = |number: u64| {
            let seed = batch * 500 + number + 1;
            let kind = KINDS[(mixed(seed) % 41).min(4 * 10) as usize / 10];
            let tool = matches!(kind, StepKind::ToolStart | StepKind::ToolEnd);
            let meta = StepMeta {
                tool: tool.then(|| TOOLS[(mixed(seed + 1) % 5) as usize].to_string()),
                call: tool.then(|| format!("call_{:x}", seed / 2)),
                failed: mixed(seed).is_multiple_of(97),
                duration: tool.then(|| mixed(seed) % 5_000_000),
                ..StepMeta::default()
            };
            let state = Hash::of(stepback_model::hash::ObjectKind::Blob, &(seed / 8).to_le_bytes());
            let time = Timestamp::from_micros(1_700_000_000_000_000 + seed as i64 * 1000);
            let step = Step { kind, meta, at: time, ..sample.step(session.id, state) };
            Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None }
        };
        store.commit(None, &(0..500).map(step).collect::<Vec<_>>()).unwrap();
    }
    println!("{steps} steps in {:.1} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let mut indexed = 0;
    loop {
        let steps = store.unindexed(400).unwrap();
        if steps.is_empty() {
            break;
        }
        let documents: Vec<SearchDocument> = (steps.into_iter())
            .map(|stored| {
                let seed = u64::from_le_bytes(stored.step.id.as_bytes()[..8].try_into().unwrap());
                SearchDocument { stored, texts: Texts::from([(TextField::Output, text(seed >> 8))]) }
            })
            .collect();
        indexed += documents.len();
        store.index(&documents).unwrap();
    }
    println!("{indexed} texts in {:.1} s", started.elapsed().as_secs_f64());
}

/// Asks so many times, and prints how long that took.
fn ask(label: &str, query: impl Fn(u64) -> u64) {
    let mut times = Vec::new();
    let mut total = 0;
    for number in 0..ASKED {
        let started = Instant::now();
        total += query(mixed(number + 7));
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let number = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!(
        "{label:34} p50 {:7.2} ms  p99 {:7.2} ms  max {:7.2} ms  ({} found on average)",
        number(0.5),
        number(0.99),
        number(1.0),
        total / ASKED
    );
}

fn main() {
    let url = std::env::args().nth(1).expect("the address of a database");
    let steps: u64 = std::env::args().nth(2).map_or(1_000_000, |text| text.parse().unwrap());
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    if store.workspaces().unwrap().is_empty() {
        fill(&store, steps);
        println!("now \"VACUUM ANALYZE\", which the server does by itself after a while, and run this again");
        return;
    }
    let workspaces: Vec<WorkspaceId> =
        store.workspaces().unwrap().iter().map(|workspace| workspace.id).collect();
    let pick = |seed: u64| workspaces[seed as usize % workspaces.len()];
    let first = |query: StepQuery| StepQuery { limit: Some(50), ..query };
    let count_one = |seed: u64, query: StepQuery| store.find(Some(pick(seed)), &first(query)).unwrap().total;
    let count_all = |query: StepQuery| store.find(None, &first(query)).unwrap().total;
    ask("timeline, newest", |seed| count_one(seed, StepQuery::default()));
    ask("timeline, anywhere", |seed| {
        let before = Some(mixed(seed) % (steps / WORKSPACES) + 1);
        store.steps(pick(seed), &StepQuery { before, limit: Some(50), ..StepQuery::default() }).unwrap().len()
            as u64
    });
    ask("timeline, with a cursor", |seed| {
        let middle = StepQuery { before: Some(steps / WORKSPACES / 2), ..StepQuery::default() };
        let from = store.find(Some(pick(seed)), &first(middle)).unwrap().next;
        count_one(seed, StepQuery { from, ..StepQuery::default() })
    });
    ask("all workspaces, newest", |_| count_all(StepQuery::default()));
    ask("one step by its number", |seed| {
        u64::from(store.step_numbered(pick(seed), mixed(seed) % (steps / 20) + 1).unwrap().is_some())
    });
    let tool =
        |seed: u64| StepQuery { tool: Some(TOOLS[seed as usize % 5].to_lowercase()), ..StepQuery::default() };
    ask("by tool", |seed| count_one(seed, tool(seed)));
    ask("by tool, everywhere", |seed| count_all(tool(seed)));
    ask("by kind", |seed| {
        count_one(seed, StepQuery { kinds: vec![KINDS[seed as usize % 5]], ..StepQuery::default() })
    });
    ask("errors, everywhere", |_| {
        count_all(StepQuery { kinds: vec![StepKind::Error], ..StepQuery::default() })
    });
    ask("failed calls of a tool", |seed| count_one(seed, StepQuery { failed: Some(true), ..tool(seed) }));
    ask("of an agent", |seed| {
        count_one(seed, StepQuery { agent: Some("codex".into()), ..StepQuery::default() })
    });
    let hour = |seed: u64| {
        let at = 1_700_000_000_000_000 + (mixed(seed) % steps) as i64 * 1000;
        let time = Timestamp::from_micros;
        StepQuery {
            since: Some(time(at)),
            until: Some(time(at + 60_000_000)),
            by: SortKey::Time,
            ..StepQuery::default()
        }
    };
    ask("of a minute", |seed| count_one(seed, hour(seed)));
    ask("of a minute, everywhere", |seed| count_all(hour(seed)));
    ask("longest first", |seed| count_one(seed, StepQuery { by: SortKey::Duration, ..StepQuery::default() }));
    ask("longest first, everywhere", |_| {
        count_all(StepQuery { by: SortKey::Duration, ..StepQuery::default() })
    });
    ask("at least so long", |seed| {
        count_one(
            seed,
            StepQuery { min_duration: Some(4_900_000), by: SortKey::Duration, ..StepQuery::default() },
        )
    });
    ask("with a state", |seed| {
        let state =
            Hash::of(stepback_model::hash::ObjectKind::Blob, &(mixed(seed) % (steps / 8)).to_le_bytes());
        count_all(StepQuery { state: Some(state), ..StepQuery::default() })
    });
    ask("tally", |seed| store.tally(pick(seed)).unwrap().len() as u64);
    let look = |text: &str| SearchRequest::new(Pattern::words(text).unwrap(), 20);
    ask("search, one word", |seed| store.search(&look(&word(seed))).unwrap().total);
    ask("search, two words", |seed| {
        store.search(&look(&format!("{} {}", word(seed), word(seed + 1)))).unwrap().total
    });
    ask("search, the most frequent word", |_| {
        store.search(&look(&format!("w{:x}", mixed(1) % 0xfff_ffff))).unwrap().total
    });
    ask("search, a phrase", |seed| {
        let words = (word(seed), word(seed + 1));
        store.search(&look(&format!("\"{} {}\"", words.0, words.1))).unwrap().total
    });
    ask("search, a beginning", |seed| store.search(&look(&format!("{}*", &word(seed)[..5]))).unwrap().total);
    ask("search, one word in a workspace", |seed| {
        store.search(&SearchRequest { workspace: Some(pick(seed)), ..look(&word(seed)) }).unwrap().total
    });
    ask("search, a substring", |seed| {
        store.search(&SearchRequest::new(Pattern::substring(&word(seed)[1..]).unwrap(), 20)).unwrap().total
    });
}
