//! Codex: a truncated rollout under a new id. No entry in any of its databases is needed.

use super::{Fork, ForkOptions, ForkSource, Mode, Start, Write, last_argument, rewrite, words};

pub(super) fn plan(source: &ForkSource<'_>, wish: &ForkOptions<'_>, start: &Start) -> Fork {
    let session = rewrite::timed_uuid(wish.id, wish.now);
    let old = source.place.session.as_str();
    // The id also occurs inside paths and compound ids, and cannot be confused with ordinary text.
    let lines =
        start.lines.iter().map(|line| rewrite::cwd(&line.replace(old, &session), source.cwd, wish.cwd));
    let time = rewrite::name_time(wish.now, 19);
    let day = time[..10].replace('-', "/");
    let name = format!("rollout-{time}-{session}.jsonl");
    let path = source.home.codex.join("sessions").join(day).join(name);
    let writes = vec![Write { path, bytes: rewrite::file(lines) }];
    let command = match wish.mode {
        Mode::Interactive => words(["codex", "resume", &session]),
        Mode::Prompt(prompt) => {
            let mut command = words(["codex", "exec", "resume", &session]);
            last_argument(&mut command, prompt);
            command
        }
    };
    Fork { session, kept: 0, writes, prepare: None, command, cwd: wish.cwd.into(), note: None }
}
