//! `stepback mirror`: append-only copies of the store in other places.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use stepback_mirror::MirrorError;
use stepback_mirror::address::{CreateDirectory, MirrorAddress};
use stepback_mirror::archive::MirrorArchive;
use stepback_mirror::join::{AcceptOther, join};
use stepback_mirror::service::open_mirror;
use stepback_mirror::settings::{self, ConfiguredMirror, MirrorSettings, MirrorState};
use stepback_mirror::sync::{MirrorSync, SyncReport};
use stepback_model::env::Env;
use stepback_store::embedded::EmbeddedStore;

use super::{CommandResult, DONE};
use crate::args::Arguments;
use crate::args::mirror::MirrorCommand;
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::mirroring::{hand_over_credentials, storage_access};
use crate::output::{self, Paint, Progress};
use crate::store_location::StoreLocation;
use crate::system;

mod restore;
mod run;
mod status;

pub use self::status::{overview_document, print_warnings};

/// Adds a mirror for `stepback init`, and returns the document of `mirror add`; `None` if the store has this mirror already. The
/// store is created if there is none yet.
pub fn add_at_init(arguments: &Arguments, place: &str) -> Result<Option<Value>, CommandFailure> {
    StoreLocation::find(arguments.store.as_deref())?.open(CreateStore::Yes)?;
    let store = MirrorableStore::open(arguments)?;
    let name = parse_address(arguments, place)?.to_string();
    match store.settings()?.is_some_and(|known| known.mirrors.iter().any(|mirror| mirror.address == name)) {
        true => Ok(None),
        false => store.add(place, false).map(Some),
    }
}

/// Runs `stepback mirror`.
pub fn mirror(arguments: &Arguments, command: &MirrorCommand) -> CommandResult {
    if let MirrorCommand::Restore { place, into, generation } = command {
        let address = parse_address(arguments, place)?;
        let into = arguments.working_directory()?.join(into);
        return restore::restore(&address, &into, *generation, arguments.json);
    }
    let store = MirrorableStore::open(arguments)?;
    match command {
        MirrorCommand::Add { place, adopt } => {
            let document = store.add(place, *adopt)?;
            if arguments.json {
                output::print_document(&document);
            }
            DONE
        }
        MirrorCommand::Status { places, verify } => status::status(&store, places, *verify),
        MirrorCommand::Sync { places, acknowledge } => store.sync(places, *acknowledge),
        MirrorCommand::Remove { place } => store.remove(place),
        MirrorCommand::Run { places } => run::run(&store, places),
        MirrorCommand::Restore { .. } => unreachable!("it is handled above"),
    }
}

fn parse_address(arguments: &Arguments, place: &str) -> Result<MirrorAddress, CommandFailure> {
    let directory = arguments.working_directory()?;
    Ok(MirrorAddress::parse(place, &directory)?)
}

/// A store that can have mirrors, and what the commands need besides.
struct MirrorableStore<'a> {
    arguments: &'a Arguments,
    dir: PathBuf,
    store: EmbeddedStore,
    env: std::sync::Arc<dyn Env>,
}

impl<'a> MirrorableStore<'a> {
    fn open(arguments: &'a Arguments) -> Result<Self, CommandFailure> {
        let location = StoreLocation::find(arguments.store.as_deref())?;
        let dir = match location {
            StoreLocation::Directory(dir) => dir,
            StoreLocation::Guarded { .. } => {
                let text = format!("{} is on a server, which mirrors it", location.display_text());
                return Err(CommandFailure::new(FailureKind::Usage, text).with_hint(
                    "add the mirror where the store is, as its user: sudo -u stepback stepback --store /var/lib/stepback mirror add PLACE",
                ));
            }
            StoreLocation::Server { .. } => {
                let text = format!(
                    "{} is a database, and only a store in a directory has mirrors",
                    location.display_text()
                );
                return Err(CommandFailure::new(FailureKind::Usage, text).with_hint(
                    "use the replication and backups of PostgreSQL; \"stepback store copy\" copies the store to a directory, which can have mirrors",
                ));
            }
        };
        let store = EmbeddedStore::open_existing(&dir)?;
        Ok(Self { arguments, dir, store, env: system::environment() })
    }

