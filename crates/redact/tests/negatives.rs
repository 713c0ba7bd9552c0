//! What looks like a secret and is none.

use serde_json::json;
use std::borrow::Cow;
use std::path::Path;
use stepback_redact::{redact, redact_value};

const HARMLESS: &[&str] = &[
    "commit da39a3ee5e6b4b0d3255bfef95601890afd80709 (HEAD -> main)",
    "checksum = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"",
    "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    "\"session_id\":\"0198c2f0-7d3e-7a41-b0a2-3d5f6b7c8d9e\"",
    "sessionId=0198c2f0-7d3e-7a41-b0a2-3d5f6b7c8d9e",
    "\"tool_use_id\":\"toolu_01A09q90qw90lq917835lq9X\"",
    "{\"id\":\"call_9aXk2LmQ7vRb3TzYcWdE5fGh\",\"type\":\"function\"}",
    "msg_01XFDUDYJgAACzvnptvVoYEL req_011CSHoEeqs5C35K2UUqR7Fy",
    "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
    "\"integrity\": \"sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg==\"",
    "golang.org/x/sys v0.1.0 h1:kunALQeHf1/185U1i0GOB/fy1IPRDDpuoOOqRReG57U=",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGmGsFmVKMcWaeSdPJXq1tc3Ks1H7oKJ0xxQ6mS8v5xy me@host",
    "SHA256:n9VZb2Ul1sY0p8ZcVQ3sTqXhVdRbN5PqkX7uWmE2c4A",
    "let token = parser.next();",
    "let token = parser.next()?;",
    "let token2 = tokens[0];",
    "password: String,",
    "password: Option<String>,",
    "pub secret: [u8; 32],",
    "token: Uint8Array;",
    "token: u64, secret: Sha256, key: Ed25519",
    "secret = os.environ[\"APP_SECRET2\"]",
    "secret = os.environ.get('APP_SECRET2')",
    "const token = process.env.GITHUB_TOKEN;",
    "token: ${TOKEN}",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "token: {{ .Values.token1 }}",
    "<password>",
    "PASSWORD=<password>",
    "api_key = \"YOUR_API_KEY\"",
    "api_key = \"your-api-key-here-123\"",
    "OPENAI_API_KEY=sk-...",
    "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "password = \"changeme\"",
    "password=self.password, token=self.token2",
    "connect(host=host, password=password, token=token1)",
    "password: 'Password is required'",
    "\"password\": \"Password\"",
    "label: \"Enter your password\", secret: \"none\"",
    "<input type=\"password\" name=\"password\" id=\"password1\">",
    "if password == \"hunter2\" {",
    "max_tokens: 4096, \"input_tokens\": 12345, total_tokens=99999999",
    "\"cache_creation_input_tokens\":1234567890,\"output_tokens\":512",
    "next_token: abc123def456ghi, page_token=CAEQAA12345678",
    "fn token_at(view: &View<'_>, at: usize) -> Option<Found>",
    "Token::Ident(\"abc123def456\")",
    "public_key: \"0a1b2c3d4e5f60718293a4b5c6d7e8f9\"",
    "primary_key=user_id_12345678 cache_key: v1-npm-0a1b2c3d4e5f",
    "password_hint: 'rover 1999 dog' password_min_length=12",
    "token_type: \"Bearer\", token_url: https://example.com/oauth2/token1",
    "auth: oauth2 author: me1234567",
    "/home/me/.config/secret/token1/file.txt",
    "SSH_KEY=/home/me/.ssh/id_ed25519",
    "SECRET_KEY_FILE=/run/secrets/django_1",
    "node_modules/.pnpm/@babel+core@7.24.0/node_modules/@babel/core/lib/index.js",
    "src/components/AuthTokenProvider/AuthTokenProvider2.tsx",
    "!function(e,t){var n=e.r2d2,o=t.aBcDeF12;return n(o)}(this,r4)",
    "pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    "ThisIsAVeryLongCamelCaseIdentifierThatSomebodyWrote2TimesInJava",
    "https://example.com/path/to/resource?id=123&page=4",
    "version 1.2.3-beta.4+build.20240101 rustc 1.95.0 (59807616e 2026-04-14)",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod",
    "key-value store, sk-learn-contrib, api-gateway-service-name-v2",
    "The token: a word. The secret: practice. The password: nothing at all.",
    "re_export_all_of_the_public_items2 hf_transfer npm_config_registry",
    "gpt-4o-mini-2024-07-18 claude-sonnet-4-20250514",
    "AKIAIOSFODNN7EXAMPLE",
    "arn:aws:iam::123456789012:role/MyRole",
    "2026-11-15T22:59:52.123456789Z 10.0.0.1:5432 [::1]:8080",
    "pub use token::{Token1, Secret2}; mod password;",
    "E0308: mismatched types --> src/auth.rs:10:5:foo",
    "Basic usage: see below. bearer of bad news12345678901234",
    "secretName: my-app-secret-v1-abc",
    "export PATH=/usr/local/bin:$PATH EDITOR=vim LANG=en_US.UTF-8",
    "\"signature\":\"EqQBCkYIBRgCKkBWvxHLnZ9vJm0\"",
    "diff --git a/x b/x index 83db48f..bf3a1c2 100644",
    "Grüße, 世界 🎉 – token: « néant » 密码：無",
    "",
];

