//! What people type who come from git, jj and other tools: each of these lines does what they expect, or says what to type.

use std::fs;

use crate::transcripts::Transcript;

#[test]
fn what_people_type() {
    let mut t = Transcript::new();
    t.world.write("src/main.rs", "fn main() {}\n");
    t.world.write("README.md", "A program.\n");
    t.run("checkpoint \"it works\"");
    t.world.write("src/main.rs", "fn main() { todo!() }\n");
    t.world.write("src/lib.rs", "pub fn one() {}\n");
    t.run("save broken -m \"the agent was here\"");
    t.world.write("README.md", "A program that works.\n");
    t.meanwhile("README.md changes");
    t.run("st");
    t.run("show broken");
    t.run("ls");
    t.run("ls @- src");
    t.run("ls \"it works\" -r");
    t.run("ls broken nowhere");
    t.run("log -n 1");
    t.run("log src/lib.rs");
    t.run("log --graph");
    t.run("history src/main.rs");
    t.run("changes README.md");
    t.run("diff --name-only");
    t.run("diff \"it works..broken\" --name-only");
    t.run("diff @~1..");
    t.run("diff ..nowhere");
    t.run("cat @^ src/main.rs");
    t.run("config notes");
    t.run("checkpoint lst");
    t.run("rewind \"it wroks\"");
    t.run("rewind 10 minutes ago --dry-run");
    t.run("--color never status");
    insta::assert_snapshot!(t.text());
}

#[test]
fn a_range_can_be_a_label_or_a_file() {
    let t = Transcript::new();
    t.world.write("a..b", "one\n");
    t.world.ok(["checkpoint", "create", "v1..v2"]);
    t.world.write("a..b", "two\n");
    let by_label = t.world.ok(["diff", "v1..v2", "--name-only"]);
    assert_eq!(by_label.out, "a..b\n");
    let by_file = t.world.ok(["diff", "a..b"]);
    assert!(by_file.out.contains("+two"), "{}", by_file.out);
}

#[test]
fn colours_are_chosen_by_an_option() {
    let t = Transcript::new();
    t.world.write("a", "one\n");
    t.world.ok(["checkpoint", "create"]);
    fs::write(t.world.path("a"), "two\n").unwrap();
    let always = t.world.ok(["diff", "--color", "always"]);
    assert!(always.out.contains("\x1b["), "{:?}", always.out);
    let never = t.world.command(["diff", "--color=never"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(!never.stdout.contains(&0x1b));
}
