//! What must hold: files and conversation at every step, authors, marks, and what a rewind leaves alone.

use stepback_engine::Workspace;
use stepback_engine::changes::NumberedChange;
use stepback_model::conversation;
use stepback_model::ids::SessionId;
use stepback_model::record::StepRow;
use stepback_model::record::{Session, StepKind};
use stepback_model::state::WorkspaceState;
use stepback_model::tree::TreeNode;
use stepback_testkit::line_model::LineEffect;

use crate::oracle::{Actor, Edit, Scan};
use crate::script::Script;
use crate::world::{Files, PATHS, text};

impl Script {
    /// Checks the steps that are new, the last of which stands for what was just done.
    pub fn settle(&mut self, session: Option<usize>, scans: bool) -> Result<(), String> {
        let now = self.world.files();
        let first = self.scanned.is_empty() && self.oracle.scans.is_empty();
        let scans = scans || first;
        let steps = self.world.with(|workspace| self.world.steps_after(workspace, self.last_number));
        let branch = self.branch.clone();
        self.lines.append(&branch, &steps, |_| LineEffect::Append);
        for stored in &steps {
            let step = &stored.step;
            let found = self.world.with(|workspace| self.world.files_at(workspace, stored))?;
            let expected = if scans { &now } else { &self.scanned };
            if found != *expected {
                let (number, summary) = (step.number, &step.summary);
                return Err(format!("step #{number} ({summary}) has {found:?} instead of {expected:?}"));
            }
            if let Some(session) = session {
                self.check_conversation(session, stored)?;
            }
            self.oracle.files.push((step.id, found));
            self.last_number = step.number;
        }
        let step = steps.last().map(|stored| stored.step.id);
        if step.is_some() && session.is_some() {
            self.heard = session;
        }
        if scans {
            self.scanned = now;
            self.oracle.scans.push(Scan { tick: self.tick, session, step, left_out: Vec::new() });
        }
        Ok(())
    }

    pub fn conversation_len(&self, workspace: &Workspace, stored: &StepRow) -> u64 {
        let state = WorkspaceState::load(workspace.store(), stored.step.state).unwrap();
        conversation::len(workspace.store(), state.conversation).unwrap()
    }

    /// A step has everything that was said until then. What the start of a call has is checked with the call.
    fn check_conversation(&mut self, session: usize, stored: &StepRow) -> Result<(), String> {
        let play = &self.sessions[session];
        let step = &stored.step;
        let is_own = step.session == self.session_id(session) && step.kind != StepKind::ToolStart;
        if !play.has_transcript || !is_own {
            return Ok(());
        }
        self.counts.conversations += 1;
        let found = self.world.with(|workspace| self.conversation_len(workspace, stored));
        match found == self.sessions[session].lines {
            true => Ok(()),
            false => {
                let said = self.sessions[session].lines;
                Err(format!("step #{} ({}) has {found} of {said} messages", step.number, step.summary))
            }
        }
    }

    /// A checkpoint of the user has the conversation of the session that was heard last.
    pub fn check_conversation_of_checkpoint(&mut self) -> Result<(), String> {
        let Some(heard) = self.heard.filter(|heard| self.sessions[*heard].has_transcript) else {
            return Ok(());
        };
        let found = self.world.with(|workspace| {
            let stored = workspace.head().map_err(text)?;
            Ok::<_, String>(self.conversation_len(workspace, &stored))
        })?;
        self.counts.conversations += 1;
        let play = &self.sessions[heard];
        let (least, said) = (play.lines_heard, play.lines);
        match (least..=said).contains(&found) {
            true => Ok(()),
            false => Err(format!("a checkpoint has {found} messages instead of {least} to {said}")),
        }
    }

    pub fn session_id(&self, session: usize) -> SessionId {
        let play = &self.sessions[session];
        self.world.with(|workspace| Session::id_of(workspace.record.id, play.agent.name(), &play.name))
    }

    /// Every line that was written after `since`, and that is not listed as a change which this rewind is about, is still there.
    /// With a session, the rewind is about what that session did; without, about what any agent did.
    pub fn check_only_agents_went(
        &self,
        since: u64,
        session: Option<SessionId>,
        (before, after): (&Files, &Files),
        changes: &[NumberedChange],
    ) -> Result<(), String> {
        let may_go = |numbered: &NumberedChange| match (session, numbered.who.session()) {
            (Some(session), author) => author == Some(session),
            (None, author) => author.is_some(),
        };
        let edits = self.oracle.edits.iter().filter(|edit| edit.tick > since);
        for edit in edits.filter(|edit| edit.is_in(before) && !edit.is_in(after)) {
            let found = self.change_of(edit, changes);
            // What the user wrote while a call ran that may change anything cannot be told from what that call wrote.
            let is_wrong = match found {
                Some(numbered) => !may_go(numbered),
                None => edit.actor == Actor::Person,
            };
            if is_wrong {
                let who = found.map(|numbered| format!("{:?}", numbered.who));
                let now = after.get(edit.path);
                return Err(format!("{} lost {:?}, author {who:?}; now {now:?}", edit.path, edit.token));
            }
        }
        Ok(())
    }

