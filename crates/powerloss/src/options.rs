//! The command line.

use anyhow::{Context, Result, bail};

use crate::filesystem::FileSystem;

/// What `--help` prints.
pub const HELP: &str = "\
Cut the power at every write of every command, and check what is left

Usage: cargo xtask powerloss [OPTIONS]

Options:
  --fs NAME     Only this file system: ext4, xfs or btrfs (can be repeated)
  --cuts N      At most N cuts on each file system, drawn by the seed [default: all]
  --orders N    Draws of surviving blocks after each write [default: 1]
  --seed N      Seed of all draws [default: the time]; it is printed
  --program P   The stepback to test [default: the one beside this program]
  --keep DIR    Save the disk of each cut that fails as an image in DIR
  --help        Print this text

Needs root, /dev/fuse and loop devices. Everything is mounted in a namespace of its own and goes away with the process.
";

/// The parsed command line.
#[derive(Debug)]
pub struct PowerlossOptions {
    /// File systems to test, and whether the user named them.
    pub file_systems: Vec<FileSystem>,
    /// Most cuts on each.
    pub cuts: usize,
    /// Draws after each write.
    pub orders: u64,
    /// The seed of all random draws.
    pub seed: u64,
    /// Path of stepback.
    pub program: Option<String>,
    /// Where to keep images.
    pub keep: Option<String>,
}

impl PowerlossOptions {
    /// Reads arguments.
    pub fn parse(args: &[String], default_seed: u64) -> Result<Self> {
        let mut options = Self {
            file_systems: Vec::new(),
            cuts: usize::MAX,
            orders: 1,
            seed: default_seed,
            program: None,
            keep: None,
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let mut value = || args.next().with_context(|| format!("{name} needs a value"));
            match name.as_str() {
                "--fs" => {
                    let value = value()?;
                    let kind = FileSystem::by_name(value);
                    options.file_systems.push(kind.with_context(|| format!("unknown file system {value}"))?);
                }
                "--cuts" => options.cuts = value()?.parse().context("--cuts needs a number")?,
                "--orders" => options.orders = value()?.parse().context("--orders needs a number")?,
                "--seed" => options.seed = value()?.parse().context("--seed needs a number")?,
                "--program" => options.program = Some(value()?.clone()),
                "--keep" => options.keep = Some(value()?.clone()),
                other => bail!("there is no option {other}; --help lists them"),
            }
        }
        if options.file_systems.is_empty() {
            options.file_systems = FileSystem::ALL.to_vec();
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parse = |text: &str| {
            let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            PowerlossOptions::parse(&args, 5)
        };
        let options = parse("--fs xfs --cuts 30").unwrap();
        assert_eq!((options.file_systems, options.cuts, options.seed), (vec![FileSystem::Xfs], 30, 5));
        assert_eq!(parse("").unwrap().file_systems, FileSystem::ALL);
        for wrong in ["--fs fat", "--cuts", "--cuts many", "--quick"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
