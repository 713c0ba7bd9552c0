//! What goes wrong in sessions: one incident of each kind, in many variants, with noise between its calls.

use stepback_model::anomaly::AnomalyKind;

use super::builder::{SessionBuilder, TestCall, blank_call};

/// Adds an incident to a session.
pub type Incident = fn(&mut SessionBuilder, &Noise);

/// What is varied in all incidents.
pub struct Noise {
    /// How likely another call is between two of an incident.
    pub other_calls: f64,
    /// How many times as often as at the limit an incident repeats itself, at least and at most.
    pub length: (f64, f64),
}

/// The incidents of each kind, in variants.
pub const INCIDENTS: [(AnomalyKind, &[Incident]); 9] = [
    (AnomalyKind::Loop, &[same_call, same_cycle, failing_call]),
    (AnomalyKind::AlternatingEdits, &[alternating_edits, alternating_with_tests, alternating_states]),
    (AnomalyKind::GrowingRetries, &[growing_timeouts, growing_pauses, growing_inputs]),
    (AnomalyKind::ErrorBurst, &[errors]),
    (AnomalyKind::NoProgress, &[same_failure, two_failures]),
    (AnomalyKind::UndoneEdits, &[reset_edits, reverted_edits]),
    (AnomalyKind::SlowCall, &[slow_read, slow_build, slow_model]),
    (AnomalyKind::CostlyCall, &[costly_model]),
    (AnomalyKind::ContextGrowth, &[repeated_reads, unused_result]),
];

impl Noise {
    fn times(&self, builder: &mut SessionBuilder, limit: u64) -> u64 {
        let (from, to) = self.length;
        let factor = from + (to - from) * builder.random.unit();
        ((limit as f64 * factor).round() as u64).max(limit)
    }

    fn maybe_look(&self, builder: &mut SessionBuilder) {
        if builder.random.chance(self.other_calls) {
            builder.look();
        }
    }
}

fn same_call(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, output) = (builder.fresh(), builder.fresh());
    let tool = builder.random.pick(&["Grep", "Read", "Bash", "mcp__db__query"]);
    for _ in 0..noise.times(builder, 7) {
        let micros = builder.micros(40_000.0, 0.5);
        builder.call(&TestCall { tool, subject: "x".into(), input, output, micros, ..blank_call() });
        noise.maybe_look(builder);
    }
}

fn same_cycle(builder: &mut SessionBuilder, noise: &Noise) {
    let period = builder.random.range(2, 5);
    let calls: Vec<_> = (0..period).map(|_| (builder.fresh(), builder.fresh())).collect();
    for _ in 0..noise.times(builder, 5) {
        for (input, output) in &calls {
            builder.run("python", *input, *output, false, 60_000);
        }
        if builder.random.chance(noise.other_calls / 3.0) {
            builder.look();
        }
    }
}

fn failing_call(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, output) = (builder.fresh(), builder.fresh());
    for _ in 0..noise.times(builder, 7) {
        let micros = builder.micros(3e6, 0.05);
        builder.run("npm test", input, output, true, micros);
        noise.maybe_look(builder);
    }
}

fn alternating_edits(builder: &mut SessionBuilder, noise: &Noise) {
    let (there, back) = (builder.fresh(), builder.fresh());
    for round in 0..noise.times(builder, 4) {
        let state = builder.fresh();
        let (input, inverse) = if round % 2 == 0 { (there, back) } else { (back, there) };
        builder.edit_with("src/toggle.rs", input, inverse, state);
        noise.maybe_look(builder);
    }
}

fn alternating_with_tests(builder: &mut SessionBuilder, noise: &Noise) {
    let (there, back, input) = (builder.fresh(), builder.fresh(), builder.fresh());
    let failures = [builder.fresh(), builder.fresh()];
    for round in 0..noise.times(builder, 4) {
        let state = builder.fresh();
        let (edit, inverse) = if round % 2 == 0 { (there, back) } else { (back, there) };
        builder.edit_with("src/toggle.rs", edit, inverse, state);
        builder.run("cargo test", input, failures[round as usize % 2], true, 4_000_000);
        noise.maybe_look(builder);
    }
}

fn alternating_states(builder: &mut SessionBuilder, noise: &Noise) {
    let states = [builder.fresh(), builder.fresh()];
    for round in 0..noise.times(builder, 5) {
        let (input, output) = (builder.fresh(), builder.fresh());
        builder.call(&TestCall {
            tool: "Bash",
            subject: "sed".into(),
            input,
            output,
            state: Some(states[round as usize % 2]),
            ..blank_call()
        });
        noise.maybe_look(builder);
    }
}

fn growing_timeouts(builder: &mut SessionBuilder, noise: &Noise) {
    let factor = 1.4 + builder.random.unit() * 1.2;
    let mut micros = 10e6;
    for _ in 0..noise.times(builder, 4).min(9) {
        let (input, output) = (builder.fresh(), builder.fresh());
        let taken = (micros * builder.random.spread(0.03)) as u64;
        builder.run("make", input, output, true, taken);
        micros *= factor;
        noise.maybe_look(builder);
    }
}

fn growing_pauses(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, mut pause) = (builder.fresh(), 20_000_000);
    for _ in 0..noise.times(builder, 5).min(9) {
        let output = builder.fresh();
        builder.call(&TestCall {
            tool: "Bash",
            subject: "curl".into(),
            input,
            output,
            failed: true,
            pause,
            ..blank_call()
        });
        pause = pause * builder.random.range(20, 30) / 10;
    }
}

