//! Secrets by shape, by name and by place: each is found, is called what it is, and leaves what is around it.

mod support;

use stepback_redact::redact;
use support::{HEX, MIXED, draw};

#[track_caller]
fn becomes(text: &str, expected: &str) {
    let once = redact(text);
    assert_eq!(once, expected);
    assert_eq!(redact(&once), once, "not the same a second time");
}

#[track_caller]
fn untouched(text: &str) {
    assert_eq!(redact(text), text);
}

#[test]
fn environment_dumps() {
    let key = draw(MIXED, 40, 1);
    let hex = draw(HEX, 32, 2);
    let uuid = "3f0c2a9e-7b1d-4c55-9e0a-1f2b3c4d5e6f";
    for (name, value, kind) in [
        ("AWS_SECRET_ACCESS_KEY", key.as_str(), "aws-secret-key"),
        ("AWS_SESSION_TOKEN", &key, "aws-session-token"),
        ("DD_API_KEY", &hex, "datadog-key"),
        ("MISTRAL_API_KEY", &key, "mistral-key"),
        ("COHERE_API_KEY", &key, "cohere-key"),
        ("HEROKU_API_KEY", uuid, "heroku-key"),
        ("CLOUDFLARE_API_TOKEN", &key, "cloudflare-token"),
        ("PAGERDUTY_TOKEN", &key, "pagerduty-key"),
        ("OKTA_API_TOKEN", &key, "okta-token"),
        ("AUTH0_CLIENT_SECRET", &key, "client-secret"),
        ("TWILIO_AUTH_TOKEN", &hex, "twilio-key"),
        ("POSTMARK_SERVER_TOKEN", uuid, "postmark-token"),
        ("PAYPAL_CLIENT_SECRET", &key, "client-secret"),
        ("CONSUL_HTTP_TOKEN", uuid, "consul-token"),
        ("JIRA_API_TOKEN", &key, "jira-token"),
        ("NEW_RELIC_LICENSE_KEY", &key, "newrelic-key"),
        ("SNYK_TOKEN", uuid, "snyk-token"),
        ("VERCEL_TOKEN", &key, "vercel-token"),
        ("RAILS_MASTER_KEY", &hex, "rails-master-key"),
        ("DJANGO_SECRET_KEY", "p!9x-@k2^v)w0", "django-secret-key"),
        ("ETH_PRIVATE_KEY", &draw(HEX, 64, 3), "wallet-key"),
        ("WANDB_API_KEY", &draw(HEX, 40, 4), "wandb-key"),
        ("DB_PASSWORD", "swordfish", "database-password"),
        ("PGPASSWORD", "swordfish", "password"),
        ("SMTP_PASS", "x9!kd", "password"),
        ("SECRET_KEY_BASE", &hex, "api-key"),
        ("APP_SECRET", &hex, "secret"),
        ("GITHUB_PAT", &key, "github-token"),
        ("GOOGLE_CREDENTIALS", &key, "credentials"),
        ("SOME_ACCESS_KEY", &key, "api-key"),
        ("ENCRYPTION_KEY", &hex, "api-key"),
        ("API_KEY_PROD", &hex, "api-key"),
        ("STRIPE_SECRET_2", &key, "stripe-key"),
    ] {
        for (before, after) in
            [("", ""), ("export ", "\n"), ("A=1\n", "\nB=2"), ("{\"out\":\"A=1\\n", "\\nB=2\"}")]
        {
            let expected = format!("{before}{name}=[redacted:{kind}]{after}");
            let found = redact(&format!("{before}{name}={value}{after}")).into_owned();
            assert_eq!(found, expected);
        }
        becomes(&format!("{name}=\"{value}\""), &redact(&format!("{name}=\"{value}\"")));
        untouched(&format!("{name}=${{{name}}}"));
        untouched(&format!("{name}="));
        untouched(&format!("{name}=changeme"));
        untouched(&format!("{name}_FILE=/run/secrets/x1"));
    }
}

