//! Cursors for lists in pages: where the next page begins, bound to the query it belongs to.
//!
//! The API and the MCP tools give them to clients, which send them back unchanged.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

/// Makes a cursor that continues after `position` in the results of `query`. The text of a position is letters, digits,
/// `.` and `-`.
pub fn encode(position: impl Display, query: &impl Hash) -> String {
    // A leading minus sign would look like a command line option.
    append_query_hash(&position.to_string().replace('-', "~"), query)
}

/// Returns the position that a cursor holds; `None` if it is malformed or belongs to another query.
pub fn decode<T: FromStr>(cursor: &str, query: &impl Hash) -> Option<T> {
    let (position, _) = cursor.rsplit_once('.')?;
    if append_query_hash(position, query) != cursor {
        return None;
    }
    position.replace('~', "-").parse().ok()
}

fn append_query_hash(position: &str, query: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (query, position).hash(&mut hasher);
    format!("{position}.{:x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_one_query() {
        let next = encode("-12.7", &"steps of x");
        assert!(!next.starts_with('-'), "{next}");
        assert_eq!(decode(&next, &"steps of x"), Some("-12.7".to_owned()));
        assert_eq!(decode::<String>(&next, &"steps of y"), None);
        assert_eq!(decode::<u64>(&next, &"steps of x"), None);
        for odd in ["", ".", "7", "7.", "7.x", "12.7", "12.7.", "12.7.zz", "-1.z", "\u{1F600}.1"] {
            assert_eq!(decode::<String>(odd, &"steps of x"), None, "{odd}");
        }
    }
}
