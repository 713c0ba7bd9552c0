//! A separate home directory for an agent that is rerun, with its settings and without its history.
//!
//! Agents write a lot into the home: conversations, task lists, counters, caches. A rerun must neither add to those nor be
//! influenced by them, so it gets a home with the user's settings and what the agent needs to start. Everything that does not
//! belong to an agent is linked: commands that the agent runs need their toolchains, which the sandbox lets them read.

use std::fs;
use std::io;
use std::path::Path;

use crate::Agent;

/// Size in bytes above which a directory is not copied.
const MAX_COPIED_DIR_BYTES: u64 = 64 << 20;

/// The files in an agent's home that the user configured, or that the agent needs to start.
fn settings_files(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::Claude => &[
            ".claude.json",
            ".claude/settings.json",
            ".claude/CLAUDE.md",
            ".claude/agents",
            ".claude/commands",
            ".claude/skills",
            ".claude/output-styles",
            ".claude/rules",
            ".claude/plugins",
        ],
        Agent::Codex => &[
            ".codex/config.toml",
            ".codex/hooks.json",
            ".codex/auth.json",
            ".codex/AGENTS.md",
            ".codex/prompts",
            ".codex/rules",
            ".codex/skills",
        ],
        Agent::Gemini => &[
            ".gemini/settings.json",
            ".gemini/GEMINI.md",
            ".gemini/installation_id",
            ".gemini/google_accounts.json",
            ".gemini/oauth_creds.json",
            ".gemini/trustedFolders.json",
            ".gemini/commands",
            ".gemini/extensions",
        ],
        Agent::Opencode => &[
            ".config/opencode",
            ".local/share/opencode/auth.json",
            ".local/share/opencode/bin",
            ".cache/opencode",
        ],
    }
}

/// Fills `new` with the parts of `home` that `agent` needs.
pub fn populate_home(agent: Agent, home: &Path, new: &Path) -> io::Result<()> {
    for name in settings_files(agent).iter().chain(&[".gitconfig", ".config/git"]) {
        let (from, to) = (home.join(name), new.join(name));
        let Ok(found) = fs::metadata(&from) else { continue };
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        if found.is_file() {
            fs::copy(&from, &to)?;
        } else if dir_size(&from) <= MAX_COPIED_DIR_BYTES {
            copy_dir(&from, &to)?;
        } else {
            std::os::unix::fs::symlink(&from, &to)?;
        }
    }
    link_rest(home, new, Path::new(""))
}

/// Files that agents keep for themselves. No agent gets those of another.
const AGENT_OWN_FILES: [&str; 7] = [
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".config/opencode",
    ".local/share/opencode",
    ".cache/opencode",
];

/// Links everything else of the home at its usual path: toolchains, caches, keys of registries.
fn link_rest(home: &Path, new: &Path, below: &Path) -> io::Result<()> {
    for entry in fs::read_dir(home.join(below)).into_iter().flatten().flatten() {
        let path = below.join(entry.file_name());
        let to = new.join(&path);
        if AGENT_OWN_FILES.iter().any(|own| Path::new(own) == path) || new.starts_with(entry.path()) {
            continue;
        }
        if AGENT_OWN_FILES.iter().any(|own| Path::new(own).starts_with(&path)) {
            fs::create_dir_all(&to)?;
            link_rest(home, new, &path)?;
        } else if fs::symlink_metadata(&to).is_err() {
            std::os::unix::fs::symlink(entry.path(), to)?;
        }
    }
    Ok(())
}

fn dir_size(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        sum += match entry.metadata() {
            Ok(found) if found.is_dir() => dir_size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        };
        if sum > MAX_COPIED_DIR_BYTES {
            break;
        }
    }
    sum
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
