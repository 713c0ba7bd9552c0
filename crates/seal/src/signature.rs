//! Keys, and the bytes that are signed.
//!
//! The signature is over the canonical bytes of the seal: JSON without white space, with the members of every object in
//! order of their names. The file may be formatted in any way. Keys are files in PEM form (PKCS #8), as other tools write and
//! read them (`openssl genpkey -algorithm ed25519`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Map, Value, json};
use stepback_model::hex;

use crate::document::{Seal, SealError};

/// The format of seals.
pub const VERSION: u64 = 1;

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// A private key.
pub struct SealKey(Ed25519KeyPair);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealKey({})", self.public())
    }
}

/// A public key: 32 bytes, written as hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Parses 64 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode_array(text.trim().as_bytes()).map(Self)
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl SealKey {
    /// Makes a new key, and returns it as the text of a file.
    pub fn generate() -> Result<String, SealError> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| SealError::Key("the system gave no random numbers".into()))?;
        let encoded = STANDARD.encode(pkcs8.as_ref());
        let mut text = format!("{PEM_BEGIN}\n");
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            // Base64 is ASCII.
            let (line, remaining) = rest.split_at(rest.len().min(64));
            text += line;
            text.push('\n');
            rest = remaining;
        }
        Ok(text + PEM_END + "\n")
    }

    /// Reads the text of a file in PEM form.
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let invalid_key = |what: &str| SealError::Key(what.into());
        let inside = text.split_once(PEM_BEGIN).and_then(|(_, rest)| rest.split_once(PEM_END));
        let (inside, _) =
            inside.ok_or_else(|| invalid_key("it is not an Ed25519 private key in PEM form (PKCS #8)"))?;
        let encoded: String = inside.split_whitespace().collect();
        let pkcs8 = STANDARD.decode(encoded).map_err(|error| invalid_key(&error.to_string()))?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8);
        key.map(Self).map_err(|error| invalid_key(&format!("it is not an Ed25519 key ({error})")))
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Signs a seal.
    pub fn sign(&self, seal: &Seal) -> Result<SignedSeal, SealError> {
        let body = serde_json::to_value(seal).map_err(|error| SealError::Malformed(error.to_string()))?;
        let signature = self.0.sign(&signed_bytes(&body));
        Ok(SignedSeal {
            seal: seal.clone(),
            body,
            public_key: self.public(),
            signature: signature.as_ref().to_vec(),
        })
    }
}

/// A seal with its signature, which may not have been verified.
#[derive(Clone, Debug)]
pub struct SignedSeal {
    /// What it says.
    pub seal: Seal,
    /// The key that it names as its own.
    pub public_key: PublicKey,
    /// The seal as it was read, with fields that this version does not know: they are signed, too.
    body: Value,
    signature: Vec<u8>,
}

impl SignedSeal {
    /// Its text in a file: JSON with one line for each session.
    pub fn to_text(&self) -> String {
        let document = json!({
            "stepback_seal": VERSION,
            "public_key": self.public_key.to_string(),
            "signature": hex::encode(&self.signature),
            "seal": self.body,
        });
        // A JSON value with string keys always serialises.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    /// Reads a file. The signature is not verified.
    pub fn parse(text: &[u8]) -> Result<Self, SealError> {
        let malformed = |what: &str| SealError::Malformed(what.into());
        let document: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| malformed(&error.to_string()))?;
        let version = document.get("stepback_seal").and_then(Value::as_u64);
        match version.ok_or_else(|| malformed("it has no field \"stepback_seal\""))? {
            VERSION => {}
            found => return Err(SealError::Newer { found, known: VERSION }),
        }
        let text_of = |name: &str| document.get(name).and_then(Value::as_str);
        let public_key = text_of("public_key").and_then(PublicKey::parse);
        let signature = text_of("signature").and_then(hex::decode);
        let body = document.get("seal").cloned().ok_or_else(|| malformed("it has no field \"seal\""))?;
        Ok(Self {
            seal: serde_json::from_value(body.clone()).map_err(|error| malformed(&error.to_string()))?,
            public_key: public_key.ok_or_else(|| malformed("it has no public key"))?,
            body,
            signature: signature.ok_or_else(|| malformed("it has no signature"))?,
        })
    }

    /// Fails unless the seal was signed with the private half of `key`.
    pub fn verify(&self, key: PublicKey) -> Result<(), SealError> {
        UnparsedPublicKey::new(&ED25519, key.0)
            .verify(&signed_bytes(&self.body), &self.signature)
            .map_err(|_| SealError::Signature)
    }
}

/// The bytes that are signed: a line that says what they are, and the canonical bytes of the seal.
fn signed_bytes(body: &Value) -> Vec<u8> {
    let mut text = format!("stepback seal {VERSION}\n");
    write_canonical(body, &mut text);
    text.into_bytes()
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            text.push('{');
            for (index, name) in names.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                *text += &Value::from(name.as_str()).to_string();
                text.push(':');
                write_canonical(&members[name], text);
            }
            text.push('}');
        }
        scalar => *text += &scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{SealedOperations, SealedReferences};
    use stepback_model::ids::WorkspaceId;
    use stepback_model::time::Timestamp;

    fn seal() -> Seal {
        Seal {
            sealed_at: Timestamp::from_micros(1_700_000_000_000_000),
            workspace: WorkspaceId::from_bytes([1; 16]),
            steps: 3,
            sessions: Vec::new(),
            operations: SealedOperations::default(),
            references: SealedReferences::default(),
            known_breaks: vec!["a \"quoted\" text".into()],
        }
    }

    #[test]
    fn a_seal_survives_reformatting_and_no_other_change() {
        let key = SealKey::parse(&SealKey::generate().unwrap()).unwrap();
        let signed = key.sign(&seal()).unwrap();
        let text = signed.to_text();
        let read = |text: &str| SignedSeal::parse(text.as_bytes()).unwrap();
        assert_eq!(read(&text).seal, seal());
        read(&text).verify(key.public()).unwrap();
        let compact: Value = serde_json::from_str(&text).unwrap();
        read(&compact.to_string()).verify(key.public()).unwrap();
        assert!(read(&text.replace("\"steps\": 3", "\"steps\": 4")).verify(key.public()).is_err());
        let other = SealKey::parse(&SealKey::generate().unwrap()).unwrap();
        assert!(read(&text).verify(other.public()).is_err());
        // A field that this version does not know is signed as well.
        assert!(
            read(&text.replace("\"steps\": 3", "\"steps\": 3, \"more\": 1")).verify(key.public()).is_err()
        );
    }

    /// A key in PEM format with this content.
    fn pem(content: &str) -> String {
        format!("{PEM_BEGIN}\n{content}\n{PEM_END}\n")
    }

    #[test]
    fn what_is_no_seal_is_refused() {
        let newer = r#"{"stepback_seal": 2, "seal": {}}"#;
        assert!(matches!(SignedSeal::parse(newer.as_bytes()), Err(SealError::Newer { found: 2, .. })));
        for text in
            ["", "[]", "{}", r#"{"stepback_seal": 1}"#, r#"{"stepback_seal": 1, "seal": {"steps": 1}}"#]
        {
            assert!(matches!(SignedSeal::parse(text.as_bytes()), Err(SealError::Malformed(_))), "{text}");
        }
        assert!(SealKey::parse(&pem("AAAA")).is_err());
    }

    /// A key that OpenSSL made (`openssl genpkey -algorithm ed25519`).
    #[test]
    fn keys_of_other_tools_are_read() {
        let text = pem("MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC");
        let expected = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";
        assert_eq!(SealKey::parse(&text).unwrap().public().to_string(), expected);
    }
}
