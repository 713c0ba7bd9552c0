//! Sessions in which nothing is wrong, though some repeat themselves, fail for a while, wait, or undo a few edits.

use super::builder::{SessionBuilder, TestCall, blank_call, hash};

/// A shape of a healthy stretch of work.
pub type Shape = fn(&mut SessionBuilder);

/// The shapes that limits were chosen with.
pub const SHAPES: [(&str, Shape); 14] = [
    ("test loop that makes progress", test_loop),
    ("waiting for a build with changing output", poll_changing),
    ("waiting for a build with one output", poll_silent),
    ("reading a code base", research),
    ("reading files again after edits", read_after_edit),
    ("slow and steady tools", slow_tools),
    ("builds that are fast or slow", twofold_builds),
    ("a large refactoring", refactoring),
    ("debug prints that go again", debug_prints),
    ("retries of a flaky network", flaky_network),
    ("mutation testing", mutation_testing),
    ("exploring with some failures", exploration),
    ("looking at the same status", status_checks),
    ("pauses of the user", pauses),
];

fn path(builder: &mut SessionBuilder) -> String {
    format!("src/module{}.rs", builder.random.range(0, 60))
}

/// A test that fails until edits repair it; two or three attempts in a row may fail in the same way.
fn test_loop(builder: &mut SessionBuilder) {
    let input = builder.fresh();
    let mut failure = builder.fresh();
    let mut same = 0;
    for _ in 0..builder.random.range(6, 40) {
        for _ in 0..builder.random.range(1, 3) {
            let path = path(builder);
            if builder.random.chance(0.5) {
                let version = builder.fresh();
                builder.read(&path, version, 4000);
            }
            builder.edit(&path);
        }
        if same >= 2 || builder.random.chance(0.65) {
            failure = builder.fresh();
            same = 0;
        } else {
            same += 1;
        }
        let failed = builder.random.chance(0.8);
        let micros = builder.micros(6e6, 0.4);
        let output = if failed { failure } else { hash("ok") };
        builder.run("cargo test", input, output, failed, micros);
    }
}

fn poll_changing(builder: &mut SessionBuilder) {
    let input = builder.fresh();
    for _ in 0..builder.random.range(5, 40) {
        let output = builder.fresh();
        let pause = builder.random.range(0, 20_000_000);
        let micros = builder.micros(30_000.0, 0.5);
        builder.call(&TestCall {
            tool: "BashOutput",
            subject: "build".into(),
            input,
            output,
            output_bytes: 500,
            pause,
            micros,
            ..blank_call()
        });
    }
    builder.look();
}

fn poll_silent(builder: &mut SessionBuilder) {
    let (input, output) = (builder.fresh(), builder.fresh());
    for _ in 0..builder.random.range(4, 16) {
        let micros = 30_000_000 + builder.micros(200_000.0, 0.5);
        builder.run("sleep", input, output, false, micros);
    }
}

fn research(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(20, 70) {
        let file = format!("src/part{}.rs", builder.random.range(0, 150));
        let bytes = builder.random.range(1_000, 24_000);
        builder.read(&file, 7, bytes);
        if builder.random.chance(0.4) {
            builder.look();
        }
    }
}

fn read_after_edit(builder: &mut SessionBuilder) {
    let path = path(builder);
    for _ in 0..builder.random.range(6, 25) {
        let version = builder.fresh();
        builder.read(&path, version, 16_000);
        builder.edit(&path);
    }
}

fn slow_tools(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(8, 25) {
        let (input, output) = (builder.fresh(), builder.fresh());
        let micros = builder.micros(90e6, 0.3);
        builder.run("bazel build", input, output, false, micros);
        let path = path(builder);
        builder.edit(&path);
    }
}

fn twofold_builds(builder: &mut SessionBuilder) {
    let input = builder.fresh();
    for _ in 0..builder.random.range(10, 30) {
        let output = builder.fresh();
        let typical = if builder.random.chance(0.3) { 70e6 } else { 1.5e6 };
        let micros = builder.micros(typical, 0.3);
        builder.run("cargo build", input, output, false, micros);
        let path = path(builder);
        builder.edit(&path);
    }
}

