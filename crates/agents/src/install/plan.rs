//! Plans the change of a settings file: reads the current one and computes the new one, without writing.

use std::path::{Path, PathBuf};

use super::hooks::{self, EventHandler, HandlerCounts, HookConflict, OwnHandlers};
use super::jsonc::JsoncDocument;
use super::parse::SpannedNode;
use super::write::{inside, resolve_and_read};
use super::{
    HookCommand, InstallDirection, InstallError, InstallScope, SettingsPaths, claude, codex, gemini, opencode,
};
use crate::Agent;

/// The planned change of one file. Made by [`plan`], executed by [`apply_plan`](super::apply_plan).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstallPlan {
    /// The agent that owns the settings.
    pub agent: Agent,
    /// The file, by the path that the agent uses.
    pub file: PathBuf,
    /// The file that is written: `file`, or the target if it is a symbolic link.
    pub target: PathBuf,
    /// Current content; `None` if the file does not exist.
    pub before: Option<Vec<u8>>,
    /// New content; `None` if the file is to be removed.
    pub after: Option<Vec<u8>>,
    /// What changes, in sentences for the user without a subject: "adds 16 hooks to ~/.claude/settings.json".
    pub changes: Vec<String>,
    /// What the user has to know or do afterwards.
    pub follow_up: Vec<String>,
    /// Directories, outermost first: created if the file is, removed with the file if they are empty then.
    pub dirs: Vec<PathBuf>,
    /// The workspace that the file belongs to and must not leave; `None` for settings of the user.
    pub within: Option<PathBuf>,
}

impl InstallPlan {
    /// Returns a plan that leaves a file unchanged.
    pub(super) fn unchanged(
        agent: Agent,
        file: PathBuf,
        paths: &SettingsPaths,
    ) -> Result<Self, InstallError> {
        let within = workspace_of(&file, paths);
        if let Some(root) = within.as_ref().and_then(|workspace| workspace.canonicalize().ok()) {
            inside(&root, &file)?;
        }
        let (target, before) = resolve_and_read(&file)?;
        let (dirs, after) = (parent_dirs(&file, paths), before.clone());
        let (changes, follow_up) = (Vec::new(), Vec::new());
        Ok(Self { agent, file, target, before, after, changes, follow_up, dirs, within })
    }

    /// Whether the plan changes nothing.
    pub fn is_unchanged(&self) -> bool {
        self.before == self.after
    }

    /// Keeps only the directories that are created or removed together with the file.
    pub(super) fn drop_unneeded_dirs(&mut self, direction: InstallDirection) {
        if direction == InstallDirection::Install && self.before.is_none() {
            self.dirs.retain(|dir| !dir.exists());
        } else if self.after.is_some() || self.before.is_none() {
            self.dirs.clear();
        }
    }
}

/// Plans to add the hooks of `binary` to the settings of `agent`, or to remove the existing ones.
pub fn plan(
    agent: Agent,
    scope: InstallScope,
    paths: &SettingsPaths,
    binary: &Path,
    strict: bool,
    direction: InstallDirection,
) -> Result<InstallPlan, InstallError> {
    let hook = HookCommand::new(agent, binary, strict)?;
    let file = settings_file(agent, scope, paths);
    let shown = paths.display_path(&file);
    let mut plan = InstallPlan::unchanged(agent, file, paths)?;
    match (agent, direction) {
        (Agent::Opencode, InstallDirection::Install) => install_plugin(&mut plan, &hook, &shown)?,
        (Agent::Opencode, InstallDirection::Uninstall) => uninstall_plugin(&mut plan, &shown),
        (_, InstallDirection::Install) => {
            install_hooks(&mut plan, &build_handlers(&hook), OwnHandlers { agent, binary }, &shown)?;
            plan.follow_up = match agent {
                Agent::Claude => claude::follow_up_notes(&hook, scope),
                Agent::Codex => codex::follow_up_notes(scope),
                Agent::Gemini | Agent::Opencode => gemini::follow_up_notes(scope),
            };
            plan.follow_up.extend(disabled_hooks_note(&plan));
            plan.follow_up.extend(duplicate_hooks_note(&hook, scope, paths, OwnHandlers { agent, binary }));
        }
        (_, InstallDirection::Uninstall) => {
            uninstall_hooks(&mut plan, OwnHandlers { agent, binary }, &shown)?
        }
    }
    plan.drop_unneeded_dirs(direction);
    Ok(plan)
}

