//! The editor of other people's JSON: what goes in comes out again without a trace.
#![expect(clippy::unwrap_used, reason = "tests may fail loudly")]

use stepback_agents::install::jsonc::{JsoncDocument, PathStep, RemainingContent, Value};

fn document(text: &str) -> JsoncDocument {
    JsoncDocument::parse(text.to_owned()).unwrap()
}

fn group() -> Value {
    Value::Object(vec![("hooks", Value::Array(vec![Value::Text("h".to_owned())]))])
}

fn path(steps: &[&str]) -> Vec<PathStep> {
    steps
        .iter()
        .map(|step| step.parse::<usize>().map_or_else(|_| PathStep::from(*step), PathStep::from))
        .collect()
}

/// Inserts a member under the root and takes it out again.
fn there_and_back(text: &str, expected: &str) {
    let mut document = document(text);
    document.insert_member(&[], "new", &group()).unwrap();
    assert_eq!(document.text(), expected);
    let rest = document.remove(&path(&["new"])).unwrap();
    assert_eq!(document.text(), text);
    assert_ne!(rest, RemainingContent::EmptyAndOurs, "the container was there before: {text:?}");
}

#[test]
fn a_member_follows_the_indentation_of_the_file() {
    there_and_back(
        "{\n\t\"a\": 1\n}\n",
        "{\n\t\"a\": 1,\n\t\"new\": {\n\t\t\"hooks\": [\n\t\t\t\"h\"\n\t\t]\n\t}\n}\n",
    );
    there_and_back(
        "{\n    \"a\": [\n        1\n    ]\n}",
        "{\n    \"a\": [\n        1\n    ],\n    \"new\": {\n        \"hooks\": [\n            \"h\"\n        ]\n    }\n}",
    );
}

#[test]
fn line_breaks_are_those_of_the_file() {
    there_and_back(
        "{\r\n  \"a\": 1\r\n}\r\n",
        "{\r\n  \"a\": 1,\r\n  \"new\": {\r\n    \"hooks\": [\r\n      \"h\"\r\n    ]\r\n  }\r\n}\r\n",
    );
}

#[test]
fn one_line_stays_one_line() {
    there_and_back("{\"a\":1}", "{\"a\":1,\"new\":{\"hooks\":[\"h\"]}}");
    there_and_back("{ \"a\": 1 }\n", "{ \"a\": 1, \"new\": {\"hooks\": [\"h\"]} }\n");
}

#[test]
fn a_trailing_comma_stays_the_only_one() {
    there_and_back(
        "{\n  \"a\": 1,\n}\n",
        "{\n  \"a\": 1,\n  \"new\": {\n    \"hooks\": [\n      \"h\"\n    ]\n  },\n}\n",
    );
}

#[test]
fn comments_keep_their_places() {
    there_and_back(
        "// top\n{\n  \"a\": 1 // about a\n  // the end\n}\n// bottom",
        "// top\n{\n  \"a\": 1, // about a\n  // the end\n  \"new\": {\n    \"hooks\": [\n      \"h\"\n    ]\n  }\n}\n// bottom",
    );
    there_and_back(
        "{\"a\": 1 // about a\n}",
        "{\"a\": 1, // about a\n\"new\": {\n  \"hooks\": [\n    \"h\"\n  ]\n}\n}",
    );
    there_and_back("{\"a\": 1 /* about a */}", "{\"a\": 1, /* about a */ \"new\": {\"hooks\": [\"h\"]}}");
}

#[test]
fn a_byte_order_mark_stays() {
    there_and_back("\u{feff}{\"a\": 1}", "\u{feff}{\"a\": 1, \"new\": {\"hooks\": [\"h\"]}}");
}

#[test]
fn an_empty_object_becomes_empty_again_in_its_own_way() {
    for text in [
        "{}",
        "{}\n",
        "{ }",
        "{\n}\n",
        "{\n\n}",
        "{\r\n}",
        "{ // nothing yet\n}",
        "{\n  // nothing yet\n}",
        "{\t\n}",
    ] {
        let mut document = document(text);
        document.insert_member(&[], "new", &group()).unwrap();
        assert_eq!(document.remove(&path(&["new"])).unwrap(), RemainingContent::Empty, "{text:?}");
        assert_eq!(document.text(), text);
    }
}

