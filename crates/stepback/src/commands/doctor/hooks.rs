//! Checks the hooks in each agent's settings: whether they are intact, altered, gone, or were never installed.
//!
//! That hooks were installed once is known from the sessions of this workspace: those that neither `run` started nor `import`
//! read can only come from installed hooks.

use std::path::{Path, PathBuf};

use stepback_agents::Agent;
use stepback_agents::install::{
    self, HookCondition, HookInspection, InstallDirection, InstallPlan, InstallScope, SettingsPaths,
};
use stepback_model::record::Session;
use stepback_model::time::Timestamp;

use super::Examination;
use super::fix::{Fix, FixAction};
use super::report::{Finding, FindingVerdict};
use crate::commands::agents::{current_exe_path, find_settings_paths};
use crate::commands::status;
use crate::failure::CommandFailure;
use crate::output;

/// Hooks that are gone are a problem for this long after the last session that they recorded; then only a note, because the
/// user may have removed them.
const RECENT_MICROS: i64 = 30 * 86_400_000_000;
const SCOPES: [InstallScope; 2] = [InstallScope::Project, InstallScope::User];

/// The sessions of an agent that installed hooks recorded in this workspace.
struct HookEvidence {
    sessions: u64,
    last: Timestamp,
}

/// Checks the hooks of every agent.
pub fn check_hooks(examination: &Examination) -> Vec<Finding> {
    let mut findings = match (find_settings_paths(&examination.root), current_exe_path()) {
        (Ok(paths), Ok(binary)) => {
            let sessions = sessions(examination);
            let check = HookCheck { paths, binary, now: examination.now() };
            let detected = install::detect_agents(&check.paths, &search_path());
            Agent::ALL
                .into_iter()
                .flat_map(|agent| {
                    check.check_agent(agent, find_evidence(agent, &sessions), detected.contains(&agent))
                })
                .collect()
        }
        (Err(failure), _) | (_, Err(failure)) => vec![Finding::from_failure("hooks", &failure)],
    };
    findings.extend(check_gaps(examination));
    findings
}

fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn sessions(examination: &Examination) -> Vec<Session> {
    let Ok(workspace) = examination.workspace() else { return Vec::new() };
    // A store that cannot be read is reported by its own check.
    workspace.store().sessions(workspace.record.id).unwrap_or_default()
}

fn find_evidence(agent: Agent, sessions: &[Session]) -> Option<HookEvidence> {
    let by_hooks = sessions.iter().filter(|session| {
        let info = &session.info;
        session.agent == agent.name()
            && info.external.is_some()
            && info.started.is_none()
            && !info.imported
            && info.forked_from.is_none()
    });
    let seen = by_hooks.map(|session| session.info.seen_at.unwrap_or(session.started_at));
    seen.fold(None, |found: Option<HookEvidence>, at| {
        let (sessions, last) = found.map_or((0, at), |found| (found.sessions, found.last.max(at)));
        Some(HookEvidence { sessions: sessions + 1, last })
    })
}

/// What the hooks of an agent are compared with.
struct HookCheck {
    paths: SettingsPaths,
    binary: PathBuf,
    now: Timestamp,
}

impl HookCheck {
    fn check_agent(&self, agent: Agent, evidence: Option<HookEvidence>, is_in_use: bool) -> Vec<Finding> {
        let found = SCOPES.map(|scope| install::inspect(agent, scope, &self.paths, &self.binary));
        let is_anywhere = found.iter().any(|found| found.condition != HookCondition::Absent);
        let mut findings = Vec::new();
        for inspection in &found {
            findings.extend(match inspection.condition {
                HookCondition::Absent => None,
                HookCondition::Intact => Some(self.describe_intact(inspection)),
                HookCondition::Altered => Some(self.describe_altered(inspection)),
                HookCondition::Unreadable => Some(self.describe_unreadable(inspection, evidence.is_some())),
            });
        }
        if !is_anywhere {
            findings.extend(self.describe_absent(agent, evidence, is_in_use));
            return findings;
        }
        findings.extend(self.check_both_scopes(agent, &found));
        findings.extend(self.check_disabled(agent, &found));
        for inspection in &found {
            findings.extend(self.check_review(inspection));
        }
        findings
    }

