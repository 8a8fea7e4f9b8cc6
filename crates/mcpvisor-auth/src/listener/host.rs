//! Which `Host` headers a callback may have.

use super::ListenAddress;

/// The names of this machine on its loopback interface.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The hosts that a browser names when it follows the redirect of a login.
#[derive(Debug)]
pub(super) struct ExpectedHost {
    /// The bound port, and that of the redirect URI if another port is forwarded.
    ports: [u16; 2],
    /// The host that forwards callbacks, if another one does.
    forwarded: Option<String>,
}

impl ExpectedHost {
    /// The hosts of a listener that is bound to `port`.
    pub(super) fn new(address: &ListenAddress, port: u16) -> Self {
        Self {
            ports: [port, address.uri_port().unwrap_or(port)],
            forwarded: address.forwarded_host(),
        }
    }

    /// Whether a request with this `Host` header may be the callback.
    pub(super) fn accepts(&self, host: Option<&str>) -> bool {
        let Some(host) = host else {
            return false;
        };
        if let Some(forwarded) = &self.forwarded
            && host.eq_ignore_ascii_case(forwarded)
        {
            return true;
        }
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port),
            // Browsers omit the default port.
            _ => (host, "80"),
        };
        let is_loopback = LOOPBACK.iter().any(|it| name.eq_ignore_ascii_case(it));
        is_loopback && self.ports.iter().any(|it| port == it.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(uri: Option<&str>, port: Option<u16>, bound: u16, hosts: &[&str]) -> Vec<bool> {
        let address = ListenAddress::new(uri, port).unwrap();
        let expected = ExpectedHost::new(&address, bound);
        assert!(!expected.accepts(None));
        hosts.iter().map(|it| expected.accepts(Some(it))).collect()
    }

    #[test]
    fn loopback_names_with_the_bound_port_are_accepted_and_no_others() {
        let own = [
            "127.0.0.1:5555",
            "localhost:5555",
            "LOCALHOST:5555",
            "[::1]:5555",
        ];
        assert_eq!(accepted(None, None, 5555, &own), [true; 4]);
        let others = [
            "evil.example.com:5555",
            "evil.example.com",
            "127.0.0.1.evil.example.com:5555",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:05555",
            "127.0.0.1:5555:5555",
            "192.168.0.1:5555",
            "[::1]",
            "",
            ":5555",
        ];
        assert_eq!(accepted(None, None, 5555, &others), [false; 11]);
    }

    #[test]
    fn browsers_omit_the_default_port() {
        let hosts = ["127.0.0.1", "localhost", "[::1]", "localhost:80"];
        assert_eq!(accepted(None, Some(80), 80, &hosts), [true; 4]);
    }

    #[test]
    fn a_forwarded_callback_names_the_host_of_the_redirect_uri() {
        let hosts = [
            "a.example.com",
            "127.0.0.1:82",
            "b.example.com",
            "a.example.com:82",
        ];
        for uri in ["https://a.example.com/cb", "https://a.example.com:443/cb"] {
            let accepted = accepted(Some(uri), Some(82), 82, &hosts);
            assert_eq!(accepted, [true, true, false, false], "{uri}");
        }
        let uri = Some("https://a.example.com:8443/cb");
        let hosts = ["a.example.com:8443", "a.example.com"];
        assert_eq!(accepted(uri, Some(82), 82, &hosts), [true, false]);
        let uri = Some("http://localhost:81/cb");
        let hosts = ["localhost:81", "localhost:82", "localhost:83"];
        assert_eq!(accepted(uri, Some(82), 82, &hosts), [true, true, false]);
    }
}
