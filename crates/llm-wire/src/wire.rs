//! The wires (API formats of model providers), and which one a request uses.

use serde::{Deserialize, Serialize};

/// The API format of a model provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Anthropic Messages: `POST …/v1/messages`.
    Messages,
    /// OpenAI Chat Completions: `POST …/chat/completions`.
    Chat,
    /// OpenAI Responses: `POST …/responses`.
    Responses,
    /// Gemini: `POST …/models/MODEL:generateContent` or `:streamGenerateContent`.
    Gemini,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 4] = [Self::Messages, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns the stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// Returns the wire that a request uses; `None` for any request that asks no model.
    pub fn of(method: &str, path: &str) -> Option<Self> {
        if method != "POST" {
            return None;
        }
        let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let last = path.rsplit('/').next().unwrap_or_default();
        if last == "messages" {
            Some(Self::Messages)
        } else if path.ends_with("/chat/completions") || path == "chat/completions" {
            Some(Self::Chat)
        } else if last == "responses" {
            Some(Self::Responses)
        } else if last.ends_with(":generateContent") || last.ends_with(":streamGenerateContent") {
            Some(Self::Gemini)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_every_wire() {
        let known = [
            ("/v1/messages?beta=true", Wire::Messages),
            ("/anthropic/v1/messages/", Wire::Messages),
            ("/v1/chat/completions", Wire::Chat),
            ("/openai/deployments/mine/chat/completions?api-version=1", Wire::Chat),
            ("/v1/responses", Wire::Responses),
            ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", Wire::Gemini),
            ("/v1internal:generateContent", Wire::Gemini),
        ];
        for (path, wire) in known {
            assert_eq!(Wire::of("POST", path), Some(wire), "{path}");
            assert_eq!(Wire::of("GET", path), None, "{path}");
        }
        for path in [
            "/",
            "",
            "/v1/messages/count_tokens",
            "/v1/completions",
            "/v1/models/m:countTokens",
            "/v1/responses/r1",
        ] {
            assert_eq!(Wire::of("POST", path), None, "{path}");
        }
    }
}
