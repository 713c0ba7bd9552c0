//! The Studio's files, as they were built from `studio/`, inside of the program: nothing is unpacked, nothing is
//! fetched.
//!
//! Each file is there plain and, where that is shorter, compressed at build time. The names of all but a few hold a
//! hash of what is in them, so a browser may keep those for ever. This crate holds the files and nothing else;
//! `server::static_files` serves them. Its build script runs Node in a copy of `studio/` when something there changed,
//! and omits the pages, with a reason, when it cannot.
//!
//! # The pages
//!
//! `studio/` is React and TypeScript. Types of documents are generated from `docs/openapi.json`, and everything it
//! shows comes from the public API. Start at `CurrentPage` in `studio/src/app.tsx`, which chooses the page. In `studio/src`:
//!
//! - `app`, `route`, `keys`, `theme`, `ui`, `icons`, `format`, `kinds`, `notify`, `workspaces`: the frame around pages,
//!   routing, shared components.
//! - `api`: requests, live events over one connection for all tabs that resumes where it was cut off, document types.
//! - `session`: the timeline: columns of numbers (`model`), drawing them (`painter`), interaction (`canvas`), the
//!   visible steps (`list`), one step (`detail`), the state at it (`state`), untrusted texts (`text`).
//! - `blame`: the gutter that names the origin of every line.
//! - `why`: the graph and the list of what led to something.
//! - `profile`, `dashboard`, `anomalies`: where the time went, all sessions at a glance, what is unusual.
//! - `board`: the reasoning at a step: view, item, chart of confidence, dependency graph and its layout.
//! - `diff`: rows of a unified diff, drawing the visible ones, a fixed set of highlighted languages.
//! - `rewind`, `dialogs`: plans, shown and confirmed; small forms.
//! - `pages`: one for each route; all but sessions are loaded on demand. A new page also needs its first path segment
//!   in `server::static_files` and its address in `studio/tests/appearance.spec.ts`.
//!
//! `studio/tests` drive the real program in a browser.

/// One file of the Studio.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Where it is below `/`.
    pub path: &'static str,
    /// What is in it.
    pub plain: &'static [u8],
    /// The same, compressed by brotli.
    pub brotli: Option<&'static [u8]>,
    /// The same, compressed by gzip.
    pub gzip: Option<&'static [u8]>,
}

mod built {
    use super::Asset;

    include!(concat!(env!("OUT_DIR"), "/assets.rs"));
}

/// The page that everything begins with.
const INDEX_FILE: &str = "index.html";

/// The file at a path, without the `/` it begins with.
pub fn find(path: &str) -> Option<&'static Asset> {
    built::ASSETS.iter().find(|asset| asset.path == path)
}

/// The page that everything begins with; none if the program was built without the Studio.
pub fn first() -> Option<&'static Asset> {
    find(INDEX_FILE)
}

/// Why the program was built without the Studio, if it was.
pub fn missing() -> Option<&'static str> {
    built::MISSING
}

impl Asset {
    /// Whether its name says what is in it, so that it never changes.
    pub fn is_fixed(&self) -> bool {
        self.path.starts_with("assets/")
    }

    /// What it is, for a browser.
    pub fn kind(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("json" | "webmanifest") => "application/json",
            Some("woff2") => "font/woff2",
            _ => "application/octet-stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest script that the first page may load, compressed.
    const MAX_SCRIPT_BYTES: usize = 300_000;

    #[test]
    fn there_is_a_first_page_or_a_reason() {
        assert_eq!(first().is_some(), missing().is_none(), "{:?}", missing());
    }

    #[test]
    fn the_first_page_is_small_and_has_no_script_of_its_own() {
        let Some(first) = first() else { return };
        let page = std::str::from_utf8(first.plain).unwrap();
        assert!(!page.contains("<style") && !page.contains(" style="), "{page}");
        let mut script = 0;
        for tag in page.split("<script").skip(1) {
            let (tag, rest) = tag.split_once('>').unwrap();
            assert!(rest.trim_start().starts_with("</script>"), "a script in the page: {rest}");
            let (_, path) = tag.split_once("src=\"/").unwrap();
            let asset = find(path.split('"').next().unwrap()).unwrap();
            assert!(asset.is_fixed());
            script += asset.brotli.unwrap().len();
        }
        assert!(script > 0 && script < MAX_SCRIPT_BYTES, "{script} bytes of script");
    }
}
