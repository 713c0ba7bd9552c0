//! Turns parsed hook events, notes from the inbox and imported conversations into reports for the engine's recorder.

use std::path::PathBuf;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use stepback_engine::control::{self, Breakpoint, Stop};
use stepback_engine::recorder::{
    CallOrigin, ConversationSource, ModelTurn, NewMessages, RecordLock, RecordedStep, ReportedEvent,
    ScanPolicy, SessionUpdate,
};
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Session, Step, StepKind, Trigger};
use stepback_model::time::Timestamp;

use crate::agent::Agent;
use crate::answer::HookAnswer;
use crate::decisions::RecordedDecision;
use crate::gemini;
use crate::inbox::{self, InboxNote};
use crate::model_call_inbox::{self, RecordedCall};
use crate::payload::{self, HookEvent, HookPoint};
use crate::transcript::{self, TranscriptCursor, TranscriptLocation};
pub use crate::workspace_paths::relative;

/// How many notes are recorded in one commit.
const AT_ONCE: usize = 256;

/// The conversation in an agent's transcript, redacted as it is read.
struct Transcript {
    place: TranscriptLocation,
    /// Only read this many bytes of the file, which is all there was when the event happened; `None` for all of it.
    limit: Option<u64>,
    /// Whether the event is about the next entry of the main conversation: it is not a sub-agent's, and nothing later was
    /// recorded.
    next: bool,
    /// The first of the lines just read, if one of them may be a compaction that no hook reports; `usize::MAX` otherwise.
    may_compact_from: AtomicUsize,
}

impl ConversationSource for Transcript {
    fn fresh(&self, cursor: Option<&Value>) -> Option<NewMessages> {
        let cursor: TranscriptCursor =
            cursor.and_then(|cursor| serde_json::from_value(cursor.clone()).ok()).unwrap_or_default();
        let fresh = transcript::read_until(&self.place, &cursor, self.limit).ok()?;
        if self.place.agent == Agent::Gemini && fresh.lines.iter().any(|line| gemini::may_compact(line)) {
            self.may_compact_from.store(fresh.keep, Ordering::Relaxed);
        }
        let lines = fresh.lines.iter().map(|line| stepback_redact::redact(line).into_owned());
        Some(NewMessages { keep: fresh.keep as u64, lines: lines.collect(), cursor: json!(fresh.cursor) })
    }

    fn turn(&self, tail: &[&str], call: &str) -> CallOrigin {
        let asked = transcript::asked(self.place.agent, tail, call, self.next);
        let turn = asked.by.map(|answer| {
            let before = answer.lines.start;
            let asking = transcript::messages(self.place.agent, &tail[before..]);
            ModelTurn { before, id: asking.first().and_then(|message| message.id.clone()) }
        });
        CallOrigin { turn, settled: asked.settled }
    }
}

/// Records one hook event. `limit` is the length of the transcript at that time, in bytes.
pub fn record_event(
    workspace: &Workspace,
    lock: &RecordLock,
    seen: &HookEvent,
    at: Timestamp,
    limit: Option<u64>,
) -> Result<RecordedStep, EngineError> {
    let (report, transcript) = reported(workspace, seen, at, limit);
    let at = report.at;
    let conversation = transcript.as_ref().map(|transcript| transcript as &dyn ConversationSource);
    let recorded = workspace.record(lock, &ReportedEvent { conversation, ..report })?;
    if let Some(transcript) = &transcript {
        record_compactions(workspace, lock, transcript, at)?;
    }
    Ok(recorded)
}

/// Records compactions that no hook reported, as the transcript shows them.
fn record_compactions(
    workspace: &Workspace,
    lock: &RecordLock,
    transcript: &Transcript,
    at: Timestamp,
) -> Result<(), EngineError> {
    let Transcript { place, limit, may_compact_from, .. } = transcript;
    let from = may_compact_from.load(Ordering::Relaxed);
    if from == usize::MAX {
        return Ok(());
    }
    for line in gemini::compactions(place, *limit, from) {
        let (agent, summary) = (place.agent.name(), "the conversation was compacted");
        let event = AgentEvent::new(agent, &place.session, StepKind::StateChange, summary.to_owned());
        let event = AgentEvent { key: Some(format!("compaction at line {line}")), ..event };
        workspace.record(lock, &report(event, at))?;
    }
    Ok(())
}

