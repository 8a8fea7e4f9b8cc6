//! Resolves redirects, which must stay on the origin of the server.

use http::uri::{Authority, PathAndQuery, Uri};

use super::target::{Target, port_of};

/// Why a redirect was not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectRefusal {
    /// It leads to another origin, or its location is not valid.
    OtherOrigin,
    /// The limit of redirects is reached.
    TooMany,
    /// Its status allows the method to change (not 307 or 308).
    Status,
}

/// The path that a redirect leads to, or `None` if it leaves the origin of the target.
///
/// Requests always go to the target; only the path is taken from the location.
pub(super) fn resolve_redirect(
    target: &Target,
    from: &PathAndQuery,
    location: &str,
) -> Option<PathAndQuery> {
    if location.starts_with('/') && !location.starts_with("//") {
        return location.parse().ok();
    }
    if location.starts_with('?') {
        return format!("{}{location}", from.path()).parse().ok();
    }
    if is_relative(location) {
        return join(from.path(), location).parse().ok();
    }
    let parts = location.parse::<Uri>().ok()?.into_parts();
    let same = parts.scheme? == target.scheme && is_same_host(&parts.authority?, target);
    parts.path_and_query.filter(|_| same)
}

/// Whether a location is a relative path: it has no scheme and no host.
fn is_relative(location: &str) -> bool {
    let first = location.split(['/', '?']).next().unwrap_or_default();
    !first.is_empty() && !first.contains([':', '\\', '#', '@'])
}

/// Joins a relative location to the folder of a path, and removes dot segments.
fn join(from: &str, location: &str) -> String {
    let (path, query) = match location.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (location, String::new()),
    };
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut segments: Vec<&str> = folder.split('/').skip(1).collect();
    let mut last = "";
    for segment in path.split('/') {
        last = segment;
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    if matches!(last, "." | "..") {
        segments.push("");
    }
    format!("/{}{query}", segments.join("/"))
}

fn is_same_host(other: &Authority, target: &Target) -> bool {
    let port = |authority| port_of(authority, &target.scheme);
    other.host().eq_ignore_ascii_case(target.authority.host())
        && port(other).is_some()
        && port(other) == port(&target.authority)
        && !other.as_str().contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::http::HttpEndpoint;

    #[test]
    fn a_redirect_stays_on_its_origin() {
        let endpoint = HttpEndpoint::new("http://example.com/mcp");
        let target = Target::new(&endpoint, |_| None).unwrap();
        for same in [
            "/other?x=1",
            "http://example.com/other?x=1",
            "http://EXAMPLE.com:80/other?x=1",
            "http://example.com:/other?x=1",
        ] {
            let path = resolve_redirect(&target, &target.path, same).unwrap();
            assert_eq!(path, "/other?x=1", "{same}");
        }
        let from = PathAndQuery::from_static("/a/b?c");
        for (relative, expected) in [
            ("mcp", "/a/mcp"),
            ("mcp/?x=/1", "/a/mcp/?x=/1"),
            ("./mcp", "/a/mcp"),
            ("../mcp", "/mcp"),
            ("../../../mcp/..", "/"),
            ("?x=1", "/a/b?x=1"),
        ] {
            let path = resolve_redirect(&target, &from, relative).unwrap();
            assert_eq!(path, expected, "{relative}");
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
            let path = resolve_redirect(&target, &target.path, other);
            assert_eq!(path, None, "{other}");
        }
    }
}
