//! Going back, in two calls: a plan that changes nothing, and agreeing to it.

use serde_json::{Value, json};
use stepback_engine::reason::{Moment, Thinker};
use stepback_engine::rewind::{Prepared, Request};
use stepback_engine::workspace::describe;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::plan::LeftAlone;
use stepback_model::record::Session;
use stepback_store::port::StoredCheckpoint;
use stepback_worktree::apply::Outcome;

use super::{Args, Hints, LOOKS, Reply, Tool, limit, limit_schema, point_schema, resolved};
use crate::desk::Ground;
use crate::plans::Shown;
use crate::schema::{count, flag, list, object, text, texts, whole};
use crate::trouble::Trouble;

/// Paths that are left alone and told of.
const LEFT: usize = 10;

pub(super) fn plan() -> Tool {
    Tool {
        name: "rewind_plan",
        title: "Plan to go back",
        description: "Plans to take back what you changed: everything since a point (to), or your last changes (last, changes). Changes nothing; rewind_apply does what the plan says. What others changed stays.",
        input: object(
            &[
                ("to", point_schema("Back to the files of this point: #42, @-3, a label, tool:Bash:last")),
                ("last", count("Or: take back your last so many changes", 1, 100_000)),
                (
                    "changes",
                    list(
                        "Or: take back these changes, by the numbers that why tells",
                        json!({ "type": "integer", "minimum": 1 }),
                    ),
                ),
                ("paths", texts("Only these: paths, directories, globs")),
                ("reasoning", flag("With to: your board goes back to that point too")),
                ("limit", limit_schema(30, 500)),
            ],
            &[],
        ),
        output: object(
            &[
                ("plan", text("What to give to rewind_apply")),
                ("summary", text("What it is")),
                ("changes", texts("What will happen to files")),
                ("changes_more", whole("Those that are not listed")),
                ("left_alone", texts("What stays as it is, and why")),
                ("warnings", texts("What to know before agreeing")),
            ],
            &["plan", "summary", "changes"],
        ),
        hints: LOOKS,
        slow: false,
        makes: false,
        run: |ground, args| {
            let (session, request) = asked(ground, args)?;
            let prepared = ground.workspace.prepare_rewind(&request)?;
            let reasoning = args.flag("reasoning");
            let id = fingerprint(ground, &request, reasoning, &prepared);
            let reply = shown(&id, &prepared, limit(args, 30));
            ground.plans.keep(Shown {
                id,
                workspace: ground.workspace.record.id,
                session: session.id,
                request,
                reasoning,
            });
            Ok(reply)
        },
    }
}

/// What is to be taken back, and for whom.
fn asked(ground: &Ground<'_>, args: &Args) -> Result<(Session, Request), Trouble> {
    let changes: Vec<usize> =
        args.counts("changes").into_iter().filter_map(|number| usize::try_from(number).ok()).collect();
    let last = args.count("last").and_then(|last| usize::try_from(last).ok());
    let ways = [args.text("to").is_some(), last.is_some(), !changes.is_empty()];
    if ways.iter().filter(|given| **given).count() != 1 {
        return Err(Trouble::new("say one of to, last and changes"));
    }
    if args.flag("reasoning") && args.text("to").is_none() {
        return Err(Trouble::new("the board can only go back to a point").hint("use to, or mind_undo"));
    }
    let (own, session) = (ground.own()?, ground.session()?);
    if own.id != session.id && !ground.allow_others {
        return Err(not_yours(&session, &own));
    }
    let target = args.text("to").map(|point| resolved(ground, point)).transpose()?;
    let is_recorded = session.agent != Session::PERSON;
    if !ground.allow_others {
        if !is_recorded {
            return Err(Trouble::new("no recorded session of yours is at work here, so nobody knows what you changed")
                .hint("have a person install the hooks (stepback init), or start this server with --session or --allow-others"));
        }
        if let Some(target) = &target {
            on_our_line(ground, target)?;
        }
    }
    let request = Request {
        target,
        paths: args.texts("paths").iter().map(|path| ground.relative(path)).collect(),
        changes,
        last,
        session: is_recorded.then_some(session.id),
        ..Request::default()
    };
    Ok((session, request))
}

fn not_yours(session: &Session, own: &Session) -> Trouble {
    Trouble::new(format!(
        "session {} is not yours: you may take back only what you changed ({} {})",
        session.id.short(),
        own.agent,
        own.id.short()
    ))
    .hint("leave \"session\" out; a person can allow more by starting this server with --allow-others")
}

/// From a line that was left there is no list of who changed what since: going there would be about everybody's files.
fn on_our_line(ground: &Ground<'_>, target: &StoredCheckpoint) -> Result<(), Trouble> {
    let workspace = ground.workspace;
    let base = workspace.kept_base(target)?.checkpoint.step.id;
    let line = workspace.ancestry(&workspace.head()?)?;
    let upto = line.iter().position(|stored| stored.checkpoint.step.id == base);
    match upto {
        Some(at) if !line[..=at].iter().any(|stored| stored.purged) => Ok(()),
        _ => Err(Trouble::new(format!(
            "{} is not on the present line, and going there would also change what others did",
            describe(target)
        ))
        .hint("choose a later point; a person can go there with \"stepback rewind\"")),
    }
}