#[test]
fn a_container_of_our_making_is_known_again() {
    for text in ["{\n  \"a\": 1\n}\n", "{\"a\":1}", "{\"a\": 1}", "{\r\n\t\"a\": 1\r\n}", "{}", "{\n}"] {
        let mut document = document(text);
        document.insert_member(&[], "new", &group()).unwrap();
        assert_eq!(
            document.remove(&path(&["new", "hooks", "0"])).unwrap(),
            RemainingContent::EmptyAndOurs,
            "{text:?}"
        );
        assert_eq!(
            document.remove(&path(&["new", "hooks"])).unwrap(),
            RemainingContent::EmptyAndOurs,
            "{text:?}"
        );
        document.remove(&path(&["new"])).unwrap();
        assert_eq!(document.text(), text);
    }
}

#[test]
fn an_element_is_appended_and_removed() {
    for (text, expected) in [
        ("{\"l\": [1, 2]}", "{\"l\": [1, 2, \"x\"]}"),
        ("{\"l\": [\n  1,\n  2\n]}", "{\"l\": [\n  1,\n  2,\n  \"x\"\n]}"),
        ("{\"l\": [1, 2,]}", "{\"l\": [1, 2, \"x\",]}"),
        ("{\"l\": [{\n  \"a\": 1\n}]}", "{\"l\": [{\n  \"a\": 1\n}, \"x\"]}"),
    ] {
        let mut document = document(text);
        document.append(&path(&["l"]), &Value::Text("x".to_owned())).unwrap();
        assert_eq!(document.text(), expected);
        let last = document.root().member("l").unwrap().elements().unwrap().len() - 1;
        assert_eq!(
            document.remove(&[PathStep::from("l"), PathStep::from(last)]).unwrap(),
            RemainingContent::Entries
        );
        assert_eq!(document.text(), text);
    }
}

#[test]
fn removing_the_first_or_a_middle_entry_takes_its_own_comma() {
    for (text, at, expected) in [
        ("[1, 2, 3]", 0usize, "[ 2, 3]"),
        ("[1, 2, 3]", 1, "[1, 3]"),
        ("[1, 2, 3]", 2, "[1, 2]"),
        ("[\n  1, // one\n  2, // two\n  3 // three\n]", 1, "[\n  1, // one\n   // two\n  3 // three\n]"),
        ("[\n  1, // one\n  2 // two\n]", 1, "[\n  1 // one\n   // two\n]"),
        ("[\n  // first\n  1, 2]", 0, "[\n  // first\n   2]"),
        ("[\n  1,\n  // second\n  2]", 1, "[\n  1\n  // second\n  ]"),
        ("[\n  // only\n  1\n]", 0, "[\n  // only\n]"),
        ("[1 /* a */, 2]", 0, "[ /* a */ 2]"),
    ] {
        let mut document = document(text);
        document.remove(&[PathStep::from(at)]).unwrap();
        assert_eq!(document.text(), expected, "{text:?} without {at}");
    }
}

#[test]
fn a_value_is_replaced_where_it_stands() {
    let mut document = document("{\n  \"a\": {\n    \"b\": 1\n  }, // kept\n  \"c\": [1]\n}");
    document.replace(&path(&["a"]), &group()).unwrap();
    document.replace(&path(&["c", "0"]), &Value::Number(2)).unwrap();
    assert_eq!(
        document.text(),
        "{\n  \"a\": {\n    \"hooks\": [\n      \"h\"\n    ]\n  }, // kept\n  \"c\": [2]\n}"
    );
}

#[test]
fn of_two_members_of_one_name_the_last_counts() {
    let document = document("{\"a\": 1, \"a\": 2}");
    assert!(document.root().member("a").unwrap().is_plain("2"));
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for (text, line, column) in [
        ("", 1, 1),
        ("{", 1, 2),
        ("{\n  \"a\": 1\n  \"b\": 2\n}", 3, 3),
        ("{\n  a: 1\n}", 2, 3),
        ("{\"a\" 1}", 1, 6),
        ("{\"a\": undefined}", 1, 7),
        ("{\"a\": 'x'}", 1, 7),
        ("{\"ä\": \"x}", 1, 7),
        ("{} {}", 1, 4),
        ("[1,,2]", 1, 4),
        ("[,]", 1, 2),
        ("{\"a\": 1 /* ", 1, 9),
        ("{\"a\": 01}", 1, 7),
        ("\u{feff}{x}", 1, 2),
    ] {
        let error = JsoncDocument::parse(text.to_owned()).unwrap_err();
        assert_eq!((error.position.line, error.position.column), (line, column), "{text:?}: {error}");
    }
    assert!(JsoncDocument::parse("[".repeat(100_000)).is_err(), "deep nesting must not overflow the stack");
}