pub(super) fn settings_file(agent: Agent, scope: InstallScope, paths: &SettingsPaths) -> PathBuf {
    match agent {
        Agent::Claude => claude::settings_file(scope, paths),
        Agent::Codex => codex::hooks_file(scope, paths),
        Agent::Gemini => gemini::settings_file(scope, paths),
        Agent::Opencode => opencode::plugin_file(scope, paths),
    }
}

/// Returns the handlers of agents that keep hooks in their settings.
pub(super) fn build_handlers(hook: &HookCommand<'_>) -> Vec<EventHandler> {
    match hook.agent {
        Agent::Claude => claude::build_handlers(hook),
        Agent::Codex => codex::build_handlers(hook),
        Agent::Gemini => gemini::build_handlers(hook),
        Agent::Opencode => Vec::new(),
    }
}

/// Returns the workspace if a file belongs to it and not to the user. Around a home there are only files of the user.
fn workspace_of(file: &Path, place: &SettingsPaths) -> Option<PathBuf> {
    let is_of_workspace = file.starts_with(&place.workspace) && !place.home.starts_with(&place.workspace);
    is_of_workspace.then(|| place.workspace.clone())
}

/// Returns the directories between the home or the workspace and the file.
pub(super) fn parent_dirs(file: &Path, paths: &SettingsPaths) -> Vec<PathBuf> {
    let mut dirs: Vec<_> = file
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != paths.home && *dir != paths.workspace && dir.parent().is_some())
        .map(Path::to_owned)
        .collect();
    dirs.reverse();
    dirs
}

fn install_hooks(
    plan: &mut InstallPlan,
    wanted: &[EventHandler],
    ours: OwnHandlers<'_>,
    shown: &str,
) -> Result<(), InstallError> {
    let text = current_text(plan)?;
    let counts;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let whole = super::value::Value::Object(vec![("hooks", hooks::build_hooks_object(wanted))])
            .to_pretty_string("\n", "  ", "");
        // A file that was empty must not look like one that stepback created, so that it is restored: see `uninstall_hooks`.
        let end = if plan.before.is_none() || text == "\n" { "\n" } else { "" };
        plan.after = Some(format!("{whole}{end}{text}").into_bytes());
        counts = HandlerCounts { added: wanted.len(), ..HandlerCounts::default() };
    } else {
        let mut document = parse_document(plan, text)?;
        let unreadable = match plan.agent {
            Agent::Gemini => None,
            _ => document.first_comment().map(|position| (position, "a comment")),
        };
        let comma =
            document.first_trailing_comma().map(|position| (position, "a comma before a closing bracket"));
        if let Some((position, what)) = unreadable.or(comma) {
            return Err(InstallError::UnsupportedSyntax {
                file: plan.file.clone(),
                agent: plan.agent,
                position,
                what,
            });
        }
        counts =
            hooks::install(&mut document, wanted, ours).map_err(|misfit| invalid_settings(plan, misfit))?;
        plan.after = Some(document.text().as_bytes().to_vec());
    }
    let (updated, removed) = (counts.updated, counts.removed);
    push_change(plan, counts.added, &format!("adds {} to {shown}", format_hook_count(counts.added)));
    push_change(plan, updated, &format!("updates {} in {shown}", format_hook_count(updated)));
    push_change(plan, removed, &format!("removes {} from {shown}", format_hook_count(removed)));
    Ok(())
}

fn uninstall_hooks(plan: &mut InstallPlan, ours: OwnHandlers<'_>, shown: &str) -> Result<(), InstallError> {
    let text = current_text(plan)?;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(());
    }
    let mut document = parse_document(plan, text)?;
    if plan.agent == Agent::Codex && has_later_handlers(&document, ours) {
        plan.follow_up.push(codex::moved_hooks_note());
    }
    let (counts, nothing_left) =
        hooks::uninstall(&mut document, ours).map_err(|error| invalid_settings(plan, error.into()))?;
    let end = &document.text()[document.root().span.end..];
    plan.after = match end {
        "\n" | "\r\n" if nothing_left && document.is_bare() => None,
        "\n\n" if nothing_left && document.is_bare() => Some(b"\n".to_vec()),
        _ if nothing_left && document.is_bare() => Some(end.as_bytes().to_vec()),
        _ => Some(document.text().as_bytes().to_vec()),
    };
    push_change(plan, counts.removed, &format!("removes {} from {shown}", format_hook_count(counts.removed)));
    if plan.after.is_none() {
        plan.changes.push(format!("removes {shown}, which contains nothing else"));
    }
    Ok(())
}

