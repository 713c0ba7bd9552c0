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
}
