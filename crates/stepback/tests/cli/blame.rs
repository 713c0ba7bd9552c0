//! `stepback blame`: each line with the call, the prompt and the session that it comes from.

use std::fs;

use serde_json::Value;

use crate::sandbox::Sandbox;

/// A world in which the built-in agent wrote a file and the user added to it.
fn played() -> Sandbox {
    let world = Sandbox::new();
    world.write("notes.txt", "an old line\n");
    let script = r#"{"turns": [
        {"text": "I write.", "calls": [{"tool": "edit", "input": {"path": "notes.txt", "old": "an old line\n", "new": "an old line\nby the agent\n"}}]},
        {"text": "I add.", "calls": [{"tool": "bash", "input": {"command": "echo from the shell >> notes.txt"}}]},
        {"text": "Done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "add two lines"]);
    let text = fs::read_to_string(world.work.join("notes.txt")).unwrap();
    world.write("notes.txt", format!("{text}by me\n"));
    world
}

#[test]
fn each_line_names_its_call_and_prompt() {
    let world = played();
    let blame = world.json(["blame", "notes.txt"]);
    let texts: Vec<&str> =
        blame["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["an old line", "by the agent", "from the shell", "by me"]);
    let origin = |line: usize| -> &Value {
        let index = blame["lines"][line]["origin"].as_u64().unwrap();
        &blame["origins"][usize::try_from(index).unwrap()]
    };
    assert_eq!(origin(0)["kind"], "before-recording");
    let (edit, shell) = (origin(1), origin(2));
    assert_eq!((&edit["basis"], &edit["author"]["tool"]), (&"recorded".into(), &"edit".into()), "{edit:#}");
    assert_eq!(
        (&shell["basis"], &shell["author"]["tool"]),
        (&"inferred".into(), &"bash".into()),
        "{shell:#}"
    );
    for author in [&edit["author"], &shell["author"]] {
        assert_eq!(author["agent"], "stepback");
        assert!(author["prompt_text"].as_str().unwrap().contains("add two lines"), "{author:#}");
        assert!(author["call"].as_u64() > author["prompt"].as_u64(), "{author:#}");
    }
    assert_eq!((&edit["author"]["turn"], &shell["author"]["turn"]), (&1.into(), &2.into()));
    assert_eq!((&origin(3)["kind"], &origin(3)["author"]), (&"not-recorded".into(), &Value::Null));

    let said = world.ok(["blame", "notes.txt:2,3"]).out;
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("add two lines") && said.contains("edit") && said.contains("~"), "{said}");
    let record = world.ok(["blame", "notes.txt:2", "--porcelain"]).out;
    let step = edit["step"].as_u64().unwrap();
    assert!(record.starts_with(&format!("{step} 2 2\n")) && record.ends_with("\tby the agent\n"), "{record}");
    let then = world.json(["blame", "notes.txt", "--at", &format!("#{step}")]);
    assert_eq!(then["count"], 2);
}

#[test]
fn what_cannot_be_blamed_says_why() {
    let world = played();
    world.write("binary", "a\0b");
    for (words, code, part) in [
        (&["blame", "no-such-file"][..], 3, "does not exist now"),
        (&["blame", "notes.txt:9"], 2, "there is no line 9"),
        (&["blame", "notes.txt:3,2"], 3, "notes.txt:3,2"),
        (&["blame", "binary"], 2, "not a text file"),
        (&["blame", "."], 2, "directory"),
        (&["blame", "../outside"], 2, "outside"),
        (&["blame", "notes.txt", "--at", "#999"], 3, "999"),
    ] {
        let ran = world.run(words).exits(code);
        assert!(ran.err.contains(part), "{words:?}: {}", ran.err);
    }
    // A name that looks like a line is a name if the file exists.
    world.write("odd:12", "text\n");
    assert_eq!(world.json(["blame", "odd:12"])["count"], 1);
    world.ok(["checkpoint", "create", "kept"]);
    fs::remove_file(world.work.join("notes.txt")).unwrap();
    let gone = world.run(["blame", "notes.txt"]).exits(3);
    assert!(gone.err.contains("--at"), "{}", gone.err);
    assert_eq!(world.json(["blame", "notes.txt", "--at", "kept"])["count"], 4);
}
