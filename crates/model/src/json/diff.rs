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
    let mut differ = Differ { reader: Reader::new(source), pointer: String::new(), found: Vec::new() };
    if a != b {
        let (a, b) = (differ.reader.read_root(a)?, differ.reader.read_root(b)?);
        differ.compare_nodes(a, b, 0)?;
    }
    Ok(differ.found)
}

/// A member of a container, or a whole group of them with the level of the node that lists it.
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

fn runs(node: Node) -> VecDeque<Run> {
    match node {
        Node::Scalar(_) => VecDeque::new(),
        Node::Leaf(_, members) => members.into_iter().map(Run::One).collect(),
        Node::Inner(_, level, groups) => groups.into_iter().map(|group| Run::Many(group, level)).collect(),
    }
}

struct Differ<'a, S: ?Sized> {
    reader: Reader<'a, S>,
    pointer: String,
    found: Vec<ValueDifference>,
}

impl<S: ObjectSource + ?Sized> Differ<'_, S> {
    fn compare_nodes(&mut self, a: Node, b: Node, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep);
        }
        match (a.shape(), b.shape()) {
            (Some(Shape::Array), Some(Shape::Array)) => self.compare_arrays(runs(a), runs(b), depth),
            (Some(Shape::Object), Some(Shape::Object)) => self.compare_objects(runs(a), runs(b), depth),
            _ => {
                let before = Some(self.reader.read_value(a, depth)?);
                let after = Some(self.reader.read_value(b, depth)?);
                self.found.push(ValueDifference { pointer: self.pointer.clone(), before, after });
                Ok(())
            }
        }
    }

    /// Compares two members, or lists one that has no partner, at the pointer `…/token`.
    fn compare_members(
        &mut self,
        token: &str,
        a: Option<Part>,
        b: Option<Part>,
        depth: usize,
    ) -> Result<(), JsonError> {
        if a == b {
            return Ok(());
        }
        let len = self.pointer.len();
        self.pointer.push('/');
        for c in token.chars() {
            match c {
                '~' => self.pointer.push_str("~0"),
                '/' => self.pointer.push_str("~1"),
                c => self.pointer.push(c),
            }
        }
        match (a, b) {
            (Some(a), Some(b)) => {
                let (a, b) = (self.reader.open(a)?, self.reader.open(b)?);
                self.compare_nodes(a, b, depth + 1)?;
            }
            (a, b) => {
                let before = a.map(|part| self.reader.part_value(part, depth + 1)).transpose()?;
                let after = b.map(|part| self.reader.part_value(part, depth + 1)).transpose()?;
                self.found.push(ValueDifference { pointer: self.pointer.clone(), before, after });
            }
        }
        self.pointer.truncate(len);
        Ok(())
    }

    /// Reads the group at the front or back of `of` and puts its members or groups there instead.
    fn open(&mut self, of: &mut VecDeque<Run>, shape: Shape, front: bool) -> Result<(), JsonError> {
        let end = if front { of.front() } else { of.back() };
        let Some(Run::Many(group, level)) = end else { return Ok(()) };
        let node = self.reader.read_group(group, shape, *level)?;
        if front {
            of.pop_front();
            runs(node).into_iter().rev().for_each(|run| of.push_front(run));
        } else {
            of.pop_back();
            of.extend(runs(node));
        }
        Ok(())
    }

    /// Takes equal elements off one end of two arrays and returns how many.
    fn trim(&mut self, a: &mut VecDeque<Run>, b: &mut VecDeque<Run>, front: bool) -> Result<u64, JsonError> {
        let mut equal = 0;
        loop {
            let ends = if front { (a.front(), b.front()) } else { (a.back(), b.back()) };
            let (Some(x), Some(y)) = ends else { return Ok(equal) };
            let (rank_x, rank_y) = (x.rank(), y.rank());
            if x == y {
                equal += x.count();
                for runs in [&mut *a, &mut *b] {
                    if front {
                        runs.pop_front()
                    } else {
                        runs.pop_back()
                    };
                }
                continue;
            }
            if rank_x == 0 && rank_y == 0 {
                return Ok(equal);
            }
            if rank_x >= rank_y {
                self.open(a, Shape::Array, front)?;
            }
            if rank_y >= rank_x {
                self.open(b, Shape::Array, front)?;
            }
        }
    }

    fn compare_arrays(
        &mut self,
        mut a: VecDeque<Run>,
        mut b: VecDeque<Run>,
        depth: usize,
    ) -> Result<(), JsonError> {
        let mut index = self.trim(&mut a, &mut b, true)?;
        self.trim(&mut a, &mut b, false)?;
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

    fn next_element(&mut self, of: &mut VecDeque<Run>) -> Result<Option<Part>, JsonError> {
        loop {
            match of.pop_front() {
                None => return Ok(None),
                Some(Run::One(member)) => return Ok(Some(member.part)),
                Some(group) => {
                    of.push_front(group);
                    self.open(of, Shape::Array, true)?;
                }
            }
        }
    }

    /// Merges two objects by key. A group stands before its first key; it is skipped if the other side has the same
    /// group next, and opened if its members are needed.
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
            // With equal first keys, the higher group may hold the lower one: open only the higher.
            let open_a = rank_a > 0 && (order.is_lt() || (order.is_eq() && rank_a >= rank_b));
            let open_b = rank_b > 0 && (order.is_gt() || (order.is_eq() && rank_b >= rank_a));
            if open_a {
                self.open(&mut a, Shape::Object, true)?;
            }
            if open_b {
                self.open(&mut b, Shape::Object, true)?;
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
