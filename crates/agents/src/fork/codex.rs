//! Codex: a truncated rollout under a new id. No entry in any of its databases is needed.

use super::{
    FileWrite, Fork, ForkMode, ForkOptions, ForkSource, StartLines, command_words, push_last_argument,
    rewrite,
};

pub(super) fn plan(source: &ForkSource<'_>, options: &ForkOptions<'_>, start: &StartLines) -> Fork {
    let session = rewrite::uuid_v7(options.id, options.now);
    let old = source.location.session.as_str();
    // The id also occurs inside paths and compound ids, and cannot be confused with ordinary text.
    let lines = start
        .lines
        .iter()
        .map(|line| rewrite::replace_cwd(&line.replace(old, &session), source.cwd, options.cwd));
    let time = rewrite::file_name_time(options.now, 19);
    let day = time[..10].replace('-', "/");
    let name = format!("rollout-{time}-{session}.jsonl");
    let path = source.home.codex.join("sessions").join(day).join(name);
    let writes = vec![FileWrite { path, bytes: rewrite::join_lines(lines) }];
    let command = match options.mode {
        ForkMode::Interactive => command_words(["codex", "resume", &session]),
        ForkMode::Prompt(prompt) => {
            let mut command = command_words(["codex", "exec", "resume", &session]);
            push_last_argument(&mut command, prompt);
            command
        }
    };
    Fork { session, kept_lines: 0, writes, prepare: None, command, cwd: options.cwd.into(), note: None }
}
