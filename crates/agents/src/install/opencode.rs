//! opencode: stepback's plugin file `plugin/stepback.js`, in the project's `.opencode` or in the user's configuration.

use std::path::PathBuf;

use super::value::{Value, quoted};
use super::{Hook, InstallScope, SettingsPaths};

const PLUGIN: &str = include_str!("opencode.js");

/// File name of the plugin.
pub(super) const NAME: &str = "stepback.js";

pub(super) fn file(scope: InstallScope, place: &SettingsPaths) -> PathBuf {
    let dir = match scope {
        InstallScope::Project => place.workspace.join(".opencode"),
        InstallScope::User => place.opencode_config_dir.clone(),
    };
    dir.join("plugin").join(NAME)
}

/// Returns the plugin's source with the hook command in it.
pub(super) fn plugin(hook: &Hook<'_>) -> String {
    let args = Value::Array(hook.args().into_iter().map(Value::Text).collect());
    PLUGIN
        .replace("\"@BINARY@\"", &quoted(hook.binary))
        .replace("[\"@ARGS@\"]", &args.compact(true))
        .replace("\"@STRICT@\"", if hook.strict { "true" } else { "false" })
}

/// Whether `text` is stepback's plugin, of any release.
pub(super) fn is_ours(text: &[u8]) -> bool {
    let first_line = PLUGIN.lines().next().unwrap_or(PLUGIN).split(':').next().unwrap_or(PLUGIN);
    text.starts_with(first_line.as_bytes())
}