    fn describe_intact(&self, inspection: &HookInspection) -> Finding {
        let what = match inspection.agent {
            Agent::Opencode => "the plugin".to_owned(),
            _ => output::count(inspection.hooks as u64, "hook"),
        };
        let strict = if inspection.is_strict { ", strict" } else { "" };
        let copied = inspection.programs.iter().find(|program| **program != self.binary);
        let program = match copied {
            Some(program) => format!("; they run {}, a copy of this program", program.display()),
            None => String::new(),
        };
        let text = format!(
            "{}: intact, {what} in {}{strict}{program}",
            inspection.agent.title(),
            self.show(&inspection.file)
        );
        Finding::new(hook_id(inspection), "hooks", FindingVerdict::Good, text).with_state("intact")
    }

    fn describe_altered(&self, inspection: &HookInspection) -> Finding {
        let agent = inspection.agent;
        let text = format!(
            "{}: altered, {} {}",
            agent.title(),
            self.show(&inspection.file),
            inspection.differences.join("; it ")
        );
        let found =
            Finding::new(hook_id(inspection), "hooks", FindingVerdict::Problem, text).with_state("altered");
        let plan = install::plan_repair(inspection, &self.paths, &self.binary).ok();
        let fix = plan
            .filter(|plan| !plan.is_unchanged())
            .map(|plan| self.new_fix(agent, inspection.scope, plan, "as this program writes them"));
        let hint = match &fix {
            Some(_) => format!("\"{}\" writes them again", init_command(agent, inspection.scope)),
            None => "remove the matcher from stepback's entries, so that every call is recorded".to_owned(),
        };
        found.with_hint(hint).with_fix(fix)
    }

