//! The command `stepback seal`: writes a signed list of what is recorded, and compares the store with one.

use std::fs;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use stepback_proxy::ProxyLimits;
use stepback_proxy::client::UpstreamClient;
use stepback_seal::git_ref;
use stepback_seal::{PublicKey, SealComparison, SealError, SealKey, SignedSeal, document};
use stepback_store::new_file::{Durability, NewFile, replace_file};

use super::{CommandResult, DONE};
use crate::args::seal::SealArgs;
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The file of the user's own key, in the user's directory of settings.
const KEY_FILE: &str = "seal-key.pem";
/// A seal is not larger than this, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Runs `stepback seal`.
pub fn seal(context: &Context, arguments: &SealArgs) -> CommandResult {
    match &arguments.verify {
        Some(source) => verify(context, arguments, source),
        None => write(context, arguments),
    }
}

/// Where a seal goes, or comes from.
enum SealPlace {
    Standard,
    Address(String),
    Reference(String),
    File(PathBuf),
}

impl SealPlace {
    fn parse(context: &Context, text: &str) -> Result<Self, CommandFailure> {
        if text == "-" {
            return Ok(Self::Standard);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Self::Address(text.to_owned()));
        }
        if text.starts_with("refs/") || text.starts_with("git:") {
            let name = git_ref::full_name(text).ok_or_else(|| {
                CommandFailure::new(FailureKind::Usage, format!("{text} cannot be the reference of a seal"))
                    .with_hint(format!("use {}NAME, or git:NAME for short", git_ref::PREFIX))
            })?;
            return Ok(Self::Reference(name));
        }
        Ok(Self::File(context.directory.join(text)))
    }
}

/// Makes a seal and writes it to its target.
fn write(context: &Context, arguments: &SealArgs) -> CommandResult {
    let place = SealPlace::parse(context, &arguments.to)?;
    let workspace = context.open_workspace()?;
    let breaks = document::find_breaks(context.store(), workspace.record.id)?;
    if let Some(first) = breaks.first().filter(|_| !arguments.accept_breaks) {
        return Err(CommandFailure::new(
            FailureKind::Store,
            format!("the record was changed by another program: {first}"),
        )
        .with_hint("\"stepback fsck\" lists all changes; --accept-breaks seals the record as it is and lists them in the seal"));
    }
    let key = open_key(arguments.key.as_deref())?;
    let now = context.now();
    let sealed = stepback_seal::take_seal(context.store(), workspace.record.id, now, breaks)?;
    let signed = key.sign(&sealed)?;
    let text = signed.to_text();
    let target = match &place {
        SealPlace::Standard => {
            output::write_raw(text.as_bytes());
            return DONE;
        }
        SealPlace::File(path) => {
            replace_file(path, text.as_bytes(), 0o600, Durability::Synced)
                .map_err(file_failure("write", path))?;
            path.display().to_string()
        }
        SealPlace::Address(url) => {
            post(url, text)?;
            url.clone()
        }
        SealPlace::Reference(name) => {
            let commit = git_ref::write_seal(&workspace.root, name, &text, now)?;
            format!("{name} ({})", &commit[..12])
        }
    };
    if context.json {
        output::print_document(&json!({
            "to": target,
            "sealed_at": sealed.sealed_at,
            "workspace": sealed.workspace,
            "steps": sealed.steps,
            "sessions": sealed.sessions.len(),
            "operations": sealed.operations.count,
            "public_key": key.public().to_string(),
        }));
        return DONE;
    }
    output::print_line(format!(
        "Sealed {} of {} and {} in {target}",
        output::count(sealed.steps, "step"),
        output::count(sealed.sessions.len() as u64, "session"),
        output::count(sealed.operations.count, "operation"),
    ));
    output::print_line(format!("Public key: {}", key.public()));
    if let SealPlace::Reference(name) = &place {
        output::print_status(format!("Hint: only a copy elsewhere proves anything: git push REMOTE {name}"));
    }
    DONE
}

