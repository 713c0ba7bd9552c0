//! What the MCP server is tested with: the official conformance suite and inspector, installed by `cargo xtask mcp install`.

use std::fs;
use std::path::{Path, PathBuf};

/// The packages, and the Node they need.
pub struct Counterparts {
    place: PathBuf,
}

impl Counterparts {
    /// Those beside the build that this test binary belongs to.
    ///
    /// Fails the test if they are missing or not the ones that are pinned.
    pub fn installed() -> Self {
        let program = std::env::current_exe().unwrap();
        let place = program
            .ancestors()
            .map(|above| above.join("mcp"))
            .find(|place| place.join("installed.json").exists());
        let Some(place) = place else {
            panic!("the counterparts of the MCP server are not installed: run `cargo xtask mcp install`");
        };
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/mcp/package-lock.json");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        assert!(
            read(&place.join("installed.json")) == read(&lock),
            "the counterparts in {} are not the ones that are pinned: run `cargo xtask mcp install`",
            place.display()
        );
        Self { place }
    }

    /// Node, new enough for both.
    pub fn node(&self) -> PathBuf {
        self.place.join("bin/node")
    }

    /// The script of the conformance suite.
    pub fn conformance(&self) -> PathBuf {
        self.place.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    /// The script of the inspector.
    pub fn inspector(&self) -> PathBuf {
        self.place.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    }

    /// An empty directory for what a run leaves behind, where a person can look at it.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let place = self.place.join("results").join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        place
    }

    /// Keeps what a run said where a person can look at it: `target/mcp/results`.
    pub fn keep(&self, name: &str, said: &str) {
        let results = self.place.join("results");
        fs::create_dir_all(&results).unwrap();
        fs::write(results.join(name), said).unwrap();
    }
}
