//! The demo's project: a small shell module, its tests, and the scripted answers of the agent's model.
//!
//! It needs only `sh` and a few small tools that come with every system.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

const FILES: &[(&str, &str)] = &[
    ("README.md", "# auth\n\nTokens and sessions, in shell. Test them: sh tests/run.sh\n"),
    (".gitignore", ".env\n"),
    (".env", "PEPPER=demo-only\n"),
    ("src/auth.sh", AUTH),
    ("src/session.sh", SESSION),
    ("tests/run.sh", TESTS),
];

const AUTH: &str = r#"# A token is USER:EXPIRES:SIGNATURE; EXPIRES in seconds.

sign() { # sign TEXT
    printf '%s' "$1 $PEPPER" | cksum | cut -d ' ' -f 1
}

issue() { # issue USER EXPIRES
    printf '%s:%s:%s\n' "$1" "$2" "$(sign "$1:$2")"
}

valid() { # valid TOKEN NOW
    expires=${1#*:} expires=${expires%:*}
    [ "$(sign "${1%:*}")" = "${1##*:}" ] &&
        [ "$expires" -gt "$2" ]
}
"#;

const SESSION: &str = r#"# A session is a token for an hour.

login() { # login USER NOW
    issue "$1" $(($2 + 3600))
}

greet() { # greet TOKEN NOW
    if valid "$1" "$2"; then echo "Hello, ${1%%:*}."; else echo "Please log in."; fi
}
"#;

const TESTS: &str = r#"# Run with: sh tests/run.sh
cd "$(dirname "$0")/.." || exit 2
PEPPER=for-tests-only
for file in src/*.sh; do . "./$file"; done

count=0 failed=0
check() { # check NAME WANTED GOT
    count=$((count + 1))
    [ "$2" = "$3" ] && return
    failed=$((failed + 1))
    echo "FAILED: $1: \"$3\""
}

token=$(login ada 9000)
check "a fresh login is greeted" "Hello, ada." "$(greet "$token" 9001)"
check "an old login is not" "Please log in." "$(greet "$token" 12600)"
check "a forged token is not" "Please log in." "$(greet "${token}1" 9001)"
check "no token is not" "Please log in." "$(greet "" 9001)"

if [ "$failed" = 0 ]; then echo "$count tests passed"; exit; fi
echo "$failed of $count tests failed"
exit 1
"#;

/// The command that runs the tests, used by the agent and by the user.
pub const TEST_COMMAND: &str = "sh tests/run.sh";
/// The user's first prompt.
pub const PROMPT: &str = "refactor the auth module";
/// The user's second prompt. The script recognizes it by `numbers`.
pub const SECOND_PROMPT: &str = "keep seconds as numbers";
/// The command with which the agent tries to start over.
pub const CLEAN_UP: &str = "rm -rf .env tests && git reset --hard";
/// The command that destroys the whole project.
pub const DISASTER: &str = "rm -rf ./* .git .gitignore .env";

/// The line that plan A breaks, and that plan B describes in words.
const EXPIRY_CHECK: &str = "[ \"$expires\" -gt \"$2\" ]\n}\n";

/// Creates the project in `root`.
pub fn create(root: &Path) -> io::Result<()> {
    for (path, text) in FILES {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    fs::set_permissions(root.join(".env"), fs::Permissions::from_mode(0o600))
}

/// Returns the model's answers as a script for the built-in agent, with `thinks_ms` of delay before each.
///
/// Plan A takes the seconds apart as text. Nothing about it looks wrong, and it works until a number gets one more digit.
pub fn agent_script(thinks_ms: u64) -> Value {
    let clock = "# What time it is, in seconds.\n\nnow() {\n    date +%s\n}\n";
    let hour = "# A session is a token for an hour.\nHOUR=3600\n";
    let by_sorting = "[ \"$(printf '%s\\n' \"$2\" \"$expires\" | sort | head -n 1)\" = \"$2\" ]\n}\n";
    let by_number = "later \"$expires\" \"$2\"\n}\n\nlater() { # later A B\n    [ \"$1\" -gt \"$2\" ]\n}\n";
    let turn = |text: &str, calls: &[Value]| json!({ "text": text, "calls": calls, "thinks_ms": thinks_ms });
    json!({
        "model": "scripted-1",
        "turns": [
            turn("First I look at the module, and whether its tests pass.", &[
                tool_call("read", &[("path", "src/auth.sh")]),
                tool_call("bash", &[("command", TEST_COMMAND)]),
            ]),
            turn("They do. The clock gets a file of its own.", &[
                tool_call("write", &[("path", "src/clock.sh"), ("content", clock)]),
                edit_call("src/session.sh", "# A session is a token for an hour.\n", hour),
            ]),
            turn("Now the check in valid(), and a word about it in the README.", &[
                edit_call("src/auth.sh", EXPIRY_CHECK, by_sorting),
                edit_call("README.md", "in shell.", "in readable shell."),
            ]),
            turn("That reads well. The tests, to be sure.", &[tool_call("bash", &[("command", TEST_COMMAND)])]),
            turn("My code is right, so this must be old state. I start over, clean.", &[
                tool_call("bash", &[("command", CLEAN_UP)]),
            ]),
            turn("Then I leave it as it is. The tests still fail.", &[]),
        ],
        "when": [{
            "says": "numbers",
            "turns": [
                turn("Good point: as text, 12600 would come before 9001. Numbers it is.", &[
                    edit_call("src/auth.sh", EXPIRY_CHECK, by_number),
                    tool_call("bash", &[("command", TEST_COMMAND)]),
                ]),
                turn("All tests pass.", &[]),
            ],
        }],
    })
}

fn tool_call(tool: &str, input: &[(&str, &str)]) -> Value {
    json!({ "tool": tool, "input": input.iter().copied().collect::<BTreeMap<_, _>>() })
}

fn edit_call(path: &str, old: &str, new: &str) -> Value {
    tool_call("edit", &[("path", path), ("old", old), ("new", new)])
}

/// Returns every file, including git's, with its mode and content, to compare before and after.
pub fn read_manifest(root: &Path) -> io::Result<BTreeMap<PathBuf, (u32, Vec<u8>)>> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                files.insert(entry.path(), (metadata.permissions().mode(), fs::read(entry.path())?));
            }
        }
    }
    Ok(files)
}
