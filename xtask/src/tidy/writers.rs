//! Which modules may create, change or remove files by path.
//!
//! A path is resolved through links, and a workspace may contain links to anywhere: what is written there by path can end up
//! outside. `crates/worktree` writes below an open directory, one component at a time, and is used for everything that goes
//! into a workspace or a directory that the user named. All other modules that write files are listed here together with the
//! directory that they write to, so a new one is added on purpose or uses `worktree`.

use super::source::SourceFile;

/// Text that only code which writes by path, or by its own system calls, contains.
const MARKS: [&str; 20] = [
    "fs::write",
    "fs::create_dir",
    "fs::rename",
    "fs::copy",
    "fs::hard_link",
    "fs::set_permissions",
    "fs::remove_",
    "fs::symlink(",
    "fs::symlink;",
    "File::create",
    "new_file::",
    "File::options",
    "OpenOptions",
    "DirBuilder",
    "openat(",
    "mkdirat(",
    "renameat",
    "unlinkat(",
    "symlinkat(",
    "linkat(",
];

/// The crate whose purpose it is, the stores, which do not know workspaces, and the crates that are not part of the
/// program.
const FREE: [&str; 8] = ["worktree", "store", "postgres", "bench", "faults", "powerloss", "testkit", "xtask"];

/// The other modules that write, and where.
const WRITERS: [(&str, &str); 46] = [
    ("crates/agents/src/fork/run.rs", "conversations of agents, in the user's home"),
    ("crates/agents/src/hook.rs", "the store's directory"),
    ("crates/agents/src/inbox.rs", "the store's directory"),
    ("crates/agents/src/turn_counter.rs", "the store's directory"),
    ("crates/agents/src/call_window.rs", "the store's directory"),
    ("crates/agents/src/install/write.rs", "settings of the user; those of a workspace through worktree"),
    ("crates/agents/src/model_call_inbox.rs", "the store's directory"),
    ("crates/agents/src/policy.rs", "the private directory of a rerun, beside its files"),
    ("crates/agents/src/sandbox_home.rs", "the home of a rerun"),
    ("crates/analysis/src/load/kept.rs", "caches of a workspace, in the store's directory"),
    ("crates/bundle/src/import.rs", "the store's directory"),
    ("crates/engine/src/control.rs", "the store's directory"),
    ("crates/engine/src/workspace.rs", "locks in the store's directory"),
    ("crates/engine/src/workspace_admin.rs", "caches of a workspace, in the store's directory"),
    ("crates/engine/src/workspace_index.rs", "the store's directory"),
    (
        "crates/history/src/bisect/scratch.rs",
        "clears the scratch directory of a bisect; `remove_dir_all` follows no link",
    ),
    ("crates/mirror/src/service.rs", "a lock in the store's directory"),
    ("crates/mirror/src/settings.rs", "the store's directory"),
    (
        "crates/mirror/src/storage/directory.rs",
        "the directory of a mirror, in which nothing is changed or removed",
    ),
    ("crates/mirror/src/vault.rs", "the vault of a store that is being restored"),
    ("crates/remote/src/local_dir.rs", "the local directory of a store that another process holds"),
    ("crates/remote/src/unix_listener.rs", "the socket that the user named"),
    ("crates/rerun/src/agent.rs", "the home of a rerun"),
    ("crates/rerun/src/builtin.rs", "the private directory of a rerun, beside its files"),
    ("crates/rerun/src/history.rs", "the home of a rerun"),
    ("crates/rerun/src/run.rs", "the private directory of a rerun, beside its files"),
    ("crates/rerun/src/sandbox.rs", "files of the kernel about the process itself"),
    ("crates/rerun/src/scratch.rs", "the store's directory; removes the directory of a rerun"),
    ("crates/server/src/api/transfer.rs", "a temporary file without a name"),
    ("crates/server/src/auth.rs", "the store's directory"),
    ("crates/stepback/src/commands/reference.rs", "a directory for manual pages, which the user names"),
    ("crates/stepback/src/commands/settings/edit.rs", "the store's directory"),
    ("crates/stepback/src/commands/run.rs", "a temporary directory of the run"),
    ("crates/stepback/src/commands/seal.rs", "the file that the user named; the key, in the user's settings"),
    ("crates/stepback/src/commands/serve.rs", "the log file that the user named; the store's directory"),
    ("crates/stepback/src/commands/share.rs", "the file that the user named"),
    ("crates/stepback/src/commands/studio.rs", "the store's directory"),
    ("crates/stepback/src/demo/project.rs", "the directory of the demonstration"),
    ("crates/stepback/src/demo/story.rs", "the directory of the demonstration"),
    ("crates/stepback/src/disk_budget.rs", "the store's directory"),
    ("crates/stepback/src/settings.rs", "the store's directory"),
    ("crates/watcher/src/client.rs", "the store's directory"),
    ("crates/watcher/src/launch.rs", "the store's directory"),
    ("crates/watcher/src/process.rs", "a file of the kernel about the process itself"),
    ("crates/watcher/src/server.rs", "the store's directory, and the directory for sockets"),
    ("crates/watcher/src/watch.rs", "the store's directory"),
];