/// Who agrees to an id agrees to this question with this answer.
fn fingerprint(ground: &Ground<'_>, request: &Request, reasoning: bool, prepared: &Prepared) -> String {
    let plan = Hash::of(ObjectKind::Plan, &prepared.plan.encode());
    let content = format!(
        "{} {request:?} {reasoning} {} {:?} {plan}",
        ground.workspace.record.id, prepared.summary, prepared.warnings
    );
    Hash::of(ObjectKind::Blob, content.as_bytes()).to_string().chars().take(16).collect()
}

fn left(items: &[LeftAlone]) -> Vec<String> {
    let conflicts = items.iter().filter(|item| item.is_conflict());
    conflicts.take(LEFT).map(|item| format!("{}: {}", item.path, item.reason)).collect()
}

fn shown(id: &str, prepared: &Prepared, most: usize) -> Reply {
    let all = &prepared.plan.changes;
    let changes: Vec<String> =
        all.iter().take(most).map(|change| format!("{} {}", change.verb(), change.path)).collect();
    let more = all.len().saturating_sub(most);
    let left = left(&prepared.plan.left_alone);
    let mut lines = vec![format!("Plan {id}: {}", prepared.summary)];
    lines.extend(changes.iter().map(|change| format!("  {change}")));
    let mut structured = json!({ "plan": id, "summary": prepared.summary, "changes": changes });
    if all.is_empty() {
        lines.push("  no file changes".to_owned());
    }
    if more > 0 {
        structured["changes_more"] = json!(more);
        lines.push(format!("  … and {more} more"));
    }
    if !left.is_empty() {
        lines.extend(left.iter().map(|item| format!("  left alone: {item}")));
        structured["left_alone"] = json!(left);
    }
    if !prepared.warnings.is_empty() {
        lines.extend(prepared.warnings.iter().map(|warning| format!("  warning: {warning}")));
        structured["warnings"] = json!(prepared.warnings);
    }
    Reply { text: lines.join("\n"), structured }
}

pub(super) fn apply() -> Tool {
    Tool {
        name: "rewind_apply",
        title: "Go back",
        description: "Does what a plan of rewind_plan says, if it is still what would happen. What is there now is kept first; a person can undo it with \"stepback undo\".",
        input: object(&[("plan", text("The plan, by the id that rewind_plan gave"))], &["plan"]),
        output: object(
            &[
                ("summary", text("What was done")),
                ("done", whole("Files that were changed")),
                ("before", whole("The step that keeps what was there before")),
                ("after", whole("The step that was reached")),
                ("left_alone", texts("What stayed as it is, and why")),
                ("board", texts("What changed on the board")),
            ],
            &["summary", "done", "before", "after"],
        ),
        hints: Hints { read_only: false, destructive: true, idempotent: false, open_world: false },
        slow: false,
        makes: false,
        run: carry_out,
    }
}

fn carry_out(ground: &Ground<'_>, args: &Args) -> Result<Reply, Trouble> {
    let id = args.need("plan")?;
    let workspace = ground.workspace;
    let unknown = || {
        let shown: String = id.chars().take(40).collect();
        Trouble::new(format!("there is no plan \"{shown}\""))
            .hint("call rewind_plan; plans are kept as long as this server runs")
    };
    let kept =
        ground.plans.get(id).filter(|kept| kept.workspace == workspace.record.id).ok_or_else(unknown)?;
    let own = ground.own()?;
    if kept.session != own.id && !ground.allow_others {
        let theirs = workspace.store().session(kept.session)?.ok_or_else(unknown)?;
        return Err(not_yours(&theirs, &own));
    }
    let prepared = workspace.prepare_rewind(&kept.request)?;
    let now = fingerprint(ground, &kept.request, kept.reasoning, &prepared);
    if now != id {
        ground.plans.keep(Shown { id: now.clone(), ..kept });
        let new = shown(&now, &prepared, 30);
        return Err(Trouble::new(format!(
            "something changed since the plan was made, and nothing was done; the new plan is:\n{}",
            new.text
        ))
        .hint("look at it and call rewind_apply with its id"));
    }
    if prepared.plan.is_empty() && !kept.reasoning {
        return Err(Trouble::new("the plan changes nothing"));
    }
    let summary = prepared.summary.clone();
    let report = workspace.apply(prepared)?;
    ground.plans.forget(id);
    let mut left_alone = report.left_alone.clone();
    let mut done = 0_u64;
    for (change, outcome) in &report.outcomes {
        match outcome {
            Outcome::Done => done += 1,
            Outcome::LeftAlone(reason) => {
                left_alone.push(LeftAlone::conflict(change.path.clone(), reason.clone()));
            }
        }
    }
    let left_alone = left(&left_alone);
    let mut lines = vec![format!(
        "Done: {summary}. {done} paths changed; #{} keeps what was there before.",
        report.before
    )];
    let mut structured =
        json!({ "summary": summary, "done": done, "before": report.before, "after": report.after });
    if !left_alone.is_empty() {
        lines.extend(left_alone.iter().map(|item| format!("  left alone: {item}")));
        structured["left_alone"] = json!(left_alone);
    }
    if let (true, Some(target)) = (kept.reasoning, &kept.request.target) {
        let session = workspace.store().session(kept.session)?.ok_or_else(unknown)?;
        let moment = Moment::Step(target.checkpoint.step.number);
        let joined = Thinker::new(workspace, &session).restore_with(&moment, report.operation.id)?;
        let said: Vec<&String> = joined.diff.changes.iter().map(|change| &change.sentence).take(20).collect();
        lines.extend(said.iter().map(|sentence| format!("  board: {sentence}")));
        structured["board"] = json!(said);
    }
    Ok(Reply { text: lines.join("\n"), structured: Value::clone(&structured) })
}