fn install_plugin(plan: &mut InstallPlan, hook: &HookCommand<'_>, shown: &str) -> Result<(), InstallError> {
    let plugin = opencode::render_plugin(hook).into_bytes();
    match &plan.before {
        Some(before) if *before == plugin => {}
        Some(before) if !opencode::is_own_plugin(before) => {
            return Err(InstallError::NotOwnFile(plan.file.clone()));
        }
        Some(_) => plan.changes.push(format!("updates the plugin {shown}")),
        None => plan.changes.push(format!("adds the plugin {shown}")),
    }
    plan.after = Some(plugin);
    plan.follow_up
        .push("Sessions of opencode that are open now load the plugin when they are restarted.".to_owned());
    Ok(())
}

fn uninstall_plugin(plan: &mut InstallPlan, shown: &str) {
    if plan.before.as_deref().is_some_and(opencode::is_own_plugin) {
        plan.after = None;
        plan.changes.push(format!("removes the plugin {shown}"));
    }
}

/// Returns a note if the settings disable all hooks.
fn disabled_hooks_note(plan: &InstallPlan) -> Option<String> {
    let text = String::from_utf8(plan.after.clone()?).ok()?;
    let document = JsoncDocument::parse(text).ok()?;
    let (setting, off) = match plan.agent {
        Agent::Claude => ("disableAllHooks", document.root().member("disableAllHooks")?.is_plain("true")),
        Agent::Gemini => {
            let enabled = document.root().member("hooksConfig")?.member("enabled")?;
            ("hooksConfig.enabled", enabled.is_plain("false"))
        }
        Agent::Codex | Agent::Opencode => return None,
    };
    off.then(|| {
        format!("Hooks are disabled in this file ({setting}); stepback's hooks run only if they are enabled.")
    })
}

/// Returns a note if stepback's hooks are in the other scope's file too and the agent would run both. Claude Code and Gemini
/// CLI run hooks of the same text once.
fn duplicate_hooks_note(
    hook: &HookCommand<'_>,
    scope: InstallScope,
    paths: &SettingsPaths,
    ours: OwnHandlers<'_>,
) -> Option<String> {
    let other = match scope {
        InstallScope::Project => InstallScope::User,
        InstallScope::User => InstallScope::Project,
    };
    let other = settings_file(hook.agent, other, paths);
    let mut document = JsoncDocument::parse(std::fs::read_to_string(&other).ok()?).ok()?;
    let once = hook.agent != Agent::Codex
        && hooks::install(&mut document, &build_handlers(hook), ours).is_ok_and(|counts| counts.updated == 0);
    let doubled = !once && !ours.find_handlers(&document).is_empty();
    doubled.then(|| {
        let (other, agent) = (paths.display_path(&other), hook.agent.title());
        format!("{other} also contains stepback hooks, and {agent} runs both: uninstall one of them.")
    })
}

/// Whether another group follows one of stepback's under the same event.
fn has_later_handlers(document: &JsoncDocument, ours: OwnHandlers<'_>) -> bool {
    ours.find_handlers(document).into_iter().any(|(event, group, _)| {
        let groups = document.get(&["hooks".into(), event.as_str().into()]).and_then(SpannedNode::elements);
        groups.unwrap_or_default().iter().skip(group + 1).any(|group| {
            let handlers = group.member("hooks").and_then(SpannedNode::elements).unwrap_or_default();
            handlers.iter().any(|handler| !ours.matches(handler))
        })
    })
}

pub(super) fn current_text(plan: &InstallPlan) -> Result<String, InstallError> {
    let bytes = plan.before.clone().unwrap_or_default();
    String::from_utf8(bytes).map_err(|_| InstallError::NotText(plan.file.clone()))
}

pub(super) fn parse_document(plan: &InstallPlan, text: String) -> Result<JsoncDocument, InstallError> {
    JsoncDocument::parse(text).map_err(|error| invalid_settings(plan, error.into()))
}

pub(super) fn invalid_settings(plan: &InstallPlan, conflict: HookConflict) -> InstallError {
    let (what, position) = match conflict {
        HookConflict::Shape { what, position } => (what, position),
        HookConflict::Syntax(error) => (error.what, error.position),
    };
    InstallError::InvalidSettings { file: plan.file.clone(), position, what }
}

fn push_change(plan: &mut InstallPlan, count: usize, sentence: &str) {
    if count > 0 {
        plan.changes.push(sentence.to_owned());
    }
}

fn format_hook_count(count: usize) -> String {
    if count == 1 { "1 hook".to_owned() } else { format!("{count} hooks") }
}
