//! Servers that are reached without a proxy, whatever the environment says of proxies.
//!
//! Names, domains and networks in `NO_PROXY` are the matcher's business; what it does not know is
//! here.

use std::net::IpAddr;

use super::target::Target;

/// Who needs no proxy.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// Everybody.
    all: bool,
    /// A host and a port each.
    places: Vec<(String, u16)>,
}

impl Direct {
    pub(super) fn of_environment() -> Self {
        let named = ["NO_PROXY", "no_proxy"];
        let mut values = named.iter().filter_map(|name| std::env::var(name).ok());
        Self::read(&values.find(|value| !value.is_empty()).unwrap_or_default())
    }

    fn read(list: &str) -> Self {
        let entries = list.split(',').map(str::trim);
        Self {
            all: entries.clone().any(|entry| entry == "*"),
            places: entries.filter_map(place).collect(),
        }
    }

    /// Whether a server needs no proxy. A proxy is not on this machine to lead back to it.
    pub(super) fn contains(&self, target: &Target) -> bool {
        let host = bare(target.authority.host());
        let is_here = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        let named = |(name, port): &(String, u16)| *name == host && Some(*port) == target.port();
        self.all || is_here || self.places.iter().any(named)
    }
}

/// The host and the port of an entry that has both.
fn place(entry: &str) -> Option<(String, u16)> {
    let (host, port) = entry.rsplit_once(':')?;
    // An address of IPv6 without brackets is no host with a port.
    let is_host = !host.contains(':') || host.ends_with(']');
    is_host.then_some((bare(host), port.parse().ok()?))
}

fn bare(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::http::HttpEndpoint;

    fn is_direct(list: &str, url: &str) -> bool {
        let target = Target::check(&HttpEndpoint::new(url), |_| None).unwrap();
        Direct::read(list).contains(&target)
    }

    #[test]
    fn nobody_needs_a_proxy_to_reach_this_machine() {
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
    fn the_list_may_name_everybody_or_a_host_with_its_port() {
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
