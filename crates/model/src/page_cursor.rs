//! Cursors for lists in pages: where the next page begins, bound to the query it belongs to.
//!
//! The API and the MCP tools give them to clients, which send them back unchanged.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

/// Makes a cursor that continues after `place`, for the query `about`. The text of a place is letters, digits, `.` and `-`.
pub fn encode(place: impl Display, about: &impl Hash) -> String {
    // A leading minus sign would look like a command line option.
    append_query_hash(&place.to_string().replace('-', "~"), about)
}

/// Returns the place that a cursor names; `None` if it is malformed or belongs to another query.
pub fn decode<T: FromStr>(cursor: &str, about: &impl Hash) -> Option<T> {
    let (place, _) = cursor.rsplit_once('.')?;
    if append_query_hash(place, about) != cursor {
        return None;
    }
    place.replace('~', "-").parse().ok()
}

fn append_query_hash(place: &str, about: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (about, place).hash(&mut hasher);
    format!("{place}.{:x}", hasher.finish())
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
