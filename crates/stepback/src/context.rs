//! What every command starts from: the store, the workspace, and the clock.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use stepback_engine::workspace::Workspace;
use stepback_engine::{Engine, EngineError};
use stepback_llm_wire::prices::Prices;
use stepback_model::point;
use stepback_model::record::Session;
use stepback_model::record::StepRow;
use stepback_model::time::Timestamp;
use stepback_store::{Store, StoreError};
use stepback_watcher::client::WatcherClient;
use stepback_worktree::WorktreeError;
use stepback_worktree::scan::hints::ScanHints;

use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Progress};
use crate::settings::Settings;
use crate::store_location::StoreLocation;
use crate::watcher;

/// The store, the current directory, and the outside world.
pub struct Context {
    /// The directory that the user is in.
    pub directory: PathBuf,
    /// Whether to print JSON.
    pub json: bool,
    location: StoreLocation,
    engine: Engine,
    /// Ends the display when the command ends.
    _progress: Progress,
    allow_broad: bool,
    /// The workspace that the user named; `None` if it is derived from the directory.
    named_root: Option<PathBuf>,
}

/// Whether a command may create a missing store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateStore {
    /// A missing store is created.
    Yes,
    /// The store must exist.
    No,
}

impl Context {
    /// Opens the store and determines the current directory.
    pub fn open(
        arguments: &crate::args::Arguments,
        create: CreateStore,
        progress_label: &'static str,
    ) -> Result<Self, CommandFailure> {
        let directory = match &arguments.directory {
            Some(directory) => directory.clone(),
            None => std::env::current_dir().map_err(|error| {
                CommandFailure::new(
                    FailureKind::System,
                    format!("cannot determine the current directory: {error}"),
                )
            })?,
        };
        let given = directory.clone();
        let directory = directory.canonicalize().map_err(|error| {
            CommandFailure::new(FailureKind::System, format!("cannot open {}: {error}", directory.display()))
                .with_hint("check that the directory exists")
        })?;
        if !directory.is_dir() {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                format!("{} is not a directory", directory.display()),
            ));
        }
        let place = StoreLocation::find(arguments.store.as_deref())?;
        let store = place.open(create)?;
        refuse_linked_root(&*store, &given, &directory)?;
        // These two report it themselves.
        if !matches!(arguments.command, crate::args::Command::Fsck(_) | crate::args::Command::Doctor(_)) {
            crate::commands::fsck::warn_of_lost_commits(&*store);
        }
        if let Some(local) = store.local_dir() {
            stepback_rerun::scratch::remove_leftovers(local);
        }
        let named = arguments.workspace.as_deref().map(|id| find_root_by_id(&*store, id)).transpose()?;
        let progress = Progress::start(progress_label, arguments.json);
        let settings = Settings::load_or_default(place.local_dir());
        let watcher = watcher::create_client(&place, &settings, false);
        let engine = Engine {
            max_manual: settings.max_manual_checkpoints(),
            progress: Some(progress.counter()),
            watcher: watcher.map(|watcher| Arc::new(watcher) as Arc<dyn ScanHints>),
            recorder: Arc::new(settings.recorder().0),
            anomaly_limits: settings.anomaly_limits(),
            ..Engine::new(store, crate::system::environment())
        };
        Ok(Self {
            named_root: named,
            directory,
            json: arguments.json,
            location: place,
            engine,
            _progress: progress,
            allow_broad: arguments.allow_broad,
        })
    }

    /// Returns the engine over this store.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether a watcher may be asked for changed paths.
    pub fn has_watcher(&self) -> bool {
        self.engine.watcher.is_some()
    }

    /// Returns the same context for work in short-lived directories: a running watcher is used, but none is started.
    pub fn without_starting_watcher(mut self) -> Self {
        let client = || Arc::new(WatcherClient::new(self.location.local_dir())) as Arc<dyn ScanHints>;
        self.engine.watcher = self.engine.watcher.is_some().then(client);
        self
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.engine.env.now()
    }

    /// Returns the current workspace, which must be registered.
    pub fn open_workspace(&self) -> Result<Workspace, CommandFailure> {
        let workspace = self.engine.open_known_workspace(&self.find_workspace_root()?)?;
        let updated = stepback_agents::record::record_inbox(&workspace)
            .and_then(|recorded| workspace.update_branches_with_directories().map(|()| recorded));
        match updated {
            // What is stored can still be read; whatever the command itself writes fails with the same error.
            Err(error) if is_unwritable(&error) => {
                output::print_status(format!(
                    "Warning: pending reports of agents were not recorded: {error}"
                ));
            }
            recorded => recorded?,
        }
        Ok(workspace)
    }

    /// Returns the current workspace, and registers it if it is new.
    pub fn open_or_create_workspace(&self) -> Result<Workspace, CommandFailure> {
        let root = self.find_workspace_root()?;
        if self.engine.store.workspace_at(path_bytes(&root))?.is_none() {
            self.check_broad_root(&root)?;
        }
        let workspace = self.engine.open_workspace_root(&root)?;
        // Pending hook events happened before whatever the command records.
        stepback_agents::record::record_inbox(&workspace)?;
        Ok(workspace)
    }

    /// Returns the root: the nearest known workspace here or above, else the git repository, else the directory itself.
    pub fn find_workspace_root(&self) -> Result<PathBuf, CommandFailure> {
        match &self.named_root {
            Some(root) => Ok(root.clone()),
            None => self.find_root(&self.directory),
        }
    }

    /// Returns the root of the workspace that contains `directory`, known or not.
    pub fn find_root(&self, directory: &Path) -> Result<PathBuf, CommandFailure> {
        for dir in directory.ancestors() {
            if self.engine.store.workspace_at(path_bytes(dir))?.is_some() {
                return Ok(dir.to_path_buf());
            }
        }
        Ok(natural_root(directory))
    }

    /// Returns random bytes for an id.
    pub fn fresh_id(&self) -> [u8; 16] {
        self.engine.env.fresh_id()
    }

    /// Refuses a whole home directory or file system, which is almost never meant and costs time and space.
    pub fn check_broad_root(&self, root: &Path) -> Result<(), CommandFailure> {
        if !is_broad(root) || self.allow_broad {
            return Ok(());
        }
        let what = format!(
            "{} is the root or a home directory: everything below it would be covered",
            root.display()
        );
        match output::confirm(&format!("{what}. Continue?")) {
            Some(true) => Ok(()),
            _ => Err(CommandFailure::new(FailureKind::Refused, what)
                .with_hint("change to a project directory, use -C DIR, or add --allow-broad")),
        }
    }

    /// Returns the checkpoint that a point names.
    pub fn resolve(&self, workspace: &Workspace, point: &str) -> Result<StepRow, CommandFailure> {
        Ok(workspace.resolve(point, self.now(), &TimeZone::system)?)
    }

    /// Like [`Self::resolve`]; errors, calls and iterations are those of `session`, if one is named.
    pub fn resolve_in_session(
        &self,
        workspace: &Workspace,
        point: &str,
        session: Option<&Session>,
    ) -> Result<StepRow, CommandFailure> {
        match session {
            Some(session) => self.resolve(workspace, &point::in_session(point, &session.id.to_string())),
            None => self.resolve(workspace, point),
        }
    }

    /// Turns a path as the user writes it, relative to the current directory, into one relative to the workspace.
    pub fn to_workspace_path(&self, workspace: &Workspace, path: &str) -> String {
        let given = Path::new(path);
        if given.is_absolute() {
            return given
                .strip_prefix(&workspace.root)
                .map_or_else(|_| path.to_string(), |inside| inside.to_string_lossy().into_owned());
        }
        let below = self.directory.strip_prefix(&workspace.root).unwrap_or(Path::new(""));
        let mut parts: Vec<String> = Vec::new();
        for part in below.join(given).components() {
            match part {
                std::path::Component::ParentDir if parts.last().is_some_and(|last| last != "..") => {
                    parts.pop();
                }
                std::path::Component::ParentDir => parts.push("..".into()),
                std::path::Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
                _ => {}
            }
        }
        parts.join("/")
    }

    /// Returns the store's location for display.
    pub fn store_path(&self) -> String {
        self.location.display_text()
    }

    /// Returns the store's location.
    pub fn store_location(&self) -> &StoreLocation {
        &self.location
    }

    /// Returns the prices of models: the built-in table with the user's own prices from `prices.json` in the store's
    /// directory on this machine.
    pub fn load_prices(&self) -> Result<Prices, CommandFailure> {
        Ok(stepback_analysis::prices::load_prices(Some(self.location.local_dir()))?)
    }

    /// Returns the store, for statistics about it.
    pub fn store(&self) -> &dyn Store {
        self.engine.store()
    }
}

