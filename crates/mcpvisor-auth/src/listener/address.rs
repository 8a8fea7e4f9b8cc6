//! Which port the listener binds, and which redirect URI leads to it.

use super::ListenError;

/// The redirect URI if none is configured; the port is added.
const DEFAULT_REDIRECT_URI: &str = "http://127.0.0.1/callback";

/// The port to bind, and the redirect URI that leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    /// Up to the host.
    prefix: String,
    /// The port in the URI; `None` if the bound one is inserted.
    uri_port: Option<u16>,
    /// The path and all that follows.
    suffix: String,
    /// The port to bind; 0 for any.
    port: u16,
    host: Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    Loopback,
    Localhost,
    /// Another host forwards callbacks to the bound port.
    Forwarded,
}

impl ListenAddress {
    /// The address for a configured redirect URI and port. A loopback URI without a port gets the
    /// bound one; other URIs are used as they are.
    pub fn new(redirect_uri: Option<&str>, port: Option<u16>) -> Result<Self, ListenError> {
        let uri = redirect_uri.unwrap_or(DEFAULT_REDIRECT_URI);
        if !uri.bytes().all(|byte| byte.is_ascii_graphic()) || uri.contains('#') {
            return Err(ListenError::InvalidRedirectUri(
                "it contains a fragment, spaces or characters that are not ASCII",
            ));
        }
        let (scheme, rest) = uri
            .split_once("://")
            .ok_or(ListenError::InvalidRedirectUri("it has no scheme"))?;
        let (authority, suffix) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(ListenError::InvalidRedirectUri("it contains a user name"));
        }
        let (host_name, uri_port) = split_port(authority)?;
        let host = match host_name {
            "127.0.0.1" if scheme == "http" => Host::Loopback,
            "localhost" if scheme == "http" => Host::Localhost,
            _ => Host::Forwarded,
        };
        Ok(Self {
            prefix: format!("{scheme}://{host_name}"),
            port: match host {
                Host::Loopback | Host::Localhost => port.or(uri_port).unwrap_or(0),
                Host::Forwarded => port.unwrap_or(0),
            },
            uri_port,
            suffix: suffix.to_owned(),
            host,
        })
    }

    /// The same with this port to bind.
    pub(crate) fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Whether the port is configured, so that no other may be used.
    pub(crate) fn has_fixed_port(&self) -> bool {
        self.port != 0
    }

    /// Whether a listener on this machine can receive the callback at all.
    pub(crate) fn is_reachable(&self) -> bool {
        self.host != Host::Forwarded || self.port != 0
    }

    /// The port to bind; 0 for any.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The port in the redirect URI.
    pub(crate) fn uri_port(&self) -> Option<u16> {
        self.uri_port
    }

    /// The host and port of the redirect URI, as a browser sends them, if another host forwards
    /// callbacks.
    pub(super) fn forwarded_host(&self) -> Option<String> {
        let (scheme, host) = self.prefix.split_once("://")?;
        let default_port = if scheme == "https" { 443 } else { 80 };
        let port = self.uri_port.filter(|port| *port != default_port);
        let host = match port {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        (self.host == Host::Forwarded).then_some(host)
    }

    /// Whether the host is `localhost`, which may be `127.0.0.1` or `::1`.
    pub(crate) fn is_localhost(&self) -> bool {
        self.host == Host::Localhost
    }

    /// The redirect URI when `bound` is the port of the listener.
    pub(crate) fn redirect_uri(&self, bound: u16) -> String {
        let port = match (self.uri_port, self.host) {
            (Some(port), _) => format!(":{port}"),
            (None, Host::Loopback | Host::Localhost) => format!(":{bound}"),
            (None, Host::Forwarded) => String::new(),
        };
        format!("{}{port}{}", self.prefix, self.suffix)
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), ListenError> {
    let has_port = authority.rfind(':') > authority.rfind(']');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if has_port => (host, Some(port)),
        _ => (authority, None),
    };
    if host.is_empty() {
        return Err(ListenError::InvalidRedirectUri("it has no host"));
    }
    let port = match port {
        None => None,
        Some(port) => Some(
            port.parse::<u16>()
                .ok()
                .filter(|port| *port != 0)
                .ok_or(ListenError::InvalidRedirectUri("its port is not a number"))?,
        ),
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The port to bind, and the redirect URI if 5555 is bound.
    fn address(uri: Option<&str>, port: Option<u16>) -> (u16, String) {
        let address = ListenAddress::new(uri, port).unwrap();
        let bound = if address.port() == 0 {
            5555
        } else {
            address.port()
        };
        (address.port(), address.redirect_uri(bound))
    }

    #[test]
    fn the_port_and_the_redirect_uri_follow_the_config() {
        for (uri, port, bound, redirect_uri) in [
            (None, None, 0, "http://127.0.0.1:5555/callback"),
            (None, Some(80), 80, "http://127.0.0.1:80/callback"),
            (
                Some("http://localhost:81/cb"),
                None,
                81,
                "http://localhost:81/cb",
            ),
            (
                Some("http://localhost/cb"),
                None,
                0,
                "http://localhost:5555/cb",
            ),
            (
                Some("http://localhost/cb"),
                Some(82),
                82,
                "http://localhost:82/cb",
            ),
            (
                Some("http://localhost:81/cb"),
                Some(82),
                82,
                "http://localhost:81/cb",
            ),
            (
                Some("https://a.example.com/cb"),
                Some(82),
                82,
                "https://a.example.com/cb",
            ),
            (Some("http://127.0.0.1:81"), None, 81, "http://127.0.0.1:81"),
        ] {
            assert_eq!(address(uri, port), (bound, redirect_uri.to_owned()));
        }
    }

    #[test]
    fn a_forwarding_host_needs_a_port_to_forward_to() {
        let reachable = |uri, port| ListenAddress::new(Some(uri), port).unwrap().is_reachable();
        assert!(!reachable("https://a.example.com:81/cb", None));
        assert!(reachable("https://a.example.com:81/cb", Some(82)));
        assert!(reachable("http://localhost/cb", None));
    }

    #[test]
    fn invalid_redirect_uris_are_refused() {
        for uri in [
            "callback",
            "http://",
            "http:///callback",
            "http://localhost:0/cb",
            "http://localhost:99999/cb",
            "http://localhost:x/cb",
            "http://user@localhost/cb",
            "http://localhost/cb#fragment",
            "http://localhost/c b",
        ] {
            assert!(ListenAddress::new(Some(uri), None).is_err(), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn reading_a_redirect_uri_never_panics(uri in any::<String>(), port in any::<Option<u16>>()) {
            let _ = ListenAddress::new(Some(&uri), port);
        }
    }
}
