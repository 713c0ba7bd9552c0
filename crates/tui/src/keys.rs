//! The single table of keys: key presses are looked up here, and the help and the guide are generated from it.

use crossterm::event::KeyCode;

use crate::app::View;

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyAction {
    /// One row down.
    Down,
    /// One row up.
    Up,
    /// A screen down.
    PageDown,
    /// A screen up.
    PageUp,
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// One step back in time.
    Back,
    /// One step forward in time.
    Forward,
    /// Opens what is selected.
    Open,
    /// Leaves what was opened.
    Leave,
    /// To the next error.
    NextError,
    /// To the previous error.
    PreviousError,
    /// To a point.
    Jump,
    /// Plays, or stops playing.
    Play,
    /// Plays faster.
    Faster,
    /// Plays slower.
    Slower,
    /// Runs the session again.
    Rerun,
    /// Makes a branch here.
    Branch,
    /// Keeps the workspace as it is now.
    Checkpoint,
    /// Goes back to here.
    Rewind,
    /// Takes back what was done last.
    Undo,
    /// Stops the agent at its next call, or lets it run again.
    Pause,
    /// Looks for words.
    Search,
    /// To the next view.
    NextView,
    /// To the previous view.
    PreviousView,
    /// To a view by its number.
    Show(View),
    /// To the next part of the view.
    NextPart,
    /// To the previous part of the view.
    PreviousPart,
    /// Shows who wrote the lines of the open file, or no longer.
    ToggleOrigins,
    /// Compares with this step from now on.
    CompareWithStep,
    /// Compares with the files as they are now.
    CompareWithNow,
    /// Lets an agent that waits go on.
    Resume,
    /// Lets it go on to its next call.
    ResumeOneCall,
    /// Refuses the call.
    Deny,
    /// Changes the input of the call.
    EditInput,
    /// Tells an agent something.
    SendMessage,
    /// Adds a breakpoint.
    AddBreakpoint,
    /// Removes a breakpoint.
    RemoveBreakpoint,
    /// Agrees to a plan.
    Confirm,
    /// Plans for the whole workspace.
    PlanEverything,
    /// Shows the keys.
    Help,
    /// Ends the program.
    Quit,
}

/// Where a key has a meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyScope {
    /// Everywhere, unless a narrower scope says otherwise.
    Everywhere,
    /// In one view.
    In(View),
    /// While a plan is shown.
    Plan,
}

impl KeyScope {
    /// Returns the heading of the scope.
    pub fn title(self) -> &'static str {
        match self {
            Self::Everywhere => "Everywhere",
            Self::In(View::Sessions) => "Sessions",
            Self::In(View::Timeline) => "Timeline",
            Self::In(View::Step) => "Step",
            Self::In(View::State) => "State",
            Self::In(View::Diff) => "Diff",
            Self::In(View::Live) => "Live",
            Self::In(View::Board) => "Mind",
            Self::Plan => "A plan",
        }
    }
}

/// Keys and their action.
#[derive(Clone, Copy, Debug)]
pub struct KeyBinding {
    /// Where the keys have this meaning.
    pub scope: KeyScope,
    /// The keys; any of them triggers the action.
    pub keys: &'static [KeyCode],
    /// The action.
    pub action: KeyAction,
    /// A description of the action for the user.
    pub description: &'static str,
}

const fn bind(
    scope: KeyScope,
    keys: &'static [KeyCode],
    action: KeyAction,
    description: &'static str,
) -> KeyBinding {
    KeyBinding { scope, keys, action, description }
}

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};
use KeyScope::{Everywhere, In, Plan};

