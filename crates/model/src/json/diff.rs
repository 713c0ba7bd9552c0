//! The difference of two JSON values, found by skipping what they share.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt::Write;

use serde_json::Value;

use super::node::{Group, Member, Node, Part, Shape};
use super::page::ValueRoot;
use super::read::Reader;
use super::{JsonError, MAX_DEPTH};
use crate::object::ObjectSource;

/// One part in which two values differ.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct ValueDifference {
    /// A JSON pointer (RFC 6901) to the part: in the first value if the part is missing from the second, otherwise in the
    /// second. For changed parts both are the same.
    pub pointer: String,
    /// The part in the first value; `None` if it is missing there.
    pub before: Option<Value>,
    /// The part in the second value; `None` if it is missing there.
    pub after: Option<Value>,
}

/// Compares two values and lists what differs, in the order of the values. Reads only nodes that differ.
///
/// Containers of the same kind are compared member by member; anything else that differs is listed whole. Objects are
/// matched by key. Of two arrays the equal beginning and the equal end are set aside; the elements between are paired by
/// index, and those that are left over on one side are removed or inserted there. So inserting at the front of an array
/// is one difference, not a change of every element.
pub fn diff(
    source: &(impl ObjectSource + ?Sized),
    a: impl Into<ValueRoot>,
    b: impl Into<ValueRoot>,
) -> Result<Vec<ValueDifference>, JsonError> {
    let (a, b) = (a.into(), b.into());
    let mut differ = Differ { reader: Reader::new(source), pointer: String::new(), differences: Vec::new() };
    if a != b {
        let (a, b) = (differ.reader.read_root(a)?, differ.reader.read_root(b)?);
        differ.compare_nodes(a, b, 0)?;
    }
    Ok(differ.differences)
}

/// A member of a container, or a whole group of them. Groups that are equal on both sides are skipped without being read.
#[derive(PartialEq)]
enum Run {
    One(Member),
    Many(Group, u8),
}

impl Run {
    /// 0 for a member, higher for more levels of groups.
    fn rank(&self) -> u8 {
        match self {
            Run::One(_) => 0,
            Run::Many(_, level) => *level,
        }
    }

    fn key(&self) -> &str {
        match self {
            Run::One(member) => &member.key,
            Run::Many(group, _) => &group.key,
        }
    }

    fn count(&self) -> u64 {
        match self {
            Run::One(_) => 1,
            Run::Many(group, _) => group.count,
        }
    }
}

fn list_runs(node: Node) -> VecDeque<Run> {
    match node {
        Node::Scalar(_) => VecDeque::new(),
        Node::Leaf(_, members) => members.into_iter().map(Run::One).collect(),
        Node::Inner(_, level, groups) => groups.into_iter().map(|group| Run::Many(group, level)).collect(),
    }
}

/// Which end of a container's runs is processed.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

struct Differ<'a, S: ?Sized> {
    reader: Reader<'a, S>,
    pointer: String,
    differences: Vec<ValueDifference>,
}

