//! The command `stepback tui`: the terminal interface, for the local store or a server.

use std::io::IsTerminal;
use std::time::Instant;

use stepback_model::escape::safe;
use stepback_model::time::Timestamp;
use stepback_server::AppState;
use stepback_tui::draw::Look;
use stepback_tui::run::TuiOptions;
use stepback_tui::source::{DataSource, Remote, Trouble};

use super::{CommandResult, DONE, serve, sessions};
use crate::args::Arguments;
use crate::args::viewers::Tui;
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::Paint;
use crate::settings::Settings;
use crate::store_location::StoreLocation;
use crate::system;
use crate::watcher;

/// Runs `stepback tui`.
pub fn tui(arguments: &Arguments, wanted: &Tui) -> CommandResult {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal || arguments.json {
        return Err(CommandFailure::new(FailureKind::Usage, "the TUI requires a terminal").hint(
            "\"stepback sessions\" and \"stepback replay --plain\" print text, with --json for programs",
        ));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(CommandFailure::new(
            FailureKind::Usage,
            "this terminal does not support cursor movement (TERM is dumb)",
        )
        .hint("\"stepback replay --plain\" prints plain lines"));
    }
    let (source, session, work) = match &wanted.server {
        Some(url) => (elsewhere(arguments, wanted, url)?, wanted.session.clone(), None),
        None => here(arguments, wanted)?,
    };
    let (begun, since) = (system::environment().now(), Instant::now());
    let now = Box::new(move || {
        let elapsed = i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(begun.as_micros().saturating_add(elapsed))
    });
    let look = Look { colors: Paint::stdout().is_on(), unicode: knows_unicode() };
    let shown = stepback_tui::run::run(TuiOptions { source, session, look, now });
    // Agents started for reruns end with this process, whatever ended it.
    work.iter().for_each(AppState::end_reruns);
    shown?;
    DONE
}

/// Opens the store on this machine and resolves the session to show.
fn here(
    arguments: &Arguments,
    wanted: &Tui,
) -> Result<(DataSource, Option<String>, Option<AppState>), CommandFailure> {
    let context = Context::open(arguments, CreateStore::No, "")?;
    let session = match wanted.session.as_deref() {
        Some(text) => Some(sessions::find(&context, Some(text))?.1.id.to_string()),
        None => None,
    };
    let work = serve::work(&context)?;
    if let Some(watcher) =
        watcher::client(context.place(), &Settings::load_or_default(context.place().local()), false)
    {
        work.set_watcher(watcher);
    }
    Ok((DataSource::direct(work.clone())?, session, Some(work)))
}

/// Connects to a server; fails if it does not answer or does not know the session.
fn elsewhere(arguments: &Arguments, wanted: &Tui, url: &str) -> Result<DataSource, CommandFailure> {
    let token = token(arguments, wanted)?;
    let server = Remote::new(url, &token, wanted.certificates.as_deref()).map_err(|error| {
        CommandFailure::new(FailureKind::Usage, error.to_string()).hint("write http://HOST:PORT")
    })?;
    let source = DataSource::remote(server)?;
    match source.check(wanted.session.as_deref()) {
        Ok(()) => Ok(source),
        Err(Trouble::Gone(why)) => Err(CommandFailure::new(FailureKind::System, why)
            .hint("\"stepback serve\" starts a server; \"stepback tui\" without --server needs none")),
        Err(Trouble::Refused(problem)) => {
            let kind = if problem.status == 404 { FailureKind::Point } else { FailureKind::Refused };
            let failure = CommandFailure::new(kind, format!("{url}: {}", safe(&problem.detail)));
            Err(match (problem.status, problem.hints.first()) {
                (401, _) => failure.hint("pass the file with the server's token with --token-file"),
                (404, _) => {
                    failure.hint("\"stepback tui --server URL\" without a session lists all sessions")
                }
                (_, Some(hint)) => failure.hint(safe(hint)),
                (_, None) => failure,
            })
        }
    }
}

/// Returns the token for the server.
fn token(arguments: &Arguments, wanted: &Tui) -> Result<String, CommandFailure> {
    if let (None, Ok(token)) = (&wanted.token_file, std::env::var("STEPBACK_TOKEN"))
        && !token.is_empty()
    {
        return Ok(token);
    }
    let file = match &wanted.token_file {
        Some(file) => file.clone(),
        None => StoreLocation::find(arguments.store.as_deref())?.local().join("server.token"),
    };
    std::fs::read_to_string(&file).map_err(|error| {
        CommandFailure::new(FailureKind::System, format!("cannot read the token in {}: {error}", file.display())).hint(
            "the server prints the path of its token when it starts; pass a copy with --token-file, or set STEPBACK_TOKEN",
        )
    })
}

/// Whether the locale says that the terminal can show more than ASCII.
fn knows_unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
