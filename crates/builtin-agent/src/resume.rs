//! Continues a session from an earlier step. No files are written for it: the agent reads its conversation from the store.

use std::path::Path;

use stepback_agents::fork::{Fork, PlannedFork};
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::ids::SessionId;
use stepback_model::record::Session;
use stepback_model::record::StepRow;

use crate::NAME;

/// The prompt of an agent that continues without one.
const DEFAULT_RESUME_PROMPT: &str = "Continue.";

/// Returns how a session of this agent continues from a step under a new id. `store` is the store if it is not the default one.
pub fn resume(
    workspace: &Workspace,
    session: Session,
    target: &StepRow,
    store: Option<String>,
    cwd: Option<&Path>,
    prompt: Option<&str>,
    id: [u8; 16],
) -> Result<PlannedFork, EngineError> {
    let objects = workspace.store();
    let tip = workspace.conversation_tip_at(&session, target)?;
    let kept = conversation::len(objects, tip)?;
    let env = session.info.slots.env.and_then(|hash| stepback_model::json::load(objects, hash).ok());
    let words = env.and_then(|env| serde_json::from_value(env["arguments"].clone()).ok());
    let id = SessionId::from_bytes(id).to_string();
    let mut command: Vec<String> = vec![NAME.into()];
    command.extend(store.into_iter().flat_map(|store| ["--store".into(), store]));
    command.extend(["agent".into(), "--session".into(), id.clone()]);
    command.extend::<Vec<String>>(words.unwrap_or_default());
    command.push("--".into());
    command.push(prompt.filter(|prompt| !prompt.is_empty()).unwrap_or(DEFAULT_RESUME_PROMPT).to_owned());
    let fork = Fork {
        session: id,
        kept_lines: usize::try_from(kept).unwrap_or(usize::MAX),
        writes: Vec::new(),
        prepare: None,
        command,
        cwd: cwd.unwrap_or(&workspace.root).to_path_buf(),
        note: (kept == 0)
            .then(|| "The conversation was empty at that point, so the agent starts a new one.".to_owned()),
    };
    Ok(PlannedFork { session, target: target.clone(), fork })
}
