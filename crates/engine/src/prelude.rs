//! What most programs that embed the engine need: `use stepback_engine::prelude::*;`.

pub use stepback_model::env::Env;
pub use stepback_model::record::{Annotation, StepRow, Trigger};

pub use crate::engine::Engine;
pub use crate::error::EngineError;
pub use crate::moves::{MoveReport, MoveRequest, PlannedMove};
pub use crate::system_env::SystemEnv;
pub use crate::workspace::Workspace;
