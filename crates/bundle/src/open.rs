//! A bundle that was read to its end and validated.
//!
//! The addresses of its objects are computed from their bytes; what remains to check is that everything named is present, has
//! the declared size, and can be decoded. Memory grows with the number of objects and records, not with their size.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use stepback_engine::reachability::{Alive, Marker, Visitor};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::list;
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_model::path::display_bytes;
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::tree::{Content, SkipReason, Tree, TreeNode};

use crate::check;
use crate::error::BundleError;
use crate::frame::{self, BlockKind, BundleReader};
use crate::records::{GitFile, Record, WorkspaceLog};

/// Bytes of decompressed blocks kept in the cache; one block may be larger.
const CACHED_BYTES: usize = 32 << 20;

/// The location of an object in the file.
#[derive(Clone, Copy, Debug)]
pub struct ObjectLocation {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Offset of its block in the file.
    pub block: u64,
    start: u32,
    length: u32,
}

/// A git file and the locations of its parts.
#[derive(Clone, Debug)]
pub struct PackedFile {
    /// Name and size of the file.
    pub file: GitFile,
    blocks: Vec<u64>,
}

/// A validated bundle.
#[derive(Debug)]
pub struct Bundle {
    source: BundleSource,
    /// Records of the bundle, by workspace.
    pub(crate) logs: Vec<WorkspaceLog>,
    /// The objects and git files that its records need; the file may contain more.
    pub(crate) needed: Alive,
    /// Git files in the bundle.
    pub(crate) git_files: Vec<PackedFile>,
}

#[derive(Debug)]
struct BundleSource {
    file: File,
    index: HashMap<Hash, ObjectLocation>,
    recent: RefCell<VecDeque<(u64, Rc<Vec<u8>>)>>,
}

impl BundleSource {
    fn read_block(&self, offset: u64) -> Result<Rc<Vec<u8>>, BundleError> {
        let mut recent = self.recent.borrow_mut();
        if let Some((_, block)) = recent.iter().find(|(cached, _)| *cached == offset) {
            return Ok(block.clone());
        }
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset)).map_err(BundleError::io("read the bundle again"))?;
        let block = Rc::new(frame::read_block(&mut BufReader::new(file), offset)?);
        recent.push_front((offset, block.clone()));
        let mut bytes = 0;
        let kept_count = recent.iter().take_while(|(_, block)| {
            bytes += block.len();
            bytes <= CACHED_BYTES
        });
        let kept_count = kept_count.count().max(1);
        recent.truncate(kept_count);
        Ok(block)
    }
}

impl ObjectSource for BundleSource {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        let placed = self.index.get(&hash).filter(|placed| placed.kind == kind);
        let placed = placed.ok_or(ObjectError::Missing { kind, hash })?;
        let block = self.read_block(placed.block).map_err(|error| ObjectError::Backend(Box::new(error)))?;
        let start = placed.start as usize;
        let bytes = block.get(start..start + placed.length as usize).unwrap_or_default().to_vec();
        match Hash::of(kind, &bytes) == hash {
            true => Ok(bytes),
            false => Err(ObjectError::corrupt(kind, hash, "the bundle changed while it was read")),
        }
    }
}

impl Bundle {
    /// Reads a bundle to its end and validates all of it. Writes nothing. `progress` counts the objects that were read.
    pub fn open(file: File, progress: Option<&AtomicU64>) -> Result<Self, BundleError> {
        let mut contents = BundleContents::default();
        let mut reader = BundleReader::new(BufReader::with_capacity(256 << 10, &file))?;
        while let Some((offset, kind, block)) = reader.next()? {
            contents.add_block(offset, kind, &block)?;
            if let Some(progress) = progress {
                progress.store(contents.index.len() as u64, Ordering::Relaxed);
            }
        }
        let BundleContents { logs, index, git_files, unfinished, .. } = contents;
        if unfinished.is_some() {
            return Err(BundleError::inconsistent("a git file is shorter than its declared length"));
        }
        if logs.is_empty() {
            return Err(BundleError::inconsistent("it contains no session"));
        }
        check::check_logs(&logs)?;
        let source = BundleSource { file, index, recent: RefCell::default() };
        let needed = find_reachable(&source, &logs)?;
        check_git_paths(&source, &needed)?;
        let names: HashSet<&[u8]> = git_files.iter().map(|parts| parts.file.name.as_bytes()).collect();
        if names.len() != git_files.len() {
            return Err(BundleError::inconsistent("it contains a git file twice"));
        }
        if let Some(name) = needed.vaulted.iter().find(|name| !names.contains(name.as_slice())) {
            let name = String::from_utf8_lossy(name);
            return Err(BundleError::inconsistent(format!("git file {name} is referenced but missing")));
        }
        Ok(Self { source, logs, needed, git_files })
    }

