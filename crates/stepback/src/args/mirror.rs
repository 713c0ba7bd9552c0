//! Arguments of `stepback mirror`.

use std::path::PathBuf;

use clap::Subcommand;

/// Examples of `mirror`.
pub const MIRROR: &str = "\
A mirror is an append-only copy of the store in a second place. A background process copies every commit right after it is acknowledged. \
Nothing in a mirror is changed or deleted, also not by prune.

A program that runs as you can delete a directory that you can write to. \
Against that, use a directory of another user, synced with \"mirror run\" by that user, or a bucket with versioning or object lock.

Examples:
  stepback mirror add /mnt/backup/stepback
  stepback mirror status --verify
  stepback mirror restore /mnt/backup/stepback --into ~/restored
  sudo stepback --store ~ann/.local/share/stepback mirror run /srv/mirrors/ann";

const PLACES: &str = "A place is a directory, file:///PATH or s3://BUCKET/PREFIX. Credentials for S3 are read from the variables that AWS tools use (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL) and are not stored.";

/// The mirrors of a store.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum MirrorCommand {
    /// Copy the store to another place now, and from now on
    #[command(after_help = format!("{PLACES}\n\nExamples:\n  stepback mirror add /mnt/backup/stepback\n  stepback mirror add s3://my-bucket/stepback"))]
    Add {
        /// An empty place, or a mirror of this store
        place: String,
        /// Continue a mirror with another history; what it has stays beside
        #[arg(long)]
        adopt: bool,
    },
    /// Show how far each mirror is, and what is wrong
    #[command(
        after_help = "It exits with 6 if a mirror is damaged or the store contradicts it, and with 7 if one cannot be reached.\n\nExamples:\n  stepback mirror status\n  stepback mirror status --verify --json\n  stepback mirror status /srv/mirrors/ann"
    )]
    Status {
        /// A mirror [default: all of this store]
        #[arg(value_name = "PLACE")]
        places: Vec<String>,
        /// Read everything back, verify every checksum, and compare every step with the store
        #[arg(long)]
        verify: bool,
    },
    /// Bring mirrors up to date now, and wait for it
    #[command(after_help = "Examples:\n  stepback mirror sync\n  stepback mirror sync /media/usb/stepback")]
    Sync {
        /// A mirror, or an empty place [default: all of this store]
        #[arg(value_name = "PLACE")]
        places: Vec<String>,
        /// Stop reporting contradictions and problems that were reported before
        #[arg(long)]
        acknowledge: bool,
    },
    /// Make a store of a mirror, in an empty directory
    #[command(
        after_help = "It needs no store. It exits with 6, after its ordinary report, if the mirror does not have everything any more.\n\nExamples:\n  stepback mirror restore /mnt/backup/stepback --into ~/restored\n  stepback mirror restore s3://my-bucket/stepback --into ~/restored --generation 1"
    )]
    Restore {
        /// The mirror
        #[arg(value_name = "PLACE")]
        place: String,
        /// The directory to create the store in
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// Restore the history of this generation; needed if others have steps that it lacks
        #[arg(long, value_name = "N")]
        generation: Option<u64>,
    },
    /// Stop copying to a mirror; its files stay
    #[command(after_help = "Examples:\n  stepback mirror remove /mnt/backup/stepback")]
    Remove {
        /// The mirror
        place: String,
    },
    /// Keep mirrors up to date until interrupted, for a system service
    #[command(
        after_help = "With PLACE, it neither reads nor writes the list of mirrors in the store, so it can run as another user, whose files an agent cannot change.\n\nExamples:\n  sudo stepback --store ~ann/.local/share/stepback mirror run /srv/mirrors/ann"
    )]
    Run {
        /// A mirror, or an empty place [default: all of this store]
        #[arg(value_name = "PLACE")]
        places: Vec<String>,
    },
}