/// Returns the report of one hook event, and where to read its conversation.
fn reported<'a>(
    workspace: &Workspace,
    seen: &HookEvent,
    at: Timestamp,
    limit: Option<u64>,
) -> (ReportedEvent<'a>, Option<Transcript>) {
    let agent = Agent::parse(&seen.event.agent);
    let transcript = agent.zip(seen.transcript.clone()).map(|(agent, path)| Transcript {
        place: TranscriptLocation { agent, path, session: seen.event.session.clone() },
        limit,
        next: seen.event.worker.is_none(),
        may_compact_from: AtomicUsize::new(usize::MAX),
    });
    let mut learned = seen.learned.clone();
    if learned.tasks.is_none() {
        learned.tasks = claude_tasks(seen);
    }
    let mut event = seen.event.clone();
    // Summaries show paths relative to the workspace.
    event.summary = event.summary.replace(&format!("{}/", workspace.root.display()), "");
    if let (Some(Agent::Gemini), HookPoint::Done, Some(transcript)) = (agent, seen.gate, &transcript)
        && let Some(response) = event.output.as_ref().and_then(Value::as_str)
        && let Some(last_words) = gemini::last_words(&transcript.place, limit, response)
    {
        event.summary = payload::done(&last_words);
        event.output = Some(last_words.into());
    }
    let (effect, paths) = (seen.effect, relative(workspace, seen));
    let at = seen.event.at.unwrap_or(at);
    (ReportedEvent { event, effect, at, conversation: None, paths, learned }, transcript)
}

