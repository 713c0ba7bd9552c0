//! A mind in the object store: an object with a list of pages for every kind of item.
//!
//! A page is a text, a JSON list of up to [`PAGE`] items in order of their numbers, `null` for one that was taken back.
//! Pages that did not change are not read. So a change costs one page, the list of pages it is in and the root, each of
//! them stored as a delta to its previous version; and reading a mind of any moment means reading its pages, without
//! replaying anything. See `docs/spec/reasoning.md`.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use stepback_model::hash::Hash;
use stepback_model::json::{Piece, assemble, fields};
use stepback_model::object::{ObjectSink, ObjectSource};

use crate::error::MindError;
use crate::ids::ItemKind;
use crate::mind::{ReasoningBoard, each_table};
use crate::paged_table::{PAGE, Page, Table};

/// The only format version so far.
const FORMAT: u64 = 1;

/// From this many pages on, reading them takes longer than starting a thread.
const MIN_PAGES_PER_THREAD: usize = 8;

/// The location of a mind in the store, used as the base for the next version.
#[derive(Clone, Debug, Default)]
pub struct BoardLocation {
    /// The hash of its root object; `None` if it is not stored.
    pub root: Option<Hash>,
    lists: Vec<(ItemKind, Piece)>,
}

/// A mind that was written; it is in the store once the batch is committed.
#[derive(Clone, Debug)]
pub struct WrittenBoard {
    /// Its location once it is committed.
    pub place: BoardLocation,
    pages: Vec<(ItemKind, Vec<Piece>)>,
}

impl ReasoningBoard {
    /// Writes what is not stored yet. `previous` is the location of the previous version.
    pub fn store(
        &self,
        sink: &(impl ObjectSink + ?Sized),
        previous: Option<&BoardLocation>,
    ) -> Result<WrittenBoard, MindError> {
        let mut lists = Vec::new();
        let mut all = Vec::new();
        each_table!(self, table => {
            if !table.pages.is_empty() {
                let pieces = store_pages(sink, table)?;
                let old_list = previous.and_then(|place| place.lists.iter().find(|(kind, _)| *kind == table.kind));
                let similar = old_list.map(|(_, piece)| piece);
                lists.push((table.kind, Piece::store_array(sink, pieces.iter().cloned(), similar)?));
                all.push((table.kind, pieces));
            }
        });
        let named_lists = lists.iter().map(|(kind, piece)| (kind.plural().to_owned(), piece.clone()));
        let format = ("format".to_owned(), Piece::value(sink, &json!(FORMAT))?);
        let root = assemble(sink, named_lists.chain([format]), previous.and_then(|place| place.root))?;
        Ok(WrittenBoard { place: BoardLocation { root: Some(root), lists }, pages: all })
    }

    /// Records that what was written of this mind has been committed, so that it is not written again.
    pub fn committed(&self, written: &WrittenBoard) {
        each_table!(self, table => {
            let written_pages = written.pages.iter().find(|(kind, _)| *kind == table.kind);
            for (page, piece) in table.pages.iter().zip(written_pages.map_or([].as_slice(), |(_, pieces)| pieces)) {
                // Fails only for a page that was stored before, as the same object.
                let _ = page.stored.set(piece.clone());
            }
        });
    }

    /// Reads the mind stored under `root`.
    pub fn load(
        source: &(impl ObjectSource + ?Sized),
        root: Hash,
    ) -> Result<(Self, BoardLocation), MindError> {
        Self::default().load_other(source, root)
    }

    /// Reads the mind stored under `root`, without reading again what this one shares with it: a caller that reads many
    /// versions one after the other reads each page once.
    pub fn load_other(
        &self,
        source: &(impl ObjectSource + ?Sized),
        root: Hash,
    ) -> Result<(Self, BoardLocation), MindError> {
        let mut mind = Self::default();
        let mut lists = Vec::new();
        let mut format = None;
        for (name, piece) in fields(source, root)? {
            if name == "format" {
                format = piece.as_scalar().and_then(serde_json::Value::as_u64);
                continue;
            }
            let Some(kind) = ItemKind::ALL.into_iter().find(|kind| kind.plural() == name) else {
                return Err(MindError::Unreadable(format!(
                    "it contains {name}, which this version does not support"
                )));
            };
            let pages = piece.elements(source)?;
            match kind {
                ItemKind::Hypothesis => mind.hypotheses = read_table(source, &self.hypotheses, pages)?,
                ItemKind::Evidence => mind.evidence = read_table(source, &self.evidence, pages)?,
                ItemKind::Belief => mind.beliefs = read_table(source, &self.beliefs, pages)?,
                ItemKind::Contradiction => {
                    mind.contradictions = read_table(source, &self.contradictions, pages)?
                }
                ItemKind::Gap => mind.gaps = read_table(source, &self.gaps, pages)?,
                ItemKind::Verification => {
                    mind.verifications = read_table(source, &self.verifications, pages)?
                }
                ItemKind::Run => mind.runs = read_table(source, &self.runs, pages)?,
                ItemKind::Note => mind.notes = read_table(source, &self.notes, pages)?,
                ItemKind::Experiment => mind.experiments = read_table(source, &self.experiments, pages)?,
            }
            lists.push((kind, piece));
        }
        match format {
            Some(FORMAT) => Ok((mind, BoardLocation { root: Some(root), lists })),
            Some(newer) => Err(MindError::Unreadable(format!(
                "its format is {newer}, but this version supports {FORMAT}"
            ))),
            None => Err(MindError::Unreadable("its format is missing".to_owned())),
        }
    }
}