#[test]
fn harmless_text_is_borrowed() {
    for text in HARMLESS {
        assert!(matches!(redact(text), Cow::Borrowed(_)), "{text:?} became {:?}", redact(text));
        let escaped = serde_json::to_string(text).unwrap();
        assert_eq!(redact(&escaped), escaped);
    }
}

#[test]
fn values_of_json() {
    let mut value = json!({
        "password": "hunter2", "apiKey": "0a1b2c3d4e5f60718293a4b5", "answer": "hunter2",
        "headers": {"Authorization": "Bearer abcDEF123456ghiJKL789", "Cookie": "a=b12; c=d34", "Set-Cookie": "a=b12; Path=/"},
        "env": [{"name": "DB_PASSWORD", "value": "swordfish"}, {"name": "HOME", "value": "swordfish"}],
        "args": ["--password", "hunter2", "--verbose", "hunter2"],
        "command": "PGPASSWORD=hunter2 psql",
        "input": "{\"secret\": \"hunter2x\"}",
        "max_tokens": 100, "token": null, "session_id": "0198c2f0-7d3e-7a41-b0a2-3d5f6b7c8d9e",
    });
    assert_eq!(redact_value(&mut value), 9);
    assert_eq!(
        value,
        json!({
            "password": "[redacted:password]", "apiKey": "[redacted:api-key]", "answer": "hunter2",
            "headers": {"Authorization": "Bearer [redacted:bearer-token]", "Cookie": "[redacted:cookie]", "Set-Cookie": "a=[redacted:cookie]; Path=/"},
            "env": [{"name": "DB_PASSWORD", "value": "[redacted:database-password]"}, {"name": "HOME", "value": "swordfish"}],
            "args": ["--password", "[redacted:password]", "--verbose", "hunter2"],
            "command": "PGPASSWORD=[redacted:password] psql",
            "input": "{\"secret\": \"[redacted:secret]\"}",
            "max_tokens": 100, "token": null, "session_id": "0198c2f0-7d3e-7a41-b0a2-3d5f6b7c8d9e",
        })
    );
    assert_eq!(redact_value(&mut value), 0);
}

/// Every file below `directory` that ends with `ending`, without this crate's own, what was built, and tests that hold secrets on
/// purpose.
fn files(directory: &Path, ending: &str, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if !path.ends_with("crates/redact") && !path.ends_with("target") {
                files(&path, ending, found);
            }
        } else if path.to_string_lossy().ends_with(ending) && !path.to_string_lossy().ends_with("_secrets.rs")
        {
            found.push(path);
        }
    }
}

#[test]
fn the_projects_own_sources_hold_no_secret() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found = vec![root.join("Cargo.lock"), root.join("Cargo.toml"), root.join("README.md")];
    files(&root.join("crates"), ".rs", &mut found);
    files(&root.join("docs"), ".md", &mut found);
    assert!(found.len() > 50);
    let mut wrong = String::new();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let clean = redact(&text);
        for (before, after) in text.lines().zip(clean.lines()).filter(|(before, after)| before != after) {
            wrong += &format!("{}:\n  {before}\n  {after}\n", path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
