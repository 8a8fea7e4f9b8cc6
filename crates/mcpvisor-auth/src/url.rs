//! Arithmetic on URLs: origins, well-known locations, and which schemes are secure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;

/// Bytes of a URL in metadata, challenges and the config.
pub const MAX_URL_BYTES: usize = 2048;

/// Why a text is no usable URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is not an absolute http or https URL.
    #[error("not an http or https URL")]
    NotHttp,
    /// It is longer than [`MAX_URL_BYTES`].
    #[error("longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    /// It contains a user name or password.
    #[error("a URL with user information is not allowed")]
    UserInfo,
    /// It contains a fragment.
    #[error("a URL with a fragment is not allowed")]
    Fragment,
    /// Plain http to another machine.
    #[error("https is required, except for loopback hosts")]
    NotSecure,
}

/// Parses an absolute https URL, or an http URL of a loopback host, without user information and
/// fragment. This is the only way that a URL of metadata becomes a request.
pub fn parse_secure(text: &str) -> Result<Uri, UrlError> {
    let url = parse(text)?;
    if is_https(&url) || is_loopback_host(url.host().unwrap_or_default()) {
        Ok(url)
    } else {
        Err(UrlError::NotSecure)
    }
}

/// Parses an absolute http or https URL without user information and fragment.
pub fn parse(text: &str) -> Result<Uri, UrlError> {
    if text.len() > MAX_URL_BYTES {
        return Err(UrlError::TooLong);
    }
    // `Uri` drops fragments silently, and lets characters through that browsers rewrite.
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('\\') {
        return Err(UrlError::NotHttp);
    }
    let url: Uri = text.parse().map_err(|_| UrlError::NotHttp)?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(UrlError::NotHttp);
    }
    let authority = url.authority().ok_or(UrlError::NotHttp)?;
    if authority.as_str().contains('@') {
        return Err(UrlError::UserInfo);
    }
    let after_host = authority.as_str().strip_prefix(authority.host());
    if is_host(authority.host()) && after_host.is_some_and(is_port_suffix) {
        Ok(url)
    } else {
        Err(UrlError::NotHttp)
    }
}

/// Whether the host is this machine by definition: `localhost`, 127.0.0.0/8 or `[::1]`. Names that
/// only resolve to loopback do not count.
pub fn is_loopback_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|ip: Ipv4Addr| ip.is_loopback())
        || ipv6_literal(host).is_some_and(|ip| ip.is_loopback())
}

/// The address, if the host is one.
pub fn ip_literal(url: &Uri) -> Option<IpAddr> {
    let host = url.host()?;
    let v6 = || ipv6_literal(host).map(IpAddr::V6);
    host.parse().ok().map(IpAddr::V4).or_else(v6)
}

/// The address that the host is without name resolution: a literal one, or that of `localhost`.
pub fn literal_address(url: &Uri) -> Option<IpAddr> {
    let is_local = is_loopback_host(url.host()?);
    let localhost = is_local.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    ip_literal(url).or(localhost)
}

/// The port, also where the URL leaves it out.
pub fn port(url: &Uri) -> u16 {
    let default = if is_https(url) { 443 } else { 80 };
    url.port_u16().unwrap_or(default)
}

/// The origin, such as `https://example.com:8443`: lower case, without the default port.
pub fn origin(url: &Uri) -> String {
    let (scheme, default) = if is_https(url) {
        ("https", 443)
    } else {
        ("http", 80)
    };
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    match port(url) {
        port if port == default => format!("{scheme}://{host}"),
        port => format!("{scheme}://{host}:{port}"),
    }
}

/// The URL without its query, for messages.
pub fn without_query(url: &Uri) -> String {
    format!("{}{}", origin(url), url.path())
}

/// Where the metadata of a resource may be (RFC 9728, 3.1): with its path, then at the root.
pub fn resource_metadata_urls(resource: &Uri) -> Vec<String> {
    let root = format!("{}/.well-known/oauth-protected-resource", origin(resource));
    match trimmed_path(resource) {
        "" => vec![root],
        path => vec![format!("{root}{path}"), root],
    }
}

/// Where the metadata of an issuer may be, in the order of the MCP specification: RFC 8414 with the
/// path inserted, OpenID Connect with the path inserted, OpenID Connect with the path in front.
/// Never at the root of an issuer with a path: that is another issuer.
pub fn issuer_metadata_urls(issuer: &Uri) -> Vec<String> {
    let origin = origin(issuer);
    let path = trimmed_path(issuer);
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    urls
}

/// Appends query parameters to a URL, keeping those that it has.
pub fn append_query(url: &str, parameters: &[(&str, &str)]) -> String {
    if parameters.is_empty() {
        return url.to_owned();
    }
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    let separator = match url.split_once('?') {
        None => "?",
        Some((_, rest)) if rest.is_empty() || rest.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{url}{separator}{query}")
}

/// Whether a resource identifier stands for a server: the same origin, and its path is that of the
/// server or a parent of it. A final slash does not matter.
pub fn resource_covers(resource: &Uri, server: &Uri) -> bool {
    if origin(resource) != origin(server) || has_dot_segment(resource) || has_dot_segment(server) {
        return false;
    }
    if resource.query().is_some() && resource.query() != server.query() {
        return false;
    }
    match trimmed_path(server).strip_prefix(trimmed_path(resource)) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Resolves the `Location` of a redirect: an absolute URL, or an absolute path on the same origin.
pub fn resolve_location(base: &Uri, location: &str) -> Result<Uri, UrlError> {
    if location.starts_with('/') && !location.starts_with("//") {
        parse_secure(&format!("{}{location}", origin(base)))
    } else {
        parse_secure(location)
    }
}

fn is_https(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

/// The path without final slashes; empty for the root.
fn trimmed_path(url: &Uri) -> &str {
    url.path().trim_end_matches('/')
}

/// Servers and proxies disagree on what such a path is below.
fn has_dot_segment(url: &Uri) -> bool {
    url.path().split('/').any(|segment| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        segment == "." || segment == ".."
    })
}

fn is_host(host: &str) -> bool {
    let is_name = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_name || ipv6_literal(host).is_some()
}

fn ipv6_literal(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Nothing, or a colon and a port number.
fn is_port_suffix(text: &str) -> bool {
    match text.strip_prefix(':') {
        None => text.is_empty(),
        Some(port) => {
            port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse().is_ok_and(|port: u16| port > 0)
        }
    }
}

#[cfg(test)]
mod tests;
