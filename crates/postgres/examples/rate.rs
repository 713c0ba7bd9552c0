//! How many durable steps a second: `rate URL [WRITERS]` appends batches of 100 steps with 1 KB each to an empty database.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made says so by ending")]

use std::time::Instant;

use stepback_model::hash::ObjectKind;
use stepback_postgres::PostgresStore;
use stepback_store::prelude::*;
use stepback_testkit::sample::{Sample, append, noise};

const BATCHES: u64 = 100;
const STEPS: u64 = 100;

fn main() {
    let url = std::env::args().nth(1).expect("the address of an empty database");
    let writers: u64 = std::env::args().nth(2).map_or(1, |text| text.parse().unwrap());
    let local = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&url, local.path()).unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let store = &store;
            scope.spawn(move || {
                let sample = Sample::new(writer + 1);
                let (_, session) = sample.begin(store, format!("/w{writer}").as_bytes());
                for number in 0..BATCHES {
                    let batch = store.begin().unwrap();
                    let mut steps = Vec::new();
                    for at in 0..STEPS {
                        let seed = (writer * BATCHES + number) * STEPS + at + 1;
                        let state = batch.write(ObjectKind::Blob, &noise(seed, 1024), None).unwrap();
                        steps.push(append(sample.step(session.id, state)));
                    }
                    store.commit(Some(batch.finish().unwrap()), &steps).unwrap();
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let steps = writers * BATCHES * STEPS;
    println!(
        "{steps} steps in {seconds:.2} s: {:.0} a second with {writers} writers",
        steps as f64 / seconds
    );
}
