//! Tests of [`crate::point`].

use proptest::prelude::*;

use super::*;

fn point(text: &str) -> PointExpr {
    PointExpr::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> PointError {
    PointExpr::parse(text).map(|point| panic!("{text:?} is {point:?}")).unwrap_err()
}

fn back(anchor: Anchor, back: u64) -> PointExpr {
    PointExpr { session: None, anchor, back }
}

fn in_session(session: &str, anchor: Anchor, back: u64) -> PointExpr {
    PointExpr { session: Some(session.into()), anchor, back }
}

fn text(name: &str, is_time: bool) -> PointExpr {
    Anchor::Text { name: name.into(), is_time }.into()
}

#[test]
fn every_kind_of_point_is_read() {
    let tool = |name: &str, nth| PointExpr::from(Anchor::Tool { name: name.into(), nth });
    let tag = |tag: &str, nth| PointExpr::from(Anchor::Tag { tag: tag.into(), nth });
    for (given, expected) in [
        ("@", PointExpr::NOW),
        ("  @ ", PointExpr::NOW),
        ("@-3", back(Anchor::Now, 3)),
        ("@-0", PointExpr::NOW),
        ("@-", back(Anchor::Now, 1)),
        ("@~", back(Anchor::Now, 1)),
        ("@~2", back(Anchor::Now, 2)),
        ("@^^", back(Anchor::Now, 2)),
        ("#42~1", back(Anchor::Step(42), 1)),
        ("ab12#@-", in_session("ab12", Anchor::Now, 1)),
        ("#42", Anchor::Step(42).into()),
        ("#007", Anchor::Step(7).into()),
        ("#42-3", back(Anchor::Step(42), 3)),
        ("ab12#42", in_session("ab12", Anchor::Step(42), 0)),
        ("ab12#42-1", in_session("ab12", Anchor::Step(42), 1)),
        ("ab12#@-1", in_session("ab12", Anchor::Now, 1)),
        ("ab12#error:first", in_session("ab12", Anchor::Error(Nth::First), 0)),
        ("error:last", Anchor::Error(Nth::Last).into()),
        ("error:2", Anchor::Error(Nth::Number(2)).into()),
        ("tool:bash:last", tool("bash", Nth::Last)),
        ("tool:bash:first", tool("bash", Nth::First)),
        ("tool:bash", tool("bash", Nth::Last)),
        ("tool:mcp__a__b-c.d:12", tool("mcp__a__b-c.d", Nth::Number(12))),
        ("tool:a#b:last", tool("a#b", Nth::Last)),
        ("iteration:5", Anchor::Iteration(5).into()),
        ("tag:q4_0:last", tag("q4_0", Nth::Last)),
        ("tag:q4_0", tag("q4_0", Nth::Last)),
        ("tag:\"env:prod\":first", tag("env:prod", Nth::First)),
        ("label:before refactor", Anchor::Label("before refactor".into()).into()),
        ("label:a:b#c", Anchor::Label("a:b#c".into()).into()),
        ("label:\" x \"", Anchor::Label(" x ".into()).into()),
        ("branch:main", Anchor::Branch("main".into()).into()),
        ("id:4F2A", Anchor::Id("4f2a".into()).into()),
        ("time:monday", Anchor::Time("monday".into()).into()),
        ("4f2a", text("4f2a", false)),
        ("before-refactor-2", text("before-refactor-2", false)),
        ("fix: the parser", text("fix: the parser", false)),
        ("42", Anchor::Step(42).into()),
        ("4047", Anchor::Step(4047).into()),
        ("2026", Anchor::Step(2026).into()),
        ("\"4047\"", text("4047", false)),
        ("12345678901234567890123456789012", text("12345678901234567890123456789012", false)),
        ("monday", text("monday", true)),
        ("2 hours ago", text("2 hours ago", true)),
        ("\"2 hours ago\"", text("2 hours ago", true)),
        ("2026-01-23T12:00", text("2026-01-23T12:00", true)),
        ("14:00", text("14:00", true)),
        ("\"#42\"", text("#42", false)),
        ("\"a \\\"b\\\" \\\\\"", text("a \"b\" \\", false)),
        ("größe", text("größe", false)),
        ("my label#3 x", text("my label#3 x", false)),
    ] {
        assert_eq!(point(given), expected, "{given}");
        assert_eq!(point(&expected.to_string()), expected, "{given} is written {expected}");
    }
}

#[test]
fn canonical_texts_are_short() {
    for (given, canonical) in [
        ("#007", "#7"),
        ("@-0", "@"),
        ("tool:bash", "tool:bash:last"),
        ("\"label\"", "label"),
        ("label:\"x\"", "label:x"),
        ("\"tool:x\"", "\"tool:x\""),
        ("ab12#@", "ab12#@"),
        ("tag:\"a:b\"", "tag:\"a:b\":last"),
    ] {
        assert_eq!(point(given).to_string(), canonical);
    }
}

#[test]
fn malformed_points_say_where_and_what_instead() {
    for (given, offending, what, suggestion) in [
        ("", "", "it is empty", "@"),
        ("  ", "  ", "it is empty", "@"),
        ("#", "", "a step number is missing after \"#\"", "#42"),
        ("#x", "x", "\"x\" is not a step number", "#42"),
        ("#-1", "-1", "\"-1\" is not a step number", "#42"),
        ("#0", "0", "steps are numbered from 1", "#1"),
        ("ab12#0", "0", "steps are numbered from 1", "ab12#1"),
        ("#99999999999999999999", "99999999999999999999", "this number is too large", "#1"),
        ("#42 foo", " foo", "\" foo\" does not belong after \"#42\"", "#42"),
        ("#42x", "x", "\"x\" does not belong after \"#42\"", "#42"),
        ("ab12#", "", "a step number is missing after \"#\"", "ab12#1"),
        ("ab12##4", "#4", "\"#4\" is not a step number", "ab12#42"),
        ("ab12#label:x", "label:", "\"label:\" does not depend on a session", "label:x"),
        ("@~x", "x", "a number of steps is missing after \"~\"", "@-1"),
        ("@^2", "^2", "\"^2\" does not belong after \"@\"", "@"),
        ("@-x", "x", "a number of steps is missing after \"-\"", "@-1"),
        ("@-3x", "x", "\"x\" does not belong after \"@-3\"", "@-3"),
        ("@-99999999999999999999", "99999999999999999999", "this number is too large", "@-1"),
        ("@+1", "+1", "a point goes back from now, never forward", "@-1"),
        ("@foo", "foo", "\"foo\" does not belong after \"@\"", "@"),
        ("-3", "-3", "steps back start from somewhere", "@-3"),
        ("tool:", "", "a tool name is missing after \"tool:\"", "tool:bash:last"),
        ("tool::last", "", "a tool name is missing after \"tool:\"", "tool:bash:last"),
        ("tool:bash:", "", "\"first\", \"last\" or a number is missing", "tool:bash:last"),
        (
            "tool:bash:lsat",
            "lsat",
            "\"lsat\" is neither \"first\" nor \"last\" nor a number",
            "tool:bash:last",
        ),
        ("tool:bash:0", "0", "calls, errors and tags are numbered from 1", "tool:bash:first"),
        ("tool:bash:last:x", "last:x", "a name with a colon is written in quotes", "tool:\"a:b\":last"),
        ("tol:bash:last", "tol", "\"tol:\" is not a kind of point", "tool:bash:last"),
        ("tag:", "", "a tag is missing after \"tag:\"", "tag:release:last"),
        ("error:", "", "\"first\", \"last\" or a number is missing", "error:last"),
        ("error:lst", "lst", "\"lst\" is neither \"first\" nor \"last\" nor a number", "error:last"),
        ("iteration:", "", "a number is missing after \"iteration:\"", "iteration:5"),
        ("iteration:x", "x", "\"x\" is not the number of an iteration", "iteration:5"),
        ("iteration:5x", "5x", "\"5x\" is not the number of an iteration", "iteration:5"),
        ("iteration:0", "0", "iterations are numbered from 1", "iteration:1"),
        ("label:", "", "a label is missing after \"label:\"", "label:before-refactor"),
        ("branch:", "", "a branch name is missing after \"branch:\"", "branch:main"),
        ("id:", "", "an id is missing after \"id:\"", "id:4f2a"),
        ("id:xyz", "xyz", "an id consists of the digits 0-9 and a-f", "id:4f2a"),
        ("time:2 huors ago", "huors", "\"huors\" is not a word for a time", "time:2 hours ago"),
        ("\"abc\" def", " def", "\" def\" does not belong after \"\\\"abc\\\"\"", "\"abc\""),
        ("\"\"", "\"\"", "there is nothing between the quotes", "@"),
    ] {
        let error = error(given);
        assert_eq!(given.get(error.span.clone()), Some(offending), "{error}");
        assert_eq!(error.what, what);
        assert!(error.suggestions.iter().any(|s| s == suggestion), "{error}");
    }
    for given in ["\"abc", "\"a\\x\"", "a\u{7}b", "a\nb", "tool:\"x"] {
        assert!(!error(given).what.is_empty());
    }
    assert_eq!(error("a\u{1b}[31mb").span, 1..2);
}

#[test]
fn suggestions_are_points() {
    for given in [
        "",
        "#",
        "#x",
        "@+1",
        "@-x",
        "tool::last",
        "tol:bash",
        "iteration:x",
        "tag:",
        "-3",
        "time:x",
        "tool:a:b:c",
    ] {
        for suggestion in error(given).suggestions {
            assert!(PointExpr::parse(&suggestion).is_ok(), "{given:?} suggests {suggestion:?}");
        }
    }
}

#[test]
fn errors_show_a_caret_under_the_offending_part() {
    let expected = "cannot resolve the point \"tool::last\": a tool name is missing after \"tool:\"\n  tool::last\n       ^\ntry: tool:bash:last";
    assert_eq!(error("tool::last").to_string(), expected);
    assert!(error("iteration:äö").to_string().contains("\n  iteration:äö\n            ^^\n"));
    // Control characters reach no terminal.
    let shown = error("a\u{1b}[31mb").to_string();
    assert!(shown.contains("a\\u{1b}[31mb") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn long_texts_are_refused_and_not_repeated() {
    assert!(PointExpr::parse(&"x".repeat(MAX_BYTES)).is_ok());
    let shown = error(&"é".repeat(MAX_BYTES)).to_string();
    assert!(shown.len() < 400 && shown.contains("2000 bytes"), "{shown}");
}

#[test]
fn a_text_that_names_nothing_is_explained() {
    let time = PointError::unknown_text("2 huors ago", "there is no such label, id or branch");
    assert_eq!((time.span, time.suggestions[0].as_str()), (2..7, "2 hours ago"));
    let time = PointError::unknown_text("yesteday", "there is no such label, id or branch");
    assert_eq!(time.suggestions[0], "yesterday");
    for text in ["before-x", "last good", "2 bugs fixed"] {
        let label = PointError::unknown_text(text, "there is no such label, id or branch");
        assert_eq!(
            (label.span, label.what.as_str()),
            (0..text.len(), "there is no such label, id or branch")
        );
    }
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~äß…]{1,20}",
        "[#@:\" \\\\a0-]{1,6}",
        prop::sample::select(vec![
            "monday",
            "#1",
            "@",
            "@-1",
            "tool:x",
            "2 hours ago",
            "last",
            "-3",
            "a#1",
            "tol:x"
        ])
        .prop_map(str::to_owned),
    ]
}

fn any_point() -> impl Strategy<Value = PointExpr> {
    let nth = || prop_oneof![Just(Nth::First), Just(Nth::Last), (1..=u64::MAX).prop_map(Nth::Number)];
    let outside = prop_oneof![
        any_name().prop_map(Anchor::text),
        any_name().prop_map(Anchor::Label),
        any_name().prop_map(Anchor::Branch),
        "[0-9a-f]{1,32}".prop_map(Anchor::Id),
        prop::sample::select(vec!["monday", " 2 hours ago ", "2026-01-23"])
            .prop_map(|t| Anchor::Time(t.to_owned())),
    ];
    let inside = prop_oneof![
        nth().prop_map(Anchor::Error),
        (any_name(), nth()).prop_map(|(name, nth)| Anchor::Tool { name, nth }),
        (any_name(), nth()).prop_map(|(tag, nth)| Anchor::Tag { tag, nth }),
        (1..=u64::MAX).prop_map(Anchor::Iteration),
    ];
    let counted = prop_oneof![Just(Anchor::Now), (1..=u64::MAX).prop_map(Anchor::Step)];
    let session = || prop::option::of("[0-9a-f]{1,32}|[a-zA-Z0-9_-]{1,12}");
    prop_oneof![
        outside.prop_map(PointExpr::from),
        (session(), inside).prop_map(|(session, anchor)| PointExpr { session, anchor, back: 0 }),
        (session(), counted, any::<u64>()).prop_map(|(session, anchor, back)| PointExpr {
            session,
            anchor,
            back
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_point_is_written_as_text_that_reads_the_same(point in any_point()) {
        let text = point.to_string();
        prop_assert_eq!(PointExpr::parse(&text).map_err(|error| error.to_string()), Ok(point));
    }

    #[test]
    fn any_text_is_read_or_refused_without_panic(text in prop_oneof![
        any::<String>(),
        "[#@:\" \\\\a0-]{0,10}",
        "(tool|tag|error|time|id|label|[a-z]{0,4}):?[#@:\"a0-]{0,6}",
    ]) {
        match PointExpr::parse(&text) {
            Ok(point) => prop_assert_eq!(PointExpr::parse(&point.to_string()), Ok(point)),
            Err(error) => {
                prop_assert!(error.text.get(error.span.clone()).is_some());
                prop_assert!(error.to_string().starts_with("cannot resolve the point"));
            }
        }
    }
}