    fn settings(&self) -> Result<Option<MirrorSettings>, CommandFailure> {
        Ok(MirrorSettings::load(&self.dir)?)
    }

    /// Returns the mirrors that the user named, else all of the store. The flag says whether they are in the store's list.
    fn find(&self, places: &[String]) -> Result<Vec<(MirrorAddress, bool)>, CommandFailure> {
        let settings = self.settings()?;
        let known = settings.iter().flat_map(|settings| &settings.mirrors);
        let known: Vec<String> = known.map(|mirror| mirror.address.clone()).collect();
        if places.is_empty() {
            if known.is_empty() {
                return Err(CommandFailure::new(FailureKind::Nothing, "this store has no mirrors")
                    .with_hint("\"stepback mirror add DIR\" adds one"));
            }
            let parse = |address: &String| Ok((MirrorAddress::parse(address, Path::new("/"))?, true));
            return known.iter().map(parse).collect();
        }
        let parse = |place: &String| {
            let address = parse_address(self.arguments, place)?;
            let is_known = known.contains(&address.to_string());
            Ok((address, is_known))
        };
        places.iter().map(parse).collect()
    }

    /// Opens a mirror: one of the store's list must be there; another place may be empty.
    fn connect(&self, address: &MirrorAddress, is_known: bool) -> Result<MirrorArchive, MirrorError> {
        if is_known {
            let id = MirrorSettings::load(&self.dir)?.map(|settings| settings.id).unwrap_or_default();
            return open_mirror(&address.to_string(), &id, &storage_access());
        }
        let storage = address.open(CreateDirectory::Yes, &storage_access())?;
        join(&self.store, storage, None, AcceptOther::No, &*self.env)
    }