/// Fails if the directory, by the path that the user has for it, is in a workspace whose root was replaced by a link. What is
/// behind the link is another directory, and would be taken for the workspace.
fn refuse_linked_root(store: &dyn Store, given: &Path, real: &Path) -> Result<(), CommandFailure> {
    // The shell remembers the path that the user went to; the system only knows where it led.
    let shown = path_variable("PWD").filter(|shown| shown.canonicalize().is_ok_and(|shown| shown == real));
    let given = if given.is_absolute() { given.to_path_buf() } else { real.to_path_buf() };
    for path in [Some(given), shown].into_iter().flatten() {
        for part in path.ancestors().filter(|part| part.is_symlink()) {
            let known = store.workspace_at(part.as_os_str().as_bytes())?;
            if known.is_some() {
                let target = part.canonicalize().unwrap_or_default();
                let (part, target) = (part.display(), target.display());
                return Err(CommandFailure::new(
                    FailureKind::System,
                    format!("the workspace {part} was replaced by a symbolic link to {target}"),
                )
                .with_hint(format!("move the directory back to {part}; or go to {target} to work there")));
            }
        }
    }
    Ok(())
}

/// Whether an error says that nothing can be written to the store now, although it can be read.
fn is_unwritable(error: &EngineError) -> bool {
    match error {
        EngineError::Store(StoreError::Lost { .. } | StoreError::ReadOnly { .. }) => true,
        EngineError::Store(StoreError::Io { error, .. })
        | EngineError::Io { error, .. }
        | EngineError::Worktree(WorktreeError::Aside { error, .. }) => matches!(
            error.kind(),
            std::io::ErrorKind::ReadOnlyFilesystem
                | std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::QuotaExceeded
        ),
        _ => false,
    }
}

