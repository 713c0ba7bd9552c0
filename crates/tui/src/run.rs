//! The main loop: messages go in, effects come out, and then the screen is drawn.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepback_model::time::Timestamp;

use crate::app::App;
use crate::draw::{self, TerminalCapabilities};
use crate::effect::{AppEffect, AppMessage, SourceEvent};
use crate::executor::EffectExecutor;
use crate::source::{DataSource, SourceError};
use crate::terminal::TerminalGuard;

/// How long to wait before checking for signals.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often ages and deadlines are redrawn.
const CLOCK: Duration = Duration::from_secs(1);
/// How long to wait before reconnecting to a source that went away, at first and at most.
const RECONNECT_DELAYS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// The options of the interface.
pub struct TuiOptions {
    /// The source of all data.
    pub source: DataSource,
    /// The session to open; `None` shows the list.
    pub session: Option<String>,
    /// What the terminal can show.
    pub capabilities: TerminalCapabilities,
    /// Returns the current time.
    pub now: Box<dyn Fn() -> Timestamp>,
}

/// Runs the interface until the user quits.
pub fn run(options: TuiOptions) -> io::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let (tell, messages) = mpsc::channel();
    spawn_event_follower(&options.source, tell.clone());
    let guard = TerminalGuard::acquire()?.with_mouse()?;
    let mut terminal =
        Terminal::new(CrosstermBackend::new(io::BufWriter::with_capacity(64 << 10, io::stdout())))?;
    spawn_input_reader(tell.clone());
    let size = terminal.size()?;
    let mut app = App::new((size.width, size.height), (options.now)());
    let performer = EffectExecutor::new(options.source.clone(), tell);
    app.start(options.session.clone()).into_iter().for_each(|effect| performer.execute(effect));
    let since = Instant::now();
    let mut drawn = Instant::now();
    terminal.draw(|frame| draw::draw(&app, frame, options.capabilities))?;
    while !ended.load(Ordering::Relaxed) {
        let wait = app.time_until_next_step().unwrap_or(SIGNAL_POLL_INTERVAL).min(SIGNAL_POLL_INTERVAL);
        let heard = match receive_messages(&messages, wait) {
            Some(heard) => heard,
            None => break,
        };
        let due = app.time_until_next_step() == Some(Duration::ZERO)
            || drawn.elapsed() >= CLOCK
            || app.playing.is_some();
        if heard.is_empty() && !due {
            continue;
        }
        let tick = AppMessage::Tick((options.now)(), since.elapsed());
        for message in std::iter::once(tick).chain(heard) {
            for effect in app.update(message) {
                if effect == AppEffect::Quit {
                    drop(guard);
                    return Ok(());
                }
                performer.execute(effect);
            }
        }
        terminal.draw(|frame| draw::draw(&app, frame, options.capabilities))?;
        drawn = Instant::now();
    }
    Ok(())
}

/// Waits for messages and returns all that have arrived. Returns `None` if no more can arrive.
fn receive_messages(messages: &Receiver<AppMessage>, wait: Duration) -> Option<Vec<AppMessage>> {
    let mut heard = match messages.recv_timeout(wait) {
        Ok(message) => vec![message],
        Err(RecvTimeoutError::Timeout) => Vec::new(),
        Err(RecvTimeoutError::Disconnected) => return None,
    };
    heard.extend(messages.try_iter().take(256));
    Some(heard)
}

/// Sends keys, mouse events and the size of the terminal, for as long as there is a terminal.
fn spawn_input_reader(sender: Sender<AppMessage>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            for message in translate_event(event) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        }
        // Without a terminal there is nothing left to do.
        let _ = sender.send(AppMessage::Key(KeyCode::Char('c'), true));
    });
}

/// Translates an event. Escape and a key that arrive together, as they do over slow connections, look like a key with
/// alt.
fn translate_event(event: Event) -> Vec<AppMessage> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            let pressed = AppMessage::Key(key.code, key.modifiers.contains(KeyModifiers::CONTROL));
            match key.modifiers.contains(KeyModifiers::ALT) {
                true => vec![AppMessage::Key(KeyCode::Esc, false), pressed],
                false => vec![pressed],
            }
        }
        Event::Paste(text) => vec![AppMessage::Paste(text)],
        Event::Resize(columns, rows) => vec![AppMessage::Resize(columns, rows)],
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(_) => vec![AppMessage::Click(mouse.column, mouse.row)],
            MouseEventKind::ScrollDown => vec![AppMessage::Wheel(true)],
            MouseEventKind::ScrollUp => vec![AppMessage::Wheel(false)],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Sends the events of the source. Reconnects when the connection is lost.
fn spawn_event_follower(source: &DataSource, sender: Sender<AppMessage>) {
    let source = source.clone();
    source.handle().clone().spawn(async move {
        let mut delay = RECONNECT_DELAYS.0;
        loop {
            let error = source
                .follow(|event, data| {
                    let news = match event {
                        "connected" => SourceEvent::Connected,
                        "step" => SourceEvent::Step { session: parse_session_id(data) },
                        "stops" => SourceEvent::Stops,
                        "changed" => SourceEvent::Changed,
                        _ => return,
                    };
                    delay = RECONNECT_DELAYS.0;
                    let _ = sender.send(AppMessage::SourceEvent(news));
                })
                .await;
            let reason = match error {
                SourceError::NoResponse(reason) => reason,
                refused @ SourceError::Refused(_) => refused.to_line(),
            };
            if sender.send(AppMessage::SourceEvent(SourceEvent::Disconnected(reason))).is_err() {
                return;
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RECONNECT_DELAYS.1);
        }
    });
}

/// Returns the session of the step that an event reports.
fn parse_session_id(data: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct StepEventData {
        session: String,
    }
    serde_json::from_slice(data).map(|event: StepEventData| event.session).unwrap_or_default()
}
