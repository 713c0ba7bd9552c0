//! The fence, with this very test as the program that goes inside.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use stepback_rerun::sandbox::{Isolation, SandboxAllow, SandboxProcess, SandboxedCommand, WATCHER_VARIABLE};
use stepback_testkit::skip::skip;

/// The program that is started inside is a shell script that starts this test binary with the right arguments.
fn program(dir: &Path) -> PathBuf {
    let path = dir.join("inside");
    let own = std::env::current_exe().unwrap();
    fs::write(
        &path,
        format!(
            "#!/bin/sh\nSTEPBACK_TEST_FENCED=1 exec '{}' --exact the_process_inside --nocapture\n",
            own.display()
        ),
    )
    .unwrap();
    Command::new("chmod").arg("755").arg(&path).status().unwrap();
    path
}

#[test]
fn the_process_inside() {
    if std::env::var_os("STEPBACK_TEST_FENCED").is_some() {
        let asked = [OsString::from("stepback"), OsString::from(stepback_rerun::sandbox::SANDBOX_ARGUMENT)];
        panic!("{:?}", stepback_rerun::sandbox::run_sandbox_child(&asked));
    }
}

#[test]
fn inside_there_is_no_network_and_only_one_place_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let (open, shut) = (dir.path().join("open"), dir.path().join("shut"));
    fs::create_dir(&open).unwrap();
    fs::create_dir(&shut).unwrap();
    let outer = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = fs::File::create(dir.path().join("output")).unwrap();
    let fence = SandboxProcess::start(
        &program(dir.path()),
        &SandboxAllow { writable: vec![open.clone()], sockets: 2 },
        &output,
    )
    .unwrap();
    if !matches!(fence.isolation, Isolation::Namespaces) {
        return skip(&format!("this system allows no namespaces: {:?}", fence.isolation));
    }
    assert_eq!(fence.sockets.len(), 2);
    let inner = fence.sockets[1].try_clone().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = inner.accept().unwrap();
        let mut asked = [0; 5];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"pong\n").unwrap();
        asked
    });
    let (port, away) = (fence.sockets[1].local_addr().unwrap().port(), outer.local_addr().unwrap().port());
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; echo ping >&3; read -r answer <&3; echo \"$answer\" > {open}/answer\n\
         (echo > /dev/tcp/127.0.0.1/{away}) 2>/dev/null && echo reached > {open}/away\n\
         echo x 2>/dev/null > {shut}/file; echo $? > {open}/refused\necho ok > /dev/null && echo \"$A $STEPBACK_WATCHER\" > {open}/env\n",
        open = open.display(),
        shut = shut.display()
    );
    let inside = SandboxedCommand {
        argv: vec!["/bin/bash".into(), "-c".into(), script],
        env: vec![("A".into(), "b".into()), (WATCHER_VARIABLE.into(), "always".into())],
        directory: open.clone(),
    };
    let (mut child, _outside) = fence.run(&inside).unwrap();
    child.wait().unwrap();
    assert_eq!(&served.join().unwrap(), b"ping\n");
    let read = |name: &str| fs::read_to_string(open.join(name)).ok();
    assert_eq!(read("answer").as_deref(), Some("pong\n"));
    assert_eq!(read("away"), None, "another loopback is out of reach");
    assert_eq!(read("refused").as_deref(), Some("1\n"));
    assert_eq!(read("env").as_deref(), Some("b off\n"), "no watcher is started inside");
    assert!(!shut.join("file").exists());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nor can it be reached from outside");
}
