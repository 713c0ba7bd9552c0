//! The official conformance suite and inspector of MCP, installed by `cargo xtask mcp install`.

use std::fs;
use std::path::{Path, PathBuf};

/// The packages, and the Node they need.
pub struct Counterparts {
    directory: PathBuf,
}

impl Counterparts {
    /// The tools next to the build that this test binary belongs to.
    ///
    /// Fails the test if they are missing or not the ones that are pinned.
    pub fn installed() -> Self {
        let program = std::env::current_exe().unwrap();
        let directory = program
            .ancestors()
            .map(|target| target.join("mcp"))
            .find(|directory| directory.join("installed.json").exists());
        let Some(directory) = directory else {
            panic!("the counterparts of the MCP server are not installed: run `cargo xtask mcp install`");
        };
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/mcp/package-lock.json");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        assert!(
            read(&directory.join("installed.json")) == read(&lock),
            "the counterparts in {} are not the ones that are pinned: run `cargo xtask mcp install`",
            directory.display()
        );
        Self { directory }
    }

    /// Node, new enough for both.
    pub fn node(&self) -> PathBuf {
        self.directory.join("bin/node")
    }

    /// The script of the conformance suite.
    pub fn conformance(&self) -> PathBuf {
        self.directory.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    /// The script of the inspector.
    pub fn inspector(&self) -> PathBuf {
        self.directory.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    }

    /// An empty directory for the results of a run, where a developer can inspect them.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let directory = self.directory.join("results").join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// Stores the output of a run where a developer can inspect it: `target/mcp/results`.
    pub fn keep(&self, name: &str, output: &str) {
        let results = self.directory.join("results");
        fs::create_dir_all(&results).unwrap();
        fs::write(results.join(name), output).unwrap();
    }
}