/// Verifies the signature of a seal, and compares the store with it.
fn verify(context: &Context, arguments: &SealArgs, source: &str) -> CommandResult {
    let bytes = match SealPlace::parse(context, source)? {
        SealPlace::Standard => {
            let mut bytes = Vec::new();
            io::stdin().take(MAX_BYTES).read_to_end(&mut bytes)?;
            bytes
        }
        SealPlace::File(path) => fs::read(&path).map_err(file_failure("read", &path))?,
        SealPlace::Reference(name) => git_ref::read_seal(&context.find_workspace_root()?, &name)?,
        SealPlace::Address(_) => {
            return Err(CommandFailure::new(FailureKind::Usage, "a seal cannot be verified by its address")
                .with_hint("download it first: curl ADDRESS | stepback seal --verify -"));
        }
    };
    let signed = SignedSeal::parse(&bytes)?;
    signed.verify(expected_key(arguments, signed.public_key)?)?;
    let seal = &signed.seal;
    if context.store().workspaces()?.iter().all(|workspace| workspace.id != seal.workspace) {
        return Err(CommandFailure::new(
            FailureKind::Store,
            format!(
                "the store has no workspace {}, which was sealed {}",
                seal.workspace.short(),
                seal.sealed_at
            ),
        )
        .with_hint("name the store that was sealed with --store"));
    }
    let comparison = stepback_seal::compare(seal, context.store())?;
    let is_unchanged = comparison.findings.is_empty();
    if context.json {
        output::print_document(&json!({
            "ok": is_unchanged,
            "sealed_at": seal.sealed_at,
            "workspace": seal.workspace,
            "public_key": signed.public_key.to_string(),
            "sealed_steps": comparison.sealed_steps,
            "steps_since": comparison.steps_since,
            "operations_since": comparison.operations_since,
            "references_moved": comparison.references_moved,
            "known_breaks": seal.known_breaks,
            "items": comparison.findings.iter().enumerate().map(|(at, found)| json!({
                "id": at + 1,
                "change": found.kind,
                "session": found.session,
                "step": found.step,
                "now": found.now,
            })).collect::<Vec<_>>(),
        }));
    } else {
        print_comparison(&signed, &comparison);
    }
    if is_unchanged { DONE } else { Ok(ExitCode::from(FailureKind::Store as u8)) }
}

fn print_comparison(signed: &SignedSeal, comparison: &SealComparison) {
    let paint = Paint::stdout();
    let seal = &signed.seal;
    for found in &comparison.findings {
        output::print_line(format!("{} {found}", paint.bad("changed:")));
    }
    for known in &seal.known_breaks {
        output::print_line(format!("{} {known}", paint.dim("known when it was sealed:")));
    }
    let verdict = match comparison.findings.is_empty() {
        true => paint.good("unchanged"),
        false => paint.bad("see above"),
    };
    output::print_line(format!(
        "Sealed {}, {}: {verdict}",
        seal.sealed_at,
        output::count(comparison.sealed_steps, "step")
    ));
    output::print_line(format!(
        "Since the seal: {}, {}",
        output::count(comparison.steps_since, "step"),
        output::count(comparison.operations_since, "operation")
    ));
}

/// The key that must have signed a seal: the one that the user named, or the user's own.
fn expected_key(arguments: &SealArgs, named_in_seal: PublicKey) -> Result<PublicKey, CommandFailure> {
    if let Some(given) = &arguments.public_key {
        let text = match PublicKey::parse(given) {
            Some(key) => return Ok(key),
            None => fs::read_to_string(given).unwrap_or_default(),
        };
        return PublicKey::parse(&text).ok_or_else(|| {
            CommandFailure::new(FailureKind::Usage, format!("{given} is not a public key")).with_hint(
                "write its 64 hex digits, as \"stepback seal --to\" prints them, or a file with them",
            )
        });
    }
    let path = match &arguments.key {
        Some(path) => path.clone(),
        None => own_key_path()?,
    };
    let own = fs::read_to_string(&path).ok().and_then(|text| SealKey::parse(&text).ok());
    match own.map(|key| key.public()) {
        Some(own) if own == named_in_seal => Ok(own),
        // Anyone can sign a seal with a key of their own.
        _ => Err(CommandFailure::new(
            FailureKind::Refused,
            format!("the seal was signed with the key {named_in_seal}, which is not the one in {}", path.display()),
        )
        .with_hint("compare it with the public key that you noted when the seal was made, and pass that with --public-key")),
    }
}

