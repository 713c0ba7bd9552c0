//! Tests that need something a machine may lack: root, namespaces, a second file system.
//!
//! Such a test is skipped on a contributor's machine. In CI, and in `cargo xtask test`, it fails instead: a test that is
//! skipped there would verify nothing.

/// Set by `cargo xtask test`.
const REQUIRE_ALL: &str = "STEPBACK_TEST_REQUIRE_ALL";

/// Reports that a test is skipped because something is missing; the caller returns.
///
/// # Panics
///
/// If all tests have to run.
#[track_caller]
pub fn skip(missing: &str) {
    let is_set =
        |name: &str| std::env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    assert!(
        !is_set("CI") && !is_set(REQUIRE_ALL),
        "this test must run here, because CI or {REQUIRE_ALL} is set, and cannot: {missing}"
    );
    eprintln!("skipped: {missing}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn a_test_that_cannot_run_fails_where_all_have_to() {
        const TASK: &str = "skip";
        const NAME: &str = "skip::tests::a_test_that_cannot_run_fails_where_all_have_to";
        if process::task().as_deref() == Some(TASK) {
            return skip("a moon");
        }
        let run = |variables: &[(&str, &str)]| {
            let mut child = process::command(NAME, TASK);
            child.env_remove("CI").env_remove(REQUIRE_ALL).envs(variables.iter().copied());
            let output = child.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (passed, said) = run(&[]);
        assert!(passed && said.contains("skipped: a moon"), "{said}");
        assert!(run(&[("CI", "false")]).0);
        for variable in ["CI", REQUIRE_ALL] {
            let (passed, said) = run(&[(variable, "1")]);
            assert!(!passed && said.contains("this test must run here"), "{said}");
        }
    }
}