fn growing_inputs(builder: &mut SessionBuilder, noise: &Noise) {
    let mut size = 200.0;
    for _ in 0..noise.times(builder, 4).min(12) {
        let (input, output) = (builder.fresh(), builder.fresh());
        builder.call(&TestCall {
            tool: "Bash",
            subject: "python".into(),
            input,
            output,
            failed: true,
            input_bytes: size as u64,
            ..blank_call()
        });
        size *= 1.25 + builder.random.unit() * 0.5;
        noise.maybe_look(builder);
    }
}

fn errors(builder: &mut SessionBuilder, noise: &Noise) {
    let rate = 0.8 + builder.random.unit() * 0.2;
    for _ in 0..noise.times(builder, 10) {
        let (input, output) = (builder.fresh(), builder.fresh());
        let failed = builder.random.chance(rate);
        let program = builder.random.pick(&["python", "npm install", "git apply", "psql", "docker run"]);
        builder.run(program, input, output, failed, 400_000);
    }
}

fn same_failure(builder: &mut SessionBuilder, noise: &Noise) {
    let (input, output) = (builder.fresh(), builder.fresh());
    for _ in 0..noise.times(builder, 6) {
        for _ in 0..builder.random.range(1, 3) {
            let path = format!("src/module{}.rs", builder.random.range(0, 60));
            builder.edit(&path);
        }
        noise.maybe_look(builder);
        let micros = builder.micros(5e6, 0.3);
        builder.run("pytest", input, output, true, micros);
    }
}

fn two_failures(builder: &mut SessionBuilder, noise: &Noise) {
    let input = builder.fresh();
    let outputs = [builder.fresh(), builder.fresh()];
    for _ in 0..noise.times(builder, 8) {
        let path = format!("src/module{}.rs", builder.random.range(0, 60));
        builder.edit(&path);
        noise.maybe_look(builder);
        let output = builder.random.pick(&outputs);
        builder.run("pytest", input, output, true, 2_000_000);
    }
}

/// Some edits, then all files are put back by one command.
fn reset_edits(builder: &mut SessionBuilder, noise: &Noise) {
    let clean = builder.state;
    for _ in 0..noise.times(builder, 9) {
        let path = format!("src/module{}.rs", builder.random.range(0, 60));
        builder.edit(&path);
        noise.maybe_look(builder);
    }
    let input = builder.fresh();
    builder.call(&TestCall {
        tool: "Bash",
        subject: "git checkout".into(),
        input,
        output: 5,
        state: Some(clean),
        ..blank_call()
    });
}

/// Some edits, then each is taken back by another one; what builds leave behind makes every state a new one.
fn reverted_edits(builder: &mut SessionBuilder, noise: &Noise) {
    let mut edits = Vec::new();
    for _ in 0..noise.times(builder, 5).min(24) {
        let (path, there, back) =
            (format!("src/module{}.rs", builder.random.range(0, 60)), builder.fresh(), builder.fresh());
        let state = builder.fresh();
        builder.edit_with(&path, there, back, state);
        noise.maybe_look(builder);
        edits.push((path, there, back));
    }
    for (path, there, back) in edits.into_iter().rev() {
        let state = builder.fresh();
        builder.edit_with(&path, back, there, state);
        noise.maybe_look(builder);
    }
}

fn slow_read(builder: &mut SessionBuilder, noise: &Noise) {
    let factor = 10.0 * noise.times(builder, 10) as f64;
    let (input, output) = (builder.fresh(), builder.fresh());
    let micros = ((12_000.0 * factor) as u64).max(8_000_000);
    let subject = format!("mnt/{input}");
    builder.call(&TestCall { tool: "Read", subject, input, output, micros, ..blank_call() });
}

fn slow_build(builder: &mut SessionBuilder, noise: &Noise) {
    let micros = builder.micros(90e6, 0.2) * noise.times(builder, 12);
    let (input, output) = (builder.fresh(), builder.fresh());
    builder.run("bazel build", input, output, false, micros);
}

fn slow_model(builder: &mut SessionBuilder, noise: &Noise) {
    let times = noise.times(builder, 12);
    let call = builder.model_turn();
    let micros = (call.duration.unwrap() * times).max(60_000_000);
    call.duration = Some(micros);
    builder.wait(micros);
}

fn costly_model(builder: &mut SessionBuilder, noise: &Noise) {
    // A cache that is suddenly not used, in the middle of the work.
    let times = noise.times(builder, 9);
    builder.model_turn();
    let call = builder.model_turn();
    call.cost = Some((call.cost.unwrap() * times).max(300_000));
}

fn repeated_reads(builder: &mut SessionBuilder, noise: &Noise) {
    let files: Vec<String> =
        (0..builder.random.range(2, 6)).map(|file| format!("docs/big{file}.md")).collect();
    for round in 0..noise.times(builder, 14) {
        let file = builder.random.range(0, files.len() as u64 - 1) as usize;
        builder.read(&files[file], 3, 18_000 + 2_000 * file as u64);
        // So far apart that it is no loop, and with edits, which are of no use for what was read.
        for _ in 0..builder.random.range(2, 5) {
            builder.look();
        }
        if round % 3 == 0 {
            builder.edit("src/other.rs");
        }
        noise.maybe_look(builder);
    }
}

fn unused_result(builder: &mut SessionBuilder, noise: &Noise) {
    let bytes = 1024 * noise.times(builder, 130);
    let (input, output) = (builder.fresh(), builder.fresh());
    builder.call(&TestCall {
        tool: "Bash",
        subject: "journalctl".into(),
        input,
        output,
        output_bytes: bytes,
        ..blank_call()
    });
    for _ in 0..builder.random.range(24, 50) {
        builder.look();
    }
}
