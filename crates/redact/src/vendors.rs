//! The vendors whose secrets a name announces.
//!
//! Many vendors' keys look like any digest, so only the name in front can identify them. The list also decides about bare
//! `_KEY`: `DATADOG_KEY` is a secret, `SORT_KEY` is not.

use crate::names::{Family, is_one_of};

/// Vendors by the part of a name that identifies them, with the kind of their secrets.
#[rustfmt::skip]
const VENDORS: &[(&str, &str)] = &[
    ("algolia", "algolia-key"), ("amplitude", "amplitude-key"), ("anthropic", "anthropic-key"),
    ("airtable", "airtable-token"), ("asana", "asana-token"), ("assemblyai", "assemblyai-key"),
    ("atlassian", "atlassian-token"), ("auth0", "auth0-secret"), ("azure", "azure-key"),
    ("binance", "binance-key"), ("bitbucket", "bitbucket-token"), ("braintree", "braintree-token"),
    ("bugsnag", "bugsnag-key"), ("circleci", "circleci-token"), ("cloudflare", "cloudflare-token"),
    ("cloudinary", "cloudinary-secret"), ("codecov", "codecov-token"), ("cohere", "cohere-key"),
    ("coinbase", "coinbase-key"), ("confluence", "atlassian-token"), ("confluent", "confluent-key"),
    ("consul", "consul-token"), ("coveralls", "coveralls-token"), ("datadog", "datadog-key"),
    ("dd", "datadog-key"), ("deepgram", "deepgram-key"), ("deepseek", "deepseek-key"),
    ("digitalocean", "digitalocean-token"), ("discord", "discord-token"), ("django", "django-secret-key"),
    ("dockerhub", "docker-token"), ("dropbox", "dropbox-token"), ("elastic", "elastic-key"),
    ("elevenlabs", "elevenlabs-key"), ("eth", "wallet-key"), ("ethereum", "wallet-key"),
    ("facebook", "facebook-token"), ("fastly", "fastly-token"), ("figma", "figma-token"),
    ("firebase", "firebase-key"), ("fireworks", "fireworks-key"), ("fly", "fly-token"),
    ("gemini", "google-api-key"), ("github", "github-token"), ("gitlab", "gitlab-token"),
    ("grafana", "grafana-token"), ("groq", "groq-key"), ("heroku", "heroku-key"),
    ("honeycomb", "honeycomb-key"), ("hubspot", "hubspot-token"), ("intercom", "intercom-token"),
    ("jira", "jira-token"), ("kaggle", "kaggle-key"), ("launchdarkly", "launchdarkly-key"),
    ("linkedin", "linkedin-secret"), ("mailchimp", "mailchimp-key"), ("mailgun", "mailgun-key"),
    ("mapbox", "mapbox-token"), ("messagebird", "messagebird-key"), ("mistral", "mistral-key"),
    ("mixpanel", "mixpanel-secret"), ("netlify", "netlify-token"), ("newrelic", "newrelic-key"),
    ("nomad", "nomad-token"), ("notion", "notion-token"), ("npm", "npm-token"), ("nuget", "nuget-key"),
    ("okta", "okta-token"), ("openai", "openai-key"), ("openrouter", "openrouter-key"),
    ("opsgenie", "opsgenie-key"), ("pagerduty", "pagerduty-key"), ("paypal", "paypal-secret"),
    ("perplexity", "perplexity-key"), ("pinecone", "pinecone-key"), ("plaid", "plaid-secret"),
    ("posthog", "posthog-key"), ("postmark", "postmark-token"), ("qdrant", "qdrant-key"),
    ("rails", "rails-master-key"), ("railway", "railway-token"), ("reddit", "reddit-secret"),
    ("replicate", "replicate-token"), ("rollbar", "rollbar-token"), ("salesforce", "salesforce-secret"),
    ("segment", "segment-key"), ("sendgrid", "sendgrid-key"), ("sentry", "sentry-token"),
    ("serpapi", "serpapi-key"), ("shopify", "shopify-secret"), ("slack", "slack-token"),
    ("snyk", "snyk-token"), ("spotify", "spotify-secret"), ("square", "square-token"),
    ("stripe", "stripe-key"), ("supabase", "supabase-key"), ("telegram", "telegram-bot-token"),
    ("together", "together-key"), ("travis", "travis-token"), ("twilio", "twilio-key"),
    ("twitch", "twitch-secret"), ("twitter", "twitter-secret"), ("vault", "vault-token"),
    ("vercel", "vercel-token"), ("wallet", "wallet-key"), ("wandb", "wandb-key"),
    ("weaviate", "weaviate-key"), ("xai", "xai-key"), ("zendesk", "zendesk-token"),
    ("zoom", "zoom-secret"),
];

/// Whether `part` of a name identifies a vendor.
pub fn is_vendor(part: &[u8]) -> bool {
    VENDORS.iter().any(|(vendor, _)| part.eq_ignore_ascii_case(vendor.as_bytes()))
}

/// Returns the kind of the secret that `parts` name, if the name identifies a vendor.
pub fn kind(parts: &[&[u8]], family: Family) -> Option<&'static str> {
    let has = |words: &[&str]| parts.iter().any(|part| is_one_of(part, words));
    if has(&["aws", "s3"]) || has(&["secret"]) && has(&["access"]) && has(&["key"]) {
        return Some(if has(&["session"]) { "aws-session-token" } else { "aws-secret-key" });
    }
    if has(&["relic"]) {
        return Some("newrelic-key");
    }
    if has(&["account", "shared"]) && has(&["key"]) {
        return Some("azure-storage-key");
    }
    if family == Family::Password {
        let database =
            ["db", "database", "pg", "postgres", "postgresql", "mysql", "mongo", "mongodb", "redis"];
        return has(&database).then_some("database-password");
    }
    if has(&["client"]) && has(&["secret"]) {
        return Some("client-secret");
    }
    VENDORS
        .iter()
        .find(|(vendor, _)| parts.iter().any(|part| part.eq_ignore_ascii_case(vendor.as_bytes())))
        .map(|(_, kind)| *kind)
}
