//! Builds the pages in `studio/` with Node, if it is there, and lists what came out for `include_bytes!`.
//!
//! Node works on a copy below `OUT_DIR`, so that nothing in the sources changes and two builds never meet. It runs only when
//! `studio/` changed. A build without Node, or without a network the first time, succeeds without the pages.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs, io};

/// What the pages are made of, in `studio/`.
const SOURCES: [&str; 6] =
    ["index.html", "package.json", "package-lock.json", "public", "src", "vite.config.ts"];
/// A copy of the lock that `node_modules` was installed from.
const MARKER: &str = "installed.json";

fn main() {
    let sources = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../studio");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for name in SOURCES {
        println!("cargo::rerun-if-changed={}", sources.join(name).display());
    }
    println!("cargo::rerun-if-env-changed=STEPBACK_STUDIO");
    let left_out = env::var_os("STEPBACK_STUDIO").is_some_and(|value| value == "off");
    let built = match left_out {
        true => Err("it was built with STEPBACK_STUDIO=off".to_owned()),
        false => build(&sources, &out.join("studio")),
    };
    let list = match built {
        Ok(dist) => list(&dist).map_err(|error| format!("the built pages cannot be read: {error}")),
        Err(why) => Err(why),
    };
    let text = list.unwrap_or_else(|why| {
        if !left_out {
            println!("cargo::warning=the Studio is left out of this build: {why}");
        }
        format!("pub const ASSETS: &[Asset] = &[];\npub const MISSING: Option<&str> = Some({why:?});\n")
    });
    if let Err(error) = fs::write(out.join("assets.rs"), text) {
        println!("cargo::error=cannot write the list of pages: {error}");
    }
}

/// Makes the pages; says where they are, or why there are none.
fn build(sources: &Path, work: &Path) -> Result<PathBuf, String> {
    copy(sources, work).map_err(|error| format!("its sources cannot be copied: {error}"))?;
    let lock = fs::read(work.join("package-lock.json")).map_err(|error| error.to_string())?;
    if fs::read(work.join(MARKER)).ok().as_ref() != Some(&lock) {
        // What a build needs and no more, at the versions of the lock. `npm ci` would insist on packages for other systems,
        // which not every registry has. Where there is no network, npm is not to try for minutes.
        let install = [
            "install",
            "--omit=dev",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefer-offline",
            "--fetch-retries=1",
            "--loglevel=error",
        ];
        run(Command::new("npm").args(install), work)?;
        fs::write(work.join(MARKER), &lock).map_err(|error| error.to_string())?;
    }
    run(Command::new("node").args(["node_modules/vite/bin/vite.js", "build", "--logLevel", "warn"]), work)?;
    Ok(work.join("dist"))
}

fn run(command: &mut Command, dir: &Path) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.current_dir(dir).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{name} failed: {}", complaint(&output))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("Node is not installed (20.19 or newer, with npm)".to_owned())
        }
        Err(error) => Err(format!("{name} cannot be started: {error}")),
    }
}

/// What a program said first about its failure, in one line.
fn complaint(output: &Output) -> String {
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(6).collect();
    lines.join(" / ")
}

/// Copies the sources, and drops those that are gone.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for name in SOURCES {
        let (from, to) = (from.join(name), to.join(name));
        if from.is_dir() {
            if to.exists() {
                fs::remove_dir_all(&to)?;
            }
            copy_tree(&from, &to)?;
        } else {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_tree(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// The built files as a table in Rust.
fn list(dist: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    walk(dist, &mut files)?;
    files.sort();
    let mut text = String::from("pub const ASSETS: &[Asset] = &[\n");
    for file in files.iter().filter(|file| !is_packed(file)) {
        let name = file.strip_prefix(dist).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        let packed = |ending: &str| {
            let packed = PathBuf::from(format!("{}.{ending}", file.display()));
            match packed.exists() {
                true => format!("Some(include_bytes!({packed:?}))"),
                false => "None".to_owned(),
            }
        };
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "    Asset {{ path: {name:?}, plain: include_bytes!({file:?}), brotli: {}, gzip: {} }},",
            packed("br"),
            packed("gz"),
        );
    }
    text.push_str("];\npub const MISSING: Option<&str> = None;\n");
    Ok(text)
}

fn is_packed(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "br" || ending == "gz")
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}