    /// Returns the needed objects, in file order.
    pub(crate) fn needed_objects(&self) -> Vec<(Hash, ObjectLocation)> {
        let needed = |(hash, _): &(&Hash, &ObjectLocation)| self.needed.objects.contains(hash);
        let mut objects: Vec<(Hash, ObjectLocation)> =
            self.source.index.iter().filter(needed).map(|(hash, placed)| (*hash, *placed)).collect();
        objects.sort_unstable_by_key(|(_, placed)| (placed.block, placed.start));
        objects
    }

    /// Returns the bytes of an object.
    pub(crate) fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.source.read(kind, hash)
    }

    /// Returns the bytes of a git file, part by part.
    pub(crate) fn git_file_parts(
        &self,
        parts: &PackedFile,
    ) -> impl Iterator<Item = Result<Rc<Vec<u8>>, BundleError>> {
        parts.blocks.iter().map(|offset| self.source.read_block(*offset))
    }
}

/// What has been read of the file so far.
#[derive(Default)]
struct BundleContents {
    logs: Vec<WorkspaceLog>,
    lines: u64,
    index: HashMap<Hash, ObjectLocation>,
    git_files: Vec<PackedFile>,
    /// Number of bytes still missing from the last git file.
    unfinished: Option<u64>,
}

impl BundleContents {
    fn add_block(&mut self, offset: u64, kind: BlockKind, block: &[u8]) -> Result<(), BundleError> {
        let cut = || BundleError::inconsistent("a git file is shorter than its declared length");
        if self.unfinished.is_some() && kind != BlockKind::GitFilePart {
            return Err(cut());
        }
        match kind {
            BlockKind::Log => self.parse_log(block),
            BlockKind::Objects => self.index_objects(offset, block),
            BlockKind::GitFile => {
                let file: GitFile = serde_json::from_slice(block)
                    .map_err(|error| BundleError::inconsistent(format!("a git file: {error}")))?;
                self.unfinished = Some(file.size).filter(|size| *size > 0);
                self.git_files.push(PackedFile { file, blocks: Vec::new() });
                Ok(())
            }
            BlockKind::GitFilePart => {
                let missing = self.unfinished.and_then(|missing| missing.checked_sub(block.len() as u64));
                let (Some(missing), Some(parts)) = (missing, self.git_files.last_mut()) else {
                    return Err(BundleError::inconsistent("a git file is longer than its declared length"));
                };
                parts.blocks.push(offset);
                self.unfinished = Some(missing).filter(|missing| *missing > 0);
                Ok(())
            }
            BlockKind::End => Ok(()),
        }
    }

    fn index_objects(&mut self, offset: u64, block: &[u8]) -> Result<(), BundleError> {
        for (kind, start, length) in frame::list_objects(block)? {
            let hash = Hash::of(kind, &block[start..start + length]);
            // A block is smaller than 4 GiB.
            let placed = ObjectLocation { kind, block: offset, start: start as u32, length: length as u32 };
            if self.index.insert(hash, placed).is_some() {
                return Err(BundleError::inconsistent(format!("it contains {kind} {hash} twice")));
            }
        }
        Ok(())
    }

    fn parse_log(&mut self, block: &[u8]) -> Result<(), BundleError> {
        for line in block.split_inclusive(|byte| *byte == b'\n') {
            self.lines += 1;
            let number = self.lines;
            let line_error =
                |reason: String| BundleError::inconsistent(format!("line {number} of its log: {reason}"));
            let record: Record =
                serde_json::from_slice(line).map_err(|error| line_error(error.to_string()))?;
            if let Record::Workspace(workspace) = record {
                let (sessions, steps) = (Vec::new(), Vec::new());
                let (operations, references) = (Vec::new(), Vec::new());
                self.logs.push(WorkspaceLog { workspace, sessions, steps, operations, references });
                continue;
            }
            let log = self.logs.last_mut().ok_or_else(|| line_error("it has no workspace".into()))?;
            match record {
                Record::Workspace(_) => {}
                Record::Session(session) => log.sessions.push(session),
                Record::Step(moment) => log.steps.push(moment),
                Record::Operation(operation) => log.operations.push(operation),
                Record::Reference(reference) => log.references.push(reference),
            }
        }
        Ok(())
    }
}