impl<S: ObjectSource + ?Sized> Differ<'_, S> {
    fn compare_nodes(&mut self, before: Node, after: Node, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep);
        }
        match (before.shape(), after.shape()) {
            (Some(Shape::Array), Some(Shape::Array)) => {
                self.compare_arrays(list_runs(before), list_runs(after), depth)
            }
            (Some(Shape::Object), Some(Shape::Object)) => {
                self.compare_objects(list_runs(before), list_runs(after), depth)
            }
            _ => {
                let before_value = Some(self.reader.read_value(before, depth)?);
                let after_value = Some(self.reader.read_value(after, depth)?);
                self.differences.push(ValueDifference {
                    pointer: self.pointer.clone(),
                    before: before_value,
                    after: after_value,
                });
                Ok(())
            }
        }
    }

    /// Compares two members, or lists one that has no partner, at the pointer `…/token`.
    fn compare_members(
        &mut self,
        reference_token: &str,
        before: Option<Part>,
        after: Option<Part>,
        depth: usize,
    ) -> Result<(), JsonError> {
        if before == after {
            return Ok(());
        }
        let len = self.pointer.len();
        self.pointer.push('/');
        for c in reference_token.chars() {
            match c {
                '~' => self.pointer.push_str("~0"),
                '/' => self.pointer.push_str("~1"),
                c => self.pointer.push(c),
            }
        }
        match (before, after) {
            (Some(before), Some(after)) => {
                let (before, after) = (self.reader.open(before)?, self.reader.open(after)?);
                self.compare_nodes(before, after, depth + 1)?;
            }
            (before, after) => {
                let before_value = before.map(|part| self.reader.part_value(part, depth + 1)).transpose()?;
                let after_value = after.map(|part| self.reader.part_value(part, depth + 1)).transpose()?;
                self.differences.push(ValueDifference {
                    pointer: self.pointer.clone(),
                    before: before_value,
                    after: after_value,
                });
            }
        }
        self.pointer.truncate(len);
        Ok(())
    }

    /// Replaces the group at one end of `runs` by its children; does nothing if a single member is there.
    fn expand(&mut self, runs: &mut VecDeque<Run>, shape: Shape, end: End) -> Result<(), JsonError> {
        let outermost = match end {
            End::Front => runs.front(),
            End::Back => runs.back(),
        };
        let Some(Run::Many(group, level)) = outermost else { return Ok(()) };
        let node = self.reader.read_group(group, shape, *level)?;
        match end {
            End::Front => {
                runs.pop_front();
                list_runs(node).into_iter().rev().for_each(|run| runs.push_front(run));
            }
            End::Back => {
                runs.pop_back();
                runs.extend(list_runs(node));
            }
        }
        Ok(())
    }

    /// Removes equal elements from one end of both arrays and returns how many.
    fn trim(&mut self, a: &mut VecDeque<Run>, b: &mut VecDeque<Run>, end: End) -> Result<u64, JsonError> {
        let mut equal = 0;
        loop {
            let pair = match end {
                End::Front => (a.front(), b.front()),
                End::Back => (a.back(), b.back()),
            };
            let (Some(x), Some(y)) = pair else { return Ok(equal) };
            let (rank_x, rank_y) = (x.rank(), y.rank());
            if x == y {
                equal += x.count();
                for runs in [&mut *a, &mut *b] {
                    match end {
                        End::Front => runs.pop_front(),
                        End::Back => runs.pop_back(),
                    };
                }
                continue;
            }
            if rank_x == 0 && rank_y == 0 {
                return Ok(equal);
            }
            if rank_x >= rank_y {
                self.expand(a, Shape::Array, end)?;
            }
            if rank_y >= rank_x {
                self.expand(b, Shape::Array, end)?;
            }
        }
    }

    fn compare_arrays(
        &mut self,
        mut a: VecDeque<Run>,
        mut b: VecDeque<Run>,
        depth: usize,
    ) -> Result<(), JsonError> {
        let mut index = self.trim(&mut a, &mut b, End::Front)?;
        self.trim(&mut a, &mut b, End::Back)?;
        let mut token = String::new();
        loop {
            let (x, y) = (self.next_element(&mut a)?, self.next_element(&mut b)?);
            if x.is_none() && y.is_none() {
                return Ok(());
            }
            token.clear();
            // Writing into a String cannot fail.
            let _ = write!(token, "{index}");
            self.compare_members(&token, x, y, depth)?;
            index += 1;
        }
    }

    fn next_element(&mut self, runs: &mut VecDeque<Run>) -> Result<Option<Part>, JsonError> {
        loop {
            match runs.pop_front() {
                None => return Ok(None),
                Some(Run::One(member)) => return Ok(Some(member.part)),
                Some(group) => {
                    runs.push_front(group);
                    self.expand(runs, Shape::Array, End::Front)?;
                }
            }
        }
    }

    /// Merges two objects by key. A group is placed by its first key; it is skipped if the other side has the same group
    /// at this place, and expanded if its members are needed.
    fn compare_objects(
        &mut self,
        mut a: VecDeque<Run>,
        mut b: VecDeque<Run>,
        depth: usize,
    ) -> Result<(), JsonError> {
        loop {
            let (rank_a, rank_b, order) = match (a.front(), b.front()) {
                (None, None) => return Ok(()),
                (Some(x), None) => (x.rank(), 0, Ordering::Less),
                (None, Some(y)) => (0, y.rank(), Ordering::Greater),
                (Some(x), Some(y)) if x == y => {
                    a.pop_front();
                    b.pop_front();
                    continue;
                }
                (Some(x), Some(y)) => (x.rank(), y.rank(), x.key().cmp(y.key())),
            };
            // With equal first keys, the higher group may contain the lower one: expand only the higher.
            let open_a = rank_a > 0 && (order.is_lt() || (order.is_eq() && rank_a >= rank_b));
            let open_b = rank_b > 0 && (order.is_gt() || (order.is_eq() && rank_b >= rank_a));
            if open_a {
                self.expand(&mut a, Shape::Object, End::Front)?;
            }
            if open_b {
                self.expand(&mut b, Shape::Object, End::Front)?;
            }
            if open_a || open_b {
                continue;
            }
            let x = if order.is_le() { a.pop_front() } else { None };
            let y = if order.is_ge() { b.pop_front() } else { None };
            let key = x.as_ref().or(y.as_ref()).map(|run| run.key().to_owned()).unwrap_or_default();
            self.compare_members(&key, x.and_then(Run::into_part), y.and_then(Run::into_part), depth)?;
        }
    }
}

impl Run {
    fn into_part(self) -> Option<Part> {
        match self {
            Run::One(member) => Some(member.part),
            Run::Many(..) => None,
        }
    }
}
