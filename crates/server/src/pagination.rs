//! Pages of lists in the API.

use std::hash::Hash;
use std::str::FromStr;

use serde::Deserialize;
use stepback_api::page::Page;
use stepback_model::page_cursor;
use utoipa::IntoParams;

use crate::problem::Problem;

/// Items per page by default.
const DEFAULT_PAGE_SIZE: u64 = 100;
/// Most items per page.
const MOST: u64 = 1000;

/// Selects a page of a list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Most items to return, at most 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u64>,
    /// Where to continue: the `next_cursor` of the page before.
    pub after: Option<String>,
}

impl Paging {
    /// Returns the checked page size.
    pub fn limit(&self) -> Result<u64, Problem> {
        match self.limit {
            None => Ok(DEFAULT_PAGE_SIZE),
            Some(limit) if (1..=MOST).contains(&limit) => Ok(limit),
            Some(_) => Err(Problem::usage(format!("limit must be between 1 and {MOST}"))),
        }
    }

    /// Returns where the page begins, as the cursor says. Fails if the cursor was not made for the query `about`.
    pub fn start_position<T: FromStr>(&self, query: &impl Hash) -> Result<Option<T>, Problem> {
        let Some(cursor) = &self.after else { return Ok(None) };
        page_cursor::decode(cursor, query).map(Some).ok_or_else(|| {
            Problem::usage("the cursor does not belong to this list")
                .with_hint("use next_cursor of the page before, with the same filters")
        })
    }
}

/// Makes a page of at most `limit` rows, and its cursor. `rows` has one more if there is a next page.
pub fn paginate<S, T>(
    mut rows: Vec<S>,
    limit: u64,
    query: &impl Hash,
    position: impl Fn(&S) -> u64,
    item: impl Fn(&S) -> T,
) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(|last| page_cursor::encode(position(last), query));
    Page { items: rows.iter().map(item).collect(), next_cursor, total: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_one_list() {
        let next = paginate(vec![9, 7, 5], 2, &"steps of x", |row| *row, |row| *row);
        assert_eq!(next.items, [9, 7]);
        let paging = Paging { limit: None, after: next.next_cursor };
        assert_eq!(paging.start_position(&"steps of x").unwrap(), Some(7));
        assert!(paging.start_position::<u64>(&"steps of y").is_err());
        for wrong in ["", ".", "7", "7.", "7.x", "-1.z", "zzzzzzzzzzzzzzzzzzzzz.1"] {
            let paging = Paging { limit: None, after: Some(wrong.into()) };
            assert!(paging.start_position::<u64>(&"steps of x").is_err(), "{wrong}");
        }
        assert_eq!(paginate(vec![9, 7], 2, &"", |row| *row, |row| *row).next_cursor, None);
    }
}
