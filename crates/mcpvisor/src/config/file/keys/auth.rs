//! Keys of authorization: ours, and those of other clients.

use super::{Key, Kind};

/// The grants that a config can name.
pub(in super::super) const GRANTS: [&str; 5] = [
    "authorization_code",
    "device_code",
    "client_credentials",
    "jwt_bearer",
    "enterprise",
];

/// Stores that a config can name.
pub(in super::super) const STORES: [&str; 3] = ["auto", "keyring", "file"];

/// When tokens are bound to a key.
pub(in super::super) const DPOP_MODES: [&str; 3] = ["auto", "always", "never"];

/// Fields that have a name of their own in other clients.
const CLIENT_ID: Kind = Kind::Text(|raw| &mut raw.auth.client_id);
const CLIENT_SECRET: Kind = Kind::Text(|raw| &mut raw.auth.client_secret);
const CALLBACK_PORT: Kind = Kind::Port(|raw| &mut raw.auth.callback_port);
const REDIRECT_URI: Kind = Kind::Text(|raw| &mut raw.auth.redirect_uri);
pub(super) const SCOPES: Kind = Kind::Scopes(|raw| &mut raw.auth.scopes);
pub(super) const RESOURCE: Kind = Kind::Text(|raw| &mut raw.auth.resource);
pub(super) const HEADERS_HELPER: Kind = Kind::CommandLine(|raw| &mut raw.auth.headers_helper);

/// Keys of `auth`.
pub(in super::super) const AUTH: &[Key] = &[
    Key::new(
        "account",
        Kind::Name(|raw| &mut raw.auth.account),
        "The account, where a server is used with several. Each has tokens and saved lists of its own.",
    ),
    Key::new(
        "grant",
        Kind::Choice(&GRANTS, |raw| &mut raw.auth.grant),
        "How tokens are obtained. Default: \"authorization_code\", a person logs in with a browser.",
    ),
    Key::new(
        "clientId",
        CLIENT_ID,
        "The id of a client that was registered beforehand.",
    ),
    Key::new(
        "clientSecretEnvVar",
        Kind::Name(|raw| &mut raw.auth.client_secret_env),
        "The variable that holds the client's secret; with \"jwt_bearer\", the assertion.",
    ),
    Key::new(
        "clientSecret",
        CLIENT_SECRET,
        "The client's secret; better write \"clientSecretEnvVar\". It is never shown.",
    ),
    Key::new(
        "privateKeyFile",
        Kind::Text(|raw| &mut raw.auth.private_key_file),
        "A PEM file with the client's private key, which replaces the secret (private_key_jwt).",
    ),
    Key::new(
        "clientMetadataUrl",
        Kind::Text(|raw| &mut raw.auth.client_metadata_url),
        "The https:// address of the client's metadata document, used as its id where the authorization server supports that.",
    ),
    Key::new(
        "scopes",
        SCOPES,
        "The scopes to request instead of those that the server names: a list, or one string with spaces.",
    ),
    Key::new(
        "resource",
        RESOURCE,
        "The \"resource\" parameter, instead of the one that the server names; \"\" omits it.",
    ),
    Key::new(
        "issuer",
        Kind::Text(|raw| &mut raw.auth.issuer),
        "The only authorization server to accept.",
    ),
    Key::new(
        "issuerException",
        Kind::Text(|raw| &mut raw.auth.issuer_exception),
        "Another name that the authorization server may state as its issuer.",
    ),
    Key::new(
        "callbackPort",
        CALLBACK_PORT,
        "The fixed port at which the browser's answer is expected. Default: any free port.",
    ),
    Key::new(
        "redirectUri",
        REDIRECT_URI,
        "The redirect URI, such as \"http://localhost:8123/callback\".",
    ),
    Key::new(
        "dpop",
        Kind::Choice(&DPOP_MODES, |raw| &mut raw.auth.dpop),
        "Whether the next login binds its tokens to a key (DPoP). Default: \"auto\", if the server asks for it and the authorization server supports it.",
    ),
    Key::new(
        "idp",
        Kind::Section(IDP),
        "The identity provider of the grant \"enterprise\".",
    ),
    Key::new(
        "headersHelper",
        HEADERS_HELPER,
        "A program and its arguments, run without a shell, that prints the headers to send as a JSON object, or a bare token. Replaces OAuth.",
    ),
    Key::new(
        "headersHelperTtl",
        Kind::MaybeDuration(|raw| &mut raw.auth.headers_helper_ttl),
        "How long the headers of the helper are used. Default: 5m.",
    ),
];

const IDP: &[Key] = &[
    Key::new(
        "issuer",
        Kind::Text(|raw| &mut raw.auth.idp.issuer),
        "The issuer of the identity provider.",
    ),
    Key::new(
        "tokenEndpoint",
        Kind::Text(|raw| &mut raw.auth.idp.token_endpoint),
        "Its token endpoint. Default: discovered from the issuer.",
    ),
    Key::new(
        "clientId",
        Kind::Text(|raw| &mut raw.auth.idp.client_id),
        "The client id at the identity provider.",
    ),
    Key::new(
        "idTokenEnvVar",
        Kind::Name(|raw| &mut raw.auth.idp.id_token_env),
        "The variable that holds the user's ID token.",
    ),
];

/// Endpoints are discovered, so that they belong to the issuer that was checked.
const DISCOVERED: &str = "it is discovered from the server";

/// Keys of `oauth`, as other clients call `auth`.
pub(in super::super) const OAUTH: &[Key] = &[
    // Claude, gemini, opencode
    Key::alias("clientId", "auth.clientId", CLIENT_ID),
    Key::alias("clientSecret", "auth.clientSecret", CLIENT_SECRET),
    Key::alias("callbackPort", "auth.callbackPort", CALLBACK_PORT),
    Key::alias("scopes", "auth.scopes", SCOPES),
    Key::alias("scope", "auth.scopes", SCOPES),
    Key::alias("redirectUri", "auth.redirectUri", REDIRECT_URI),
    // codex
    Key::alias("client_id", "auth.clientId", CLIENT_ID),
    Key::alias("callback_port", "auth.callbackPort", CALLBACK_PORT),
    // gemini
    Key::alias("enabled", "", Kind::Ignored),
    Key::unsupported("authorizationUrl", DISCOVERED),
    Key::unsupported("tokenUrl", DISCOVERED),
];
