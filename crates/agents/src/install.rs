//! Putting our hooks into an agent's own settings, and taking them out again.