    /// Adds a mirror, prints what was done, and returns it as a document.
    fn add(&self, place: &str, adopt: bool) -> Result<Value, CommandFailure> {
        let address = parse_address(self.arguments, place)?;
        self.refuse_own_directory(&address)?;
        let settings = self.settings()?;
        let name = address.to_string();
        if settings.iter().flat_map(|known| &known.mirrors).any(|mirror| mirror.address == name) {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                format!("{name} is a mirror of this store already"),
            )
            .with_hint("\"stepback mirror sync\" brings it up to date"));
        }
        let accept = if adopt { AcceptOther::Yes } else { AcceptOther::No };
        let id = settings.as_ref().map(|settings| settings.id.as_str());
        let storage = address.open(CreateDirectory::Yes, &storage_access())?;
        let archive = join(&self.store, storage, id, accept, &*self.env)?;
        let id = archive.id.clone();
        let (report, state) = self.sync_once(archive, MirrorState::default())?;
        let mut settings = settings.unwrap_or(MirrorSettings { id, mirrors: Vec::new() });
        settings::prepare_directory(&self.dir)?;
        state.save(&self.dir, &name);
        settings.mirrors.push(ConfiguredMirror { address: name.clone(), added_at: self.env.now() });
        settings.save(&self.dir)?;
        settings::note_progress(&self.dir)?;
        if matches!(address, MirrorAddress::Bucket { .. }) {
            hand_over_credentials(&self.dir);
        }
        let document = json!({ "place": name, "report": report, "state": state });
        if self.arguments.json {
            return Ok(document);
        }
        output::print_line(format!(
            "Mirrored {} to {name} ({} in {}), and read everything back",
            output::count(state.steps, "step"),
            output::bytes(report.bytes),
            output::count(report.segments, "segment"),
        ));
        print_problems(&report);
        output::print_status(Paint::stderr().dim(
            "From now on every commit is copied there in the background; \"stepback mirror status\" shows how far it is.",
        ));
        if let MirrorAddress::Directory(path) = &address {
            self.warn_about_directory(path);
        }
        Ok(document)
    }

    fn refuse_own_directory(&self, address: &MirrorAddress) -> Result<(), CommandFailure> {
        let MirrorAddress::Directory(path) = address else { return Ok(()) };
        let store = self.dir.canonicalize()?;
        let nearest = path.ancestors().find_map(|dir| dir.canonicalize().ok()).unwrap_or_default();
        if nearest.starts_with(&store) {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                format!("{} is inside the store: whatever removes the store removes it too", path.display()),
            )
            .with_hint("choose a directory on another disk, or of another user"));
        }
        Ok(())
    }

    /// Says what a directory does not protect against.
    fn warn_about_directory(&self, path: &Path) {
        let note = |text: String| output::print_status(format!("{} {text}", Paint::stderr().note("Note:")));
        let (Ok(mirror), Ok(store)) = (path.metadata(), self.dir.metadata()) else { return };
        if mirror.uid() == store.uid() {
            note(format!(
                "programs that run as the same user, such as an agent, can delete {}; \"stepback help mirror\" says how to prevent it.",
                path.display()
            ));
        }
        if mirror.dev() == store.dev() {
            note("it is on the same file system as the store: a broken disk takes both.".to_owned());
        }
    }

    /// Syncs one mirror. Returns what was done, and the new state of the mirror.
    fn sync_once(
        &self,
        archive: MirrorArchive,
        state: MirrorState,
    ) -> Result<(SyncReport, MirrorState), CommandFailure> {
        let progress = Progress::start("commits and objects mirrored", self.arguments.json);
        let counter = progress.counter();
        counter.store(0, Ordering::Relaxed);
        let mut sync = MirrorSync::new(&self.store, archive, &*self.env).with_progress(&counter);
        let contradiction = sync.compare()?;
        let outcome = sync.sync().map(|report| SyncReport {
            contradiction: report.contradiction.clone().or(contradiction),
            ..report
        });
        let state = state.after(&outcome, Some(sync.archive()), self.env.now());
        Ok((outcome?, state))
    }

    fn sync(&self, places: &[String], acknowledge: bool) -> CommandResult {
        let mut items = Vec::new();
        let mut failure = None;
        for (address, is_known) in self.find(places)? {
            let name = address.to_string();
            let mut before = match is_known {
                true => MirrorState::load(&self.dir, &name),
                false => MirrorState::default(),
            };
            if acknowledge {
                (before.contradiction, before.problems) = (None, Vec::new());
            }
            let synced = self.connect(&address, is_known).map_err(CommandFailure::from);
            let synced = synced.and_then(|archive| self.sync_once(archive, before.clone()));
            match synced {
                Ok((report, mut state)) => {
                    if acknowledge {
                        (state.contradiction, state.problems) = (None, Vec::new());
                    }
                    if is_known {
                        state.save(&self.dir, &name);
                    }
                    if !self.arguments.json {
                        output::print_line(format!("{name}: {}", describe_sync(&report, &state)));
                        print_problems(&report);
                    }
                    items.push(json!({ "id": name, "place": name, "report": report, "state": state }));
                }
                Err(error) => {
                    items.push(json!({ "id": name, "place": name, "error": error.message() }));
                    failure = Some(error.with_subject(&name));
                }
            }
        }
        let _ = settings::note_progress(&self.dir);
        match failure {
            Some(failure) => Err(failure),
            None => {
                if self.arguments.json {
                    output::print_document(&json!({ "items": items }));
                }
                DONE
            }
        }
    }

    fn remove(&self, place: &str) -> CommandResult {
        let name = parse_address(self.arguments, place)?.to_string();
        let mut settings =
            self.settings()?.unwrap_or(MirrorSettings { id: String::new(), mirrors: Vec::new() });
        let before = settings.mirrors.len();
        settings.mirrors.retain(|mirror| mirror.address != name);
        if settings.mirrors.len() == before {
            return Err(CommandFailure::new(
                FailureKind::Nothing,
                format!("{name} is not a mirror of this store"),
            )
            .with_hint("\"stepback mirror status\" lists the mirrors"));
        }
        settings.save(&self.dir)?;
        MirrorState::remove(&self.dir, &name);
        settings::note_progress(&self.dir)?;
        if self.arguments.json {
            output::print_document(&json!({ "removed": name }));
        } else {
            output::print_line(format!("Nothing is copied to {name} from now on. Its files are unchanged."));
        }
        DONE
    }
}

