//! Servers that bypass the proxy, regardless of the proxy variables.
//!
//! The proxy matcher of hyper-util handles names, domains and networks in `NO_PROXY`. This file
//! handles what it lacks: `*`, a host with a port, and loopback addresses.

use std::net::IpAddr;

use super::target::Target;

/// The parsed `NO_PROXY` variable.
#[derive(Debug, Default)]
pub(super) struct NoProxy {
    /// The list contains `*`.
    all: bool,
    /// Entries with a host and a port.
    hosts: Vec<(String, u16)>,
}

impl NoProxy {
    pub(super) fn from_env() -> Self {
        let names = ["NO_PROXY", "no_proxy"];
        let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
        Self::parse(&values.find(|value| !value.is_empty()).unwrap_or_default())
    }

    fn parse(list: &str) -> Self {
        let entries = list.split(',').map(str::trim);
        Self {
            all: entries.clone().any(|entry| entry == "*"),
            hosts: entries.filter_map(host_and_port).collect(),
        }
    }

    /// Whether a server is reached directly. Loopback addresses always are: a remote proxy would
    /// connect to itself.
    pub(super) fn matches(&self, target: &Target) -> bool {
        let host = normalize(target.authority.host());
        let is_loopback = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        let is_listed =
            |(name, port): &(String, u16)| *name == host && Some(*port) == target.port();
        self.all || is_loopback || self.hosts.iter().any(is_listed)
    }
}

/// The host and the port of an entry that has both.
fn host_and_port(entry: &str) -> Option<(String, u16)> {
    let (host, port) = entry.rsplit_once(':')?;
    // Without brackets, the colons belong to an IPv6 address.
    let is_host = !host.contains(':') || host.ends_with(']');
    is_host.then_some((normalize(host), port.parse().ok()?))
}

/// A host in lower case, without brackets and without the final dot.
fn normalize(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::http::HttpEndpoint;

    fn is_direct(list: &str, url: &str) -> bool {
        let target = Target::new(&HttpEndpoint::new(url), |_| None).unwrap();
        NoProxy::parse(list).matches(&target)
    }

    #[test]
    fn this_machine_is_reached_without_a_proxy() {
        for url in [
            "http://127.0.0.1:1/mcp",
            "http://127.9.9.9/mcp",
            "https://LOCALHOST/mcp",
            "http://a.localhost:8080/mcp",
            "http://[::1]:1/mcp",
            "http://[::ffff:127.0.0.1]/mcp",
        ] {
            assert!(is_direct("", url), "{url}");
        }
        for url in ["http://10.0.0.1/mcp", "http://localhost.example/mcp"] {
            assert!(!is_direct("", url), "{url}");
        }
    }

    #[test]
    fn the_list_may_contain_a_wildcard_or_a_host_with_a_port() {
        assert!(is_direct("*", "http://10.0.0.1/mcp"));
        assert!(is_direct("a.example, *", "http://b.example/mcp"));
        let list = "10.0.0.1:8080,Two.example:443,[fe80::1]:80";
        assert!(is_direct(list, "http://10.0.0.1:8080/mcp"));
        assert!(is_direct(list, "https://two.example/mcp"));
        assert!(is_direct(list, "http://[fe80::1]/mcp"));
        assert!(!is_direct(list, "http://10.0.0.1:8081/mcp"));
        assert!(!is_direct(list, "http://two.example/mcp"));
    }
}
