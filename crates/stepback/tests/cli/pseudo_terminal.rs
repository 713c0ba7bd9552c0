//! A terminal that is not there: keys go in, what a person would see comes out.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// How long the program may take to show something, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program at a terminal.
pub struct Terminal {
    keys: File,
    user: File,
    before: Termios,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    /// Up to here it was looked at.
    mark: usize,
    /// What a person sees after everything up to here.
    screen: vt100::Parser,
    painted: usize,
}

impl Terminal {
    /// Starts a command at a terminal of 24 rows and 100 columns.
    pub fn start(command: Command) -> Self {
        Self::sized(command, 24, 100)
    }

    /// Starts a command at a terminal of so many rows and columns.
    pub fn sized(mut command: Command, rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let user = File::from(rustix::fs::open(&name, flags, Mode::empty()).unwrap());
        tcsetwinsize(&user, winsize(rows, columns)).unwrap();
        let before = tcgetattr(&user).unwrap();
        let end = || user.try_clone().unwrap();
        let command = command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let child = command.spawn().unwrap();
        let keys = File::from(controller);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, shared) = (keys.try_clone().unwrap(), Arc::clone(&seen));
        // Ends with the terminal, or with the test.
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                shared.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        let screen = vt100::Parser::new(rows, columns, 0);
        Self { keys, user, before, child, seen, mark: 0, screen, painted: 0 }
    }

    /// Makes the terminal larger or smaller, and lets the program know, as a terminal does.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.paint();
        self.screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.user, winsize(rows, columns)).unwrap();
        self.signal(Signal::WINCH);
    }

    /// Takes in what was written since.
    fn paint(&mut self) {
        let seen = self.seen.lock().unwrap();
        self.screen.process(&seen[self.painted..]);
        self.painted = seen.len();
    }

    /// What a person sees.
    pub fn screen(&mut self) -> String {
        self.paint();
        let columns = self.screen.screen().size().1;
        let rows: Vec<String> =
            self.screen.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n")
    }

    /// Waits until the screen is as it should be, and gives it.
    #[track_caller]
    pub fn until(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} is not shown:\n{screen}");
            assert!(self.child.try_wait().unwrap().is_none(), "it ended before {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all of these are on the screen, and gives it.
    #[track_caller]
    pub fn shows(&mut self, texts: &[&str]) -> String {
        self.until(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    /// Everything that was written so far.
    pub fn written(&self) -> Vec<u8> {
        self.seen.lock().unwrap().clone()
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is shown, after what was waited for before.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> &mut Self {
        let begun = Instant::now();
        loop {
            let seen = self.seen.lock().unwrap().clone();
            let fresh = String::from_utf8_lossy(&seen[self.mark..]).into_owned();
            if let Some(at) = fresh.find(text) {
                // Bytes that are no text may be half of a character that comes later; never go beyond what is there.
                self.mark = (self.mark + at + text.len()).min(seen.len());
                return self;
            }
            assert!(begun.elapsed() < PATIENCE, "{text:?} is not shown:\n{}", fresh.escape_debug());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; the terminal must be as it was, with the cursor shown, on the screen it was on.
    #[track_caller]
    pub fn expect_end(mut self) -> (ExitStatus, String) {
        self.expect("\x1b[?1049l");
        let status = self.wait();
        let (before, after) = (&self.before, tcgetattr(&self.user).unwrap());
        assert_eq!(after.local_modes, before.local_modes, "keys are echoed again");
        assert_eq!(after.input_modes, before.input_modes);
        assert_eq!(after.output_modes, before.output_modes);
        let seen = String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned();
        let shown = |text: &str| seen.rfind(text);
        assert!(shown("\x1b[?25h") > shown("\x1b[?25l"), "the cursor is shown again");
        (status, seen)
    }
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a failed test, the program is still there.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
