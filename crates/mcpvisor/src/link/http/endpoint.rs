//! The endpoint of a server over HTTP: its URL, headers and certificates.
//!
//! Sending requests is left to the link.

#[cfg(feature = "config-files")]
pub(crate) mod parts;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::target::Target;
#[cfg(feature = "auth")]
use crate::auth::AuthConfig;
use crate::link::OpenFailure;
use crate::secret::{
    MIN_REDACTED_CHARS, Secret, Secrets, is_shown_variable, proxy_credentials, url_credentials,
};

/// The address, headers and certificates of a server over HTTP.
///
/// The server is tried over Streamable HTTP first. If it does not take the first request (400, 404 or
/// 405), it is tried over HTTP+SSE, the transport of 2024-11-05, and what works is remembered.
/// [`Transport::sse`](crate::Transport::sse) uses HTTP+SSE alone.
///
/// `Display` and `Debug` hide header values and the user info and query of the address, because
/// they may be secrets. Redirects to another origin are refused, so nothing is sent there.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpEndpoint {
    pub(super) url: Secret<String>,
    pub(super) headers: Vec<(String, Secret<String>)>,
    /// The variable that holds a bearer token. Read for every connection and at every reload.
    pub(super) bearer_env: Option<String>,
    pub(crate) root_certificates: Vec<PathBuf>,
    pub(super) client_certificate: Option<PathBuf>,
    /// The Unix socket that the server listens on.
    pub(super) unix_socket: Option<PathBuf>,
    /// Only HTTP+SSE is used.
    pub(crate) is_sse: bool,
    /// Texts that are secret wherever they occur.
    secrets: Vec<Secret<OsString>>,
    #[cfg(feature = "auth")]
    pub(crate) auth: Box<AuthConfig>,
}