fn refactoring(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(30, 120) {
        let path = path(builder);
        builder.edit(&path);
        if builder.random.chance(0.15) {
            let (input, output) = (hash("check"), builder.fresh());
            let failed = builder.random.chance(0.6);
            let micros = builder.micros(9e6, 0.4);
            builder.run("cargo check", input, output, failed, micros);
        }
    }
}

fn debug_prints(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(1, 2) {
        let clean = builder.state;
        let mut states = vec![clean];
        let mut edits = Vec::new();
        for _ in 0..builder.random.range(1, 3) {
            let (path, there, back) = (path(builder), builder.fresh(), builder.fresh());
            let state = builder.fresh();
            builder.edit_with(&path, there, back, state);
            edits.push((path, there, back));
            states.push(state);
        }
        let (input, output) = (builder.fresh(), builder.fresh());
        let micros = builder.micros(4e6, 0.4);
        builder.run("cargo test", input, output, true, micros);
        states.pop();
        for (path, there, back) in edits.into_iter().rev() {
            let state = states.pop().unwrap();
            builder.edit_with(&path, back, there, state);
        }
        for _ in 0..builder.random.range(4, 12) {
            let path = path(builder);
            builder.edit(&path);
        }
    }
}

fn flaky_network(builder: &mut SessionBuilder) {
    let input = builder.fresh();
    for _ in 0..builder.random.range(1, 3) {
        let failure = builder.fresh();
        for attempt in 0..builder.random.range(1, 3) {
            builder.wait(2_000_000 << attempt);
            let micros = builder.micros(3e6, 0.3);
            builder.run("curl", input, failure, true, micros);
        }
        let (micros, output) = (builder.micros(1e6, 0.3), builder.fresh());
        builder.run("curl", input, output, false, micros);
        builder.look();
    }
}

/// Each edit is tried and taken back, and the next is another one.
fn mutation_testing(builder: &mut SessionBuilder) {
    let input = builder.fresh();
    for _ in 0..builder.random.range(5, 20) {
        let (path, clean) = (path(builder), builder.state);
        let (there, back, state) = (builder.fresh(), builder.fresh(), builder.fresh());
        builder.edit_with(&path, there, back, state);
        let output = builder.fresh();
        let failed = builder.random.chance(0.7);
        let micros = builder.micros(5e6, 0.3);
        builder.run("cargo test", input, output, failed, micros);
        let restore = hash(&path);
        builder.call(&TestCall {
            tool: "Bash",
            subject: "git checkout".into(),
            input: restore,
            output: 5,
            state: Some(clean),
            ..blank_call()
        });
    }
}

fn exploration(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(20, 60) {
        let (input, output) = (builder.fresh(), builder.fresh());
        let failed = builder.random.chance(0.25);
        let micros = builder.micros(80_000.0, 1.0);
        let program = builder.random.pick(&["rg", "ls", "find", "python", "cat"]);
        builder.run(program, input, output, failed, micros);
    }
}

fn status_checks(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(5, 20) {
        let path = path(builder);
        builder.edit(&path);
        let micros = builder.micros(12_000.0, 0.4);
        builder.run("git status", hash("git status"), hash("on branch main"), false, micros);
        if builder.random.chance(0.5) {
            builder.look();
        }
    }
}

/// After a long pause the provider has forgotten the context, and the next call is dear.
fn pauses(builder: &mut SessionBuilder) {
    for _ in 0..builder.random.range(2, 4) {
        builder.wait(1_800_000_000);
        builder.prompt();
        let call = builder.model_turn();
        let tokens = call.tokens.as_mut().unwrap();
        tokens.cache_write += tokens.cache_read;
        tokens.cache_read = 0;
        call.cost = Some(tokens.cache_write * 15 / 4);
        for _ in 0..builder.random.range(4, 12) {
            builder.look();
            let path = path(builder);
            builder.edit(&path);
        }
    }
}