/// Brings the mirrors up to date before objects are freed. One that cannot be synced is named, and does not keep the user from
/// freeing space.
pub fn sync_before_prune(context: &Context) {
    let StoreLocation::Directory(dir) = context.store_location() else { return };
    let Ok(Some(settings)) = MirrorSettings::load(dir) else { return };
    let env = system::environment();
    for mirror in &settings.mirrors {
        let address = &mirror.address;
        let synced = EmbeddedStore::open_existing(dir).map_err(MirrorError::from).and_then(|store| {
            let archive = open_mirror(address, &settings.id, &storage_access())?;
            MirrorSync::new(&store, archive, &*env).sync()
        });
        if let Err(error) = synced {
            output::print_status(format!(
                "{} {error}; what is freed now and was not copied to {address} yet cannot be restored from it",
                Paint::stderr().note("Warning:")
            ));
        }
    }
}

fn describe_sync(report: &SyncReport, state: &MirrorState) -> String {
    let steps = output::count(state.steps, "step");
    match (report.segments, &report.new_generation) {
        (0, _) => format!("up to date, {steps}"),
        (_, Some(reason)) => format!("began generation {} ({reason}), {steps}", state.generation),
        (_, None) => format!(
            "{} mirrored ({}), {steps}",
            output::count(report.commits, "commit"),
            output::bytes(report.bytes)
        ),
    }
}

fn print_problems(report: &SyncReport) {
    let paint = Paint::stderr();
    if let Some(contradiction) = &report.contradiction {
        output::print_status(format!(
            "{} the store contradicts the mirror: {contradiction}. The mirror has both.",
            paint.note("Warning:")
        ));
    }
    for problem in &report.problems {
        output::print_status(format!("{} not mirrored: {problem}", paint.note("Warning:")));
    }
}

impl From<MirrorError> for CommandFailure {
    fn from(error: MirrorError) -> Self {
        let message = error.to_string();
        let hinted = |kind, hint: &str| CommandFailure::new(kind, message.clone()).with_hint(hint);
        match error {
            MirrorError::Store(error) => error.into(),
            MirrorError::Engine(error) => error.into(),
            MirrorError::Storage { .. } => hinted(
                FailureKind::System,
                "nothing is lost: the store keeps recording, and the mirror continues when the place can be used again",
            ),
            MirrorError::Conflict { .. } => CommandFailure::new(FailureKind::Busy, message),
            MirrorError::NotAMirror { .. } => {
                hinted(FailureKind::System, "check that the disk is mounted and the address is right")
            }
            MirrorError::OtherStore { .. } => hinted(
                FailureKind::Refused,
                "\"stepback mirror restore\" makes a store of it; \"stepback mirror add --adopt\" continues it with this store's history beside the other",
            ),
            MirrorError::Contradiction { generations, .. } => CommandFailure::new(
                FailureKind::Refused,
                format!("{message}:\n  {}", generations.join("\n  ")),
            )
            .with_hint("add --generation N; each can be restored into a directory of its own"),
            MirrorError::NoGeneration { .. } => {
                hinted(FailureKind::Usage, "\"stepback mirror status --verify PLACE\" lists them")
            }
            MirrorError::NotEmpty { .. } => {
                hinted(FailureKind::Usage, "choose a directory that does not exist")
            }
            MirrorError::Address { .. } => CommandFailure::new(FailureKind::Usage, message),
            MirrorError::Settings { .. } => hinted(
                FailureKind::System,
                "correct or remove the file; \"stepback mirror add\" joins the mirrors again",
            ),
            MirrorError::Newer { .. } => hinted(FailureKind::Store, "use a newer version of stepback"),
            MirrorError::Damaged { .. } | MirrorError::Unverified { .. } => hinted(
                FailureKind::Store,
                "\"stepback mirror status --verify\" lists what is damaged; add another mirror to have a whole one",
            ),
        }
    }
}