/// All bindings, in the order in which the help lists them.
pub const BINDINGS: &[KeyBinding] = &[
    bind(Everywhere, &[Char('j'), Down], KeyAction::Down, "one row down"),
    bind(Everywhere, &[Char('k'), Up], KeyAction::Up, "one row up"),
    bind(Everywhere, &[PageDown], KeyAction::PageDown, "a screen down"),
    bind(Everywhere, &[PageUp], KeyAction::PageUp, "a screen up"),
    bind(Everywhere, &[Home], KeyAction::First, "to the first row"),
    bind(Everywhere, &[End, Char('G')], KeyAction::Last, "to the last row; a live session is followed there"),
    bind(Everywhere, &[Char('h'), Left], KeyAction::Back, "one step back in time"),
    bind(Everywhere, &[Char('l'), Right], KeyAction::Forward, "one step forward in time"),
    bind(Everywhere, &[Enter], KeyAction::Open, "open what is selected"),
    bind(Everywhere, &[Esc], KeyAction::Leave, "leave what was opened"),
    bind(Everywhere, &[Char('e')], KeyAction::NextError, "to the next error"),
    bind(Everywhere, &[Char('E')], KeyAction::PreviousError, "to the previous error"),
    bind(
        Everywhere,
        &[Char('g')],
        KeyAction::Jump,
        "jump to a point: 12, error:last, 10 minutes ago, a label",
    ),
    bind(Everywhere, &[Char(' ')], KeyAction::Play, "play, or stop playing"),
    bind(Everywhere, &[Char('+')], KeyAction::Faster, "play faster"),
    bind(Everywhere, &[Char('-')], KeyAction::Slower, "play slower"),
    bind(Everywhere, &[Char('r')], KeyAction::Rerun, "rerun the session, optionally with a change"),
    bind(Everywhere, &[Char('b')], KeyAction::Branch, "make a branch at this step"),
    bind(Everywhere, &[Char('c')], KeyAction::Checkpoint, "create a checkpoint"),
    bind(Everywhere, &[Char('w')], KeyAction::Rewind, "rewind to this step; the plan is shown first"),
    bind(Everywhere, &[Char('u')], KeyAction::Undo, "undo the last operation; the plan is shown first"),
    bind(Everywhere, &[Char('p')], KeyAction::Pause, "pause the agent at its next call, or resume it"),
    bind(Everywhere, &[Char('/')], KeyAction::Search, "search in everything that was recorded"),
    bind(Everywhere, &[Tab], KeyAction::NextView, "the next view"),
    bind(Everywhere, &[BackTab], KeyAction::PreviousView, "the previous view"),
    bind(Everywhere, &[Char('1')], KeyAction::Show(View::Sessions), "the sessions"),
    bind(Everywhere, &[Char('2')], KeyAction::Show(View::Timeline), "the timeline"),
    bind(Everywhere, &[Char('3')], KeyAction::Show(View::Step), "the step"),
    bind(Everywhere, &[Char('4')], KeyAction::Show(View::State), "the state"),
    bind(Everywhere, &[Char('5')], KeyAction::Show(View::Diff), "the diff"),
    bind(Everywhere, &[Char('6')], KeyAction::Show(View::Live), "breakpoints and agents that wait"),
    bind(Everywhere, &[Char('7')], KeyAction::Show(View::Board), "the board at this step"),
    bind(Everywhere, &[Char('?')], KeyAction::Help, "these keys"),
    bind(Everywhere, &[Char('q')], KeyAction::Quit, "quit"),
    bind(In(View::State), &[Char(']')], KeyAction::NextPart, "files, conversation, memory, task, git"),
    bind(In(View::State), &[Char('[')], KeyAction::PreviousPart, "in reverse order"),
    bind(
        In(View::State),
        &[Char('o')],
        KeyAction::ToggleOrigins,
        "who wrote the lines of the open file, or no longer",
    ),
    bind(In(View::Diff), &[Char(']')], KeyAction::NextPart, "the next file"),
    bind(In(View::Diff), &[Char('[')], KeyAction::PreviousPart, "the previous file"),
    bind(
        In(View::Diff),
        &[Char('m')],
        KeyAction::CompareWithStep,
        "compare with this step from now on, or no longer",
    ),
    bind(
        In(View::Diff),
        &[Char('n')],
        KeyAction::CompareWithNow,
        "compare with the files as they are now, or no longer",
    ),
    bind(In(View::Live), &[Char('o')], KeyAction::Resume, "resume the agent"),
    bind(In(View::Live), &[Char('s')], KeyAction::ResumeOneCall, "resume it for one call"),
    bind(In(View::Live), &[Char('d')], KeyAction::Deny, "refuse the call with a reason"),
    bind(In(View::Live), &[Char('i')], KeyAction::EditInput, "edit the input of the call"),
    bind(In(View::Live), &[Char('t')], KeyAction::SendMessage, "send the agent a message"),
    bind(In(View::Live), &[Char('a')], KeyAction::AddBreakpoint, "add a breakpoint"),
    bind(In(View::Live), &[Char('x')], KeyAction::RemoveBreakpoint, "remove the breakpoint"),
    bind(In(View::Board), &[Enter], KeyAction::Open, "to the step that the selected item came from"),
    bind(In(View::Board), &[Char(']')], KeyAction::NextPart, "the next kind of items"),
    bind(In(View::Board), &[Char('[')], KeyAction::PreviousPart, "the previous kind"),
    bind(Plan, &[Char('y')], KeyAction::Confirm, "do it"),
    bind(
        Plan,
        &[Char('a')],
        KeyAction::PlanEverything,
        "plan for the whole workspace, not only the agents' changes",
    ),
    bind(Plan, &[Esc, Char('n'), Char('q')], KeyAction::Leave, "cancel"),
    bind(Plan, &[Char('j'), Down], KeyAction::Down, "one row down"),
    bind(Plan, &[Char('k'), Up], KeyAction::Up, "one row up"),
    bind(Plan, &[PageDown], KeyAction::PageDown, "a screen down"),
    bind(Plan, &[PageUp], KeyAction::PageUp, "a screen up"),
];

