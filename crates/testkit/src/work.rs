//! Random changes of files, as users and programs make them: edits in place and by rename, links, swaps, odd names, no
//! pauses.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::tree::Draw;

/// A user or an agent that works in a directory.
#[derive(Debug)]
pub struct FileWorker {
    /// Where.
    pub root: PathBuf,
    /// What decides.
    pub draw: Draw,
}

const NAMES: &[&[u8]] = &[
    b"a",
    b"a.b",
    b"a-b",
    b"b",
    b"c.txt",
    b".env",
    b"x.log",
    b"ignored",
    b"new\nline",
    b"not utf8 \xff\xfe",
    b" ",
    "\u{fc}\u{202e}".as_bytes(),
    b"-f",
    b"lib",
    &[b'n'; 255],
];

impl FileWorker {
    /// Everything there is, directories before what they hold.
    fn list(&self, dir: &Path, entries: &mut Vec<(PathBuf, fs::FileType)>) {
        let mut children: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).collect();
        children.sort_by_key(fs::DirEntry::file_name);
        for entry in children {
            let kind = entry.file_type().unwrap();
            entries.push((entry.path(), kind));
            if kind.is_dir() && entry.file_name() != "node_modules" {
                self.list(&entry.path(), entries);
            }
        }
    }

    fn pick_entry(&mut self, is_wanted: impl Fn(&fs::FileType) -> bool) -> Option<PathBuf> {
        let mut entries = Vec::new();
        self.list(&self.root, &mut entries);
        entries
            .retain(|(path, kind)| is_wanted(kind) && path.file_name() != Some(OsStr::new("node_modules")));
        (!entries.is_empty()).then(|| self.draw.pick(&entries).0.clone())
    }

    fn pick_directory(&mut self) -> PathBuf {
        let deep = |path: &Path, root: &Path| path.components().count() - root.components().count() > 4;
        match self.pick_entry(fs::FileType::is_dir) {
            Some(dir) if !self.draw.once_in(4) && !deep(&dir, &self.root) => dir,
            _ => self.root.clone(),
        }
    }

    /// A path that may or may not exist.
    fn pick_path(&mut self) -> PathBuf {
        let dir = self.pick_directory();
        let name: &[u8] = self.draw.pick::<&[u8]>(NAMES);
        dir.join(OsStr::from_bytes(name))
    }

    /// One line or bytes with zeroes, so that line-wise merges never succeed by chance.
    fn content(&mut self) -> Vec<u8> {
        match self.draw.below(8) {
            0 => Vec::new(),
            1 => {
                let count = 1 + self.draw.below(3000);
                let mut bytes = self.draw.bytes(count);
                bytes[0] = 0;
                bytes
            }
            2 => vec![b'x'; 1 + self.draw.below(5000)],
            _ => format!("{:08}", self.draw.below(100_000_000)).into_bytes(),
        }
    }

    /// Writes a file at a path; anything there that is not a file is removed first.
    pub fn write(&self, path: &Path, bytes: &[u8]) {
        let kind = fs::symlink_metadata(path).map(|metadata| metadata.file_type());
        match kind {
            Ok(kind) if kind.is_dir() => drop(fs::remove_dir_all(path)),
            Ok(kind) if kind.is_symlink() => drop(fs::remove_file(path)),
            _ => {}
        }
        let _ = fs::write(path, bytes);
    }

    /// Does something to the files and says what.
    pub fn change(&mut self) -> String {
        loop {
            if let Some(description) = self.try_change() {
                return description;
            }
        }
    }

    /// One random change; `None` if there is nothing that it applies to.
    fn try_change(&mut self) -> Option<String> {
        let kind = self.draw.below(22);
        match (kind, self.pick_entry(fs::FileType::is_file)) {
            (0..=9, Some(path)) => self.change_file(kind, &path),
            (10, _) => Some(self.change_link()),
            (11..=13, _) => {
                self.pick_entry(fs::FileType::is_dir).map(|path| self.change_directory(kind, &path))
            }
            _ => Some(self.add_something(kind)),
        }
    }

    /// A path for people, relative to the root.
    fn show(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        shorter(&relative.as_os_str().as_bytes().escape_ascii().to_string())
    }

    fn change_file(&mut self, kind: usize, path: &Path) -> Option<String> {
        Some(match kind {
            0 | 1 => {
                // The same size, in place, at once: only the check for racy timestamps can notice.
                let Ok(metadata) = fs::metadata(path) else { return None };
                let size = metadata.len() as usize;
                let keep_times = kind == 1;
                if let Ok(file) = OpenOptions::new().write(true).open(path)
                    && size > 0
                {
                    let length = size.min(8);
                    let offset = self.draw.below(size - length + 1);
                    let digits = format!("{:08}", self.draw.below(100_000_000));
                    file.write_all_at(&digits.as_bytes()[..length], offset as u64).unwrap();
                    if keep_times {
                        file.set_modified(metadata.modified().unwrap()).unwrap();
                    }
                }
                format!("edit {} in place, times kept: {keep_times}", self.show(path))
            }
            2 => {
                if let Ok(mut file) = OpenOptions::new().append(true).open(path) {
                    file.write_all(b"+more").unwrap();
                }
                format!("append to {}", self.show(path))
            }
            3 => {
                let _ = fs::remove_file(path);
                format!("delete {}", self.show(path))
            }
            4 => {
                let to = self.pick_path();
                let _ = fs::rename(path, &to);
                format!("rename {} to {}", self.show(path), self.show(&to))
            }
            5 => {
                let mode = *self.draw.pick(&[0o600, 0o444, 0o755, 0o644, 0o640, 0o4711]);
                let _ = fs::set_permissions(path, Permissions::from_mode(mode));
                format!("chmod {mode:o} {}", self.show(path))
            }
            6 => {
                // As editors save files.
                let aside = path.with_file_name("aside");
                let bytes = self.content();
                let _ = fs::write(&aside, bytes);
                let _ = fs::rename(&aside, path);
                format!("save {} by rename", self.show(path))
            }
            7 => {
                let _ = fs::remove_file(path);
                let target = self.draw.pick(&["nowhere", "../a", "c.txt", "/dev/null"]);
                let _ = symlink(target, path);
                format!("replace {} by a link to {target}", self.show(path))
            }
            8 => {
                let _ = fs::remove_file(path);
                let _ = fs::create_dir(path);
                let _ = fs::write(path.join("inside"), b"inside");
                format!("replace {} by a directory", self.show(path))
            }
            _ => {
                let to = self.pick_path();
                let _ = fs::hard_link(path, &to);
                format!("hard link {} as {}", self.show(path), self.show(&to))
            }
        })
    }

    fn change_link(&mut self) -> String {
        let Some(path) = self.pick_entry(fs::FileType::is_symlink) else {
            let path = self.pick_path();
            let _ = symlink("nowhere", &path);
            return format!("link {} to nowhere", self.show(&path));
        };
        let _ = fs::remove_file(&path);
        if self.draw.once_in(2) {
            let _ = fs::write(&path, b"was link");
            return format!("replace the link {} by a file", self.show(&path));
        }
        let target = self.draw.pick(&["nowhere", "no-here", "c.txt"]);
        let _ = symlink(target, &path);
        format!("point the link {} at {target}", self.show(&path))
    }

    fn change_directory(&mut self, kind: usize, path: &Path) -> String {
        match kind {
            11 => {
                let target = self.pick_path();
                let _ = fs::rename(path, &target);
                format!("rename the directory {} to {}", self.show(path), self.show(&target))
            }
            12 => {
                let mode = *self.draw.pick(&[0o755, 0o700, 0o555, 0o775]);
                let _ = fs::set_permissions(path, Permissions::from_mode(mode));
                format!("chmod {mode:o} the directory {}", self.show(path))
            }
            _ => {
                let becomes_file = self.draw.once_in(2);
                let _ = fs::remove_dir_all(path);
                if becomes_file {
                    let _ = fs::write(path, b"was dir");
                }
                format!("delete the directory {}, a file comes: {becomes_file}", self.show(path))
            }
        }
    }

    fn add_something(&mut self, kind: usize) -> String {
        match kind {
            14 => {
                let path = self.pick_path();
                let _ = fs::create_dir_all(&path);
                format!("make the directory {}", self.show(&path))
            }
            15 if self.draw.once_in(3) => {
                let path = self.pick_directory().join("large");
                let old_content = fs::read(&path).unwrap_or_default();
                let bytes = if old_content.len() > 1000 && !self.draw.once_in(3) {
                    let mut bytes = old_content;
                    let offset = self.draw.below(bytes.len());
                    match self.draw.below(3) {
                        0 => bytes[offset] ^= 1,
                        1 => drop(bytes.splice(offset..offset, *b"inserted")),
                        _ => drop(bytes.drain(offset..(offset + 100).min(file_length(&path, offset)))),
                    }
                    bytes
                } else {
                    let size = (1 << 20) + self.draw.below(700_000);
                    self.draw.bytes(size)
                };
                self.write(&path, &bytes);
                format!("write {} of {} bytes", self.show(&path), bytes.len())
            }
            16 => {
                let dir = self.pick_directory().join("node_modules");
                let _ = fs::create_dir(&dir);
                let _ = fs::write(dir.join("package.json"), self.content());
                format!("install into {}", self.show(&dir))
            }
            17 => {
                let rules = *self.draw.pick(&["*.log\nignored/\n", "*.log\n", "a\n.env\n", ""]);
                self.write(&self.root.join(".gitignore"), rules.as_bytes());
                format!("git ignores {rules:?}")
            }
            _ => {
                let path = self.pick_path();
                let bytes = self.content();
                self.write(&path, &bytes);
                format!("write {} of {} bytes", self.show(&path), bytes.len())
            }
        }
    }
}

fn file_length(path: &Path, default: usize) -> usize {
    fs::metadata(path).map_or(default, |metadata| metadata.len() as usize)
}

/// Abbreviates the long name, for readable logs.
pub fn shorter(text: &str) -> String {
    text.replace(&"n".repeat(255), "n…n")
}
