//! The prices of models: the built-in table with the user's own prices.

use std::io;
use std::path::Path;

use stepback_llm_wire::prices::Prices;
use stepback_model::hash::{Hash, ObjectKind};

use crate::error::AnalysisError;

/// The name of the file with the user's own prices, in the directory of the store on this machine.
const FILE: &str = "prices.json";

/// Returns a number that is the same while the prices are: of the date of the built-in table and the bytes of the user's own.
pub fn fingerprint_prices(directory: Option<&Path>) -> u64 {
    let own = directory.and_then(|directory| std::fs::read(directory.join(FILE)).ok()).unwrap_or_default();
    let text = [Prices::table_date().as_bytes(), &own].concat();
    let hash = Hash::of(ObjectKind::Blob, &text);
    hash.as_bytes().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

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
