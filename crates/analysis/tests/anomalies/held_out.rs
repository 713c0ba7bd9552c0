//! Shapes and incidents that no limit was chosen with: other programs, other proportions, other ways to go wrong.

use stepback_model::anomaly::AnomalyKind;

use super::builder::{SessionBuilder, TestCall, blank_call, hash};
use super::healthy::Shape;
use super::sick::{Incident, Noise};

/// Healthy shapes.
pub const SHAPES: [(&str, Shape); 7] = [
    ("a migration of a database", migration),
    ("writing documentation", documentation),
    ("bisecting a regression", bisecting),
    ("two sub-agents that read the same files", sub_agents),
    ("formatting after each edit", formatting),
    ("measuring a program", measuring),
    ("a deployment that takes long", deployment),
];

/// Incidents.
pub const INCIDENTS: [(AnomalyKind, &[Incident]); 9] = [
    (AnomalyKind::Loop, &[long_cycle, empty_search]),
    (AnomalyKind::AlternatingEdits, &[three_versions, rewritten_file]),
    (AnomalyKind::GrowingRetries, &[waiting_longer]),
    (AnomalyKind::ErrorBurst, &[refused_edits]),
    (AnomalyKind::NoProgress, &[compile_error]),
    (AnomalyKind::UndoneEdits, &[stashed]),
    (AnomalyKind::SlowCall, &[hanging_search]),
    (AnomalyKind::CostlyCall, &[costly_answers]),
    (AnomalyKind::ContextGrowth, &[same_log]),
];

fn migration(builder: &mut SessionBuilder) {
    for step in 0..builder.random.range(5, 25) {
        let file = format!("migrations/{step:04}.sql");
        builder.edit(&file);
        let input = hash("migrate up");
        for _ in 0..builder.random.range(0, 2) {
            let output = builder.fresh();
            let micros = builder.micros(2e6, 0.5);
            builder.run("sqlx migrate", input, output, true, micros);
            builder.edit(&file);
        }
        let micros = builder.micros(2e6, 0.5);
        builder.run("sqlx migrate", input, hash("migrated"), false, micros);
        let micros = builder.micros(40_000.0, 0.5);
        let output = builder.fresh();
        builder.run("psql", hash("\\d"), output, false, micros);
    }
}

fn documentation(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(15, 60) {
        let page = format!("docs/page{}.md", builder.random.range(0, 9));
        let (version, bytes) = (builder.state, builder.random.range(2_000, 30_000));
        builder.read(&page, version, bytes);
        builder.edit(&page);
        if builder.random.chance(0.2) {
            let micros = builder.micros(3e6, 0.3);
            builder.run("mkdocs build", hash("mkdocs"), hash("built"), false, micros);
        }
    }
}

/// The same test at other commits: the result is one of two.
fn bisecting(builder: &mut SessionBuilder) {
    let failure = builder.fresh();
    for _ in 0..builder.random.range(5, 12) {
        let (input, output, state) = (builder.fresh(), builder.fresh(), builder.fresh());
        builder.call(&TestCall {
            tool: "Bash",
            subject: "git checkout".into(),
            input,
            output,
            state: Some(state),
            ..blank_call()
        });
        let failed = builder.random.chance(0.5);
        let micros = builder.micros(8e6, 0.3);
        let output = if failed { failure } else { hash("ok") };
        builder.run("go test", hash("go test ./..."), output, failed, micros);
    }
}

fn sub_agents(builder: &mut SessionBuilder) {
    for worker in ["one", "two", "three"] {
        // Each sub-agent is started anew.
        let id = builder.fresh();
        builder.worker = builder.name(&format!("{worker}-{id}"));
        for file in 0..builder.random.range(8, 30) {
            builder.read(&format!("src/shared{file}.rs"), 1, 9_000);
        }
    }
    builder.worker = None;
}

fn formatting(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(8, 40) {
        let path = format!("lib/part{}.ts", builder.random.range(0, 8));
        builder.edit(&path);
        let state = builder.fresh();
        builder.call(&TestCall {
            tool: "Bash",
            subject: "prettier".into(),
            input: hash("prettier --write ."),
            output: hash("formatted"),
            state: Some(state),
            micros: 900_000,
            ..blank_call()
        });
    }
}

fn measuring(builder: &mut SessionBuilder) {
    let input = builder.fresh();
    for _ in 0..builder.random.range(5, 15) {
        let output = builder.fresh();
        let micros = builder.micros(12e6, 0.1);
        builder.run("hyperfine", input, output, false, micros);
    }
}

fn deployment(builder: &mut SessionBuilder) {
    let (waiting, done) = (builder.fresh(), builder.fresh());
    for _ in 0..builder.random.range(2, 8) {
        let micros = 20_000_000 + builder.micros(100_000.0, 0.4);
        builder.run("sleep", hash("sleep 20; kubectl get pods"), waiting, false, micros);
        builder.look();
    }
    builder.run("kubectl rollout", hash("rollout status"), done, false, 200_000);
}

