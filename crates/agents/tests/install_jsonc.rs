//! The editor of other people's JSON: what goes in comes out again without a trace.
#![expect(clippy::unwrap_used, reason = "tests may fail loudly")]

use stepback_agents::install::jsonc::{Document, Rest, Step, Value};

fn document(text: &str) -> Document {
    Document::parse(text.to_owned()).unwrap()
}

fn group() -> Value {
    Value::Object(vec![("hooks", Value::Array(vec![Value::Text("h".to_owned())]))])
}

fn path(steps: &[&str]) -> Vec<Step> {
    steps.iter().map(|step| step.parse::<usize>().map_or_else(|_| Step::from(*step), Step::from)).collect()
}

/// Inserts a member under the root and takes it out again.
fn there_and_back(text: &str, expected: &str) {
    let mut document = document(text);
    document.insert_member(&[], "new", &group()).unwrap();
    assert_eq!(document.text(), expected);
    let rest = document.remove(&path(&["new"])).unwrap();
    assert_eq!(document.text(), text);
    assert_ne!(rest, Rest::EmptyAndOurs, "the container was there before: {text:?}");
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
        assert_eq!(document.remove(&path(&["new"])).unwrap(), Rest::Empty, "{text:?}");
        assert_eq!(document.text(), text);
    }
}

#[test]
fn a_container_of_our_making_is_known_again() {
    for text in ["{\n  \"a\": 1\n}\n", "{\"a\":1}", "{\"a\": 1}", "{\r\n\t\"a\": 1\r\n}", "{}", "{\n}"] {
        let mut document = document(text);
        document.insert_member(&[], "new", &group()).unwrap();
        assert_eq!(document.remove(&path(&["new", "hooks", "0"])).unwrap(), Rest::EmptyAndOurs, "{text:?}");
        assert_eq!(document.remove(&path(&["new", "hooks"])).unwrap(), Rest::EmptyAndOurs, "{text:?}");
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
        assert_eq!(document.remove(&[Step::from("l"), Step::from(last)]).unwrap(), Rest::Entries);
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
        document.remove(&[Step::from(at)]).unwrap();
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
        let error = Document::parse(text.to_owned()).unwrap_err();
        assert_eq!((error.position.line, error.position.column), (line, column), "{text:?}: {error}");
    }
    assert!(Document::parse("[".repeat(100_000)).is_err(), "deep nesting must not overflow the stack");
}

#[test]
fn comments_and_trailing_commas_are_pointed_out() {
    let found = document("{\n  // c\n  \"a\": [1,],\n}");
    assert_eq!(found.first_comment().unwrap().to_string(), "line 2, column 3");
    assert_eq!(found.first_trailing_comma().unwrap().to_string(), "line 3, column 10");
    let clean = document("{\"a\": \"// no, ]\"}");
    assert!(clean.first_comment().is_none() && clean.first_trailing_comma().is_none());
}
