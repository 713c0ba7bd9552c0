//! What keys do while a session is played. It does not use a terminal, so every key can be tested without one.

use std::time::Duration;

use stepback_history::timeline::TimelineCursor;

/// The speeds that + and - go through.
const SPEEDS: [f64; 8] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

/// A key that has a meaning here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlayerKey {
    /// A printable character.
    Char(char),
    /// The left arrow.
    Left,
    /// The right arrow.
    Right,
    /// The Home key.
    Home,
    /// The End key.
    End,
    /// The Enter key.
    Enter,
    /// The Escape key.
    Escape,
    /// The Backspace key.
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// What happens after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOutcome {
    /// Playing continues.
    Stay,
    /// The player ends.
    Quit,
}

/// A session that is being played.
pub struct Player {
    /// The current position.
    pub cursor: TimelineCursor,
    /// Whether it advances by itself.
    pub playing: bool,
    /// The speed, as a multiple of the original one.
    pub speed: f64,
    /// Whether the keys are explained instead of showing steps.
    pub help: bool,
    /// A step number that is being typed.
    typed: Option<String>,
    /// Why the last key had no effect.
    note: Option<String>,
}

/// The keys and their descriptions, for the help.
pub const HELP: [(&str, &str); 10] = [
    ("space", "play, pause"),
    ("n, →", "next step"),
    ("p, ←", "previous step"),
    ("e", "next error"),
    ("E", "previous error"),
    ("g", "go to a step: type its number, then Enter"),
    ("Home, End", "first step, last step"),
    ("+, -", "faster, slower"),
    ("?", "this list"),
    ("q, Ctrl-C", "quit"),
];

impl Player {
    /// Creates a player at the first step.
    pub fn new(cursor: TimelineCursor, playing: bool, speed: f64) -> Self {
        Self { cursor, playing, speed, help: false, typed: None, note: None }
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: PlayerKey) -> KeyOutcome {
        if key == PlayerKey::Interrupt {
            return KeyOutcome::Quit;
        }
        self.note = None;
        if self.typed.is_some() {
            self.handle_number_key(key);
            return KeyOutcome::Stay;
        }
        if std::mem::take(&mut self.help) {
            return KeyOutcome::Stay;
        }
        let nowhere = match key {
            PlayerKey::Char('q') | PlayerKey::Escape => return KeyOutcome::Quit,
            PlayerKey::Char(' ') => {
                self.playing = !self.playing;
                // After the end, playing starts over.
                if self.playing && self.cursor.is_at_end() {
                    self.cursor.seek_first();
                }
                None
            }
            PlayerKey::Char('n') | PlayerKey::Right => {
                self.move_manually(|cursor| cursor.forward().is_some(), "the last step")
            }
            PlayerKey::Char('p') | PlayerKey::Left => {
                self.move_manually(|cursor| cursor.backward().is_some(), "the first step")
            }
            PlayerKey::Char('e') => {
                self.move_manually(|cursor| cursor.next_error().is_some(), "no error after this step")
            }
            PlayerKey::Char('E') => {
                self.move_manually(|cursor| cursor.previous_error().is_some(), "no error before this step")
            }
            PlayerKey::Home => self.move_manually(|cursor| cursor.seek_first().is_some(), ""),
            PlayerKey::End => self.move_manually(|cursor| cursor.last().is_some(), ""),
            PlayerKey::Char('g') => {
                self.playing = false;
                self.typed = Some(String::new());
                None
            }
            PlayerKey::Char('+' | '=') => {
                self.speed = SPEEDS.into_iter().find(|speed| *speed > self.speed).unwrap_or(self.speed);
                None
            }
            PlayerKey::Char('-') => {
                self.speed = SPEEDS.into_iter().rfind(|speed| *speed < self.speed).unwrap_or(self.speed);
                None
            }
            PlayerKey::Char('?') => {
                self.help = true;
                None
            }
            _ => None,
        };
        self.note = nowhere;
        KeyOutcome::Stay
    }

    /// Moves because the user pressed a key, and stops playing. Returns `otherwise` if the move is not possible.
    fn move_manually(
        &mut self,
        go: impl FnOnce(&mut TimelineCursor) -> bool,
        otherwise: &str,
    ) -> Option<String> {
        self.playing = false;
        (!go(&mut self.cursor)).then(|| otherwise.to_string())
    }

    fn handle_number_key(&mut self, key: PlayerKey) {
        let Some(typed) = &mut self.typed else { return };
        match key {
            PlayerKey::Char(digit) if digit.is_ascii_digit() && typed.len() < 12 => typed.push(digit),
            PlayerKey::Backspace => {
                typed.pop();
            }
            PlayerKey::Enter => {
                let wanted = typed.parse::<u64>();
                self.typed = None;
                if let Ok(number) = wanted
                    && self.cursor.jump(number).is_none()
                {
                    self.note = Some(format!("no step #{number} or later"));
                }
            }
            PlayerKey::Escape | PlayerKey::Char('q') => self.typed = None,
            _ => {}
        }
    }

    /// Returns how long the current step is shown before the next one; `None` if it stays.
    pub fn display_duration(&self) -> Option<Duration> {
        let gap = self.cursor.time_to_next().filter(|_| self.playing && !self.help)?;
        Some(super::pause_duration(gap, self.speed))
    }