/// Stores the pages of a table; returns their objects.
fn store_pages<T: Serialize + Clone>(
    sink: &(impl ObjectSink + ?Sized),
    table: &Table<T>,
) -> Result<Vec<Piece>, MindError> {
    let mut pieces = Vec::with_capacity(table.pages.len());
    for page in &table.pages {
        if let Some(piece) = page.stored.get() {
            pieces.push(piece.clone());
            continue;
        }
        let text =
            serde_json::to_string(&page.items).map_err(|error| MindError::Unreadable(error.to_string()))?;
        // A full page seldom changes any more and is read with every later version: it is stored without a delta.
        let similar = page.before.as_ref().filter(|_| page.items.len() < PAGE);
        let piece = Piece::text(sink, text, similar)?;
        pieces.push(piece);
    }
    Ok(pieces)
}

fn read_table<T: DeserializeOwned + Clone + PartialEq + Send>(
    source: &(impl ObjectSource + ?Sized),
    known_table: &Table<T>,
    pieces: Vec<Piece>,
) -> Result<Table<T>, MindError> {
    let kind = known_table.kind;
    let corrupt = |page_number: usize, what: String| {
        MindError::Unreadable(format!("page {page_number} of the {}: {what}", kind.plural()))
    };
    let count = pieces.len();
    let mut pages = Vec::with_capacity(count);
    let mut texts = Vec::new();
    for (page_number, piece) in pieces.into_iter().enumerate() {
        let unchanged = known_table.pages.get(page_number).filter(|page| page.stored.get() == Some(&piece));
        if let Some(page) = unchanged.filter(|page| page.items.len() == PAGE || page_number + 1 == count) {
            pages.push(Ok(Arc::clone(page)));
            continue;
        }
        let text = piece.read_text(source)?.ok_or_else(|| corrupt(page_number, "it is not text".into()))?;
        texts.push(text.into_owned());
        pages.push(Err(piece));
    }
    let mut read = parse_pages::<T>(&texts).into_iter();
    let mut table = Table::new(kind);
    for (page_number, page) in pages.into_iter().enumerate() {
        let piece = match page {
            Ok(known_table) => {
                table.pages.push(known_table);
                continue;
            }
            Err(piece) => piece,
        };
        // There is one text for each page that was not known.
        let items = read.next().unwrap_or_else(|| Ok(Vec::new()));
        let items = items.map_err(|error| corrupt(page_number, error.to_string()))?;
        let full = items.len() == PAGE || (page_number + 1 == count && (1..=PAGE).contains(&items.len()));
        if !full {
            return Err(corrupt(page_number, format!("it has {} items", items.len())));
        }
        table.pages.push(Arc::new(Page::new(items, Some(piece))));
    }
    Ok(table)
}

/// Parses the items of pages. This takes most of the time of reading a large board, so two threads do it if there are many
/// pages.
fn parse_pages<T: DeserializeOwned + Send>(texts: &[String]) -> Vec<serde_json::Result<Vec<Option<T>>>> {
    let parse_all =
        |texts: &[String]| texts.iter().map(|text| serde_json::from_str(text)).collect::<Vec<_>>();
    if texts.len() < MIN_PAGES_PER_THREAD {
        return parse_all(texts);
    }
    let (first, second) = texts.split_at(texts.len() / 2);
    std::thread::scope(|scope| {
        let second_half = scope.spawn(|| parse_all(second));
        let mut pages = parse_all(first);
        // Parsing does not panic; if it does, it is repeated here.
        pages.extend(second_half.join().unwrap_or_else(|_| parse_all(second)));
        pages
    })
}
