//! The command `stepback tui`: the terminal interface, for the local store or a server.

use std::io::IsTerminal;
use std::time::Instant;

use stepback_model::escape::safe;
use stepback_model::time::Timestamp;
use stepback_server::AppState;
use stepback_tui::draw::TerminalCapabilities;
use stepback_tui::run::TuiOptions;
use stepback_tui::source::{DataSource, RemoteServer, SourceError};

use super::{CommandResult, DONE, serve, sessions};
use crate::args::Arguments;
use crate::args::viewers::TuiArgs;
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::Paint;
use crate::settings::Settings;
use crate::store_location::StoreLocation;
use crate::system;
use crate::watcher;

/// Runs `stepback tui`.
pub fn tui(arguments: &Arguments, wanted: &TuiArgs) -> CommandResult {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal || arguments.json {
        return Err(CommandFailure::new(FailureKind::Usage, "the TUI requires a terminal").with_hint(
            "\"stepback sessions\" and \"stepback replay --plain\" print text, with --json for programs",
        ));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(CommandFailure::new(
            FailureKind::Usage,
            "this terminal does not support cursor movement (TERM is dumb)",
        )
        .with_hint("\"stepback replay --plain\" prints plain lines"));
    }
    let (source, session, work) = match &wanted.server {
        Some(url) => (connect_remote(arguments, wanted, url)?, wanted.session.clone(), None),
        None => open_local(arguments, wanted)?,
    };
    let (begun, since) = (system::environment().now(), Instant::now());
    let now = Box::new(move || {
        let elapsed = i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(begun.as_micros().saturating_add(elapsed))
    });
    let look = TerminalCapabilities { colors: Paint::stdout().is_on(), unicode: is_unicode_locale() };
    let shown = stepback_tui::run::run(TuiOptions { source, session, capabilities: look, now });
    // Agents started for reruns end with this process, whatever ended it.
    work.iter().for_each(AppState::shut_down_reruns);
    shown?;
    DONE
}

/// Opens the store on this machine and resolves the session to show.
fn open_local(
    arguments: &Arguments,
    wanted: &TuiArgs,
) -> Result<(DataSource, Option<String>, Option<AppState>), CommandFailure> {
    let context = Context::open(arguments, CreateStore::No, "")?;
    let session = match wanted.session.as_deref() {
        Some(text) => Some(sessions::find(&context, Some(text))?.1.id.to_string()),
        None => None,
    };
    let work = serve::create_app_state(&context)?;
    if let Some(watcher) = watcher::create_client(
        context.store_location(),
        &Settings::load_or_default(context.store_location().local_dir()),
        false,
    ) {
        work.set_watcher(watcher);
    }
    Ok((DataSource::in_process(work.clone())?, session, Some(work)))
}

/// Connects to a server; fails if it does not answer or does not know the session.
fn connect_remote(arguments: &Arguments, wanted: &TuiArgs, url: &str) -> Result<DataSource, CommandFailure> {
    let token = read_token(arguments, wanted)?;
    let server = RemoteServer::new(url, &token, wanted.certificates.as_deref()).map_err(|error| {
        CommandFailure::new(FailureKind::Usage, error.to_string()).with_hint("write http://HOST:PORT")
    })?;
    let source = DataSource::remote(server)?;
    match source.check(wanted.session.as_deref()) {
        Ok(()) => Ok(source),
        Err(SourceError::NoResponse(why)) => Err(CommandFailure::new(FailureKind::System, why)
            .with_hint("\"stepback serve\" starts a server; \"stepback tui\" without --server needs none")),
        Err(SourceError::Refused(problem)) => {
            let kind = if problem.status == 404 { FailureKind::Point } else { FailureKind::Refused };
            let failure = CommandFailure::new(kind, format!("{url}: {}", safe(&problem.detail)));
            Err(match (problem.status, problem.hints.first()) {
                (401, _) => failure.with_hint("pass the file with the server's token with --token-file"),
                (404, _) => {
                    failure.with_hint("\"stepback tui --server URL\" without a session lists all sessions")
                }
                (_, Some(hint)) => failure.with_hint(safe(hint)),
                (_, None) => failure,
            })
        }
    }
}

/// Returns the token for the server.
fn read_token(arguments: &Arguments, wanted: &TuiArgs) -> Result<String, CommandFailure> {
    if let (None, Ok(token)) = (&wanted.token_file, std::env::var("STEPBACK_TOKEN"))
        && !token.is_empty()
    {
        return Ok(token);
    }
    let file = match &wanted.token_file {
        Some(file) => file.clone(),
        None => StoreLocation::find(arguments.store.as_deref())?.local_dir().join("server.token"),
    };
    std::fs::read_to_string(&file).map_err(|error| {
        CommandFailure::new(FailureKind::System, format!("cannot read the token in {}: {error}", file.display())).with_hint(
            "the server prints the path of its token when it starts; pass a copy with --token-file, or set STEPBACK_TOKEN",
        )
    })
}

/// Whether the locale says that the terminal can show more than ASCII.
fn is_unicode_locale() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
