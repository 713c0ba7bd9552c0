//! Several real processes that write to one workspace, some of them killed in the middle: what was acknowledged is there, and
//! nothing is half there.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout};

use stepback_model::hash::ObjectKind;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::object::ObjectSource;
use stepback_postgres::PostgresStore;
use stepback_store::port::StepQuery;
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::process;
use stepback_testkit::sample::{Sample, append, noise};

/// Steps of one commit.
const STEPS: u64 = 20;
/// Processes at a time, and how many are killed.
const WRITERS: u64 = 3;
const KILLS: u64 = 9;

/// Not a test by itself: what each process does, until it is killed.
#[test]
fn writer() {
    let Some(task) = process::task() else { return };
    let [url, seed, session] = task.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let seed: u64 = seed.parse().unwrap();
    let session = SessionId::from_hex(session).unwrap();
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(url, local.path()).unwrap();
    let sample = Sample::new(seed);
    let mut out = std::io::stdout();
    for commit in 0.. {
        let batch = store.begin().unwrap();
        let steps: Vec<_> = (0..STEPS)
            .map(|at| {
                let bytes = noise(seed << 40 | commit << 8 | at, 1000);
                let mut step = sample.step(session, batch.write(ObjectKind::Blob, &bytes, None).unwrap());
                // Says which commit it belongs to.
                step.meta.call = Some(format!("{seed}-{commit}"));
                step
            })
            .collect();
        let ids: Vec<StepId> = steps.iter().map(|step| step.id).collect();
        let mutations: Vec<_> = steps.into_iter().map(append).collect();
        let numbers = store.commit(Some(batch.finish().unwrap()), &mutations).unwrap().steps;
        // In one write, so that a line is there or is not.
        let acknowledged: Vec<String> =
            ids.iter().zip(numbers).map(|(id, number)| format!("{id}:{number}")).collect();
        out.write_all(format!("\nacknowledged {}\n", acknowledged.join(" ")).as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

struct Writer {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Writer {
    fn start(url: &str, seed: u64, session: SessionId) -> Self {
        let mut child = process::spawn("writer", &format!("{url} {seed} {session}"));
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Reads what was acknowledged until there is some, or until the process is gone.
    fn acknowledged(&mut self, into: &mut HashMap<StepId, u64>) -> bool {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            let steps = line.strip_prefix("acknowledged ").filter(|_| line.ends_with('\n'));
            if let Some(steps) = steps {
                for step in steps.split_whitespace() {
                    let (id, number) = step.split_once(':').unwrap();
                    into.insert(StepId::from_hex(id).unwrap(), number.parse().unwrap());
                }
                return true;
            }
            line.clear();
        }
        false
    }

    fn kill(mut self, into: &mut HashMap<StepId, u64>) {
        self.child.kill().unwrap();
        while self.acknowledged(into) {}
        self.child.wait().unwrap();
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_there() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    let (workspace, session) = Sample::new(1).begin(&store, b"/w");
    let mut acknowledged = HashMap::new();
    let mut writers: Vec<Writer> =
        (0..WRITERS).map(|seed| Writer::start(&url, seed + 2, session.id)).collect();
    for kill in 0..KILLS {
        for writer in &mut writers {
            for _ in 0..=kill % 3 {
                assert!(writer.acknowledged(&mut acknowledged), "a process ended by itself");
            }
        }
        // Wherever it is: the others go on meanwhile.
        let unlucky = (kill % WRITERS) as usize;
        let next = Writer::start(&url, 100 + kill, session.id);
        std::mem::replace(&mut writers[unlucky], next).kill(&mut acknowledged);
    }
    for writer in writers {
        writer.kill(&mut acknowledged);
    }
    // Transactions of the dead end when the server notices; a commit of ours comes after them.
    Sample::new(50).append(&store, session.id, b"last");
    let steps = store.steps(workspace.id, &StepQuery { oldest_first: true, ..StepQuery::default() }).unwrap();
    assert!(steps.iter().map(|stored| stored.step.number).eq(1..=steps.len() as u64));
    let mut of_commit: HashMap<&str, u64> = HashMap::new();
    let mut found = HashMap::new();
    for stored in &steps {
        let step = &stored.step;
        found.insert(step.id, step.number);
        if let Some(call) = &step.meta.call {
            *of_commit.entry(call).or_default() += 1;
        }
        store.read(ObjectKind::Blob, step.state).unwrap();
    }
    let lost = acknowledged.iter().filter(|(id, number)| found.get(id) != Some(number)).count();
    assert_eq!(lost, 0, "of {} acknowledged steps", acknowledged.len());
    assert!(of_commit.values().all(|count| *count == STEPS), "a commit is half there");
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    eprintln!("{KILLS} kills: {} steps acknowledged, {} there", acknowledged.len(), steps.len() - 1);
}
