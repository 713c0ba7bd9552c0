//! Arguments of `stepback seal`.

use std::path::PathBuf;

use clap::Args;

/// Examples of `seal`.
pub const SEAL: &str = "\
A seal is a signed list of digests: one for each step, operation and session of the workspace. \
It contains no files and no conversations. Kept where the agent cannot write, it proves later what was changed, removed or added in the record.

The key is made on first use, in ~/.config/stepback/seal-key.pem, outside of the store. \
An agent that runs as the same user can read it; use --key with a file that it cannot read, and note the public key elsewhere.

Examples:
  stepback seal --to ~/seals/today.json
  stepback seal --to https://audit.example/seals          POST
  stepback seal --to refs/stepback/seals/main             a commit in the workspace's git repository
  stepback seal --key /media/token/seal-key.pem --to -
  stepback seal --verify ~/seals/today.json
  stepback seal --verify refs/stepback/seals/main --public-key 8f3a…";

// Sealing, and verifying a seal.
#[derive(Debug, Args)]
pub struct SealArgs {
    /// Write it to a file, an address (http://, https://) or a git reference; - means standard output
    #[arg(long, value_name = "TARGET", default_value = "-", hide_default_value = true)]
    pub to: String,
    /// Sign with the Ed25519 key in FILE (PEM)
    #[arg(long, value_name = "FILE", env = "STEPBACK_SEAL_KEY", hide_env_values = true)]
    pub key: Option<PathBuf>,
    /// Compare the store with a seal: a file, a git reference, or - for standard input
    #[arg(long, value_name = "SEAL", conflicts_with_all = ["to", "accept_breaks"])]
    pub verify: Option<String>,
    /// With --verify: the key that must have signed it, as 64 hex digits or a file with them [default: the own key]
    #[arg(long, value_name = "KEY", requires = "verify")]
    pub public_key: Option<String>,
    /// Seal although steps were changed already; the seal lists them
    #[arg(long)]
    pub accept_breaks: bool,
}