#[test]
fn comments_and_trailing_commas_are_pointed_out() {
    let found = document("{\n  // c\n  \"a\": [1,],\n}");
    assert_eq!(found.first_comment().unwrap().to_string(), "line 2, column 3");
    assert_eq!(found.first_trailing_comma().unwrap().to_string(), "line 3, column 10");
    let clean = document("{\"a\": \"// no, ]\"}");
    assert!(clean.first_comment().is_none() && clean.first_trailing_comma().is_none());
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn blank(&mut self) -> &'static str {
        ["", "", " ", "\n", "\n  ", "\r\n\t", " // c, ]\n", "/* { */", "\n\n", "\n  // \"x\"\n  "]
            [self.roll(10)]
    }

    fn value(&mut self, depth: usize) -> String {
        let kind = self.roll(if depth == 0 { 2 } else { 4 });
        if kind < 2 {
            return ["1", "\"t\\\"e, // x\"", "null", "-2.5e3"][self.roll(4)].to_owned();
        }
        self.container(depth, kind == 2)
    }

    fn container(&mut self, depth: usize, object: bool) -> String {
        let mut text = String::from(if object { "{" } else { "[" });
        let count = self.roll(4);
        for index in 0..count {
            text.push_str(self.blank());
            if object {
                text.push_str(&format!("\"k{index}\"{}:{}", self.blank(), self.blank()));
            }
            text.push_str(&self.value(depth - 1));
            text.push_str(self.blank());
            if index + 1 < count || self.roll(4) == 0 {
                text.push(',');
            }
        }
        text.push_str(self.blank());
        text.push(if object { '}' } else { ']' });
        text
    }
}

/// All paths to containers below `path`.
fn containers(document: &JsoncDocument, path: &[PathStep], found: &mut Vec<(Vec<PathStep>, bool)>) {
    let node = document.get(path).unwrap();
    let steps: Vec<PathStep> = match (node.members(), node.elements()) {
        (Some(members), _) => members.iter().map(|member| PathStep::from(member.name.as_str())).collect(),
        (_, Some(elements)) => (0..elements.len()).map(PathStep::from).collect(),
        _ => return,
    };
    found.push((path.to_vec(), node.members().is_some()));
    for step in steps {
        let mut path = path.to_vec();
        path.push(step);
        containers(document, &path, found);
    }
}

#[test]
fn whatever_the_file_looks_like_it_comes_back() {
    let mut dice = Dice(7);
    for _ in 0..3000 {
        let text = format!("{}{}{}", dice.blank(), dice.container(3, true), dice.blank());
        let original = document(&text);
        let mut found = Vec::new();
        containers(&original, &[], &mut found);
        for (path, is_object) in found {
            let mut edited = original.clone();
            let last = if is_object {
                edited.insert_member(&path, "new", &group()).unwrap();
                PathStep::from("new")
            } else {
                edited.append(&path, &group()).unwrap();
                PathStep::from(edited.get(&path).unwrap().elements().unwrap().len() - 1)
            };
            let mut entry = path.clone();
            entry.push(last);
            assert!(edited.get(&entry).is_some(), "{text:?} at {path:?} became {:?}", edited.text());
            let rest = edited.remove(&entry).unwrap();
            assert_eq!(edited.text(), text, "at {path:?}");
            assert_ne!(rest, RemainingContent::EmptyAndOurs, "{text:?} at {path:?}");
        }
    }
}

#[test]
fn removing_any_entry_leaves_json_with_the_others() {
    let mut dice = Dice(11);
    for _ in 0..3000 {
        let text = dice.container(2, false);
        let original = document(&text);
        let count = original.root().elements().unwrap().len();
        for index in 0..count {
            let mut edited = original.clone();
            edited.remove(&[PathStep::from(index)]).unwrap();
            let left: Vec<_> =
                edited.root().elements().unwrap().iter().map(|n| &edited.text()[n.span.clone()]).collect();
            let mut expected: Vec<_> =
                original.root().elements().unwrap().iter().map(|n| &text[n.span.clone()]).collect();
            expected.remove(index);
            assert_eq!(left, expected, "{text:?} without {index}");
        }
    }
}
