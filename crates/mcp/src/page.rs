//! Lists in pages: a cursor says where the next page begins, and is valid for one query only.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The cursor of a page that ends at `place`, for the query `about`.
pub fn cursor(place: &str, about: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (about, place).hash(&mut hasher);
    format!("{place}.{:x}", hasher.finish())
}

/// The place where the next page begins. `None` for a cursor that is malformed or belongs to another query.
pub fn place<'c>(text: &'c str, about: &impl Hash) -> Option<&'c str> {
    let (place, _) = text.rsplit_once('.')?;
    (cursor(place, about) == text).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_one_question() {
        let next = cursor("12.7", &"steps of x");
        assert_eq!(place(&next, &"steps of x"), Some("12.7"));
        assert_eq!(place(&next, &"steps of y"), None);
        for odd in ["", ".", "12.7", "12.7.", "12.7.zz", "\u{1F600}.1"] {
            assert_eq!(place(odd, &"steps of x"), None, "{odd}");
        }
    }
}