/// Returns the task list of a Claude Code session after an event that may have changed it. Claude Code keeps the list in
/// files beside the transcripts.
fn claude_tasks(seen: &HookEvent) -> Option<Value> {
    let touches = matches!(seen.event.kind, StepKind::TaskCreated | StepKind::TaskCompleted)
        || (seen.event.kind == StepKind::ToolEnd
            && matches!(seen.event.tool.as_deref(), Some("TaskCreate" | "TaskUpdate")));
    if seen.event.agent != Agent::Claude.name() || !touches {
        return None;
    }
    // …/projects/FOLDER/SESSION.jsonl beside …/tasks/SESSION/N.json
    let home = seen.transcript.as_ref()?.ancestors().nth(3)?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(home.join("tasks").join(&seen.event.session))
        .ok()?
        .flatten()
        .map(|file| file.path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let read = |path: &PathBuf| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok();
    let mut tasks: Value = files.iter().filter_map(read).collect();
    stepback_redact::redact_value(&mut tasks);
    Some(tasks)
}

/// Records the notes in the inbox. Returns how many there were.
pub fn take_in(workspace: &Workspace, lock: &RecordLock) -> Result<usize, EngineError> {
    let Some(dir) = workspace.cache_dir()? else { return Ok(0) };
    let io = |error: std::io::Error| {
        EngineError::Input(format!("cannot read the inbox of {}: {error}", dir.display()))
    };
    let mut count = 0;
    // More than once: notes that another process took and failed to record come first, as a batch of their own.
    while let Some(taken) = inbox::take(&dir, workspace.engine.env.now()).map_err(io)? {
        count += taken.notes.len();
        for some in taken.notes.chunks(AT_ONCE) {
            record_notes(workspace, lock, some)?;
        }
        let notes = taken.done().map_err(io)?;
        model_call_inbox::forget(&dir, &notes);
    }
    Ok(count)
}

/// Records the notes in the inbox, if there are any. For commands that only read.
pub fn take_in_quietly(workspace: &Workspace) -> Result<(), EngineError> {
    let waits = workspace.cache_dir()?.is_some_and(|dir| !inbox::is_empty(&dir));
    if waits {
        let lock = workspace.lock_recording()?;
        take_in(workspace, &lock)?;
    }
    Ok(())
}

/// Records the notes in the inbox, unless another process is recording, which then does it itself. For callers that hold the
/// lock on the workspace: a hook that records waits for that lock, so waiting for the hook would be a deadlock.
pub fn take_in_if_free(workspace: &Workspace) -> Result<(), EngineError> {
    if workspace.cache_dir()?.is_none_or(|dir| inbox::is_empty(&dir)) {
        return Ok(());
    }
    match workspace.lock_recording_within(Duration::ZERO) {
        Ok(lock) => take_in(workspace, &lock).map(|_| ()),
        Err(EngineError::Busy { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Records notes. One that cannot be recorded leaves a gap and does not keep the others from being recorded.
pub fn record_notes(
    workspace: &Workspace,
    lock: &RecordLock,
    notes: &[InboxNote],
) -> Result<(), EngineError> {
    match record_batch(workspace, lock, notes) {
        Err(EngineError::Input(_)) => {}
        other => return other,
    }
    for note in notes {
        match record_batch(workspace, lock, slice::from_ref(note)) {
            Err(EngineError::Input(error)) => {
                let why = note.gap.clone().unwrap_or_else(|| format!("a report cannot be recorded: {error}"));
                workspace.record(lock, &gap(note, why, None))?;
            }
            other => other?,
        }
    }
    Ok(())
}

/// Records notes in one commit: all of them, or none.
fn record_batch(workspace: &Workspace, lock: &RecordLock, notes: &[InboxNote]) -> Result<(), EngineError> {
    let mut all: Vec<(ReportedEvent<'_>, Option<Transcript>)> = Vec::new();
    for note in notes {
        if let Some(name) = &note.carried {
            let dir = workspace.cache_dir()?.unwrap_or_default();
            all.push(match model_call_inbox::read(&dir, name) {
                Some(carried) => (model_call_report(workspace, carried, note.at)?, None),
                None => (gap(note, "a model call could not be recorded".into(), None), None),
            });
            continue;
        }
        let agent = Agent::parse(&note.agent);
        let seen =
            agent.zip(note.payload.as_ref()).and_then(|(agent, payload)| payload::read(agent, payload).ok());
        let is_understood = seen.is_some();
        if seen.as_ref().is_some_and(|seen| seen.is_nothing) {
            continue;
        }
        if let Some(mut seen) = seen {
            // The time to scan the files for this event is over.
            seen.effect = ScanPolicy::None;
            // An event without a key gets one from its time, so that recording the note twice adds one step.
            seen.event.key.get_or_insert_with(|| format!("{} {}", seen.name, note.at.as_micros()));
            let mut is_there = false;
            if let (Some(_), Some(key)) = (&note.gap, &seen.event.key) {
                // The failure may have happened after the step was stored.
                let step = step_named(workspace, &seen.event, key);
                is_there = workspace.store().step(step)?.is_some()
                    || all.iter().any(|(ReportedEvent { event, .. }, _)| {
                        event.key.as_ref().is_some_and(|key| step_named(workspace, event, key) == step)
                    });
                // If the event is reported again, that report is a step of its own: it may come with a scan.
                seen.event.key = Some(format!("{key}, late"));
            }
            if !is_there {
                let (report, mut transcript) = reported(workspace, &seen, note.at, note.transcript_len);
                if let Some(transcript) = &mut transcript {
                    transcript.next &= note.gap.is_none();
                }
                all.push((report, transcript));
            }
            if note.gap.is_none() {
                continue;
            }
        }
        let why = note.gap.clone().unwrap_or_else(|| "a report could not be understood".into());
        all.push((gap(note, why, note.payload.clone().filter(|_| !is_understood)), None));
    }
    let (reports, transcripts): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let conversations =
        transcripts.iter().map(|transcript| transcript.as_ref().map(|it| it as &dyn ConversationSource));
    let reports: Vec<_> = (reports.into_iter().zip(conversations))
        .map(|(report, conversation)| ReportedEvent { conversation, ..report })
        .collect();
    workspace.record_all(lock, &reports)?;
    for (report, transcript) in reports.iter().zip(&transcripts) {
        if let Some(transcript) = transcript {
            record_compactions(workspace, lock, transcript, report.at)?;
        }
    }
    Ok(())
}

/// Returns the report of a model call that a proxy recorded, in the session it belongs to.
fn model_call_report<'a>(
    workspace: &Workspace,
    carried: RecordedCall,
    at: Timestamp,
) -> Result<ReportedEvent<'a>, EngineError> {
    let RecordedCall { mut event, since, cost, started } = carried;
    if event.session.is_empty() {
        // The agent does not send its session id; use the session whose hooks reported last.
        let sessions = workspace.agent_sessions()?;
        let own = sessions
            .into_iter()
            .filter(|session| session.agent == event.agent && session.info.seen_at >= Some(since))
            .find_map(|session| session.info.external);
        event.session = own.unwrap_or_else(|| format!("run-{}", since.as_micros()));
    }
    let learned = SessionUpdate { model: event.tool.clone(), cost, started, ..SessionUpdate::default() };
    let at = event.at.unwrap_or(at);
    Ok(ReportedEvent { learned, ..report(event, at) })
}

fn step_named(workspace: &Workspace, event: &AgentEvent, key: &str) -> StepId {
    let session = Session::id_of(workspace.record.id, &event.agent, &event.session);
    Step::id_of(session, event.kind, key)
}

/// Returns the report that something is missing from the record, and why.
fn gap<'a>(note: &InboxNote, why: String, raw: Option<Value>) -> ReportedEvent<'a> {
    let event = AgentEvent {
        error: Some(ReportedError {
            name: Some("gap".into()),
            message: why.clone(),
            ..ReportedError::default()
        }),
        raw,
        ..AgentEvent::new(&note.agent, Session::GAPS, StepKind::Gap, payload::one_line(&why))
    };
    let key = format!("{} {}", note.at.as_micros(), event.summary);
    report(AgentEvent { key: Some(key), ..event }, note.at)
}

/// Records that an agent was stopped.
pub fn hit(workspace: &Workspace, about: &AgentEvent, stop: &Stop, at: Timestamp) -> Result<(), EngineError> {
    let event = related_event(about, StepKind::BreakpointHit, format!("stopped: {}", stop.reason));
    let input = json!({ "tool": stop.tool, "input": stop.input, "breakpoint": stop.breakpoint });
    record_light(workspace, AgentEvent { input: Some(input), ..event }, at)
}

/// Records that a call passed a log point.
pub fn log_point(
    workspace: &Workspace,
    about: &AgentEvent,
    breakpoint: &Breakpoint,
    at: Timestamp,
) -> Result<(), EngineError> {
    let summary = format!("log point {}: {}", breakpoint.id, about.summary);
    record_light(workspace, related_event(about, StepKind::BreakpointHit, summary), at)
}

/// Records the user's answer to a stopped agent; `said` is `None` if the wait timed out.
pub fn decision(
    workspace: &Workspace,
    about: &AgentEvent,
    stop: &Stop,
    said: Option<&control::StopAnswer>,
    at: Timestamp,
) -> Result<(), EngineError> {
    let summary = match said {
        Some(control::StopAnswer::Resume) => format!("resumed: {}", about.summary),
        Some(control::StopAnswer::Deny { reason }) => format!("denied: {reason}"),
        Some(control::StopAnswer::Edit { .. }) if !takes_input(&about.agent) => {
            format!("input edited, to be called again: {}", about.summary)
        }
        Some(control::StopAnswer::Edit { .. }) => format!("input edited: {}", about.summary),
        None => "no answer in time; denied".into(),
    };
    let event = related_event(about, StepKind::Decision, payload::one_line(&summary));
    let input = json!({ "before": stop.input, "answer": said, "call": about.call });
    let event = AgentEvent { input: Some(input), ..event };
    // The user may have edited files while the agent was stopped; those changes are not the call's, which has not run yet.
    let looked = ReportedEvent {
        effect: if about.kind == StepKind::ToolStart {
            ScanPolicy::Keep(Trigger::Automatic)
        } else {
            ScanPolicy::None
        },
        learned: SessionUpdate {
            waiting: about.call.clone(),
            waited: u64::try_from(at.as_micros() - stop.at.as_micros()).unwrap_or(0),
            edited: matches!(said, Some(control::StopAnswer::Edit { .. })),
            ..SessionUpdate::default()
        },
        ..report(event, at)
    };
    record_beside(workspace, looked)
}

/// In a rerun, records a decision of the user that is repeated from the recorded session.
pub fn repeated_decision(
    workspace: &Workspace,
    about: &AgentEvent,
    decision: &RecordedDecision,
    at: Timestamp,
) -> Result<(), EngineError> {
    let mut input = decision.input.clone();
    if let Some(fields) = input.as_object_mut() {
        fields.insert("call".into(), json!(about.call));
    }
    let event = related_event(about, StepKind::Decision, decision.summary.clone());
    record_light(workspace, AgentEvent { input: Some(input), ..event }, at)
}

/// Start of the summary of a step that records a message from the user to a working agent.
pub const TOLD: &str = "message: ";

/// Records a message that the user left for the agent and that the model gets with this event.
pub fn told(workspace: &Workspace, about: &AgentEvent, text: &str, at: Timestamp) -> Result<(), EngineError> {
    let event = related_event(about, StepKind::AgentStep, payload::one_line(&format!("{TOLD}{text}")));
    let with = match about.kind {
        StepKind::UserInput => "prompt",
        StepKind::ToolStart => "start",
        _ => "end",
    };
    let input = json!({ "text": text, "with": with, "call": about.call });
    record_light(workspace, AgentEvent { input: Some(input), ..event }, at)
}

fn takes_input(agent: &str) -> bool {
    Agent::parse(agent).is_none_or(HookAnswer::can_change_input)
}

/// Records the end of a call that was refused and will not run.
pub fn refused(
    workspace: &Workspace,
    about: &AgentEvent,
    reason: &str,
    at: Timestamp,
) -> Result<(), EngineError> {
    let event = AgentEvent {
        kind: StepKind::ToolEnd,
        summary: payload::one_line(&format!("not run: {}", about.summary)),
        output: Some(json!({ "denied": reason })),
        error: None,
        raw: None,
        ..about.clone()
    };
    let learned = SessionUpdate { never_ran: true, ..SessionUpdate::default() };
    record_beside(workspace, ReportedEvent { learned, ..report(event, at) })
}

/// Returns a note on how to take back what the current prompt led to; `None` if it changed nothing.
pub fn note_for_turn(workspace: &Workspace, recorded: &RecordedStep) -> Result<Option<String>, EngineError> {
    let Some(session) = workspace.store().session(recorded.session)? else { return Ok(None) };
    let Some(prompt) = session.info.prompt else { return Ok(None) };
    let Some(prompt) = workspace.store().step(prompt)? else { return Ok(None) };
    let number = prompt.step.number;
    let query = stepback_store::port::StepQuery {
        session: Some(recorded.session),
        kinds: vec![StepKind::ToolEnd],
        after: Some(number),
        ..stepback_store::port::StepQuery::default()
    };
    let steps = workspace.store().steps(workspace.record.id, &query)?;
    let changed = steps.iter().any(|stored| stored.is_checkpoint());
    Ok(changed
        .then(|| format!("checkpoint saved: stepback rewind '#{number}' undoes the changes of this prompt")))
}

fn record_light(workspace: &Workspace, event: AgentEvent, at: Timestamp) -> Result<(), EngineError> {
    record_beside(workspace, report(event, at))
}

fn record_beside(workspace: &Workspace, mut report: ReportedEvent<'_>) -> Result<(), EngineError> {
    // What a user typed can hold a secret too.
    redact_event(&mut report.event);
    let lock = workspace.lock_recording()?;
    // Notes that other hooks left meanwhile are about earlier events.
    take_in(workspace, &lock)?;
    workspace.record(&lock, &report)?;
    Ok(())
}

fn report<'a>(event: AgentEvent, at: Timestamp) -> ReportedEvent<'a> {
    ReportedEvent {
        event,
        effect: ScanPolicy::None,
        at,
        conversation: None,
        paths: Vec::new(),
        learned: SessionUpdate::default(),
    }
}

/// Returns an event of the same session about the same call that is neither its start nor its end.
fn related_event(about: &AgentEvent, kind: StepKind, summary: String) -> AgentEvent {
    AgentEvent {
        tool: about.tool.clone(),
        worker: about.worker.clone(),
        ..AgentEvent::new(&about.agent, &about.session, kind, summary)
    }
}

/// The result of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportedNotes {
    /// The session that was imported.
    pub session: SessionId,
    /// How many events the conversation has.
    pub steps: usize,
    /// How many of the steps were not recorded before.
    pub new: usize,
    /// Whether hooks had recorded the session already, so that nothing was imported.
    pub watched: bool,
}

/// Records the events of a conversation from the agent's own transcript. Importing it again adds only what is new.
pub fn imported(
    workspace: &Workspace,
    place: &TranscriptLocation,
    events: Vec<AgentEvent>,
) -> Result<ImportedNotes, EngineError> {
    let lock = workspace.lock_recording()?;
    take_in(workspace, &lock)?;
    let transcript = Transcript {
        place: place.clone(),
        limit: None,
        next: false,
        may_compact_from: AtomicUsize::new(usize::MAX),
    };
    let session = Session::id_of(workspace.record.id, place.agent.name(), &place.session);
    let (steps, mut new) = (events.len(), 0);
    // What hooks recorded is more exact than the agent's own transcript.
    let watched = workspace.store().session(session)?.is_some_and(|session| !session.info.imported);
    if watched {
        return Ok(ImportedNotes { session, steps, new, watched });
    }
    let mut newest = workspace.newest_number()?;
    let last = steps.saturating_sub(1);
    for (at, mut event) in events.into_iter().enumerate() {
        redact_event(&mut event);
        let moment = event.at.unwrap_or_else(|| workspace.engine.env.now());
        let quiet = at == last;
        let learned = SessionUpdate {
            transcript: Some(place.path.display().to_string()),
            quiet,
            ended: quiet,
            imported: true,
            ..SessionUpdate::default()
        };
        let report = ReportedEvent {
            event,
            effect: ScanPolicy::None,
            at: moment,
            // Once is enough: the conversation is read as a whole.
            conversation: (at == last).then_some(&transcript as &dyn ConversationSource),
            paths: Vec::new(),
            learned,
        };
        let recorded = workspace.record(&lock, &report)?;
        new += usize::from(recorded.number > newest);
        newest = newest.max(recorded.number);
    }
    Ok(ImportedNotes { session, steps, new, watched })
}

/// Redacts secrets in an event, and escapes control characters in its summary.
pub fn redact_event(event: &mut AgentEvent) {
    for value in
        [&mut event.input, &mut event.output, &mut event.metadata, &mut event.raw].into_iter().flatten()
    {
        stepback_redact::redact_value(value);
    }
    event.summary = stepback_model::escape::safe(&stepback_redact::redact(&event.summary));
    if let Some(error) = &mut event.error {
        error.message = stepback_redact::redact(&error.message).into_owned();
        for text in [&mut error.stack, &mut error.cause].into_iter().flatten() {
            *text = stepback_redact::redact(text).into_owned();
        }
    }
}
