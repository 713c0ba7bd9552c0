//! The trees that are measured: generated git repositories, or copies of given directories.
//!
//! Generated trees are cached between runs, because building the large one takes a while; a copy is made
//! for every system, and the cached or given original is never modified.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::input::git;
use crate::input::text::{self, Random};
use crate::measure::clock::run_untimed;

/// A tree to measure on.
#[derive(Clone, Debug)]
pub struct SourceTree {
    /// How the tree is called in the report.
    pub name: String,
    /// The original, from which copies are made.
    pub origin: PathBuf,
    /// How many files it has, `.git` not counted.
    pub files: usize,
}

/// Names and file counts of the generated trees.
pub const GENERATED: [(&str, usize); 3] = [("small", 300), ("middle", 8_000), ("large", 60_000)];

/// Increased whenever the generator changes, so that an old cache is not used.
const GENERATOR_VERSION: u32 = 1;

/// The approximate number of files in a directory, as in real source trees.
const FILES_PER_DIRECTORY: usize = 13;

/// Builds a generated tree, or reads it from the cache.
pub fn load_or_generate(cache: &Path, name: &str, files: usize) -> Result<SourceTree> {
    let origin = cache.join(format!("{name}-{files}-v{GENERATOR_VERSION}"));
    if !origin.exists() {
        eprintln!("Building the {name} tree ({files} files) …");
        let building = cache.join(format!("{name}.building"));
        remove(&building)?;
        fs::create_dir_all(&building)?;
        generate_files(&building, files, 0x5eed ^ files as u64)?;
        commit_all(&building)?;
        fs::rename(&building, &origin)?;
    }
    Ok(SourceTree { name: name.to_owned(), origin, files })
}

/// Takes a directory that the user named; it is only read.
pub fn from_directory(directory: &Path) -> Result<SourceTree> {
    let origin = directory.canonicalize().with_context(|| format!("cannot open {}", directory.display()))?;
    if !origin.is_dir() {
        bail!("{} is not a directory", directory.display());
    }
    let name = origin.file_name().map_or("tree".to_owned(), |name| name.to_string_lossy().into_owned());
    let files = count_files(&origin)?;
    Ok(SourceTree { name, origin, files })
}

impl SourceTree {
    /// Copies the tree with all metadata. The repository's index is refreshed, since the copy has new
    /// inode numbers and a person's index would know the current ones.
    pub fn copy_to(&self, destination: &Path) -> Result<()> {
        remove(destination)?;
        if let Some(parent) = destination.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut copy = std::process::Command::new("cp");
        run_untimed(copy.arg("-a").arg("--").arg(&self.origin).arg(destination))?;
        if destination.join(".git").is_dir() {
            // git compares whole seconds: without the pause, all entries would look racily clean.
            std::thread::sleep(Duration::from_millis(1_100));
            run_untimed(git::command().args(["update-index", "-q", "--refresh"]).current_dir(destination))?;
        }
        Ok(())
    }
}

/// Removes a tree if it is there.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn generate_files(root: &Path, files: usize, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut directories: Vec<(PathBuf, usize)> = vec![(root.to_path_buf(), 0)];
    for index in 0..files / FILES_PER_DIRECTORY {
        // Mostly near the root, never deeper than nine levels.
        let shallow: &(PathBuf, usize) = loop {
            let candidate = random.pick(&directories);
            if candidate.1 < 9 {
                break candidate;
            }
        };
        let directory = shallow.0.join(format!("{}{index}", text::name(&mut random)));
        let depth = shallow.1 + 1;
        fs::create_dir(&directory)?;
        directories.push((directory, depth));
    }
    fs::write(root.join(".gitignore"), "/build/\n*.log\n.env\n")?;
    fs::write(root.join(".env"), "TOKEN=made-up\n")?;
    fs::create_dir(root.join("build"))?;
    // What git ignores is part of a working directory, too.
    let ignored = files / 200;
    for index in 0..ignored {
        fs::write(root.join("build").join(format!("object{index}.o")), random_bytes(&mut random, 6_000))?;
    }
    for index in 0..files - ignored - 2 {
        let directory = &random.pick(&directories).0;
        let stem = format!("{}{index}", text::name(&mut random));
        if random.chance(0.3) {
            symlink(format!("{stem}.rs"), directory.join(format!("{stem}.link")))?;
            continue;
        }
        let size = file_size(&mut random);
        let (path, content) = if random.chance(2.0) {
            (directory.join(format!("{stem}.png")), random_bytes(&mut random, size))
        } else {
            (directory.join(format!("{stem}.rs")), text::source(&mut random, size))
        };
        fs::write(&path, content)?;
        if random.chance(2.0) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    backdate_files(root)
}

/// Log-normal around 4 KB with some large files, as source trees have.
fn file_size(random: &mut Random) -> usize {
    if random.chance(0.4) {
        return 50_000 + random.below(450_000);
    }
    ((4_000.0 * (0.95 * random.normal()).exp()) as usize).clamp(80, 60_000)
}

fn random_bytes(random: &mut Random, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    random.fill(&mut bytes);
    bytes
}

/// Gives all files an old modification time: a tree that was only just written is not what agents meet.
fn backdate_files(directory: &Path) -> Result<()> {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            backdate_files(&entry.path())?;
        } else if kind.is_file() {
            fs::File::options().append(true).open(entry.path())?.set_modified(old)?;
        }
    }
    Ok(())
}

fn commit_all(root: &Path) -> Result<()> {
    let run = |args: &[&str]| run_untimed(git::command().args(args).current_dir(root));
    run(&["init", "-q", "-b", "main"])?;
    run(&["add", "-A"])?;
    run(&["commit", "-q", "-m", "The whole tree"])?;
    run(&["gc", "-q"])?;
    Ok(())
}

fn count_files(directory: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            files += 1;
        } else if entry.file_name() != ".git" {
            files += count_files(&entry.path())?;
        }
    }
    Ok(files)
}