/// Returns what a key does in a view.
pub fn action_in_view(view: View, key: KeyCode) -> Option<KeyAction> {
    let find_binding =
        |scope: KeyScope| BINDINGS.iter().find(|one| one.scope == scope && one.keys.contains(&key));
    find_binding(In(view)).or_else(|| find_binding(Everywhere)).map(|binding| binding.action)
}

/// Returns what a key does while a plan is shown.
pub fn action_in_plan(key: KeyCode) -> Option<KeyAction> {
    BINDINGS
        .iter()
        .find(|binding| binding.scope == Plan && binding.keys.contains(&key))
        .map(|binding| binding.action)
}

/// Returns the name of a key.
pub fn name(key: KeyCode) -> String {
    match key {
        Char(' ') => "space".into(),
        Char(c) => c.to_string(),
        BackTab => "shift-tab".into(),
        PageDown => "page down".into(),
        PageUp => "page up".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Returns the names of the keys of a binding.
pub fn key_names(binding: &KeyBinding) -> String {
    binding.keys.iter().map(|key| name(*key)).collect::<Vec<_>>().join(", ")
}

/// Returns all scopes, in the order in which the help lists them.
pub fn scopes() -> Vec<KeyScope> {
    let mut scopes: Vec<KeyScope> = BINDINGS.iter().map(|binding| binding.scope).collect();
    scopes.dedup();
    scopes
}

/// Returns the tables of the guide.
pub fn render_guide() -> String {
    let mut text = String::new();
    for scope in scopes() {
        text.push_str(&format!("### {}\n\n| keys | what they do |\n|---|---|\n", scope.title()));
        for binding in BINDINGS.iter().filter(|binding| binding.scope == scope) {
            let names: Vec<String> = binding.keys.iter().map(|key| format!("`{}`", name(*key))).collect();
            text.push_str(&format!("| {} | {} |\n", names.join(", "), binding.description));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        for (index, one) in BINDINGS.iter().enumerate() {
            for other in BINDINGS.iter().skip(index + 1).filter(|other| other.scope == one.scope) {
                assert!(one.keys.iter().all(|key| !other.keys.contains(key)), "{one:?} and {other:?}");
            }
        }
        assert_eq!(action_in_view(View::Timeline, Char('e')), Some(KeyAction::NextError));
        assert_eq!(action_in_view(View::Live, Char('d')), Some(KeyAction::Deny));
        assert_eq!(action_in_view(View::Timeline, Char('d')), None);
        assert_eq!(action_in_plan(Char('n')), Some(KeyAction::Leave));
    }

    #[test]
    fn the_guide_has_the_keys_of_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/tui.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (begin, end) = ("<!-- keys: written from crates/tui/src/keys.rs -->\n\n", "<!-- end of keys -->");
        let (before, rest) = text.split_once(begin).unwrap();
        let (tables, after) = rest.split_once(end).unwrap();
        if std::env::var_os("STEPBACK_UPDATE_GUIDE").is_some() {
            std::fs::write(path, format!("{before}{begin}{}{end}{after}", render_guide())).unwrap();
        } else {
            assert_eq!(tables, render_guide(), "STEPBACK_UPDATE_GUIDE=1 rewrites them");
        }
    }
}