#[test]
fn pairs_in_every_dress() {
    becomes(r#"{"password": "hunter2"}"#, r#"{"password": "[redacted:password]"}"#);
    becomes(r#"{"password":"swordfish"}"#, r#"{"password":"[redacted:password]"}"#);
    becomes(r#"{\"password\":\"hunter2\"}"#, r#"{\"password\":\"[redacted:password]\"}"#);
    becomes(r#"{\\\"password\\\": \\\"hunter2\\\"}"#, r#"{\\\"password\\\": \\\"[redacted:password]\\\"}"#);
    becomes("password: hunter2\nuser: me", "password: [redacted:password]\nuser: me");
    becomes("password = 'hunter2'", "password = '[redacted:password]'");
    becomes(":password => 'hunter2'", ":password => '[redacted:password]'");
    becomes("config['password'] = 'hunter2'", "config['password'] = '[redacted:password]'");
    becomes("const PASSWORD: &str = \"hunter2\";", "const PASSWORD: &str = \"[redacted:password]\";");
    becomes("<password>hunter2</password>", "<password>[redacted:password]</password>");
    becomes("spring.datasource.password=hunter2", "spring.datasource.password=[redacted:password]");
    becomes("Server=x;Password=hunter2;Port=1", "Server=x;Password=[redacted:password];Port=1");
    becomes("f(user=\"me\", password=\"hunter2!\")", "f(user=\"me\", password=\"[redacted:password]\")");
    let key = draw(MIXED, 32, 5);
    becomes(&format!("apiKey: '{key}'"), "apiKey: '[redacted:api-key]'");
    becomes(&format!("api-key={key}&x=1"), "api-key=[redacted:api-key]&x=1");
    becomes(&format!("curl -H 'X-Api-Key: {key}'"), "curl -H 'X-Api-Key: [redacted:api-key]'");
    becomes(
        &format!("//registry.npmjs.org/:_authToken={key}"),
        "//registry.npmjs.org/:_authToken=[redacted:token]",
    );
    becomes(&format!("client_secret: \"{key}\""), "client_secret: \"[redacted:client-secret]\"");
    becomes(&format!("    token: {key}\n"), "    token: [redacted:token]\n");
    becomes(
        &format!("client-key-data: {}==", draw(MIXED, 600, 6)),
        "client-key-data: [redacted:kubernetes-client-key]",
    );
    let words = "legal winner thank year wave sausage worth useful legal winner thank yellow";
    becomes(&format!("mnemonic=\"{words}\""), "mnemonic=\"[redacted:wallet-mnemonic]\"");
    becomes("passphrase: 'correct horse battery staple'", "passphrase: '[redacted:passphrase]'");
}

#[test]
fn the_shape_of_a_value_says_more_than_its_name() {
    let token = format!("gh{}_{}", "p", draw(MIXED, 36, 7));
    becomes(&format!("MY_TOKEN={token}"), "MY_TOKEN=[redacted:github-token]");
    becomes(&format!("Authorization: Bearer {token}"), "Authorization: Bearer [redacted:github-token]");
    becomes(&format!("Authorization: token {token}"), "Authorization: token [redacted:github-token]");
    becomes(&format!("https://{token}@github.com/a/b"), "https://[redacted:github-token]@github.com/a/b");
    becomes(&format!("\\n{token}\\n"), "\\n[redacted:github-token]\\n");
    becomes(&format!("\x1b[31m{token}\x1b[0m"), "\x1b[31m[redacted:github-token]\x1b[0m");
    becomes(&format!("-{token}"), "-[redacted:github-token]");
    becomes(&format!("%3D{token}"), "%3D[redacted:github-token]");
    becomes(&format!("a {token}. B"), "a [redacted:github-token]. B");
}

#[test]
fn clouds() {
    let key = format!("{}==", draw(MIXED, 86, 8));
    becomes(
        &format!("DefaultEndpointsProtocol=https;AccountName=me;AccountKey={key};EndpointSuffix=x"),
        "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=[redacted:azure-storage-key];EndpointSuffix=x",
    );
    becomes(
        &format!("https://x.blob.core.windows.net/a?sv=2020&sig={}%3D&se=1", draw(MIXED, 43, 9)),
        "https://x.blob.core.windows.net/a?sv=2020&sig=[redacted:azure-sas-signature]&se=1",
    );
    becomes(
        &format!("X-Amz-Expires=60&X-Amz-Signature={}", draw(HEX, 64, 10)),
        "X-Amz-Expires=60&X-Amz-Signature=[redacted:presigned-url-signature]",
    );
    becomes(&format!("abc8Q~{} x", draw(MIXED, 34, 11)), "[redacted:azure-client-secret] x");
    becomes(
        &format!("aws_secret_access_key = {}/{}", draw(MIXED, 20, 12), draw(MIXED, 19, 13)),
        "aws_secret_access_key = [redacted:aws-secret-key]",
    );
    let secret = format!("{}/{}+{}", draw(MIXED, 13, 14), draw(MIXED, 12, 15), draw(MIXED, 13, 16));
    becomes(&format!("me,{secret}\n"), "me,[redacted:high-entropy]\n");
}

#[test]
fn tokens_made_of_parts() {
    let part = |length, seed| draw(MIXED, length, seed);
    becomes(&format!("t eyJ{}.eyJ{}.{} x", part(33, 1), part(60, 2), part(43, 3)), "t [redacted:jwt] x");
    untouched("eyJhbGciOiJIUzI1NiJ9");
    untouched("eyJhbGciOiJIUzI1NiJ9.payload.short");
    becomes(&format!("/bot123456789:AA{}/x", part(33, 4)), "/bot[redacted:telegram-bot-token]/x");
    becomes(&format!("/123456789:AA{}/x", part(33, 4)), "/[redacted:telegram-bot-token]/x");
    untouched(&format!("123456789:AB{}", "a".repeat(33)));
    becomes(&format!("'M{}.{}.{}'", part(23, 5), part(6, 6), part(27, 7)), "'[redacted:discord-bot-token]'");
    untouched("Mxxxxxxxxxxxxxxxxxxxxxxx.config.xxxxxxxxxxxxxxxxxxxxxxxxxxx");
    becomes(&format!("{}.atlasv1.{}", part(14, 8), part(67, 9)), "[redacted:terraform-token]");
    becomes(&format!("pat{}.{}", part(14, 10), draw(HEX, 64, 11)), "[redacted:airtable-token]");
    becomes(&format!("0/1234567890123456:{}", draw(HEX, 32, 12)), "[redacted:asana-token]");
    becomes(&format!("{}-us12", draw(HEX, 32, 13)), "[redacted:mailchimp-key]");
    untouched(&format!("{}-us-east", draw(HEX, 32, 13)));
    becomes(&format!("{}NRAL", draw(HEX, 36, 14)), "[redacted:newrelic-key]");
    becomes(&format!("AAAA{}:{}", part(7, 15), part(140, 16)), "[redacted:firebase-key]");
}

#[test]
fn headers_and_cookies() {
    let token = draw(MIXED, 40, 17);
    becomes(
        &format!("-H \"Authorization: Bearer {token}\""),
        "-H \"Authorization: Bearer [redacted:bearer-token]\"",
    );
    becomes(
        &format!("authorization: bearer {token}\r\n"),
        "authorization: bearer [redacted:bearer-token]\r\n",
    );
    becomes("Authorization: Basic YWRtaW46aHVudGVyMg==", "Authorization: Basic [redacted:basic-auth]");
    becomes(&format!("Authorization: SSWS 00{token}"), "Authorization: SSWS [redacted:okta-token]");
    becomes(&format!("\"Authorization\": \"{token}\""), "\"Authorization\": \"[redacted:authorization]\"");
    becomes("Cookie: a=b12; sid=xyz123\nHost: x", "Cookie: [redacted:cookie]\nHost: x");
    becomes("Set-Cookie: sid=xyz123; Path=/; Secure", "Set-Cookie: sid=[redacted:cookie]; Path=/; Secure");
    becomes(&format!("-b 'session={token}'"), "-b 'session=[redacted:high-entropy]'");
    becomes("\"auth\": \"YWRtaW46aHVudGVyMg==\"", "\"auth\": \"[redacted:docker-auth]\"");
    untouched("Basic authentication and Bearer authorization are schemes");
    untouched("Authorization: Bearer $TOKEN");
    untouched("Authorization: Bearer <token>");
    untouched("cookie: string; Cookie: none");
    untouched("let cookie = jar.get(name);");
}

#[test]
fn addresses() {
    becomes("postgres://me:p@ss@db:5432/x", "postgres://me:[redacted:url-password]@db:5432/x");
    becomes("DATABASE_URL=mysql://root:hunter2@h/x", "DATABASE_URL=mysql://root:[redacted:url-password]@h/x");
    becomes("redis://:hunter2@h:6379", "redis://:[redacted:url-password]@h:6379");
    becomes(
        &format!("SENTRY_DSN=https://{}@o1.ingest.sentry.io/2", draw(HEX, 32, 18)),
        "SENTRY_DSN=https://[redacted:sentry-dsn]@o1.ingest.sentry.io/2",
    );
    untouched("https://example.com/a:b@c");
    untouched("ssh://git@github.com/a/b.git");
    untouched("postgres://user:password@localhost/db");
    untouched("postgres://${USER}:${PASS}@host/db");
    untouched("http://localhost:8080/x?a=b@c");
}

#[test]
fn command_lines_and_files_of_passwords() {
    becomes("tool --password hunter2 -v", "tool --password [redacted:password] -v");
    becomes("tool --password=hunter2 -v", "tool --password=[redacted:password] -v");
    becomes("tool --password 'hunter2'", "tool --password '[redacted:password]'");
    becomes("mysql -u root -phunter2 db", "mysql -u root -p[redacted:password] db");
    becomes("sshpass -p hunter2 ssh h", "sshpass -p [redacted:password] ssh h");
    becomes("docker login -u me -p hunter2 r", "docker login -u me -p [redacted:password] r");
    becomes("curl -u me:hunter2 https://h", "curl -u me:[redacted:password] https://h");
    becomes("curl --user me:hunter2 https://h", "curl --user me:[redacted:password] https://h");
    becomes("redis-cli -a hunter2 ping", "redis-cli -a [redacted:password] ping");
    becomes("machine h login me password hunter2", "machine h login me password [redacted:netrc-password]");
    becomes("localhost:5432:db:me:hunter2\n", "localhost:5432:db:me:[redacted:pgpass-password]\n");
    becomes("CREATE USER x IDENTIFIED BY 'hunter2';", "CREATE USER x IDENTIFIED BY '[redacted:password]';");
    becomes("ALTER ROLE x WITH PASSWORD 'hunter2'", "ALTER ROLE x WITH PASSWORD '[redacted:password]'");
    becomes("the password is `hunter2`", "the password is `[redacted:password]`");
    untouched("mkdir -p src/deep1");
    untouched("docker run --user 1000:1000 -p 8080:80 image");
    untouched("tool --password-stdin < file1");
    untouched("tool --password $PASSWORD --token \"$TOKEN1\"");
    untouched("mysql -p -port3306");
    untouched("the password is required");
}

fn key_body(lines: usize, separator: &str) -> String {
    (0..lines).map(|n| draw(MIXED, 64, n as u64)).collect::<Vec<_>>().join(separator)
}

#[test]
fn private_keys() {
    for (label, kind) in [
        ("RSA PRIVATE KEY", "private-key"),
        ("EC PRIVATE KEY", "private-key"),
        ("DSA PRIVATE KEY", "private-key"),
        ("PRIVATE KEY", "private-key"),
        ("ENCRYPTED PRIVATE KEY", "private-key"),
        ("OPENSSH PRIVATE KEY", "ssh-private-key"),
        ("PGP PRIVATE KEY BLOCK", "pgp-private-key"),
    ] {
        for (before, newline) in
            [("", "\n"), ("", "\r\n"), ("{\"k\":\"", "\\n"), ("{\\\"k\\\":\\\"", "\\\\n"), ("KEY=", " ")]
        {
            let frame = |what: &str| format!("{}{} {label}{}", "-----", what, "-----");
            let end = format!("{newline}{}", frame("END"));
            let text =
                format!("{before}{}{newline}{}{newline}abc={end}", frame("BEGIN"), key_body(26, newline));
            let expected = format!("{before}{}{newline}[redacted:{kind}]{end}", frame("BEGIN"));
            becomes(&text, &expected);
            let cut =
                format!("{before}{}{newline}{}{newline}and so on.", frame("BEGIN"), key_body(3, newline));
            assert_eq!(
                redact(&cut),
                format!("{before}{}{newline}[redacted:{kind}]{newline}and so on.", frame("BEGIN"))
            );
        }
    }
    let begin = format!("-----{} RSA PRIVATE KEY-----", "BEGIN");
    let numbered =
        format!("     1→{begin}\n     2→{}\n     3→{}\n     4→-----END", key_body(1, ""), key_body(1, ""));
    becomes(&numbered, &format!("     1→{begin}\n     2→[redacted:private-key]\n     4→-----END"));
    let headers = format!(
        "{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{}\n-----END",
        key_body(2, "\n")
    );
    becomes(
        &headers,
        &format!(
            "{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n[redacted:private-key]\n-----END"
        ),
    );
    untouched(&format!("if text.contains(\"{begin}\") {{ return true; }}"));
    untouched(&format!("-----{} CERTIFICATE-----\n{}\n-----END", "BEGIN", key_body(2, "\n")));
    untouched(&format!("-----{} PUBLIC KEY-----\n{}\n-----END", "BEGIN", key_body(2, "\n")));
    let putty = format!("Private-Lines: 2\n{}\n{}\nPrivate-MAC: x", key_body(1, ""), key_body(1, ""));
    becomes(&putty, "Private-Lines: 2\n[redacted:putty-private-key]\nPrivate-MAC: x");
    let huge = format!("{begin}\n{}\n-----END", key_body(5000, "\n"));
    becomes(&huge, &format!("{begin}\n[redacted:private-key]\n-----END"));
}

#[test]
fn random_tokens_that_stand_alone() {
    let token = draw(MIXED, 40, 19);
    becomes(&format!("use {token} for it"), "use [redacted:high-entropy] for it");
    becomes(&format!("\"stdout\": \"{token}\\n\""), "\"stdout\": \"[redacted:high-entropy]\\n\"");
    untouched(&format!("\"requestId\": \"{token}\""));
    untouched(&format!("sha512-{token}"));
    untouched(&format!("data:image/png;base64,{token}"));
    untouched(&format!("/{token}/x"));
}

#[test]
fn tokens_of_letters_alone() {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let missed: Vec<String> = (0..500)
        .map(|seed| format!("hf_{}", draw(letters, 34, 1000 + seed)))
        .filter(|token| {
            redact(&format!("token is {token} here")) != "token is [redacted:huggingface-token] here"
        })
        .collect();
    assert!(missed.len() <= 2, "{} of 500: {missed:?}", missed.len());
    untouched("hf_ThisIsJustAVeryLongFunctionNameInCamelCase");
    untouched("def hf_convertTokenizerFromPretrainedModelHub(x):");
}

#[test]
fn assignments_without_a_sign() {
    let key = draw(MIXED, 32, 7);
    for (before, after) in
        [("ENV SECRET_KEY ", ""), ("FROM a\nENV APP_SECRET_KEY ", "\nRUN b"), ("  ENV\tAPI_KEY ", "")]
    {
        becomes(&format!("{before}{key}{after}"), &format!("{before}[redacted:api-key]{after}"));
    }
    becomes("ENV DB_PASSWORD hunter2\nRUN make", "ENV DB_PASSWORD [redacted:database-password]\nRUN make");
    becomes("ENV DB_PASSWORD \"hunter2\"", "ENV DB_PASSWORD \"[redacted:database-password]\"");
    becomes(
        "{\"content\":\"FROM a\\nENV DB_PASSWORD hunter2\\nRUN b\"}",
        "{\"content\":\"FROM a\\nENV DB_PASSWORD [redacted:database-password]\\nRUN b\"}",
    );
    becomes("setenv DB_PASSWORD hunter2", "setenv DB_PASSWORD [redacted:database-password]");
    becomes("set -gx DB_PASSWORD hunter2", "set -gx DB_PASSWORD [redacted:database-password]");
    becomes("3: ENV DB_PASSWORD hunter2", "3: ENV DB_PASSWORD [redacted:database-password]");
    untouched("ENV PATH /usr/local/bin:$PATH");
    untouched("ENV SECRET_KEY ${SECRET_KEY}");
    untouched("ENV SECRET_KEY $SECRET_KEY");
    untouched("ENV NODE_ENV production\nENV PORT 8080\nENV PUBLIC_KEY_FILE /etc/key.pem");
    untouched("the ENV PASSWORD variable is read");
    untouched("ENV API_KEY your-api-key-here");
}

#[test]
fn encoded_pairs() {
    for value in ["dXNlcjpodW50ZXIy", "bWU6cMOkc3N3w7ZydDEy", "Zm9vOmJhci9iYXo/cXV4", "QVdTOmV5SndZWGxz"] {
        becomes(
            &format!("{{\"auths\": {{\"https://index.docker.io/v1/\": {{\"auth\": \"{value}\"}}}}}}"),
            "{\"auths\": {\"https://index.docker.io/v1/\": {\"auth\": \"[redacted:docker-auth]\"}}}",
        );
        becomes(&format!("\\\"auth\\\": \\\"{value}\\\""), "\\\"auth\\\": \\\"[redacted:docker-auth]\\\"");
        becomes(&format!("Authorization: Basic {value}"), "Authorization: Basic [redacted:basic-auth]");
    }
    becomes("\"auth\": \"c29tZXRva2VuMTI=\"", "\"auth\": \"[redacted:docker-auth]\"");
    for value in ["c29tZXRva2VuMTIzNDU=", "ZGVhZGJlZWY0Mg==", "AbCdEfGh1234"] {
        for header in [
            "Authorization: Basic ",
            "authorization: basic ",
            "Proxy-Authorization: Basic ",
            "\"Authorization\": \"Basic ",
        ] {
            becomes(&format!("{header}{value}"), &format!("{header}[redacted:basic-auth]"));
        }
    }
    untouched("Authorization: Basic authentication is not supported");
    untouched("Authorization: Basic <credentials>");
    untouched("Authorization: Basic $TOKEN, Authorization: Basic ...");
    untouched("\"auth\": \"required\", \"auth\": \"oauth2\", auth: basic, \"auth\": \"none\"");
    untouched("Basic Understanding of Basic Typography and Basic Economics101");
}

#[test]
fn passwords_for_the_input_of_a_command() {
    let mark = "[redacted:piped-password]";
    for (text, expected) in [
        (
            "echo hunter2 | docker login -u me --password-stdin",
            "echo # | docker login -u me --password-stdin",
        ),
        (
            "echo -n hunter2 | docker login -u me --password-stdin r.io",
            "echo -n # | docker login -u me --password-stdin r.io",
        ),
        ("echo \"hunter2\" | sudo -S apt update", "echo \"#\" | sudo -S apt update"),
        ("echo 'correct horse' | sudo -kS id", "echo '#' | sudo -kS id"),
        ("printf 'hunter2\\n' | sudo -S id", "printf '#\\n' | sudo -S id"),
        ("printf '%s' hunter2 | sudo -S id", "printf '%s' # | sudo -S id"),
        (
            "printf \"%s\\n\" \"hunter2\" | gh auth login --with-token",
            "printf \"%s\\n\" \"#\" | gh auth login --with-token",
        ),
        ("echo root:hunter2 | chpasswd", "echo # | chpasswd"),
        ("cd a && echo hunter2|sudo -S make install", "cd a && echo #|sudo -S make install"),
        ("echo hunter2 | tee log | sudo -S id", "echo # | tee log | sudo -S id"),
        ("sudo -S id <<< hunter2", "sudo -S id <<< #"),
        ("sudo -S <<<'hunter2' id", "sudo -S <<<'#' id"),
        (
            "docker login -u me --password-stdin <<< \"hunter2\"",
            "docker login -u me --password-stdin <<< \"#\"",
        ),
        (
            "{\"command\":\"echo \\\"hunter2\\\" | sudo -S ls\"}",
            "{\"command\":\"echo \\\"#\\\" | sudo -S ls\"}",
        ),
        ("echo hunter2 | openssl enc -pass stdin", "echo # | openssl enc -pass stdin"),
    ] {
        becomes(text, &expected.replace('#', mark));
    }
    untouched("echo $PASSWORD | docker login --password-stdin");
    untouched("echo \"${TOKEN}\" | gh auth login --with-token");
    untouched("echo \"$(cat token)\" | docker login --password-stdin");
    untouched("cat ~/token | docker login --password-stdin");
    untouched("echo done | sudo tee /etc/motd");
    untouched("echo hello | grep -S x; sudo -S id");
    untouched("echo hello && sudo -S id");
    untouched("echo \"a | sudo -S b\"");
    untouched("printf '%s' \"$PASSWORD\" | sudo -S id");
    untouched("cat <<< hello; grep -S x <<< hello");
    untouched("echo '<password>' | docker login --password-stdin");
    untouched("use echo to print and printf to format text");
}