    /// The listed change that holds an edit.
    fn change_of<'c>(&self, edit: &Edit, changes: &'c [NumberedChange]) -> Option<&'c NumberedChange> {
        let scans = self.oracle.scans.iter().filter(|scan| !scan.left_out.contains(&edit.path));
        let scan = scans.map(|scan| scan.tick).find(|tick| *tick >= edit.tick);
        changes.iter().find(|numbered| {
            let at = numbered.step.map_or(Some(self.tick), |(step, _)| self.oracle.tick_of(step));
            numbered.change.path.as_bytes() == edit.path.as_bytes() && at == Some(scan.unwrap_or(self.tick))
        })
    }

    /// Nothing but what one change did is gone.
    pub fn check_only_change_went(
        &self,
        number: usize,
        (before, after): (&Files, &Files),
        changes: &[NumberedChange],
    ) -> Result<(), String> {
        let chosen = changes.iter().find(|numbered| numbered.number == number).ok_or("no such change")?;
        let path = String::from_utf8_lossy(chosen.change.path.as_bytes()).into_owned();
        let moved_from = chosen.change.from.as_ref().map(|from| from.as_bytes());
        for other in PATHS.into_iter().filter(|other| *other != path && Some(other.as_bytes()) != moved_from)
        {
            if before.get(other) != after.get(other) {
                return Err(format!("taking back a change of {path} changed {other}"));
            }
        }
        // A change that an undo could not take back in full is listed with what was written on top of it.
        let added = self.lines_added_by(chosen)?;
        let mut edits = self.oracle.edits.iter().filter(|edit| edit.path == path);
        let is_wrong =
            |edit: &&Edit| !added.contains(&edit.token) && edit.is_in(before) && !edit.is_in(after);
        let Some(edit) = edits.find(is_wrong) else { return Ok(()) };
        let (was, is) = (before.get(edit.path), after.get(edit.path));
        let what = format!("from {was:?} to {is:?}; it is {chosen:?}");
        Err(format!("taking back change {number} removed {:?}, {what}", edit.token))
    }

    fn lines_added_by(&self, numbered: &NumberedChange) -> Result<Vec<String>, String> {
        let read = |node: Option<&TreeNode>| {
            let bytes = self.world.with(|workspace| node.map(|node| workspace.read_node(node)).transpose());
            let bytes = bytes.map_err(text)?.unwrap_or_default();
            Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let change = &numbered.change;
        let (before, after) = (read(change.before.as_ref())?, read(change.after.as_ref())?);
        let is_new = |line: &&str| !before.lines().any(|known| known == *line);
        Ok(after.lines().filter(is_new).map(str::to_owned).collect())
    }

    /// The author of every change on the present line is what can be known.
    pub fn check_authors(&mut self) -> Result<(), String> {
        if self.oracle.scans.is_empty() {
            return Ok(());
        }
        let changes = self.world.with(|workspace| workspace.numbered_changes(None).map_err(text))?;
        for numbered in &changes {
            let Some((step, _)) = numbered.step else { continue };
            let Some(tick) = self.oracle.tick_of(step) else { continue };
            let Ok(path) = std::str::from_utf8(numbered.change.path.as_bytes()) else { continue };
            self.counts.authors += 1;
            self.oracle.check_author(path, tick, &numbered.who)?;
            let truth = self.oracle.truth(path, tick);
            if truth.is_empty() && PATHS.contains(&path) {
                return Err(format!("{path} was not changed before tick {tick}, and a change is listed"));
            }
        }
        Ok(())
    }

    /// Exactly the steps are marked as rolled back that are on no line.
    pub fn check_marks(&mut self) -> Result<(), String> {
        let (steps, marked) = self.world.with(|workspace| {
            let lines = workspace.load_lines().map_err(text)?;
            let steps = self.world.steps_after(workspace, 0);
            let marked = steps.iter().filter(|stored| lines.is_rolled_back(stored));
            let marked: Vec<u64> = marked.map(|stored| stored.step.number).collect();
            Ok::<_, String>((steps, marked))
        })?;
        self.counts.marks += steps.len();
        let expected = self.lines.rolled_back(&steps);
        match marked == expected {
            true => Ok(()),
            false => {
                let differs = |number: &u64| marked.contains(number) != expected.contains(number);
                let steps = steps.iter().map(|stored| &stored.step);
                let differing: Vec<String> = steps
                    .filter(|step| differs(&step.number))
                    .map(|step| format!("#{} {} ({})", step.number, step.kind.as_str(), step.summary))
                    .collect();
                Err(format!("{marked:?} are marked as rolled back instead of {expected:?}: {differing:?}"))
            }
        }
    }

    /// Every step still has the files it had.
    pub fn check_every_step(&self) -> Result<(), String> {
        self.world.with(|workspace| {
            for (step, files) in &self.oracle.files {
                let stored = workspace.store().step(*step).unwrap().unwrap();
                let found = self.world.files_at(workspace, &stored)?;
                if found != *files {
                    return Err(format!("step #{} changed: {found:?}", stored.step.number));
                }
            }
            Ok(())
        })
    }
}
