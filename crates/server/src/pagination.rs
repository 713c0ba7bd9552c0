//! Pagination: a cursor holds where the next page begins, and which query it belongs to.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use stepback_store::port::QueryCursor as Place;
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// Items per page by default.
const USUAL: u64 = 100;
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

/// One page of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Where the next page begins; none after the last.
    pub next_cursor: Option<String>,
}

impl Paging {
    /// Returns the checked page size.
    pub fn limit(&self) -> Result<u64, Problem> {
        match self.limit {
            None => Ok(USUAL),
            Some(limit) if (1..=MOST).contains(&limit) => Ok(limit),
            Some(_) => Err(Problem::usage(format!("limit must be between 1 and {MOST}"))),
        }
    }

    /// Returns the position of the cursor. Fails if the cursor was not made for the query `about`.
    pub fn position(&self, about: &impl Hash) -> Result<Option<u64>, Problem> {
        let Some(text) = &self.after else { return Ok(None) };
        let (position, mark) = text.split_once('.').ok_or_else(foreign)?;
        let position = u64::from_str_radix(position, 36).map_err(|_| foreign())?;
        (cursor(position, about) == format!("{}.{mark}", in_base_36(position)))
            .then_some(Some(position))
            .ok_or_else(foreign)
    }
}

impl Paging {
    /// Returns the position of the cursor in an order of steps.
    pub fn place(&self, about: &impl Hash) -> Result<Option<Place>, Problem> {
        let Some(text) = &self.after else { return Ok(None) };
        let place = text.rsplit_once('.').and_then(|(place, _)| place.replace('~', "-").parse().ok());
        match place.filter(|place| place_cursor(*place, about) == *text) {
            Some(place) => Ok(Some(place)),
            None => Err(foreign()),
        }
    }
}

/// Makes a cursor that continues after a position in an order of steps.
pub fn place_cursor(place: Place, about: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (about, place.value, place.position).hash(&mut hasher);
    // A leading minus sign would look like a command line option.
    format!("{}.{}", place.to_string().replace('-', "~"), in_base_36(hasher.finish()))
}

fn foreign() -> Problem {
    Problem::usage("the cursor does not belong to this list")
        .hint("use next_cursor of the page before, with the same filters")
}

/// Makes a cursor that continues after `position`.
pub fn cursor(position: u64, about: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (about, position).hash(&mut hasher);
    format!("{}.{}", in_base_36(position), in_base_36(hasher.finish()))
}

/// Makes a page of at most `limit` rows, and its cursor. `rows` has one more if there is a next page.
pub fn page<S, T>(
    mut rows: Vec<S>,
    limit: u64,
    about: &impl Hash,
    position: impl Fn(&S) -> u64,
    item: impl Fn(&S) -> T,
) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(|last| cursor(position(last), about));
    Page { items: rows.iter().map(item).collect(), next_cursor }
}

fn in_base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_one_list() {
        let next = page(vec![9, 7, 5], 2, &"steps of x", |row| *row, |row| *row);
        assert_eq!(next.items, [9, 7]);
        let paging = Paging { limit: None, after: next.next_cursor };
        assert_eq!(paging.position(&"steps of x").unwrap(), Some(7));
        assert!(paging.position(&"steps of y").is_err());
        for wrong in ["", ".", "7", "7.", "7.x", "-1.z", "zzzzzzzzzzzzzzzzzzzzz.1"] {
            let paging = Paging { limit: None, after: Some(wrong.into()) };
            assert!(paging.position(&"steps of x").is_err(), "{wrong}");
        }
        assert_eq!(page(vec![9, 7], 2, &"", |row| *row, |row| *row).next_cursor, None);
    }
}