    fn describe_unreadable(&self, inspection: &HookInspection, was_installed: bool) -> Finding {
        let why = inspection.differences.join("; ");
        let text = format!("{}: {why}", inspection.agent.title());
        let names_stepback = || {
            let text = std::fs::read(&inspection.file).unwrap_or_default();
            text.windows(8).any(|window| window == b"stepback")
        };
        // Settings without stepback are not its business, but hooks cannot be installed in them.
        let is_small = std::fs::metadata(&inspection.file)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() < 16 << 20);
        let is_problem = was_installed || (is_small && names_stepback());
        let verdict = if is_problem { FindingVerdict::Problem } else { FindingVerdict::Note };
        Finding::new(hook_id(inspection), "hooks", verdict, text)
            .with_state("unreadable")
            .with_hint("correct the file: until then, the agent does not read hooks from it")
    }

    fn describe_absent(
        &self,
        agent: Agent,
        evidence: Option<HookEvidence>,
        is_in_use: bool,
    ) -> Option<Finding> {
        let id = format!("hooks.{agent}");
        let title = agent.title();
        if let Some(file) = install::find_moved_hooks(agent, &self.paths, &self.binary) {
            let text = format!(
                "{title}: hooks of stepback are in {}, where it does not look after them",
                self.show(&file)
            );
            return Some(
                Finding::new(id, "hooks", FindingVerdict::Note, text).with_state("moved").with_hint(format!(
                    "\"{}\" installs them where it does",
                    init_command(agent, InstallScope::Project)
                )),
            );
        }
        let Some(evidence) = evidence else {
            return is_in_use.then(|| {
                Finding::new(
                    id,
                    "hooks",
                    FindingVerdict::Note,
                    format!("{title}: never installed, it is not recorded"),
                )
                .with_state("never-installed")
                .with_hint(format!("\"{}\" installs them", init_command(agent, InstallScope::Project)))
            });
        };
        let is_recent = self.now.as_micros() - evidence.last.as_micros() < RECENT_MICROS;
        let verdict = if is_recent { FindingVerdict::Problem } else { FindingVerdict::Note };
        let text = format!(
            "{title}: gone. They recorded {} here, the last {}, and no settings have them now",
            output::count(evidence.sessions, "session"),
            evidence.last.ago(self.now)
        );
        let plan = install::plan(
            agent,
            InstallScope::Project,
            &self.paths,
            &self.binary,
            false,
            InstallDirection::Install,
        );
        let fix = plan.ok().map(|plan| self.new_fix(agent, InstallScope::Project, plan, "in this project"));
        Some(
            Finding::new(id, "hooks", verdict, text)
                .with_state("gone")
                .with_hint(format!(
                    "\"{}\" installs them again (--user for all projects)",
                    init_command(agent, InstallScope::Project)
                ))
                .with_fix(fix),
        )
    }

    /// Finds hooks that the agent runs twice.
    fn check_both_scopes(&self, agent: Agent, found: &[HookInspection; 2]) -> Option<Finding> {
        let is_readable = |found: &HookInspection| {
            matches!(found.condition, HookCondition::Intact | HookCondition::Altered)
        };
        if !found.iter().all(is_readable) {
            return None;
        }
        // Claude Code and Gemini CLI run hooks of the same text once.
        let runs_once = matches!(agent, Agent::Claude | Agent::Gemini);
        if runs_once && found[0].programs == found[1].programs && found[0].is_strict == found[1].is_strict {
            return None;
        }
        let text = format!(
            "{}: hooks are in {} and in {}, and the agent runs both",
            agent.title(),
            self.show(&found[0].file),
            self.show(&found[1].file)
        );
        let [project, user] = SCOPES.map(|scope| init_command(agent, scope));
        Some(
            Finding::new(format!("hooks.{agent}.twice"), "hooks", FindingVerdict::Note, text)
                .with_state("doubled")
                .with_hint(format!("uninstall one: \"{project} --uninstall\" or \"{user} --uninstall\"")),
        )
    }

    fn check_disabled(&self, agent: Agent, found: &[HookInspection; 2]) -> Option<Finding> {
        let off = install::find_disabling_setting(agent, &self.paths)?;
        let has_hooks = found
            .iter()
            .any(|found| matches!(found.condition, HookCondition::Intact | HookCondition::Altered));
        if !has_hooks {
            return None;
        }
        let text =
            format!("{}: {} turns its hooks off ({})", agent.title(), self.show(&off.file), off.setting);
        Some(
            Finding::new(format!("hooks.{agent}.disabled"), "hooks", FindingVerdict::Problem, text)
                .with_state("disabled")
                .with_hint("remove the setting; nothing of this agent is recorded until then"),
        )
    }

    fn check_review(&self, inspection: &HookInspection) -> Option<Finding> {
        if install::are_reviewed(inspection, &self.paths, &self.binary)? {
            return None;
        }
        let text = format!(
            "{}: you have not reviewed all hooks in {}; it skips the others without a message",
            inspection.agent.title(),
            self.show(&inspection.file)
        );
        Some(
            Finding::new(format!("{}.review", hook_id(inspection)), "hooks", FindingVerdict::Note, text)
                .with_state("not-reviewed")
                .with_hint("start codex here and accept them, or enter /hooks"),
        )
    }

    fn new_fix(&self, agent: Agent, scope: InstallScope, plan: InstallPlan, how: &str) -> Fix {
        Fix {
            description: format!("{}: {} ({how})", agent.title(), plan.changes.join("; ")),
            undo: format!("{} --uninstall", init_command(agent, scope)),
            action: FixAction::InstallHooks(Box::new(plan)),
        }
    }

    fn show(&self, path: &Path) -> String {
        match path.strip_prefix(&self.paths.workspace) {
            Ok(inside) if !self.paths.home.starts_with(&self.paths.workspace) => inside.display().to_string(),
            _ => self.paths.display_path(path),
        }
    }
}

fn hook_id(inspection: &HookInspection) -> String {
    let scope = match inspection.scope {
        InstallScope::Project => "project",
        InstallScope::User => "user",
    };
    format!("hooks.{}.{scope}", inspection.agent)
}

fn init_command(agent: Agent, scope: InstallScope) -> String {
    let user = if scope == InstallScope::User { " --user" } else { "" };
    format!("stepback init --agent {agent}{user}")
}

/// Reports events of the last day that were not recorded.
fn check_gaps(examination: &Examination) -> Option<Finding> {
    let (context, workspace) = (examination.context().ok()?, examination.workspace().ok()?);
    match status::count_recent_gaps(context, workspace) {
        Ok(0) => None,
        Ok(gaps) => {
            let text = format!("{} could not be recorded in the last day", output::count(gaps, "event"));
            Some(
                Finding::problem("hooks", text)
                    .with_id("hooks.gaps")
                    .with_hint("\"stepback log --kind gap\" shows why"),
            )
        }
        Err(failure) => Some(unreadable_gaps(&failure)),
    }
}

fn unreadable_gaps(failure: &CommandFailure) -> Finding {
    Finding::from_failure("hooks", failure).with_id("hooks.gaps")
}
