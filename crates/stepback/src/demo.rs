//! `stepback demo`: a small project is wrecked by a script and brought back step by step, narrated.
//!
//! Nothing is staged: the project is real, the script is run by a real shell, and every `$ stepback …` line is this very
//! program started again. The store lives in the same temporary directory, so nothing of the user's is touched.

use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use crate::commands::Answer;
use crate::failure::{Failure, Kind};
use crate::output::{self, Paint};

const FILES: &[(&str, &str)] = &[
    ("README.md", "# Tiny shop\n\nA cart, a price list and a test.\n"),
    ("src/prices.py", "PRICES = {\"apple\": 30, \"pear\": 45, \"plum\": 20}\n"),
    (
        "src/cart.py",
        "from prices import PRICES\n\n\ndef total(items):\n    return sum(PRICES[item] for item in items)\n\n\ndef receipt(items):\n    lines = [f\"{item}: {PRICES[item]}\" for item in items]\n    return \"\\n\".join(lines + [f\"total: {total(items)}\"])\n",
    ),
    ("tests/test_cart.py", "from cart import total\n\nassert total([\"apple\", \"plum\"]) == 50\n"),
    (".gitignore", ".env\n"),
    (".env", "API_KEY=demo-not-a-real-key\n"),
];

/// What the agent does: a useful change, a careless one, and damage that no commit protects from.
const AGENT: &str = "\
sed -i 's/sum(PRICES\\[item\\] for item in items)/sum(PRICES.get(item, 0) for item in items)/' src/cart.py
mv src/prices.py src/price_list.py
rm -r tests
rm .env
echo 'print(\"debug\")' > scratch.py
";

const DISASTER: &str = "rm -rf ./* .git .env .gitignore";

/// Runs the demo.
pub fn run(keep: bool, fast: bool) -> Answer {
    let dir = tempfile::Builder::new().prefix("stepback-demo-").tempdir()?;
    let root = dir.path().join("tiny-shop");
    let stage =
        Stage { root, store: dir.path().join("store"), slow: !fast && std::io::stdout().is_terminal() };
    stage.play()?;
    if keep {
        let kept = dir.keep();
        output::line(format!(
            "\nThe project is in {}\nExplore it: cd there, then stepback --store {} timeline",
            kept.join("tiny-shop").display(),
            kept.join("store").display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

struct Stage {
    root: PathBuf,
    store: PathBuf,
    slow: bool,
}

impl Stage {
    fn play(&self) -> Result<(), Failure> {
        self.act("A small project, with a git history and an ignored .env that no commit protects.");
        self.make_project()?;
        let before = manifest(&self.root)?;

        self.act("1. Before the agent starts, keep everything as it is.");
        self.stepback(&["checkpoint", "create", "before the agent", "-m", "tests are green"])?;

        self.act("2. The agent \"cleans up\".");
        self.shell(AGENT)?;

        self.act("3. What did it do? Not only edits: a move, deletions, even the ignored .env.");
        self.stepback(&["status"])?;
        self.stepback(&["diff", "--", "src/cart.py"])?;

        self.act("4. Bring back one file. Nothing else is touched, and no scan is needed.");
        self.stepback(&["rewind", "before the agent", "--path", ".env"])?;

        self.act("5. On second thought, all of it. The plan is shown, the present is saved, every byte is verified.");
        self.stepback(&["rewind", "before the agent", "--yes"])?;

        self.act("6. But one change was good. Undo the rewind, then take back only the others.");
        self.stepback(&["undo", "--yes"])?;
        self.stepback(&["changes"])?;
        self.stepback(&[
            "rewind",
            "--all",
            "--path",
            "tests",
            "--path",
            "src/price_list.py",
            "--path",
            "scratch.py",
            "--yes",
        ])?;
        self.show("src/cart.py")?;

        self.act("7. And the worst case: everything is gone, the git repository included.");
        self.shell(DISASTER)?;
        self.shell("ls -A | wc -l")?;
        self.stepback(&["rewind", "before the agent", "--git", "--yes"])?;
        if manifest(&self.root)? != before {
            return Err(Failure::new(Kind::Internal, "the project is not what it was; please report this"));
        }
        let paint = Paint::stdout();
        output::line(
            paint.good(format!("\nEvery one of the {} files is byte for byte what it was.", before.len())),
        );
        if self.root.join(".git").exists() {
            self.shell("git status --short --branch && git log --oneline")?;
        }

        self.act("8. The story so far: nothing was lost on the way, not even the disaster.");
        self.stepback(&["timeline"])?;
        output::line(paint.strong("\nYour turn: in a project of yours, run \"stepback checkpoint create\"."));
        Ok(())
    }

    fn make_project(&self) -> Result<(), Failure> {
        for (path, text) in FILES {
            let path = self.root.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, text)?;
        }
        fs::set_permissions(self.root.join(".env"), fs::Permissions::from_mode(0o600))?;
        let git = "git init -q -b main . && git add -A && git -c user.name=You -c user.email=you@example.com commit -q -m 'A tiny shop'";
        // Without git the demo still works, only without a repository.
        let made = self.command("sh", &["-c", git]).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            let _ = fs::remove_dir_all(self.root.join(".git"));
        }
        Ok(())
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root).stdin(Stdio::null());
        command
    }

    fn act(&self, text: &str) {
        self.pause(700);
        output::line(format!("\n{}", Paint::stdout().strong(text)));
        self.pause(500);
    }

    fn pause(&self, millis: u64) {
        if self.slow {
            std::thread::sleep(Duration::from_millis(millis));
        }
    }

    fn shell(&self, script: &str) -> Result<(), Failure> {
        let paint = Paint::stdout();
        for line in script.lines() {
            output::line(format!("{} {line}", paint.dim("$")));
        }
        self.pause(400);
        let status = self.command("sh", &["-ec", script]).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(Kind::Internal, format!("the demo's script failed: {status}"))),
        }
    }

    fn show(&self, path: &str) -> Result<(), Failure> {
        self.shell(&format!("grep -n 'PRICES.get' {path}"))
    }

    fn stepback(&self, arguments: &[&str]) -> Result<(), Failure> {
        let paint = Paint::stdout();
        let quoted: Vec<String> = arguments
            .iter()
            .map(
                |argument| {
                    if argument.contains(' ') { format!("\"{argument}\"") } else { (*argument).to_string() }
                },
            )
            .collect();
        output::line(format!("{} {}", paint.dim("$"), paint.name(format!("stepback {}", quoted.join(" ")))));
        self.pause(400);
        let program = std::env::current_exe()?;
        let status = self.command(program, &[]).arg("--store").arg(&self.store).args(arguments).status()?;
        match status.success() {
            true => Ok(()),
            false => {
                Err(Failure::new(Kind::Internal, format!("stepback {} failed: {status}", quoted.join(" "))))
            }
        }
    }
}

/// Every file outside the git directory with its mode and content, for comparing before and after.
fn manifest(root: &Path) -> Result<BTreeMap<PathBuf, (u32, Vec<u8>)>, Failure> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                if entry.file_name() != ".git" {
                    open.push(entry.path());
                }
            } else {
                files.insert(entry.path(), (metadata.permissions().mode(), fs::read(entry.path())?));
            }
        }
    }
    Ok(files)
}
