//! The Python that has the packages which tests run.

use std::path::{Path, PathBuf};

/// The program, with the packages that `xtask/python/requirements.txt` pins.
///
/// # Panics
///
/// If it is missing or has other packages: `cargo xtask test` installs them.
pub fn python() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let directory = program
        .ancestors()
        .map(|target| target.join("python"))
        .find(|directory| directory.join("installed.txt").exists());
    let Some(directory) = directory else {
        panic!("the Python packages are not installed: run `cargo xtask python install`");
    };
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/python/requirements.txt");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        read(&directory.join("installed.txt")) == read(&list),
        "the Python packages in {} are not the ones that are pinned: run `cargo xtask python install`",
        directory.display()
    );
    directory.join("bin/python")
}