/// Opens the key that the user named, or the user's own, which is made if there is none.
fn open_key(named: Option<&Path>) -> Result<SealKey, CommandFailure> {
    let path = match named {
        Some(path) => path.to_path_buf(),
        None => own_key_path()?,
    };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(SealKey::parse(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => make_key(&path),
        Err(error) => Err(file_failure("read", &path)(error)),
    }
}

/// Makes the user's own key. Of two processes that do so at once, both use the key of the first.
fn make_key(path: &Path) -> Result<SealKey, CommandFailure> {
    use std::io::Write as _;
    use std::os::unix::fs::DirBuilderExt as _;
    let text = SealKey::generate()?;
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file_failure("create", dir))?;
    }
    let new = NewFile::create(path, 0o600, Durability::Synced).map_err(file_failure("write", path))?;
    new.file().write_all(text.as_bytes()).map_err(file_failure("write", path))?;
    match new.link() {
        Ok(()) => {
            output::print_status(format!("Made a key for seals: {}", path.display()));
            Ok(SealKey::parse(&text)?)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(path).map_err(file_failure("read", path))?;
            Ok(SealKey::parse(&text)?)
        }
        Err(error) => Err(file_failure("write", path)(error)),
    }
}

/// `$XDG_CONFIG_HOME/stepback/seal-key.pem`, else in `~/.config`.
fn own_key_path() -> Result<PathBuf, CommandFailure> {
    let settings = context::path_variable("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute());
    let settings = settings.or_else(|| Some(context::home_dir()?.join(".config")));
    match settings {
        Some(settings) => Ok(settings.join("stepback").join(KEY_FILE)),
        None => {
            Err(CommandFailure::new(FailureKind::System, "cannot find a place for the key: HOME is not set")
                .with_hint("name a key with --key FILE"))
        }
    }
}

/// Sends a seal to a server, which must accept it.
fn post(url: &str, text: String) -> Result<(), CommandFailure> {
    let failed = |what: String| {
        CommandFailure::new(FailureKind::System, format!("cannot send the seal to {url}: {what}"))
    };
    let client = UpstreamClient::new(ProxyLimits::default(), None)?;
    let headers = [("content-type", "application/json")];
    let mut on_chunk = |_: &[u8]| ControlFlow::Continue(());
    let response = client
        .post(url, &headers, text.into_bytes(), &mut on_chunk)
        .map_err(|error| failed(error.to_string()))?;
    match response.status {
        200..=299 => Ok(()),
        status => Err(failed(format!("the server answered with status {status}"))),
    }
}

fn file_failure(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CommandFailure {
    let path = path.to_path_buf();
    move |error| {
        let (kind, hint) = stepback_api::failure::classify_io_error(&error);
        let failure = CommandFailure::new(kind, format!("cannot {what} {}: {error}", path.display()));
        match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl From<SealError> for CommandFailure {
    fn from(error: SealError) -> Self {
        let message = error.to_string();
        match error {
            SealError::Store(error) => error.into(),
            SealError::Malformed(_) => Self::new(FailureKind::Usage, message),
            SealError::Newer { .. } => {
                Self::new(FailureKind::Store, message).with_hint("use a newer version of stepback")
            }
            SealError::Signature => Self::new(FailureKind::Store, message)
                .with_hint("do not rely on this seal; find a copy that was kept elsewhere"),
            SealError::Key(_) => Self::new(FailureKind::System, message)
                .with_hint("openssl genpkey -algorithm ed25519 makes one"),
        }
    }
}