/// Returns the root of the workspace whose id begins with `id`.
fn find_root_by_id(store: &dyn Store, id: &str) -> Result<PathBuf, CommandFailure> {
    let all = store.workspaces()?;
    let wanted = id.to_ascii_lowercase();
    let mut found = all.iter().filter(|known| known.id.to_string().starts_with(&wanted));
    match (found.next(), found.next()) {
        (Some(known), None) => Ok(PathBuf::from(std::ffi::OsString::from_vec(known.root.clone()))),
        (None, _) => Err(CommandFailure::new(
            FailureKind::Nothing,
            format!("no workspace of this store begins with {id}"),
        )
        .with_hint("\"stepback sessions --all-workspaces\" lists them")),
        (Some(_), Some(_)) => {
            Err(CommandFailure::new(FailureKind::Usage, format!("more than one workspace begins with {id}"))
                .with_hint("write more of its id"))
        }
    }
}

/// Returns the root for a directory in an unknown workspace: the git repository, else the directory itself.
pub fn natural_root(directory: &Path) -> PathBuf {
    let home = home_dir();
    let repository = directory
        .ancestors()
        .take_while(|dir| Some(*dir) != home.as_deref() && dir.parent().is_some())
        .find(|dir| dir.join(".git").exists());
    repository.unwrap_or(directory).to_path_buf()
}

/// Returns the root of a new workspace for a hook, which cannot ask; `None` for a whole home directory or file system.
pub fn new_root(directory: &Path) -> Option<PathBuf> {
    Some(natural_root(directory)).filter(|root| !is_broad(root))
}

/// Whether this is a home directory, a directory with home directories, or a whole file system.
pub fn is_broad(root: &Path) -> bool {
    root.parent().is_none() || home_dir().as_deref().is_some_and(|home| home.starts_with(root))
}

/// Returns where the agents keep their data, according to their own environment variables.
pub fn agents_home() -> Option<stepback_agents::transcript::AgentDirs> {
    let mut dirs = stepback_agents::transcript::AgentDirs::from_home(&home_dir()?);
    if let Some(dir) = path_variable("CLAUDE_CONFIG_DIR") {
        dirs.claude = dir;
    }
    if let Some(dir) = path_variable("CODEX_HOME") {
        dirs.codex = dir;
    }
    if let Some(dir) = path_variable("GEMINI_CLI_HOME") {
        dirs.gemini = dir.join(".gemini");
    }
    if let Some(dir) = path_variable("XDG_DATA_HOME") {
        dirs.opencode = dir.join("opencode");
    }
    Some(dirs)
}

/// Returns an environment variable that holds a path and is not empty.
pub fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the executable that a command without a path names.
pub fn find_on_path(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    let is_name = program.components().count() == 1 && !path_bytes(program).contains(&b'/');
    let path = std::env::var_os("PATH").filter(|_| is_name)?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_absolute() && file.is_file())
}

fn path_bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// Returns the home directory.
pub fn home_dir() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)?;
    Some(home.canonicalize().unwrap_or(home))
}

/// Returns `$STEPBACK_HOME`, else `$XDG_DATA_HOME/stepback`, else `~/.local/share/stepback`.
pub fn default_store() -> Result<PathBuf, CommandFailure> {
    if let Some(dir) = path_variable("STEPBACK_HOME") {
        return Ok(dir);
    }
    data_directory()
}

/// Returns `$XDG_DATA_HOME/stepback`, else `~/.local/share/stepback`.
pub fn data_directory() -> Result<PathBuf, CommandFailure> {
    if let Some(data) = path_variable("XDG_DATA_HOME").filter(|data| data.is_absolute()) {
        return Ok(data.join("stepback"));
    }
    home_dir().map(|home| home.join(".local/share/stepback")).ok_or_else(|| {
        CommandFailure::from(StoreError::Absent { path: PathBuf::from("~/.local/share/stepback") })
            .with_hint("HOME is not set: specify a store with --store DIR or STEPBACK_HOME")
    })
}
