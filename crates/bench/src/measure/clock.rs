//! Wall time, CPU time and peak memory of child processes.
//!
//! The standard library's `wait` hides the resource usage of a child, so children are reaped here with `wait4`, which
//! also covers the processes that the child itself started and waited for (git starts helpers). A [`Clock`] runs over a
//! sequence of commands, because most systems need several for one operation; the time between two commands counts too.
//!
//! Input and output go through files in memory: pipes would need a helper thread per child, which would
//! be charged to the system that starts the most processes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};

/// What one operation cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// From the start of the first command to the end of the last.
    pub wall: Duration,
    /// User and system time of all processes of the operation.
    pub cpu: Duration,
    /// The largest resident set of any process, in bytes; 0 if measured in this process.
    pub peak_memory: u64,
}

/// The end of one command.
#[derive(Debug)]
pub struct CommandExit {
    /// The exit code, or `None` after a signal.
    pub code: Option<i32>,
    /// Everything the command printed on stdout.
    pub stdout: Vec<u8>,
    /// Everything the command printed on stderr.
    pub stderr: Vec<u8>,
}

/// A running measurement.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    cpu: Duration,
    peak_memory: u64,
}

impl Clock {
    /// Starts to measure.
    pub fn start() -> Self {
        Self { started: Instant::now(), cpu: Duration::ZERO, peak_memory: 0 }
    }

    /// Ends the measurement.
    pub fn stop(self) -> Cost {
        Cost { wall: self.started.elapsed(), cpu: self.cpu, peak_memory: self.peak_memory }
    }

    /// Runs a command and fails, with its stderr, unless it exits with 0.
    pub fn run(&mut self, command: &mut Command) -> Result<Vec<u8>> {
        let finished = self.finish(command, &[])?;
        require_success(command, finished)
    }

    /// As [`Clock::run`], with bytes on the command's stdin; any of `codes` counts as success.
    pub fn run_with_input(&mut self, command: &mut Command, input: &[u8], codes: &[i32]) -> Result<Vec<u8>> {
        let finished = self.finish(command, input)?;
        if finished.code.is_some_and(|code| codes.contains(&code)) {
            return Ok(finished.stdout);
        }
        require_success(command, finished)
    }

    /// Runs two commands at the same time; both must succeed.
    pub fn run_both(&mut self, first: &mut Command, second: &mut Command) -> Result<(Vec<u8>, Vec<u8>)> {
        let first_command = RunningCommand::start(first, &[])?;
        let second_command = RunningCommand::start(second, &[])?;
        let (first_command, second_command) = (self.wait(first_command)?, self.wait(second_command)?);
        Ok((require_success(first, first_command)?, require_success(second, second_command)?))
    }

    fn finish(&mut self, command: &mut Command, input: &[u8]) -> Result<CommandExit> {
        let running = RunningCommand::start(command, input)?;
        self.wait(running)
    }

    fn wait(&mut self, running: RunningCommand) -> Result<CommandExit> {
        let (code, usage) = reap_child(&running.child)?;
        self.add(usage);
        Ok(CommandExit { code, stdout: read_all(&running.stdout)?, stderr: read_all(&running.stderr)? })
    }

    fn add(&mut self, usage: Usage) {
        self.cpu += usage.cpu;
        self.peak_memory = self.peak_memory.max(usage.peak_memory);
    }
}

/// Runs a command outside any measurement and returns its stdout.
pub fn run_untimed(command: &mut Command) -> Result<Vec<u8>> {
    Clock::start().run(command)
}

/// The CPU time this process and its reaped children have used so far.
pub fn own_cpu() -> Duration {
    self_cpu() + usage_of(libc::RUSAGE_CHILDREN)
}

/// The CPU time this process alone has used so far.
pub fn self_cpu() -> Duration {
    usage_of(libc::RUSAGE_SELF)
}

struct Usage {
    cpu: Duration,
    peak_memory: u64,
}

fn require_success(command: &Command, finished: CommandExit) -> Result<Vec<u8>> {
    if finished.code == Some(0) {
        return Ok(finished.stdout);
    }
    let exit = finished.code.map_or("killed by a signal".to_owned(), |code| format!("exit code {code}"));
    bail!("{command:?} failed ({exit}): {}", String::from_utf8_lossy(&finished.stderr).trim())
}

/// A child and the memory files it writes to.
struct RunningCommand {
    child: Child,
    stdout: File,
    stderr: File,
}

impl RunningCommand {
    fn start(command: &mut Command, input: &[u8]) -> Result<Self> {
        let (stdout, stderr) = (memory_file()?, memory_file()?);
        let stdin = if input.is_empty() {
            Stdio::null()
        } else {
            let file = memory_file()?;
            // At an offset, so that the child starts to read at the beginning.
            file.write_all_at(input, 0)?;
            Stdio::from(file)
        };
        command.stdin(stdin).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, stdout, stderr })
    }
}

fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create("bench", MemfdFlags::CLOEXEC)?))
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn reap_child(child: &Child) -> io::Result<(Option<i32>, Usage)> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `pid` is our own child, which nothing else waits for (`Child` reaps only when asked
        // to), and both pointers are valid for the call.
        let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if reaped == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    Ok((code, Usage { cpu: cpu_time(&usage), peak_memory: usage.ru_maxrss.unsigned_abs() * 1024 }))
}

fn usage_of(who: libc::c_int) -> Duration {
    // SAFETY: an all-zero `rusage` is valid, and `getrusage` fills it; it cannot fail for these targets.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    cpu_time(&usage)
}

fn cpu_time(usage: &libc::rusage) -> Duration {
    let part = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    part(usage.ru_utime) + part(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_adds_up_and_reports_memory() {
        let mut clock = Clock::start();
        let out =
            clock.run(Command::new("sh").args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]));
        assert_eq!(out.unwrap(), b"");
        assert_eq!(clock.run(Command::new("echo").arg("hi")).unwrap(), b"hi\n");
        let cost = clock.stop();
        assert!(cost.cpu > Duration::ZERO && cost.wall > Duration::ZERO);
        assert!(cost.peak_memory > 100_000, "{cost:?}");
    }

    #[test]
    fn large_input_and_output_pass_through() {
        let input = vec![b'x'; 1 << 20];
        let out = Clock::start().run_with_input(&mut Command::new("cat"), &input, &[0]).unwrap();
        assert_eq!(out, input);
    }

    #[test]
    fn a_failure_shows_the_code_and_stderr() {
        let error =
            run_untimed(Command::new("sh").args(["-c", "echo sad >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit code 3") && error.contains("sad"), "{error}");
    }

    #[test]
    fn two_commands_run_at_the_same_time() {
        // Each end of a named pipe waits for the other, so one command alone would never end.
        let pipe = std::env::temp_dir().join(format!("bench-clock-{}", std::process::id()));
        run_untimed(Command::new("mkfifo").arg(&pipe)).unwrap();
        let shell = |script: &str| {
            let mut command = Command::new("timeout");
            command.args(["20", "sh", "-c", script, "sh"]).arg(&pipe);
            command
        };
        let outcome = Clock::start().run_both(&mut shell("cat \"$1\""), &mut shell("echo met > \"$1\""));
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(outcome.unwrap().0, b"met\n");
    }
}
