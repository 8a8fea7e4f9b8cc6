//! An endpoint that was checked: where its requests go, and what goes with each of them.
//!
//! Nothing here is a secret that prints: what is shown of an address is its origin and path.

use std::ffi::{OsStr, OsString};
use std::fmt;
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
use super::lookup::Lookups;
use crate::link::{OpenFailure, OpenFailureClass};
use crate::secret::basic_auth;

/// Both kinds of answers are taken.
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Where requests go. It is made anew for every connection.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    /// The host and port, without user info.
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
    /// Sent with every request, until the session adds to it.
    pub(super) headers: HeaderMap,
    /// How the origin is reached, if not directly.
    pub(super) proxy: Option<Intercept>,
    /// For `https`.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// How its name is looked up.
    pub(super) lookups: Lookups,
}

impl Target {
    /// Checks an endpoint. The environment is read now, so a renewed token counts from now on.
    pub(super) fn check(
        endpoint: &HttpEndpoint,
        variable: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Self, OpenFailure> {
        let url = endpoint.url.expose();
        let uri: Uri = url
            .parse()
            .map_err(|_| invalid("the url is no valid address"))?;
        let mut parts = uri.into_parts();
        let scheme = parts.scheme.take();
        let scheme = scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let scheme =
            scheme.ok_or_else(|| invalid("the url begins with neither http:// nor https://"))?;
        let given = parts.authority.take();
        let given = given.filter(|authority| !authority.host().is_empty());
        let given = given.ok_or_else(|| invalid("the url names no host"))?;
        let path = parts.path_and_query.take();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let path = in_ascii(&path).ok_or_else(|| invalid("the path in the url cannot be used"))?;
        let (user, bare) = match given.as_str().rsplit_once('@') {
            Some((user, bare)) => (Some(user.to_owned()), bare.to_owned()),
            None => (None, given.to_string()),
        };
        let authority: Authority = bare
            .parse()
            .map_err(|_| invalid("the host in the url cannot be used"))?;
        if port_of(&authority, &scheme).is_none() {
            return Err(invalid("the port in the url is none"));
        }
        let mut target = Self {
            scheme,
            authority,
            path,
            headers: HeaderMap::new(),
            proxy: None,
            tls: None,
            lookups: Lookups::default(),
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
            let mut basic = header_value("user info", &format!("Basic {}", basic_auth(user)))?;
            basic.set_sensitive(true);
            headers.insert(AUTHORIZATION, basic);
        }
        if let Some(name) = &endpoint.bearer_env {
            let token = variable(OsStr::new(name)).unwrap_or_default();
            let token = token
                .to_str()
                .map(str::trim)
                .filter(|token| !token.is_empty());
            let token = token.ok_or_else(|| no_token(endpoint.shown_bearer_env()))?;
            let mut bearer = header_value("Authorization", &format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        for (name, value) in &endpoint.headers {
            let header: HeaderName = name
                .parse()
                .map_err(|_| invalid(format!("{name:?} is no name of a header")))?;
            let mut value = header_value(name, value.expose())?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        // What the transport itself says cannot be said otherwise.
        for reserved in [
            "content-length",
            "transfer-encoding",
            "connection",
            "mcp-session-id",
            "last-event-id",
        ] {
            headers.remove(reserved);
        }
        headers.insert(ACCEPT, ACCEPTED);
        // Without it any encoding would do, and nothing here is decompressed.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(HOST, header_value("Host", self.authority.as_str())?);
        Ok(())
    }

    /// The headers, and what the proxy wants to see if it is the one that fetches.
    pub(super) fn with_proxy_authorization(&self, mut headers: HeaderMap) -> HeaderMap {
        let proxy = self.proxy.as_ref().filter(|_| self.is_fetched_by_proxy());
        if let Some(authorization) = proxy.and_then(Intercept::basic_auth) {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        headers
    }

    /// The origin, as an address that a connector takes.
    pub(super) fn origin(&self) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        // Each part was taken from an address.
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The port, the usual one if none is given.
    pub(super) fn port(&self) -> Option<u16> {
        port_of(&self.authority, &self.scheme)
    }

    /// What stands in the request line: the path, or for a proxy that is asked to fetch it, all.
    pub(super) fn request_uri(&self, path: &PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        if self.is_fetched_by_proxy() {
            parts.scheme = Some(self.scheme.clone());
            parts.authority = Some(self.authority.clone());
        }
        parts.path_and_query = Some(path.clone());
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// Whether a proxy sees the requests themselves; for `https` it only passes bytes on.
    pub(super) fn is_fetched_by_proxy(&self) -> bool {
        self.proxy.is_some() && self.scheme == Scheme::HTTP
    }

    /// Where a redirect from a path on the same origin leads, or nothing if it leaves it.
    pub(super) fn redirected(&self, from: &PathAndQuery, location: &str) -> Option<PathAndQuery> {
        if location.starts_with('/') && !location.starts_with("//") {
            return location.parse().ok();
        }
        if location.starts_with('?') {
            return format!("{}{location}", from.path()).parse().ok();
        }
        if is_relative(location) {
            return beside(from.path(), location).parse().ok();
        }
        let parts = location.parse::<Uri>().ok()?.into_parts();
        let same = parts.scheme? == self.scheme && same_host(&parts.authority?, self);
        parts.path_and_query.filter(|_| same)
    }
}

/// A path as a request line has to have it: what is no ASCII is written with percent signs.
fn in_ascii(path: &PathAndQuery) -> Option<PathAndQuery> {
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

/// Whether it is a path that begins where another one ends: it names no scheme and no host.
fn is_relative(location: &str) -> bool {
    let first = location.split(['/', '?']).next().unwrap_or_default();
    !first.is_empty() && !first.contains([':', '\\', '#', '@'])
}

/// The path that a relative one leads to.
fn beside(from: &str, location: &str) -> String {
    let (path, query) = match location.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (location, String::new()),
    };
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut steps: Vec<&str> = folder.split('/').skip(1).collect();
    let mut last = "";
    for step in path.split('/') {
        last = step;
        match step {
            "." => {}
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    if matches!(last, "." | "..") {
        steps.push("");
    }
    format!("/{}{query}", steps.join("/"))
}

fn same_host(other: &Authority, target: &Target) -> bool {
    let port = |authority| port_of(authority, &target.scheme);
    other.host().eq_ignore_ascii_case(target.authority.host())
        && port(other).is_some()
        && port(other) == port(&target.authority)
        && !other.as_str().contains('@')
}

/// The port of an authority without user info, or nothing if what stands there is none: whoever takes
/// that for an absent one calls somebody else.
fn port_of(authority: &Authority, scheme: &Scheme) -> Option<u16> {
    let given = authority.as_str().strip_prefix(authority.host())?;
    match given.strip_prefix(':').unwrap_or_default() {
        "" if *scheme == Scheme::HTTPS => Some(443),
        "" => Some(80),
        digits => digits.parse().ok(),
    }
}

/// The origin and the path, and nothing that could be a secret.
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
        .map_err(|_| invalid(format!("the value of {name:?} cannot stand in a header")))
}

pub(super) fn invalid(message: impl Into<String>) -> OpenFailure {
    OpenFailure {
        class: OpenFailureClass::InvalidAddress,
        message: message.into(),
        action: Some(Action::FixKeys("url, headers or certificates".to_owned())),
    }
}

/// What should name a variable is named itself only if it looks like a name.
fn no_token(variable: Option<&str>) -> OpenFailure {
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
    OpenFailure {
        class: OpenFailureClass::Unauthorized,
        message,
        action: Some(action),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str) -> Result<Target, OpenFailure> {
        Target::check(&HttpEndpoint::new(url), |_| None)
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_what_to_do() {
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
            let failure = check(url).unwrap_err();
            assert_eq!(failure.class, OpenFailureClass::InvalidAddress, "{url}");
            assert!(failure.action.is_some());
        }
    }

    #[test]
    fn only_the_origin_and_the_path_are_shown() {
        let target = check("https://user:pass@example.com:8443/mcp?token=canary").unwrap();
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
    fn a_path_with_other_letters_is_sent_as_it_has_to_be() {
        let target = check("http://x/größe/%C3%A4?q=ä").unwrap();
        let sent = target.request_uri(&target.path);
        assert_eq!(sent, "/gr%C3%B6%C3%9Fe/%C3%A4?q=%C3%A4");
    }

    #[test]
    fn a_token_that_is_not_there_needs_a_person() {
        let endpoint = HttpEndpoint::new("http://x/").bearer_token_env("TOKEN");
        let failure = Target::check(&endpoint, |_| None).unwrap_err();
        assert_eq!(failure.class, OpenFailureClass::Unauthorized);
        assert!(failure.message.contains("TOKEN"), "{failure:?}");
        for pasted in ["sk-canary-1", "canary", "${CANARY}", "CANARY7AKIAIOSFODNN"] {
            let endpoint = HttpEndpoint::new("http://x/").bearer_token_env(pasted);
            let failure = Target::check(&endpoint, |_| None).unwrap_err();
            let said = format!("{failure:?}");
            assert!(!said.to_lowercase().contains("canary"), "{said}");
            assert!(said.contains("bearerTokenEnvVar"), "{said}");
        }
        let target = Target::check(&endpoint, |_| Some("canary".into())).unwrap();
        assert_eq!(target.headers[AUTHORIZATION], "Bearer canary");
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_refused_without_its_value() {
        for (name, value) in [("bad name", "x"), ("X-Token", "canary\nsecret")] {
            let endpoint = HttpEndpoint::new("http://x/").header(name, value);
            let failure = Target::check(&endpoint, |_| None).unwrap_err();
            assert!(!failure.message.contains("canary"), "{failure:?}");
        }
    }

    #[test]
    fn the_headers_of_the_transport_cannot_be_said_otherwise() {
        let endpoint = HttpEndpoint::new("http://x/")
            .header("Accept", "text/html")
            .header("Accept-Encoding", "gzip")
            .header("Mcp-Session-Id", "mine")
            .header("X-Two", "1")
            .header("x-two", "2");
        let target = Target::check(&endpoint, |_| None).unwrap();
        assert_eq!(target.headers[ACCEPT], ACCEPTED);
        assert_eq!(target.headers["accept-encoding"], "identity");
        assert!(!target.headers.contains_key("mcp-session-id"));
        assert_eq!(target.headers["x-two"], "2", "the last one counts");
    }

    #[test]
    fn a_redirect_stays_on_its_origin() {
        let target = check("http://example.com/mcp").unwrap();
        for same in [
            "/other?x=1",
            "http://example.com/other?x=1",
            "http://EXAMPLE.com:80/other?x=1",
            "http://example.com:/other?x=1",
        ] {
            let led = target.redirected(&target.path, same).unwrap();
            assert_eq!(led, "/other?x=1", "{same}");
        }
        let from = PathAndQuery::from_static("/a/b?c");
        for (relative, path) in [
            ("mcp", "/a/mcp"),
            ("mcp/?x=/1", "/a/mcp/?x=/1"),
            ("./mcp", "/a/mcp"),
            ("../mcp", "/mcp"),
            ("../../../mcp/..", "/"),
            ("?x=1", "/a/b?x=1"),
        ] {
            let led = target.redirected(&from, relative).unwrap();
            assert_eq!(led, path, "{relative}");
        }
        for other in [
            "https://example.com/x",
            "http://example.com:81/x",
            "http://example.com:-80/x",
            "http://example.com:65616/x",
            "http://evil.example/x",
            "//evil.example/x",
            "http://u@example.com/x",
            "evil.example:80/x",
            "\\\\evil.example/x",
            "",
        ] {
            assert_eq!(target.redirected(&target.path, other), None, "{other}");
        }
    }

    #[test]
    fn percent_signs_are_read_as_far_as_they_mean_something() {
        assert_eq!(crate::secret::percent_decode("a%40b%3a%zz%"), b"a@b:%zz%");
    }
}