/// Returns everything the records need; fails if some of it is missing or malformed.
fn find_reachable(source: &BundleSource, logs: &[WorkspaceLog]) -> Result<Alive, BundleError> {
    let mut inspector = ObjectInspector { source, lists: HashMap::new(), missing: None };
    let mut marker = Marker::new(source).with_visitor(&mut inspector);
    for log in logs {
        log.push_roots(&mut marker);
    }
    marker.run();
    let Marker { alive, problems, .. } = marker;
    match inspector.missing.or_else(|| problems.into_iter().next()) {
        Some(problem) => Err(BundleError::Inconsistent(problem)),
        None => Ok(alive),
    }
}

/// Checks of every state that its git directories lie in directories of its own files, and not behind a link or a file.
fn check_git_paths(source: &BundleSource, needed: &Alive) -> Result<(), BundleError> {
    let is_state = |(hash, placed): &(&Hash, &ObjectLocation)| {
        placed.kind == ObjectKind::State && needed.objects.contains(hash)
    };
    let mut checked = HashSet::new();
    for (hash, _) in source.index.iter().filter(is_state) {
        let state = WorkspaceState::load(source, *hash)?;
        let Some(git) = state.git.filter(|git| checked.insert((state.files, *git))) else { continue };
        for repository in GitState::load(source, git)?.repositories {
            if !has_place_for(source, state.files, &repository.path)? {
                let path = display_bytes(&repository.path);
                return Err(BundleError::inconsistent(format!(
                    "git directory {path} is not in a directory of its files"
                )));
            }
        }
    }
    Ok(())
}

/// Whether the directory of a git directory exists among the files, and nothing else has its name.
fn has_place_for(source: &BundleSource, files: Option<Hash>, path: &[u8]) -> Result<bool, ObjectError> {
    let Some(mut tree) = files else { return Ok(false) };
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        match (Tree::load(source, tree)?.get(name), names.peek()) {
            (Some(TreeNode::Dir { tree: subtree, .. }), Some(_)) => tree = *subtree,
            // A rewind that brings a git directory back does not enter it among the files.
            (None | Some(TreeNode::Skipped { reason: SkipReason::GitDir }), None) => return Ok(true),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

struct ObjectInspector<'s> {
    source: &'s BundleSource,
    /// Sizes of chunked files, by the hash of their chunk list.
    lists: HashMap<Hash, u64>,
    missing: Option<String>,
}

impl Visitor for ObjectInspector<'_> {
    fn visit_object(&mut self, kind: ObjectKind, hash: Hash) {
        if self.source.index.get(&hash).is_none_or(|placed| placed.kind != kind) {
            self.missing.get_or_insert_with(|| format!("{kind} {hash} is referenced but missing"));
        }
    }

    fn visit_file(&mut self, size: u64, content: &Content) -> Result<(), ObjectError> {
        let (kind, hash, stored_size) = match *content {
            Content::Vaulted => return Ok(()),
            Content::Whole(hash) => {
                let placed = self.source.index.get(&hash);
                (ObjectKind::Blob, hash, placed.map_or(size, |placed| u64::from(placed.length)))
            }
            Content::Chunked(root) => (ObjectKind::List, root, self.chunked_size(root)?),
        };
        match stored_size == size {
            true => Ok(()),
            false => Err(ObjectError::corrupt(kind, hash, format!("{stored_size} bytes instead of {size}"))),
        }
    }
}

impl ObjectInspector<'_> {
    fn chunked_size(&mut self, root: Hash) -> Result<u64, ObjectError> {
        if let Some(known_size) = self.lists.get(&root) {
            return Ok(*known_size);
        }
        let mut total: u64 = 0;
        for item in list::iter(self.source, root) {
            let item = item?;
            let length = self.source.index.get(&item.hash).map(|placed| u64::from(placed.length));
            if length.is_some_and(|length| length != item.len) {
                return Err(ObjectError::corrupt(ObjectKind::Blob, item.hash, "its size differs"));
            }
            total = total.saturating_add(item.len);
        }
        self.lists.insert(root, total);
        Ok(total)
    }
}

/// Whether a file begins like a bundle.
pub fn is_bundle(file: &mut impl Read) -> bool {
    let mut start = [0; frame::MAGIC.len()];
    file.read_exact(&mut start).is_ok() && start == frame::MAGIC
}
