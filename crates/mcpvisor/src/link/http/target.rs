//! A validated endpoint: where requests go, and the headers of each.
//!
//! `Debug` and `Display` show only the origin and the path, because the rest may hold secrets.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHORIZATION, USER_AGENT,
};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper_util::client::proxy::matcher::Intercept;
use mcpvisor_core::machine::Action;
use tokio_rustls::rustls::ClientConfig;

use super::endpoint::HttpEndpoint;
use super::net::dns::Resolver;
use crate::link::{OpenFailure, OpenFailureClass};
use crate::secret::basic_auth;

/// The protocol requires that a client accepts both.
const ACCEPTED_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Where requests go. Every link builds its own.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    /// The host and port, without user info.
    pub(crate) authority: Authority,
    pub(crate) path: PathAndQuery,
    /// Sent with every request. The session adds its own to a copy.
    pub(crate) headers: HeaderMap,
    /// The socket that the origin is reached through, without DNS and proxy.
    pub(crate) unix_socket: Option<Arc<Path>>,
    /// `None`: the origin is reached directly.
    pub(crate) proxy: Option<Intercept>,
    /// For `https`.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) resolver: Resolver,
}

impl Target {
    /// Validates an endpoint. Reads the bearer token from the environment.
    pub(super) fn new(
        endpoint: &HttpEndpoint,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Self, OpenFailure> {
        let url = endpoint.url.expose();
        let uri: Uri = url.parse().map_err(|_| invalid("the url is not valid"))?;
        let mut parts = uri.into_parts();
        let scheme = parts.scheme.take();
        let scheme = scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let scheme =
            scheme.ok_or_else(|| invalid("the url must begin with http:// or https://"))?;
        let given = parts.authority.take();
        let given = given.filter(|authority| !authority.host().is_empty());
        let given = given.ok_or_else(|| invalid("the url has no host"))?;
        let path = parts.path_and_query.take();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let path = percent_encode_non_ascii(&path)
            .ok_or_else(|| invalid("the path of the url is not valid"))?;
        let (user, bare) = match given.as_str().rsplit_once('@') {
            Some((user, bare)) => (Some(user.to_owned()), bare.to_owned()),
            None => (None, given.to_string()),
        };
        let authority: Authority = bare
            .parse()
            .map_err(|_| invalid("the host of the url is not valid"))?;
        if port_of(&authority, &scheme).is_none() {
            return Err(invalid("the port of the url is not valid"));
        }
        let mut target = Self {
            scheme,
            authority,
            path,
            headers: HeaderMap::new(),
            unix_socket: endpoint.unix_socket.as_deref().map(Arc::from),
            proxy: None,
            tls: None,
            resolver: Resolver::default(),
        };
        target.add_headers(endpoint, user.as_deref(), variable)?;
        Ok(target)
    }

    fn add_headers(
        &mut self,
        endpoint: &HttpEndpoint,
        user: Option<&str>,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<(), OpenFailure> {
        let headers = &mut self.headers;
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("mcpvisor/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(user) = user {
            let basic = format!("Basic {}", basic_auth(user));
            headers.insert(AUTHORIZATION, secret_value("user info", &basic)?);
        }
        if let Some(name) = &endpoint.bearer_env {
            let token = variable(OsStr::new(name)).unwrap_or_default();
            let token = token
                .to_str()
                .map(str::trim)
                .filter(|token| !token.is_empty());
            let token = token.ok_or_else(|| missing_token(endpoint.shown_bearer_env()))?;
            let bearer = format!("Bearer {token}");
            headers.insert(AUTHORIZATION, secret_value("Authorization", &bearer)?);
        }
        for (name, value) in &endpoint.headers {
            let header: HeaderName = name
                .parse()
                .map_err(|_| invalid(format!("{name:?} is not a valid header name")))?;
            headers.insert(header, secret_value(name, value.expose())?);
        }
        // Headers of the transport itself cannot be overridden.
        for reserved in [
            "content-length",
            "transfer-encoding",
            "connection",
            "mcp-session-id",
            "last-event-id",
        ] {
            headers.remove(reserved);
        }
        headers.insert(ACCEPT, ACCEPTED_TYPES);
        // Without it the server may choose any encoding, and the link does not decompress.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(HOST, header_value("Host", self.authority.as_str())?);
        Ok(())
    }

    /// Adds the credentials of a forward proxy, if there is one.
    pub(crate) fn with_proxy_authorization(&self, mut headers: HeaderMap) -> HeaderMap {
        let proxy = self.proxy.as_ref().filter(|_| self.uses_forward_proxy());
        if let Some(authorization) = proxy.and_then(Intercept::basic_auth) {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        headers
    }

    /// The origin, as a connector takes it.
    pub(super) fn origin(&self) -> Uri {
        self.url(&PathAndQuery::from_static("/"))
    }

    /// The URL of a path on this origin.
    pub(super) fn url(&self, path: &PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path.clone());
        // Each part comes from a valid address.
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The origin, such as `https://example.com:8443`.
    pub(super) fn origin_text(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// The origin, and the socket that it is reached through.
    pub(super) fn destination(&self) -> String {
        let origin = self.origin_text();
        match &self.unix_socket {
            Some(socket) => format!("{origin} through the socket {}", socket.display()),
            None => origin,
        }
    }

    /// The port, or the default of the scheme.
    pub(super) fn port(&self) -> Option<u16> {
        port_of(&self.authority, &self.scheme)
    }

    /// The target in the request line: the path, or the whole address for a forward proxy.
    pub(crate) fn request_uri(&self, path: &PathAndQuery) -> Uri {
        match self.uses_forward_proxy() {
            true => self.url(path),
            false => path.clone().into(),
        }
    }

    /// Whether a proxy sees the requests themselves. For `https` it only tunnels bytes.
    pub(super) fn uses_forward_proxy(&self) -> bool {
        self.proxy.is_some() && self.scheme == Scheme::HTTP
    }
}

/// A request line is ASCII, so other characters are percent-encoded.
pub(super) fn percent_encode_non_ascii(path: &PathAndQuery) -> Option<PathAndQuery> {
    if path.as_str().is_ascii() {
        return Some(path.clone());
    }
    let mut text = String::with_capacity(2 * path.as_str().len());
    for byte in path.as_str().bytes() {
        match byte.is_ascii() {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text.parse().ok()
}

/// The port of an authority without user info. `None` if it is not a valid port: falling back to
/// the default would reach another server.
pub(super) fn port_of(authority: &Authority, scheme: &Scheme) -> Option<u16> {
    let given = authority.as_str().strip_prefix(authority.host())?;
    match given.strip_prefix(':').unwrap_or_default() {
        "" if *scheme == Scheme::HTTPS => Some(443),
        "" => Some(80),
        digits => digits.parse().ok(),
    }
}

/// The origin and the path, without user info and query.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}{}",
            self.scheme,
            self.authority,
            self.path.path()
        )
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, OpenFailure> {
    HeaderValue::from_str(value)
        .map_err(|_| invalid(format!("the value of {name:?} is not a valid header value")))
}

/// A header value that is not logged.
fn secret_value(name: &str, value: &str) -> Result<HeaderValue, OpenFailure> {
    let mut value = header_value(name, value)?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn invalid(message: impl Into<String>) -> OpenFailure {
    let action = Action::FixKeys("url, headers or certificates".to_owned());
    OpenFailure::new(OpenFailureClass::InvalidAddress, message, action)
}

/// Names the variable only if it looks like one: users paste the token itself.
fn missing_token(variable: Option<&str>) -> OpenFailure {
    let (message, action) = match variable {
        Some(variable) => (
            format!("{variable} is not set (bearer token)"),
            Action::SetVariable(variable.to_owned()),
        ),
        None => (
            "the variable named by \"bearerTokenEnvVar\" is not set, and its name looks like a token"
                .to_owned(),
            Action::NameTokenVariable,
        ),
    };
    OpenFailure::new(OpenFailureClass::Unauthorized, message, action)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, OpenFailure> {
        Target::new(&HttpEndpoint::new(url), |_| None)
    }

    #[test]
    fn an_invalid_address_is_refused_with_an_action() {
        for url in [
            "",
            "x",
            "ftp://host/",
            "http://",
            "http:///x",
            "http://a b/",
            "//host/x",
            "file:///etc/passwd",
            "http://host:99999/",
            "http://host:-80/",
        ] {
            let failure = target(url).unwrap_err();
            assert_eq!(failure.class, OpenFailureClass::InvalidAddress, "{url}");
            assert!(failure.action.is_some());
        }
    }

    #[test]
    fn only_the_origin_and_the_path_are_shown() {
        let target = target("https://user:pass@example.com:8443/mcp?token=canary").unwrap();
        assert_eq!(
            format!("{target} {target:?}"),
            "https://example.com:8443/mcp https://example.com:8443/mcp"
        );
        assert_eq!(target.headers[AUTHORIZATION], "Basic dXNlcjpwYXNz");
        assert!(target.headers[AUTHORIZATION].is_sensitive());
        assert_eq!(target.headers[HOST], "example.com:8443");
        assert_eq!(target.request_uri(&target.path), "/mcp?token=canary");
    }

    #[test]
    fn a_path_is_percent_encoded_where_it_is_not_ascii() {
        let target = target("http://x/größe/%C3%A4?q=ä").unwrap();
        let sent = target.request_uri(&target.path);
        assert_eq!(sent, "/gr%C3%B6%C3%9Fe/%C3%A4?q=%C3%A4");
    }

    #[test]
    fn a_missing_token_is_an_authorization_failure_that_does_not_show_a_pasted_token() {
        let endpoint = HttpEndpoint::new("http://x/").bearer_token_env("TOKEN");
        let failure = Target::new(&endpoint, |_| None).unwrap_err();
        assert_eq!(failure.class, OpenFailureClass::Unauthorized);
        assert!(failure.message.contains("TOKEN"), "{failure:?}");
        for pasted in ["sk-canary-1", "canary", "${CANARY}", "CANARY7AKIAIOSFODNN"] {
            let endpoint = HttpEndpoint::new("http://x/").bearer_token_env(pasted);
            let failure = Target::new(&endpoint, |_| None).unwrap_err();
            let shown = format!("{failure:?}");
            assert!(!shown.to_lowercase().contains("canary"), "{shown}");
            assert!(shown.contains("bearerTokenEnvVar"), "{shown}");
        }
        let target = Target::new(&endpoint, |_| Some("canary".into())).unwrap();
        assert_eq!(target.headers[AUTHORIZATION], "Bearer canary");
    }

    #[test]
    fn an_invalid_header_is_refused_without_showing_its_value() {
        for (name, value) in [("bad name", "x"), ("X-Token", "canary\nsecret")] {
            let endpoint = HttpEndpoint::new("http://x/").header(name, value);
            let failure = Target::new(&endpoint, |_| None).unwrap_err();
            assert!(!failure.message.contains("canary"), "{failure:?}");
        }
    }

    #[test]
    fn headers_of_the_transport_cannot_be_overridden() {
        let endpoint = HttpEndpoint::new("http://x/")
            .header("Accept", "text/html")
            .header("Accept-Encoding", "gzip")
            .header("Mcp-Session-Id", "mine")
            .header("X-Two", "1")
            .header("x-two", "2");
        let target = Target::new(&endpoint, |_| None).unwrap();
        assert_eq!(target.headers[ACCEPT], ACCEPTED_TYPES);
        assert_eq!(target.headers["accept-encoding"], "identity");
        assert!(!target.headers.contains_key("mcp-session-id"));
        assert_eq!(target.headers["x-two"], "2", "the last one counts");
    }

    #[test]
    fn invalid_percent_escapes_are_left_as_they_are() {
        assert_eq!(crate::secret::percent_decode("a%40b%3a%zz%"), b"a@b:%zz%");
    }
}
