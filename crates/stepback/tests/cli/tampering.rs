//! An agent with a shell changes the record of what it did: `fsck` names it, and a seal proves it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::hostile::{REFUSED, STORE};
use crate::sandbox::Sandbox;
use crate::talk::Talk;

/// A session with a prompt and two calls, and a checkpoint of the user.
fn recorded() -> Sandbox {
    let world = Sandbox::new();
    world.write("a", "1\n");
    world.ok(["checkpoint", "create", "before"]);
    let agent = Talk::new(&world, "first");
    agent.begin();
    agent.prompt("change a");
    agent.bash("one", "echo 2 > a", || world.write("a", "2\n"));
    agent.bash("two", "echo 3 > a", || world.write("a", "3\n"));
    world.ok(["log"]);
    world
}

/// What an agent can do that runs as the user.
fn tamper(world: &Sandbox, sql: &str) {
    Connection::open(world.store.join("log.sqlite")).unwrap().execute_batch(sql).unwrap();
}

fn newest(world: &Sandbox) -> u64 {
    let db = Connection::open(world.store.join("log.sqlite")).unwrap();
    db.query_row("SELECT max(number) FROM steps", [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

#[test]
fn fsck_names_what_was_changed_in_the_database() {
    const FORGE: &str = "CREATE TEMP TABLE copy AS SELECT * FROM steps WHERE number = 3;
        UPDATE copy SET position = NULL, id = randomblob(16), number = (SELECT max(number) + 1 FROM steps), link = NULL;
        INSERT INTO steps SELECT * FROM copy";
    const SWAP: &str =
        "UPDATE steps SET number = -1 WHERE number = 3; UPDATE steps SET number = 3 WHERE number = 4;
        UPDATE steps SET number = 4 WHERE number = -1";
    for (sql, change, step) in [
        ("UPDATE steps SET summary = 'nothing to see' WHERE number = 3", "altered", Some(3)),
        (
            "UPDATE steps SET state = (SELECT state FROM steps WHERE number = 1) WHERE number = 5",
            "altered",
            Some(5),
        ),
        ("UPDATE steps SET detail = NULL WHERE number = 4", "altered", Some(4)),
        ("UPDATE steps SET kind = 'nonsense' WHERE number = 4", "altered", Some(4)),
        ("DELETE FROM steps WHERE number = 3", "removed", Some(3)),
        ("DELETE FROM steps WHERE number = (SELECT max(number) FROM steps)", "removed", None),
        (FORGE, "inserted", None),
        (SWAP, "reordered", Some(3)),
    ] {
        let world = recorded();
        let before = newest(&world);
        let sound = world.json(["fsck"]);
        assert_eq!((&sound["ok"], &sound["changed_steps"]), (&json!(true), &json!([])));
        assert_eq!((&sound["steps"], &sound["linked_steps"]), (&json!(before), &json!(before)));

        tamper(&world, sql);
        let checked = world.run(["fsck", "--json"]).exits(STORE).json();
        let found = &checked["changed_steps"][0];
        assert_eq!(found["change"], change, "{sql}: {checked}");
        // Of the newest steps, the one before is named, or the one that is too many.
        let expected = step.unwrap_or(if change == "removed" { before - 1 } else { before + 1 });
        assert_eq!(found["step"], expected, "{sql}: {checked}");
        assert!(found["session"].is_string(), "{checked}");
        let text = world.run(["fsck"]).exits(STORE);
        assert!(
            text.out.contains(change) && text.err.contains("stepback seal --verify"),
            "{}{}",
            text.out,
            text.err
        );
    }
}

#[test]
fn a_seal_proves_a_change_even_if_the_chain_was_computed_again() {
    let world = recorded();
    let file = world.root().join("seal.json");
    let file = file.to_str().unwrap();
    let sealed = world.json(["seal", "--to", file]);
    assert_eq!(sealed["steps"], newest(&world));
    let key = world.home.join(".config/stepback/seal-key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(file).unwrap().contains("change a"), "a seal has no texts");

    world.write("a", "4\n");
    world.ok(["checkpoint", "create", "after"]);
    let fits = world.ok(["seal", "--verify", file]);
    assert!(
        fits.out.contains("unchanged") && fits.out.contains("Since the seal: 1 step, 1 operation"),
        "{}",
        fits.out
    );

    // Without the chain, the store looks like one from before there were any.
    tamper(
        &world,
        "UPDATE steps SET summary = 'nothing to see' WHERE number = 3; DELETE FROM steps WHERE number = 2;
         UPDATE steps SET link = NULL; UPDATE sessions SET head = NULL, linked = 0",
    );
    let found = world.run(["seal", "--verify", file, "--json"]).exits(STORE).json();
    let changes: Vec<(&Value, &Value)> =
        found["items"].as_array().unwrap().iter().map(|item| (&item["change"], &item["step"])).collect();
    assert_eq!(changes, [(&json!("removed"), &json!(2)), (&json!("altered"), &json!(3))]);
    let text = world.run(["seal", "--verify", file]).exits(STORE);
    assert!(text.out.contains("changed: step #3 was altered (session "), "{}", text.out);
}

/// What stepback itself does with old steps is neither a break nor a finding.
#[test]
fn labels_prunes_and_copies_fit_the_seal() {
    let world = recorded();
    let file = world.root().join("seal.json");
    let file = file.to_str().unwrap();
    world.ok(["seal", "--to", file]);
    world.ok(["rewind", "#1", "--yes"]);
    world.ok(["undo", "--yes"]);
    world.ok(["checkpoint", "annotate", "#1", "later", "--label", "another", "--tag", "kept"]);
    world.ok(["checkpoint", "delete", "#1"]);
    world.ok(["prune", "--keep-last", "1", "--now"]);
    world.expect_sound("a prune");
    world.ok(["seal", "--verify", file]);

    let copied = world.root().join("copied").to_string_lossy().into_owned();
    let original = world.store.to_string_lossy().into_owned();
    world.ok(["store", "copy", &original, &copied]);
    world.ok(["--store", &copied, "fsck"]);
    world.ok(["--store", &copied, "seal", "--verify", file]);

    // A copy would hide a change from the chain, though not from the seal.
    tamper(&world, "UPDATE steps SET summary = 'nothing to see' WHERE number = 3");
    let other = world.root().join("other").to_string_lossy().into_owned();
    let refused = world.run(["store", "copy", &original, &other]).exits(STORE);
    assert!(refused.err.contains("step #3 was altered"), "{}", refused.err);
    assert!(!world.root().join("other").exists());
    world.ok(["store", "copy", &original, &other, "--accept-breaks"]);
    world.ok(["--store", &other, "fsck"]);
    world.run(["--store", &other, "seal", "--verify", file]).exits(STORE);
}

#[test]
fn imported_sessions_have_chains() {
    let world = recorded();
    let bundle = world.root().join("first.bundle").to_string_lossy().into_owned();
    world.ok(["export", "first", "--format", "bundle", "-o", &bundle]);
    let there = world.root().join("there");
    let store = there.to_string_lossy().into_owned();
    world.ok(["--store", &store, "import", &bundle]);
    let checked = world.json(["--store", &store, "fsck"]);
    assert_eq!(checked["steps"], checked["linked_steps"]);
    assert_ne!(checked["steps"], 0);
    let db = Connection::open(there.join("log.sqlite")).unwrap();
    db.execute("UPDATE steps SET at = at + 1 WHERE number = 2", []).unwrap();
    let checked = world.run(["--store", &store, "fsck", "--json"]).exits(STORE).json();
    assert_eq!(
        (&checked["changed_steps"][0]["change"], &checked["changed_steps"][0]["step"]),
        (&json!("altered"), &json!(2))
    );
}

#[test]
fn a_forged_seal_is_refused() {
    let world = recorded();
    let file = world.root().join("seal.json");
    let path = file.to_str().unwrap();
    let public = world.json(["seal", "--to", path])["public_key"].as_str().unwrap().to_owned();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"steps\": ", "\"steps\": 1", 1)).unwrap();
    let refused = world.run(["seal", "--verify", path]).exits(STORE);
    assert!(refused.err.contains("signature does not match"), "{}", refused.err);
    // Signed again, with another key.
    fs::remove_file(world.home.join(".config/stepback/seal-key.pem")).unwrap();
    world.ok(["seal", "--to", path]);
    world.ok(["seal", "--verify", path]);
    let refused = world.run(["seal", "--verify", path, "--public-key", &public]).exits(STORE);
    assert!(refused.err.contains("signature does not match"), "{}", refused.err);
    fs::remove_file(world.home.join(".config/stepback/seal-key.pem")).unwrap();
    let refused = world.run(["seal", "--verify", path]).exits(REFUSED);
    assert!(refused.err.contains("--public-key"), "{}", refused.err);
}

#[test]
fn a_changed_record_is_not_sealed_by_accident() {
    let world = recorded();
    tamper(&world, "UPDATE steps SET summary = 'nothing to see' WHERE number = 3");
    let refused = world.run(["seal"]).exits(STORE);
    assert!(refused.err.contains("step #3 was altered") && refused.out.is_empty(), "{}", refused.err);
    let sealed = world.ok(["seal", "--accept-breaks"]);
    assert!(sealed.json()["seal"]["known_breaks"][0].as_str().unwrap().contains("step #3 was altered"));
}

#[test]
fn a_seal_is_kept_in_the_repository_and_sent_to_a_server() {
    let world = Sandbox::new();
    world.git(&["init", "-q"]);
    world.write("a", "1\n");
    world.ok(["checkpoint", "create", "one"]);
    let before = world.git(&["status", "--porcelain"]);
    world.ok(["seal", "--to", "git:main"]);
    assert_eq!(world.git(&["status", "--porcelain"]), before);
    let kept = world.git(&["show", "refs/stepback/seals/main:seal.json"]);
    assert!(kept.contains("stepback_seal"), "{kept}");
    world.ok(["seal", "--verify", "refs/stepback/seals/main"]);
    let refused = world.run(["seal", "--to", "refs/heads/main"]).exits(2);
    assert!(refused.err.contains("refs/stepback/seals/NAME"), "{}", refused.err);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/seals", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut request = String::new();
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        while !request.contains("\r\n\r\n") || !request.trim_end().ends_with('}') {
            let read = stream.read(&mut buffer).unwrap();
            request += std::str::from_utf8(&buffer[..read]).unwrap();
        }
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").unwrap();
        request
    });
    world.ok(["seal", "--to", &url]);
    let request = server.join().unwrap();
    assert!(request.starts_with("POST /seals "), "{request}");
    let sent = world.root().join("sent.json");
    fs::write(&sent, request.split_once("\r\n\r\n").unwrap().1).unwrap();
    world.ok(["seal", "--verify", sent.to_str().unwrap()]);
}
