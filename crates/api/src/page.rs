//! Lists, one page at a time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
    /// How many items all pages have together, where that is known without reading them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

impl<T> Page<T> {
    /// The only page of a list that is never divided.
    pub fn whole(items: Vec<T>) -> Self {
        let total = Some(items.len() as u64);
        Self { items, next_cursor: None, total }
    }
}
