//! Signs requests to S3: AWS Signature Version 4, for requests whose whole body is known.

use std::fmt::Write as _;

use ring::{digest, hmac};
use stepback_model::hex;

/// What a request is signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct BucketCredentials {
    /// The id of the access key.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for BucketCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketCredentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// A request, as far as the signature covers it.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, with reserved characters escaped.
    pub path: &'a str,
    /// The query: names and values, not escaped.
    pub query: &'a [(&'a str, &'a str)],
    /// The headers to be sent, with names in lower case; `host`, the date and the hash of the body are among them.
    pub headers: &'a [(String, String)],
    /// The SHA-256 of the body, in hex.
    pub body_hash: &'a str,
    /// The time, as `YYYYMMDDTHHMMSSZ`.
    pub time: &'a str,
    /// The region of the bucket.
    pub region: &'a str,
}

/// The SHA-256 of bytes, in hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Escapes everything but unreserved characters.
pub fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The query of an address, in the order that the signature needs.
pub fn query_text(query: &[(&str, &str)]) -> String {
    let mut pairs: Vec<String> =
        query.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
    pairs.sort();
    pairs.join("&")
}

impl SignedRequest<'_> {
    /// The value of the header `authorization`.
    pub fn authorization(&self, credentials: &BucketCredentials) -> String {
        let mut headers = self.headers.to_vec();
        headers.sort();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let request = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{}",
            self.method,
            self.path,
            query_text(self.query),
            self.body_hash
        );
        let date = self.time.get(..8).unwrap_or_default();
        let scope = format!("{date}/{}/s3/aws4_request", self.region);
        let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", self.time, sha256_hex(request.as_bytes()));
        let mut key = format!("AWS4{}", credentials.secret_key).into_bytes();
        for part in [date, self.region, "s3", "aws4_request"] {
            key = mac(&key, part.as_bytes());
        }
        let signature = hex::encode(&mac(&key, text.as_bytes()));
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            credentials.access_key
        )
    }
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the documentation of Amazon S3, "Signature calculations: transferring payload in a single chunk".
    fn documented(query: &[(&str, &str)], path: &str, more: &[(&str, &str)]) -> String {
        let body_hash = sha256_hex(b"");
        let mut headers = vec![
            ("host".to_owned(), "examplebucket.s3.amazonaws.com".to_owned()),
            ("x-amz-content-sha256".to_owned(), body_hash.clone()),
            ("x-amz-date".to_owned(), "20130524T000000Z".to_owned()),
        ];
        headers.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let request = SignedRequest {
            method: "GET",
            path,
            query,
            headers: &headers,
            body_hash: &body_hash,
            time: "20130524T000000Z",
            region: "us-east-1",
        };
        let credentials = BucketCredentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let text = request.authorization(&credentials);
        text.rsplit_once('=').map(|(_, signature)| signature.to_owned()).unwrap_or_default()
    }

    #[test]
    fn signatures_are_those_of_the_documentation() {
        assert_eq!(
            documented(&[], "/test.txt", &[("range", "bytes=0-9")]),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(
            documented(&[("max-keys", "2"), ("prefix", "J")], "/", &[]),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn queries_are_escaped_and_sorted() {
        assert_eq!(query_text(&[("prefix", "a/b c"), ("list-type", "2")]), "list-type=2&prefix=a%2Fb%20c");
    }
}
