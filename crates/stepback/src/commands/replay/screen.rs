//! The terminal while a session is played: reads keys, draws steps, and restores the terminal afterwards.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::cursor::MoveTo;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::queue;
use crossterm::terminal::{self, Clear, ClearType};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepback_tui::terminal::TerminalGuard;

use super::ReplayedSession;
use super::block;
use super::player::{HELP, KeyOutcome, Player, PlayerKey};
use crate::commands::{CommandResult, DONE};
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// How long to wait for a key before checking for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Plays until the user quits or a signal arrives.
pub fn play(replayed: &ReplayedSession<'_>, mut player: Player) -> CommandResult {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    {
        let _held = TerminalGuard::acquire()?;
        run_event_loop(replayed, &mut player, &ended)?;
    }
    if let Some(stored) = player.cursor.current() {
        let number = stored.step.number;
        output::print_status(
            Paint::stderr()
                .dim(format!("Stopped at #{number}; \"stepback at '#{number}'\" shows its state.")),
        );
    }
    DONE
}

fn run_event_loop(
    replayed: &ReplayedSession<'_>,
    player: &mut Player,
    ended: &AtomicBool,
) -> Result<(), CommandFailure> {
    let mut shown_since = Instant::now();
    draw(replayed, player)?;
    while !ended.load(Ordering::Relaxed) {
        let left = player.display_duration().map(|wait| wait.saturating_sub(shown_since.elapsed()));
        if left == Some(Duration::ZERO) {
            player.tick();
            shown_since = Instant::now();
            draw(replayed, player)?;
        }
        match event::poll(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL))) {
            Ok(false) => continue,
            Ok(true) => {}
            // A signal; the loop checks which one it was.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        match event::read()? {
            Event::Key(pressed) => {
                let Some(key) = to_player_key(pressed) else { continue };
                let before = (player.cursor.position(), player.playing);
                if player.handle_key(key) == KeyOutcome::Quit {
                    return Ok(());
                }
                if before != (player.cursor.position(), player.playing) {
                    shown_since = Instant::now();
                }
                draw(replayed, player)?;
            }
            Event::Resize(..) => draw(replayed, player)?,
            _ => {}
        }
    }
    Ok(())
}

fn to_player_key(pressed: KeyEvent) -> Option<PlayerKey> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c' | 'd') if control => PlayerKey::Interrupt,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => PlayerKey::Char(c),
        KeyCode::Left | KeyCode::Up => PlayerKey::Left,
        KeyCode::Right | KeyCode::Down => PlayerKey::Right,
        KeyCode::Home => PlayerKey::Home,
        KeyCode::End => PlayerKey::End,
        KeyCode::Enter => PlayerKey::Enter,
        KeyCode::Esc => PlayerKey::Escape,
        KeyCode::Backspace => PlayerKey::Backspace,
        _ => return None,
    })
}

/// Draws the current step at the bottom, with as many of the steps before it as fit.
fn draw(replayed: &ReplayedSession<'_>, player: &Player) -> Result<(), CommandFailure> {
    let (columns, rows) = terminal::size().unwrap_or((80, 24));
    let (columns, rows) = (usize::from(columns.max(20)), usize::from(rows.max(3)));
    let room = rows - 1;
    let paint = Paint::stdout();
    let lines = match player.help {
        true => HELP
            .iter()
            .map(|(key, what)| format!("  {} {what}", paint.strong(format!("{key:<12}"))))
            .collect(),
        false => render_page(replayed, player, columns, room)?,
    };
    let mut out = io::stdout().lock();
    for (row, line) in lines.iter().enumerate() {
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        queue!(out, MoveTo(0, row), Clear(ClearType::UntilNewLine))?;
        write!(out, "{line}")?;
    }
    let end = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    queue!(out, MoveTo(0, end), Clear(ClearType::FromCursorDown))?;
    queue!(out, MoveTo(0, u16::try_from(room).unwrap_or(u16::MAX)))?;
    // One column stays free: a full last line would scroll the screen.
    write!(out, "{}", paint.strong(output::truncate_to_width(&player.status_line(), columns - 1)))?;
    out.flush()?;
    Ok(())
}

fn render_page(
    replayed: &ReplayedSession<'_>,
    player: &Player,
    columns: usize,
    room: usize,
) -> Result<Vec<String>, CommandFailure> {
    let mut blocks: Vec<Vec<String>> = Vec::new();
    let mut used = 0;
    let steps = player.cursor.steps();
    for stored in steps.iter().take(player.cursor.position() + 1).rev() {
        let lines = block::render_lines(&replayed.load_block(stored)?, Paint::stdout(), columns - 1);
        used += lines.len();
        blocks.push(lines);
        if used >= room {
            break;
        }
    }
    // A step taller than the screen is shown from its beginning; of the steps before it, the end is shown.
    let present = blocks.first().map_or(0, Vec::len);
    let mut lines: Vec<String> = blocks.into_iter().rev().flatten().collect();
    if present > room {
        lines.drain(..lines.len() - present);
    } else {
        lines.drain(..lines.len().saturating_sub(room));
    }
    lines.truncate(room);
    Ok(lines)
}