impl HttpEndpoint {
    /// A server at this address. It is validated when a connection is opened.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Secret::new(url.into()),
            headers: Vec::new(),
            bearer_env: None,
            root_certificates: Vec::new(),
            client_certificate: None,
            unix_socket: None,
            is_sse: false,
            secrets: Vec::new(),
            #[cfg(feature = "auth")]
            auth: Box::default(),
        }
    }

    /// Sets how the server is authorized, where the default does not find out.
    #[cfg(feature = "auth")]
    #[must_use]
    pub fn auth(mut self, auth: AuthConfig) -> Self {
        *self.auth = auth;
        self
    }

    /// Sends a header with every request. The last value of a name wins. The value is a secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), Secret::new(value.into())));
        self
    }

    /// Sends the token in this environment variable as `Authorization: Bearer …`. It is read when a
    /// connection is opened and at every reload.
    #[must_use]
    pub fn bearer_token_env(mut self, variable: impl Into<String>) -> Self {
        self.bearer_env = Some(variable.into());
        self
    }

    /// Trusts the certificates in this PEM file in addition to those of the system.
    #[must_use]
    pub fn root_certificate(mut self, pem: impl Into<PathBuf>) -> Self {
        self.root_certificates.push(pem.into());
        self
    }

    /// Presents the client certificate in this PEM file, which also contains its key.
    #[must_use]
    pub fn client_certificate(mut self, pem: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some(pem.into());
        self
    }

    /// Reaches the server through this Unix socket. The URL provides the path and the `Host` header;
    /// neither DNS nor a proxy is used.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let local = Transport::http("http://localhost/mcp").unix_socket("/run/mcp.sock");
    /// assert_eq!(local.to_string(), "http://localhost/mcp, through the socket /run/mcp.sock");
    /// ```
    #[cfg(unix)]
    #[must_use]
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.unix_socket = Some(path.into());
        self
    }

    /// The Unix socket that the server is reached through.
    pub fn socket_path(&self) -> Option<&Path> {
        self.unix_socket.as_deref()
    }

    /// Uses HTTP+SSE alone.
    pub(crate) fn sse(mut self) -> Self {
        self.is_sse = true;
        self
    }

    /// Marks a text as secret wherever it occurs, such as a token in the path of the address. It is
    /// shown as `***`.
    #[must_use]
    pub fn secret(mut self, text: impl Into<OsString>) -> Self {
        self.secrets.push(Secret::new(text.into()));
        self
    }

    /// Redacts the texts marked with [`Self::secret`] in a part of the endpoint, even short ones.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let endpoint = Transport::http("https://example.com/k3y/mcp").secret("k3y");
    /// assert_eq!(endpoint.shown("/k3y/mcp"), "/***/mcp");
    /// ```
    pub fn shown(&self, part: impl AsRef<OsStr>) -> String {
        let marked = Secrets::new(self.secrets.iter().map(AsRef::as_ref), 1);
        marked.redact(part.as_ref().to_string_lossy()).into_owned()
    }

    /// The name of the token variable, if it is set or looks like a variable name. Otherwise it may
    /// be the token itself, pasted by mistake.
    pub(crate) fn shown_bearer_env(&self) -> Option<&str> {
        let name = self.bearer_env.as_deref();
        name.filter(|name| is_shown_variable(name))
    }

    /// The config keys whose differences require a new connection.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let certificates = self.root_certificates != other.root_certificates
            || self.client_certificate != other.client_certificate;
        // Invalid headers need a new connection attempt, which reports them.
        let headers = self.sends_otherwise(other) && other.check_headers().is_err();
        let differs = [
            (self.is_sse != other.is_sse, "type"),
            (self.url != other.url, "url"),
            (self.unix_socket != other.unix_socket, "socketPath"),
            (headers, "headers"),
            (certificates, "certificates"),
            #[cfg(feature = "auth")]
            (self.auth != other.auth, "auth"),
        ];
        differs
            .into_iter()
            .filter_map(|(differs, name)| differs.then_some(name))
            .collect()
    }

    /// Whether the other endpoint has other headers.
    pub(crate) fn sends_otherwise(&self, other: &Self) -> bool {
        self.headers != other.headers
            || self.bearer_env != other.bearer_env
            || self.secrets != other.secrets
    }

    /// Checks that the endpoint, with its headers, can be used.
    pub(crate) fn check_headers(&self) -> Result<(), OpenFailure> {
        Target::new(self, |name| std::env::var_os(name)).map(drop)
    }

    /// The configured headers, with their values.
    pub(crate) fn named_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.expose().as_str()))
    }

    /// The bearer token in the environment now.
    pub(crate) fn token(&self) -> Option<Secret<OsString>> {
        let variable = self.bearer_env.as_ref()?;
        std::env::var_os(variable).map(Secret::new)
    }

    /// Whether the config itself provides the credential, so that none is looked for.
    #[cfg(feature = "auth")]
    pub(crate) fn has_static_credential(&self) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        let in_headers = names.any(|name| name.eq_ignore_ascii_case("authorization"));
        in_headers || self.bearer_env.is_some() || !url_credentials(self.url.expose()).is_empty()
    }

    /// What identifies the server: its address.
    pub(crate) fn identity(&self) -> &str {
        self.url.expose()
    }

    /// The account, where the server is used with several.
    pub(crate) fn account(&self) -> Option<&str> {
        #[cfg(feature = "auth")]
        return self.auth.account.as_deref();
        #[cfg(not(feature = "auth"))]
        None
    }

    /// The headers of the config and its token. Any of them may be the credential.
    pub(crate) fn static_credential(&self) -> Vec<Vec<u8>> {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| {
            format!("{}: {}", name.to_ascii_lowercase(), value.expose()).into_bytes()
        });
        let token = self.token();
        let token = token.map(|token| token.expose().as_encoded_bytes().to_vec());
        let mut parts: Vec<Vec<u8>> = headers.collect();
        parts.sort_unstable();
        parts.extend(token);
        parts
    }

    /// What must not be shown: header values, the token, user info and query of the address, and
    /// the texts marked as secret.
    pub(crate) fn secrets(&self, variable: impl Fn(&OsStr) -> Option<OsString>) -> Secrets {
        let token = self.bearer_env.as_ref();
        let token = token.and_then(|name| variable(OsStr::new(name)));
        let values = self.headers.iter().map(|(_, value)| value.expose());
        // Servers may repeat a value without its scheme, such as `Bearer`.
        let rests = self.headers.iter().filter_map(|(_, value)| {
            let (_, rest) = value.expose().trim().split_once(' ')?;
            Some(rest.trim().to_owned())
        });
        let marked = self.secrets.iter().map(AsRef::as_ref);
        let mut parts = url_secrets(self.url.expose());
        parts.extend(rests);
        parts.extend(proxy_credentials(&variable));
        // The token is sent without surrounding white space.
        let bare = token.as_deref().and_then(OsStr::to_str).map(str::trim);
        parts.extend(bare.map(str::to_owned));
        #[cfg(feature = "auth")]
        parts.extend(self.auth.secrets(&variable));
        let all = values.map(OsStr::new).chain(marked).chain(token.as_deref());
        let all = all.chain(parts.iter().map(OsStr::new));
        Secrets::new(all, MIN_REDACTED_CHARS)
    }
}

