//! Ids: 128 random bits, shown as hex, shortened to a prefix for display.
//!
//! Random rather than time-ordered: ids made in the same minute must not share their first digits, because users type
//! those. Order comes from step and operation numbers.

use std::fmt;

/// Number of hex digits shown for display.
pub const SHORT_LEN: usize = 8;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Wraps raw bytes (from an id source or from storage).
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Wraps a slice read from storage; `None` unless it has exactly 16 bytes.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// The raw bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// Parses 32 hex digits.
            pub fn from_hex(text: &str) -> Option<Self> {
                crate::hex::decode_array(text.as_bytes()).map(Self)
            }

            /// The first digits, for display.
            pub fn short(&self) -> String {
                let mut text = self.to_string();
                text.truncate(SHORT_LEN);
                text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                crate::hex::write(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::from_text::from_text(deserializer, |text| {
                    Self::from_hex(text).ok_or("an id has 32 hex digits")
                })
            }
        }
    };
}

id_type!(
    /// The id of a workspace: a directory tree that agents work in.
    WorkspaceId
);
id_type!(
    /// The id of a session: one recorded run of one agent (or of the user) in one workspace.
    SessionId
);
id_type!(
    /// The id of a step; a checkpoint is a step that is kept, so it has the same id.
    StepId
);
id_type!(
    /// The id of an operation: something stepback itself did.
    OpId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_short_is_a_prefix() {
        let id = StepId::from_bytes([0xab; 16]);
        assert_eq!(StepId::from_hex(&id.to_string()), Some(id));
        assert!(id.to_string().starts_with(&id.short()));
        assert_eq!(StepId::from_hex("ab"), None);
    }
}