    /// Advances when the time for the current step is over.
    pub fn tick(&mut self) {
        if self.playing {
            self.cursor.forward();
            self.playing = !self.cursor.is_at_end();
        }
    }

    /// Returns the status line at the bottom.
    pub fn status_line(&self) -> String {
        if let Some(typed) = &self.typed {
            return format!("go to step #{typed}_   Enter confirms, Escape cancels");
        }
        let mark = if self.playing { "▶" } else { "⏸" };
        let number = self.cursor.current().map_or(0, |stored| stored.step.number);
        let place = format!("#{number}  {}/{}", self.cursor.position() + 1, self.cursor.len());
        let rest = match &self.note {
            Some(note) if !note.is_empty() => note.clone(),
            _ => "space play/pause  n/p step  e/E error  g go to  +/- speed  ? help  q quit".to_string(),
        };
        format!("{mark} {place}  {}x  {rest}", self.speed)
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::hash::{Hash, ObjectKind};
    use stepback_model::ids::{SessionId, StepId};
    use stepback_model::record::StepRow;
    use stepback_model::record::{Annotation, Step, StepKind, StepMeta};
    use stepback_model::time::Timestamp;

    use super::*;

    /// Five steps, ten seconds apart; the fourth failed.
    fn player() -> Player {
        let steps = (1..=5).map(|number: u64| {
            let step = Step {
                id: StepId::from_bytes([number as u8; 16]),
                session: SessionId::from_bytes([0; 16]),
                number: number * 10,
                parent: None,
                kind: StepKind::ToolEnd,
                at: Timestamp::from_micros(number as i64 * 10_000_000),
                state: Hash::of(ObjectKind::State, b""),
                summary: String::new(),
                meta: StepMeta { failed: number == 4, ..StepMeta::default() },
            };
            StepRow { step, annotation: Annotation::default(), trigger: None, hidden_by: None, purged: false }
        });
        Player::new(TimelineCursor::new(steps.collect()), false, 1.0)
    }

    fn current_number(player: &Player) -> u64 {
        player.cursor.current().map_or(0, |stored| stored.step.number)
    }

    fn press_keys(player: &mut Player, keys: &str) {
        for key in keys.chars() {
            let key = if key == '\n' { PlayerKey::Enter } else { PlayerKey::Char(key) };
            assert_eq!(player.handle_key(key), KeyOutcome::Stay);
        }
    }

    #[test]
    fn every_key_does_what_it_says() {
        let mut player = player();
        press_keys(&mut player, "n");
        assert_eq!(current_number(&player), 20);
        player.handle_key(PlayerKey::Right);
        assert_eq!(current_number(&player), 30);
        press_keys(&mut player, "p");
        player.handle_key(PlayerKey::Left);
        assert_eq!(current_number(&player), 10);
        press_keys(&mut player, "p");
        assert!(player.status_line().contains("the first step"), "{}", player.status_line());
        press_keys(&mut player, "e");
        assert_eq!(current_number(&player), 40);
        press_keys(&mut player, "e");
        assert!(player.status_line().contains("no error after"), "{}", player.status_line());
        player.handle_key(PlayerKey::End);
        press_keys(&mut player, "E");
        assert_eq!(current_number(&player), 40);
        press_keys(&mut player, "g21\n");
        assert_eq!(current_number(&player), 30, "the next one after it");
        press_keys(&mut player, "g99\n");
        assert!(player.status_line().contains("no step #99"), "{}", player.status_line());
        press_keys(&mut player, "g1");
        player.handle_key(PlayerKey::Backspace);
        press_keys(&mut player, "20\n");
        assert_eq!(current_number(&player), 20);
        press_keys(&mut player, "++-");
        assert_eq!(player.speed, 2.0);
        press_keys(&mut player, "?");
        assert!(player.help);
        press_keys(&mut player, "n");
        assert!(!player.help && current_number(&player) == 20, "any key goes back to the steps");
        assert_eq!(player.handle_key(PlayerKey::Char('q')), KeyOutcome::Quit);
        assert_eq!(player.handle_key(PlayerKey::Interrupt), KeyOutcome::Quit);
    }

    #[test]
    fn it_plays_to_the_end_and_then_from_the_beginning() {
        let mut player = player();
        assert_eq!(player.display_duration(), None);
        press_keys(&mut player, " ");
        assert_eq!(player.display_duration(), Some(Duration::from_secs(5)), "ten seconds are too long");
        press_keys(&mut player, "+");
        assert_eq!(player.display_duration(), Some(Duration::from_millis(2500)));
        for _ in 0..4 {
            player.tick();
        }
        assert_eq!((current_number(&player), player.playing, player.display_duration()), (50, false, None));
        press_keys(&mut player, " ");
        assert_eq!((current_number(&player), player.playing), (10, true));
        press_keys(&mut player, "n");
        assert!(!player.playing, "stepping by hand stops the playback");
        assert_eq!(player.handle_key(PlayerKey::Interrupt), KeyOutcome::Quit, "while typing too");
    }

    #[test]
    fn speeds_stay_within_reason_and_any_can_be_given() {
        let mut player = player();
        player.speed = 3.0;
        press_keys(&mut player, "+");
        assert_eq!(player.speed, 4.0);
        press_keys(&mut player, "++++++++");
        assert_eq!(player.speed, 32.0);
        press_keys(&mut player, "---------------");
        assert_eq!(player.speed, 0.25);
    }
}
