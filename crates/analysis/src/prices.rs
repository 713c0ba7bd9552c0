//! The prices of models: the built-in table with the user's own prices.

use std::io;
use std::path::Path;

use stepback_llm_wire::prices::Prices;

use crate::error::AnalysisError;

/// The name of the file with the user's own prices, in the directory of the store on this machine.
const FILE: &str = "prices.json";

/// Returns the built-in prices with the user's own from `prices.json` in a directory, if there is one.
pub fn load_prices(directory: Option<&Path>) -> Result<Prices, AnalysisError> {
    let Some(path) = directory.map(|directory| directory.join(FILE)) else { return Ok(Prices::built_in()) };
    let wrong = |reason: String| AnalysisError::Prices { path: path.clone(), reason };
    match std::fs::read(&path) {
        Ok(bytes) => {
            let own = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
            Prices::built_in().with(&own).map_err(wrong)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Prices::built_in()),
        Err(error) => Err(wrong(error.to_string())),
    }
}
