//! The address in an `endpoint` event, which must be on the origin of the server.

use http::uri::{PathAndQuery, Uri};

use crate::link::http::redirect::resolve_redirect;
use crate::link::http::target::{Target, percent_encode_non_ascii};
use crate::link::limits::format_bytes;

/// Bytes of an address.
const MAX_ADDRESS: usize = 8 * 1024;

/// The path that messages go to. The error says why the address must not be used.
///
/// Messages always go to the target; only the path is taken from the address. A relative one starts
/// at the configured URL, as in other clients. The path and the query are not shown, because they
/// name the session.
pub(in crate::link::http) fn resolve_endpoint(
    target: &Target,
    address: &[u8],
) -> Result<PathAndQuery, String> {
    if address.len() > MAX_ADDRESS {
        let limit = format_bytes(MAX_ADDRESS);
        return Err(format!("the endpoint of the server is longer than {limit}"));
    }
    let invalid = || "the endpoint of the server is not a valid address".to_owned();
    let address = str::from_utf8(address).map_err(|_| invalid())?.trim();
    if address.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(invalid());
    }
    let path = resolve_redirect(target, &target.path, address);
    let path = path.as_ref().and_then(percent_encode_non_ascii);
    path.ok_or_else(|| match other_origin(address) {
        Some(other) if other.eq_ignore_ascii_case(&target.origin_text()) => {
            "the endpoint of the server has user info, which is not sent".to_owned()
        }
        Some(other) => {
            let origin = target.origin_text();
            format!(
                "the server directs messages to {other}, another origin than {origin}; nothing \
                 was sent there"
            )
        }
        None => invalid(),
    })
}

/// The origin of an address that has one, without user info.
fn other_origin(address: &str) -> Option<String> {
    let uri: Uri = address.parse().ok()?;
    let authority = uri.authority()?.as_str();
    let host = authority.rsplit('@').next().unwrap_or(authority);
    Some(format!("{}://{host}", uri.scheme_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::http::HttpEndpoint;

    fn resolve(address: &str) -> Result<String, String> {
        let endpoint = HttpEndpoint::new("http://example.com:8080/a/sse?key=1");
        let target = Target::new(&endpoint, |_| None).unwrap();
        resolve_endpoint(&target, address.as_bytes()).map(|path| path.to_string())
    }

    #[test]
    fn an_endpoint_is_a_path_or_an_address_on_the_same_origin() {
        for (address, path) in [
            ("/messages/?session_id=1", "/messages/?session_id=1"),
            (" /message?sessionId=1#part\r", "/message?sessionId=1"),
            ("messages?id=1", "/a/messages?id=1"),
            ("../messages", "/messages"),
            ("?sessionId=1", "/a/sse?sessionId=1"),
            ("http://example.com:8080/m?id=1", "/m?id=1"),
            ("http://EXAMPLE.com:8080", "/"),
            ("/größe", "/gr%C3%B6%C3%9Fe"),
        ] {
            assert_eq!(resolve(address).as_deref(), Ok(path), "{address}");
        }
    }

    #[test]
    fn an_endpoint_elsewhere_is_refused_and_its_origin_is_named() {
        for (address, origin) in [
            ("http://evil.example/m?id=1", "http://evil.example"),
            ("https://example.com:8080/m", "https://example.com:8080"),
            ("http://example.com/m", "http://example.com"),
            ("http://example.com:8081/m", "http://example.com:8081"),
            ("http://u:pw@example.com/m", "http://example.com"),
            (
                "http://example.com:8080@evil.example/",
                "http://evil.example",
            ),
            ("ftp://example.com:8080/m", "ftp://example.com:8080"),
        ] {
            let problem = resolve(address).unwrap_err();
            let named = format!("directs messages to {origin}, another origin");
            assert!(problem.contains(&named), "{address}: {problem}");
            assert!(!problem.contains("pw") && !problem.contains("id=1"));
        }
    }

    #[test]
    fn an_endpoint_with_user_info_is_refused() {
        let problem = resolve("http://u:pw@example.com:8080/m").unwrap_err();
        assert!(problem.contains("has user info"), "{problem}");
        assert!(!problem.contains("pw"), "{problem}");
    }

    #[test]
    fn what_is_no_address_is_refused_and_not_shown() {
        let long = format!("/{}", "x".repeat(MAX_ADDRESS));
        for address in [
            "",
            " ",
            "javascript:alert(1)",
            "data:text/plain,x",
            "file:///etc/passwd",
            "//evil.example/m",
            "\\\\evil.example\\m",
            "/a b",
            "/a\nHost: evil.example",
            "/a\0",
            "mailto:a@evil.example",
            &long,
        ] {
            let problem = resolve(address).unwrap_err();
            assert!(
                problem.starts_with("the endpoint of the server is") && problem.len() < 100,
                "{address:?}: {problem}"
            );
        }
        assert!(resolve("/ok").is_ok());
    }
}