/// Problems of modules that write and are not listed, and of listed ones that do not write.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    check_against(files, &WRITERS)
}

fn check_against(files: &[SourceFile], writers: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = Vec::new();
    for file in files.iter().filter(|file| file.path.contains("/src/") && !is_free(file)) {
        let writes_by_path = |(_, line): &(usize, &str)| {
            !line.trim_start().starts_with("//") && MARKS.iter().any(|mark| line.contains(mark))
        };
        let Some((number, line)) = file.code_lines().find(writes_by_path) else { continue };
        if writers.iter().any(|(path, _)| *path == file.path) {
            used.push(file.path.as_str());
            continue;
        }
        problems.push(format!(
            "{}:{number}: `{}` writes by path; use worktree::anchored_write for files of a workspace, or list the module in \
             xtask/src/tidy/writers.rs with the directory that it writes to",
            file.path,
            line.trim()
        ));
    }
    let is_known = |path: &str| files.iter().any(|file| file.path == path);
    for (path, _) in writers.iter().filter(|(path, _)| !used.contains(path)) {
        let problem = if is_known(path) { "writes no files" } else { "does not exist" };
        problems.push(format!("{path}: {problem}; remove it from xtask/src/tidy/writers.rs"));
    }
    problems
}

fn is_free(file: &SourceFile) -> bool {
    FREE.contains(&file.package.trim_start_matches("crates/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(package: &str, path: &str, text: &str) -> SourceFile {
        SourceFile { package: package.into(), path: path.into(), text: text.into() }
    }

    #[test]
    fn a_module_that_writes_by_path_is_listed_or_reported() {
        let writes = "//! Doc.\nfn a() {\n    std::fs::write(\"a\", \"b\")\n}\n";
        let found = check_against(&[file("a", "crates/a/src/b.rs", writes)], &[]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/b.rs:3: "), "{found:?}");
        let listed = [("crates/a/src/b.rs", "somewhere")];
        assert!(check_against(&[file("a", "crates/a/src/b.rs", writes)], &listed).is_empty());
        for free in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs"] {
            assert!(check_against(&[file("a", free, writes)], &[]).is_empty(), "{free}");
        }
        assert!(check_against(&[file("worktree", "crates/worktree/src/b.rs", writes)], &[]).is_empty());
        let test = format!("//! Doc.\n#[cfg(test)]\nmod tests {{\n{writes}}}\n");
        assert!(check_against(&[file("a", "crates/a/src/b.rs", &test)], &[]).is_empty());
    }

    #[test]
    fn every_way_to_write_is_noticed() {
        for line in [
            "use std::fs::OpenOptions;",
            "use std::os::unix::fs::symlink;",
            "    File::create_new(path)?;",
            "    fs::remove_dir_all(dir)?;",
            "    rustix::fs::renameat_with(a, b, c, d, e)?;",
        ] {
            let text = format!("//! Doc.\n{line}\n");
            assert_eq!(check_against(&[file("a", "crates/a/src/b.rs", &text)], &[]).len(), 1, "{line}");
        }
        let reads = "//! Doc.\n// fs::write\nuse std::fs::{self, File};\nfs::read(a); File::open(b);\n";
        assert!(check_against(&[file("a", "crates/a/src/b.rs", reads)], &[]).is_empty());
    }

    #[test]
    fn an_entry_that_is_not_needed_is_reported() {
        let found =
            check_against(&[file("a", "crates/a/src/b.rs", "//! Doc.\n")], &[("crates/a/src/b.rs", "x")]);
        assert!(found[0].contains("writes no files"), "{found:?}");
        assert!(check_against(&[], &[("crates/a/src/b.rs", "x")])[0].contains("does not exist"));
    }
}
