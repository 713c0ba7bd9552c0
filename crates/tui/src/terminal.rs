//! Takes control of the terminal, and restores it whatever happens.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste};
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};

/// Requests mouse presses and the wheel only. Movements would send many more events, which is slow over a slow
/// connection.
const ENABLE_MOUSE: &str = "\x1b[?1000h\x1b[?1006h";

/// Whether the terminal is under our control.
static TERMINAL_HELD: AtomicBool = AtomicBool::new(false);
/// Whether the mouse is captured too.
static MOUSE: AtomicBool = AtomicBool::new(false);

/// Control over the terminal; restored when dropped.
#[derive(Debug)]
pub struct TerminalGuard(());

impl TerminalGuard {
    /// Takes over the keyboard and the screen.
    pub fn acquire() -> io::Result<Self> {
        // A panic message would be lost on the alternate screen, so the terminal is restored first. A panic that is
        // caught on another thread must neither restore the terminal nor write over the screen: the work it was part of
        // is reported as failed.
        let (previous_hook, terminal_thread) = (std::panic::take_hook(), std::thread::current().id());
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == terminal_thread {
                restore_terminal();
            }
            if !TERMINAL_HELD.load(Ordering::Relaxed) {
                previous_hook(info);
            }
        }));
        terminal::enable_raw_mode()?;
        TERMINAL_HELD.store(true, Ordering::Relaxed);
        let held = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(held)
    }

    /// Also captures the mouse and pasted text.
    pub fn with_mouse(self) -> io::Result<Self> {
        MOUSE.store(true, Ordering::Relaxed);
        execute!(io::stdout(), Print(ENABLE_MOUSE), EnableBracketedPaste)?;
        Ok(self)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Restores the terminal, once.
fn restore_terminal() {
    if TERMINAL_HELD.swap(false, Ordering::Relaxed) {
        let mut out = io::stdout();
        if MOUSE.swap(false, Ordering::Relaxed) {
            let _ = execute!(out, DisableMouseCapture, DisableBracketedPaste);
        }
        let _ = execute!(out, Show, LeaveAlternateScreen);
        let _ = out.flush();
        let _ = terminal::disable_raw_mode();
    }
}