/// Six or seven calls, again and again.
fn long_cycle(builder: &mut SessionBuilder, noise: &Noise) {
    let calls: Vec<_> = (0..builder.random.range(6, 7)).map(|_| (builder.fresh(), builder.fresh())).collect();
    for _ in 0..repetitions(builder, noise, 4) {
        for (input, output) in &calls {
            builder.run("php", *input, *output, false, 50_000);
        }
    }
}

/// A search that finds nothing, each time; the agent lists a directory in between.
fn empty_search(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, output) = (builder.fresh(), builder.fresh());
    for _ in 0..repetitions(builder, noise, 8) {
        builder.call(&TestCall {
            tool: "Grep",
            subject: "src".into(),
            input,
            output,
            failed: false,
            ..blank_call()
        });
        if builder.random.chance(noise.other_calls) {
            builder.look();
        }
    }
}

fn three_versions(builder: &mut SessionBuilder, noise: &Noise) {
    let states = [builder.fresh(), builder.fresh(), builder.fresh()];
    for round in 0..repetitions(builder, noise, 7) {
        let (input, inverse) = (builder.fresh(), builder.fresh());
        builder.edit_with("src/config.rs", input, inverse, states[round as usize % 3]);
    }
}

/// The same two contents are written in turn, while builds leave other files behind.
fn rewritten_file(builder: &mut SessionBuilder, noise: &Noise) {
    let inputs = [builder.fresh(), builder.fresh()];
    for round in 0..repetitions(builder, noise, 5) {
        let (output, state) = (builder.fresh(), builder.fresh());
        builder.call(&TestCall {
            tool: "Write",
            subject: "src/config.rs".into(),
            input: inputs[round as usize % 2],
            output,
            state: Some(state),
            ..blank_call()
        });
        let (input, output) = (builder.fresh(), builder.fresh());
        builder.run("cargo build", input, output, builder.random.clone().chance(0.4), 1_000_000);
    }
}

fn waiting_longer(builder: &mut SessionBuilder, noise: &Noise) {
    let mut seconds = 5.0;
    for _ in 0..repetitions(builder, noise, 4).min(10) {
        let (input, output) = (builder.fresh(), builder.fresh());
        let micros = (seconds * 1e6 * builder.random.spread(0.08)) as u64;
        builder.run("curl", input, output, true, micros);
        seconds *= 1.5;
        if builder.random.chance(noise.other_calls) {
            builder.look();
        }
    }
}

/// Edits whose text is not in the file.
fn refused_edits(builder: &mut SessionBuilder, noise: &Noise) {
    for _ in 0..repetitions(builder, noise, 9) {
        let (input, inverse, output) = (builder.fresh(), builder.fresh(), builder.fresh());
        let subject = format!("src/module{}.rs", builder.random.range(0, 5));
        let failed = builder.random.chance(0.88);
        builder.call(&TestCall { tool: "Edit", subject, input, inverse, output, failed, ..blank_call() });
    }
}

fn compile_error(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, output) = (builder.fresh(), builder.fresh());
    for _ in 0..repetitions(builder, noise, 7) {
        builder.edit("src/deep.rs");
        for _ in 0..builder.random.range(0, 4) {
            builder.look();
        }
        let micros = builder.micros(20e6, 0.6);
        builder.run("cargo check", input, output, true, micros);
    }
}

fn stashed(builder: &mut SessionBuilder, noise: &Noise) {
    let clean = builder.state;
    for _ in 0..repetitions(builder, noise, 10) {
        builder.edit("src/attempt.rs");
        if builder.random.chance(0.3) {
            let (input, output) = (builder.fresh(), builder.fresh());
            builder.run("pytest", input, output, true, 2_000_000);
        }
    }
    let input = builder.fresh();
    let state = Some(clean);
    builder.call(&TestCall { tool: "Bash", subject: "git restore".into(), input, state, ..blank_call() });
}

fn hanging_search(builder: &mut SessionBuilder, noise: &Noise) {
    let times = repetitions(builder, noise, 10);
    let (input, output) = (builder.fresh(), builder.fresh());
    builder.run("rg", input, output, false, 3_000_000 * times);
}

fn costly_answers(builder: &mut SessionBuilder, noise: &Noise) {
    let times = repetitions(builder, noise, 8);
    builder.model_turn();
    for _ in 0..3 {
        let call = builder.model_turn();
        call.cost = Some((call.cost.unwrap() * times).max(250_000));
    }
}

fn same_log(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, output) = (builder.fresh(), builder.fresh());
    for _ in 0..repetitions(builder, noise, 9) {
        builder.call(&TestCall {
            tool: "Bash",
            subject: "cat".into(),
            input,
            output,
            output_bytes: 24_000,
            ..blank_call()
        });
        builder.edit("src/other.rs");
        for _ in 0..builder.random.range(1, 3) {
            builder.look();
        }
    }
}

fn repetitions(builder: &mut SessionBuilder, noise: &Noise, least: u64) -> u64 {
    let (from, to) = noise.length;
    let factor = from + (to - from) * builder.random.unit();
    ((least as f64 * factor).round() as u64).max(least)
}
