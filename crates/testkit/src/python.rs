//! The Python that has the packages which tests run.

use std::path::{Path, PathBuf};

/// The program, with the packages that `xtask/python/requirements.txt` pins.
///
/// # Panics
///
/// If it is missing or has other packages: `cargo xtask test` installs them.
pub fn python() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let place = program
        .ancestors()
        .map(|above| above.join("python"))
        .find(|place| place.join("installed.txt").exists());
    let Some(place) = place else {
        panic!("the Python packages are not installed: run `cargo xtask python install`");
    };
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/python/requirements.txt");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        read(&place.join("installed.txt")) == read(&list),
        "the Python packages in {} are not the ones that are pinned: run `cargo xtask python install`",
        place.display()
    );
    place.join("bin/python")
}
