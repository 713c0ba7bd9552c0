//! opencode: stepback's plugin file `plugin/stepback.js`, in the project's `.opencode` or in the user's configuration.

use std::path::PathBuf;

use super::value::{Value, quote_json};
use super::{HookCommand, InstallScope, SettingsPaths};

const PLUGIN: &str = include_str!("opencode.js");

/// File name of the plugin.
pub(super) const NAME: &str = "stepback.js";

pub(super) fn plugin_file(scope: InstallScope, paths: &SettingsPaths) -> PathBuf {
    let dir = match scope {
        InstallScope::Project => paths.workspace.join(".opencode"),
        InstallScope::User => paths.opencode_config_dir.clone(),
    };
    dir.join("plugin").join(NAME)
}

/// Returns the plugin's source with the hook command in it.
pub(super) fn render_plugin(hook: &HookCommand<'_>) -> String {
    let args = Value::Array(hook.args().into_iter().map(Value::Text).collect());
    PLUGIN
        .replace("\"@BINARY@\"", &quote_json(hook.binary))
        .replace("[\"@ARGS@\"]", &args.to_compact_string(true))
        .replace("\"@STRICT@\"", if hook.strict { "true" } else { "false" })
}

/// Whether `text` is stepback's plugin, of any release.
pub(super) fn is_own_plugin(text: &[u8]) -> bool {
    let first_line = PLUGIN.lines().next().unwrap_or(PLUGIN).split(':').next().unwrap_or(PLUGIN);
    text.starts_with(first_line.as_bytes())
}