/// The secrets in an address: user info, query and fragment, as a whole, in parts, decoded, and the
/// user info as it is sent.
fn url_secrets(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let values = query
        .split('&')
        .map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let wholes = [query, fragment].into_iter().chain(values);
    let authority = place.split('/').next().unwrap_or_default();
    let mut secrets = url_credentials(authority);
    for whole in wholes.filter(|whole| !whole.is_empty()) {
        let decoded = crate::secret::percent_decode(whole);
        secrets.push(String::from_utf8_lossy(&decoded).into_owned());
        secrets.push(whole.to_owned());
    }
    secrets
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpEndpoint")
            .field("url", &self.url)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// The address without its user info and query, and the names of the headers.
impl fmt::Display for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.expose().split(['?', '#']).next();
        let shown = match url.and_then(|url| url.split_once("://")) {
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = authority.rsplit('@').next().unwrap_or_default();
                format!("{scheme}://{host}{path}")
            }
            None => "a url without a scheme".to_owned(),
        };
        f.write_str(&self.shown(shown))?;
        if let Some(socket) = &self.unix_socket {
            write!(f, ", through the socket {}", self.shown(socket))?;
        }
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        if !headers.is_empty() {
            write!(f, ", sends {}", headers.join(", "))?;
        }
        match (self.shown_bearer_env(), &self.bearer_env) {
            (Some(variable), _) => write!(f, ", with the token in {variable}"),
            (None, Some(_)) => f.write_str(", with the token in a variable that is not set"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_hides_secrets() {
        let endpoint = HttpEndpoint::new("https://me:pw@example.com/t0ken/mcp?key=k#part")
            .header("X-Key", "value")
            .bearer_token_env("TOKEN")
            .secret("t0ken");
        assert_eq!(
            endpoint.to_string(),
            "https://example.com/***/mcp, sends X-Key, with the token in TOKEN"
        );
        assert!(!HttpEndpoint::new("pw@example").to_string().contains("pw"));
        for pasted in [
            "sk-canary-1",
            "CANARYAKIAIOSFODNN7",
            "${CANARY_X}",
            "canary",
        ] {
            let endpoint = HttpEndpoint::new("http://x/").bearer_token_env(pasted);
            assert_eq!(
                endpoint.to_string(),
                "http://x/, with the token in a variable that is not set"
            );
        }
    }

    #[test]
    fn secrets_are_redacted_in_the_form_in_which_they_are_sent() {
        let endpoint = HttpEndpoint::new("https://alice:s3cr3tpass@example.com/mcp")
            .header("Authorization", "Bearer sk-canary-123456")
            .bearer_token_env("TOKEN");
        let secrets = endpoint.secrets(|_| Some(OsString::from(" t0ken-canary\n")));
        let text = "Basic YWxpY2U6czNjcjN0cGFzcw==, token: sk-canary-123456, or t0ken-canary";
        let shown = secrets.redact(text);
        assert_eq!(shown, "Basic ***, token: ***, or ***");
    }
}
