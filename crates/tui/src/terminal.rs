//! The terminal in our hands: taken as a whole, and given back whatever happens.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste};
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};

/// Asks for presses and the wheel. Every movement of the mouse would be a message as well, which a slow connection feels.
const PRESSES: &str = "\x1b[?1000h\x1b[?1006h";

/// Whether the terminal is in our hands.
static HELD: AtomicBool = AtomicBool::new(false);
/// Whether the mouse is, too.
static MOUSE: AtomicBool = AtomicBool::new(false);

/// The terminal in our hands; given back when dropped.
#[derive(Debug)]
pub struct Held(());

impl Held {
    /// Takes the keys and the screen.
    pub fn take() -> io::Result<Self> {
        // What a panic says is lost on the other screen, so that goes first. One that somebody catches, on a thread that works
        // beside the screen, must neither take the screen away nor write over it: what it was working for is told as failed.
        let (before, ours) = (std::panic::take_hook(), std::thread::current().id());
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == ours {
                give_back();
            }
            if !HELD.load(Ordering::Relaxed) {
                before(info);
            }
        }));
        terminal::enable_raw_mode()?;
        HELD.store(true, Ordering::Relaxed);
        let held = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(held)
    }

    /// Takes the mouse as well, and text that is pasted.
    pub fn with_mouse(self) -> io::Result<Self> {
        MOUSE.store(true, Ordering::Relaxed);
        execute!(io::stdout(), Print(PRESSES), EnableBracketedPaste)?;
        Ok(self)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        give_back();
    }
}

/// Makes the terminal what it was, once.
fn give_back() {
    if HELD.swap(false, Ordering::Relaxed) {
        let mut out = io::stdout();
        if MOUSE.swap(false, Ordering::Relaxed) {
            let _ = execute!(out, DisableMouseCapture, DisableBracketedPaste);
        }
        let _ = execute!(out, Show, LeaveAlternateScreen);
        let _ = out.flush();
        let _ = terminal::disable_raw_mode();
    }
}
