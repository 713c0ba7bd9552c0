//! The paths that a command is limited to: globs, where a directory stands for everything below it.

use std::os::unix::ffi::OsStrExt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use stepback_model::path::RelPath;

use crate::error::EngineError;

/// Why a path pattern cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PathPatternError {
    /// It is absolute, or leaves the workspace.
    #[error("the path {0} must be relative to the workspace and stay inside it")]
    Outside(String),
    /// It is not a valid glob.
    #[error("{pattern} is not a valid pattern: {error}")]
    Invalid {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        error: globset::Error,
    },
    /// All patterns together are too complex.
    #[error(transparent)]
    TooComplex(globset::Error),
}

/// The paths that a command is limited to.
pub struct PathFilter {
    globs: GlobSet,
    patterns: Vec<String>,
}

impl PathFilter {
    /// Compiles glob patterns relative to the workspace; no patterns match everything.
    pub fn new(patterns: &[String]) -> Result<Self, EngineError> {
        let mut builder = GlobSetBuilder::new();
        let mut cleaned = Vec::new();
        for pattern in patterns {
            let clean = pattern.trim_start_matches("./").trim_end_matches('/');
            if clean.starts_with('/') || clean.split('/').any(|part| part == "..") {
                return Err(PathPatternError::Outside(pattern.clone()).into());
            }
            let glob = GlobBuilder::new(clean)
                .literal_separator(true)
                .build()
                .map_err(|error| PathPatternError::Invalid { pattern: pattern.clone(), error })?;
            builder.add(glob);
            cleaned.push(clean.to_string());
        }
        let globs = builder.build().map_err(PathPatternError::TooComplex)?;
        Ok(Self { globs, patterns: cleaned })
    }

    /// Whether there are no patterns, so that every path matches.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether `path` or a directory above it matches.
    pub fn matches(&self, path: &RelPath) -> bool {
        if self.is_empty() || self.patterns.iter().any(|pattern| pattern.is_empty() || pattern == ".") {
            return true;
        }
        let mut current = Some(path.clone());
        while let Some(path) = current.filter(|path| !path.is_root()) {
            if self.globs.is_match(std::ffi::OsStr::from_bytes(path.as_bytes())) {
                return true;
            }
            current = path.split_last().map(|(parent, _)| parent);
        }
        false
    }

    /// Returns the patterns as plain paths; `None` if any of them is a glob, the root or in a git directory, or there are
    /// none.
    pub fn literal_paths(&self) -> Option<Vec<RelPath>> {
        if self.is_empty() {
            return None;
        }
        let is_plain = |pattern: &String| !pattern.contains(['*', '?', '[', ']', '{', '}', '\\', '!']);
        self.patterns
            .iter()
            .map(|pattern| is_plain(pattern).then(|| RelPath::parse(pattern.clone()).ok()).flatten())
            .map(|path| path.filter(|path| !path.is_root() && !path.components().any(|name| name == b".git")))
            .collect()
    }
}
