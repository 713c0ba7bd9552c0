//! The command `stepback anomalies`: what is unusual in sessions.

use serde_json::json;
use stepback_analysis::anomalies::{Anomaly, AnomalyQuery, anomalies_document, load_anomalies};
use stepback_api::anomalies::AnomalyDocument;
use stepback_engine::Workspace;
use stepback_model::anomaly::AnomalyKind;
use stepback_model::escape::safe;
use stepback_model::nearest::nearest_word;
use stepback_model::quantity;

use super::{CommandResult, DONE, sessions};
use crate::args::anomalies::AnomaliesArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Anomalies that are listed unless all are asked for.
const LISTED: usize = 20;

/// Runs `stepback anomalies`.
pub fn anomalies(context: &Context, arguments: &AnomaliesArgs) -> CommandResult {
    let mut query = AnomalyQuery {
        since: sessions::parse_since(context, arguments.since.as_deref())?,
        kinds: parse_kinds(&arguments.kinds)?,
        ..AnomalyQuery::default()
    };
    if arguments.session.is_some() {
        let (_, session) = sessions::find(context, arguments.session.as_deref())?;
        query.workspace = Some(session.workspace);
        query.session = Some(session.id);
    } else if !arguments.all_workspaces {
        query.workspace = Some(context.open_workspace()?.record.id);
    }
    let found = load_anomalies(context.engine(), &context.load_prices()?, &query)?;
    let limits = &context.engine().anomaly_limits;
    let listed = if arguments.all || context.json { usize::MAX } else { LISTED };
    let document = anomalies_document(&found, limits, listed);
    if context.json {
        output::print_document(&json!(document));
        return DONE;
    }
    let paint = Paint::stdout();
    document.items.iter().for_each(|anomaly| print_anomaly(context, paint, anomaly));
    let off: Vec<&str> = AnomalyKind::ALL
        .into_iter()
        .filter(|kind| limits.get(*kind).is_none())
        .map(AnomalyKind::name)
        .collect();
    if document.items.is_empty() {
        output::print_line("Nothing unusual was found.");
    }
    if document.total as usize > document.items.len() {
        let more = document.total as usize - document.items.len();
        output::print_line(format!("{more} older ones are not shown; \"--all\" shows them."));
    }
    if !off.is_empty() {
        output::print_line(format!("Not looked for, by your settings: {}.", off.join(", ")));
    }
    DONE
}

fn print_anomaly(context: &Context, paint: Paint, anomaly: &AnomalyDocument) {
    let first = anomaly.steps.first().copied().unwrap_or(anomaly.last);
    let span =
        if first == anomaly.last { format!("#{first}") } else { format!("#{first} to #{}", anomaly.last) };
    let kind = format!("{:<18}", anomaly.kind);
    let severity = format!("{:<6}", anomaly.severity);
    output::print_line(format!(
        "{}  {}  {}  {}  {}",
        paint.bad(kind),
        match anomaly.severity.as_str() {
            "low" => paint.dim(severity),
            _ => paint.strong(severity),
        },
        paint.name(anomaly.session.chars().take(8).collect::<String>()),
        paint.strong(span),
        paint.dim(anomaly.until.ago(context.now())),
    ));
    output::print_line(format!("    {}", safe(&anomaly.evidence)));
    output::print_line(paint.dim(format!(
        "    inferred by {}: {} {}, limit {}; {}",
        anomaly.rule,
        plain_number(anomaly.measured),
        anomaly.unit,
        plain_number(anomaly.limit),
        anomaly.command,
    )));
}

fn plain_number(number: f64) -> String {
    match number {
        whole if whole.fract() == 0.0 && whole < 1e15 => quantity::grouped(whole as u64),
        other => format!("{other:.1}"),
    }
}

/// Reads names of kinds.
pub fn parse_kinds(names: &[String]) -> Result<Vec<AnomalyKind>, CommandFailure> {
    names.iter().map(|name| parse_kind(name.trim())).collect()
}

/// Reads the name of a kind.
pub fn parse_kind(name: &str) -> Result<AnomalyKind, CommandFailure> {
    AnomalyKind::parse(name).ok_or_else(|| {
        let names = AnomalyKind::ALL.map(AnomalyKind::name);
        let hint = match nearest_word(name, names) {
            Some(nearest) => format!("did you mean \"{nearest}\"?"),
            None => format!("use one of {}", names.join(", ")),
        };
        CommandFailure::new(FailureKind::Usage, format!("\"{name}\" is not a kind of anomaly"))
            .with_hint(hint)
    })
}

/// Returns the anomalies of a workspace for marks beside its steps. What cannot be found out is not marked.
pub fn find_marks(context: &Context, workspace: &Workspace) -> Vec<Anomaly> {
    let query = AnomalyQuery { workspace: Some(workspace.record.id), ..AnomalyQuery::default() };
    let prices = context.load_prices().unwrap_or_default();
    load_anomalies(context.engine(), &prices, &query).unwrap_or_default()
}
