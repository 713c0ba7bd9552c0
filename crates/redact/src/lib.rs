//! Secrets are taken out of text before it is hashed or stored.
