//! Which addresses a request may go to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses a request may go to. Metadata is untrusted: it must not lead requests into the
/// private network, unless the MCP server itself is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Public addresses only.
    Public,
    /// Public, and private ones: the MCP server has a private address.
    Private,
    /// Public, private and loopback: the MCP server is on this machine.
    Loopback,
}

impl AddressPolicy {
    /// The policy for requests on behalf of a server that has these addresses. Addresses that are
    /// never dialled do not widen it.
    pub fn for_server(addresses: &[IpAddr]) -> Self {
        let is = |kind: Kind| move |address: &IpAddr| Kind::of(*address) == kind;
        if !addresses.is_empty() && addresses.iter().all(is(Kind::Loopback)) {
            Self::Loopback
        } else if addresses.iter().any(is(Kind::Private)) {
            Self::Private
        } else {
            Self::Public
        }
    }

    /// Whether this address may be dialled. Link-local ones never are.
    pub fn permits(self, address: IpAddr) -> bool {
        match Kind::of(address) {
            Kind::Public => true,
            Kind::Private => matches!(self, Self::Private | Self::Loopback),
            Kind::Loopback => self == Self::Loopback,
            Kind::Forbidden => false,
        }
    }
}

/// What an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Reachable from everywhere.
    Public,
    /// Of one network: private use, unique-local, carrier-grade NAT (which virtual networks use), and
    /// benchmarking (which local proxies hand out for every name).
    Private,
    /// This machine.
    Loopback,
    /// Link-local, multicast, reserved, documentation, IPv6 addresses that wrap an IPv4 one, and the
    /// addresses where clouds serve the credentials of a machine.
    Forbidden,
}

impl Kind {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [127, ..] => Self::Loopback,
            // Serves credentials in a cloud, amid carrier-grade NAT.
            [100, 100, 100, 200] => Self::Forbidden,
            [100, 64..=127, ..] => Self::Private,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [198, 18..=19, ..] => Self::Private,
            // This network; link-local; protocol assignments; documentation; the
            // 6to4 relay; multicast, reserved, broadcast.
            [0, ..]
            | [169, 254, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [224..=255, ..] => Self::Forbidden,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            // Teredo, documentation, 6to4.
            [0x2001, 0 | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => Self::Forbidden,
            [0x2000..=0x3fff, ..] => Self::Public,
            // NAT64: a network without IPv4 reaches IPv4 hosts so.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                let octets = [high.to_be_bytes(), low.to_be_bytes()].concat();
                let [a, b, c, d] = octets[..] else {
                    return Self::Forbidden;
                };
                match Self::of_v4(Ipv4Addr::new(a, b, c, d)) {
                    Self::Public => Self::Public,
                    Self::Private | Self::Loopback | Self::Forbidden => Self::Forbidden,
                }
            }
            // Serve credentials in clouds, amid unique-local addresses.
            [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] | [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254] => {
                Self::Forbidden
            }
            [0xfc00..=0xfdff, ..] => Self::Private,
            // Unspecified, IPv4-mapped and -compatible, discard, link-local, site-local, multicast
            // and everything unassigned.
            _ => Self::Forbidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn policy(addresses: &[&str]) -> AddressPolicy {
        let addresses: Vec<_> = addresses.iter().map(|text| ip(text)).collect();
        AddressPolicy::for_server(&addresses)
    }

    fn permitted(text: &str) -> [bool; 3] {
        [
            AddressPolicy::Public,
            AddressPolicy::Private,
            AddressPolicy::Loopback,
        ]
        .map(|policy| policy.permits(ip(text)))
    }

    #[test]
    fn public_addresses_are_always_permitted() {
        for text in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "64:ff9b::1.1.1.1",
        ] {
            assert_eq!(permitted(text), [true, true, true], "{text}");
        }
    }

    #[test]
    fn private_addresses_need_a_private_or_local_server() {
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "fc00::1",
            "fd12:3456::1",
        ] {
            assert_eq!(permitted(text), [false, true, true], "{text}");
        }
    }

    #[test]
    fn loopback_needs_a_local_server() {
        for text in ["127.0.0.1", "127.255.255.255", "::1"] {
            assert_eq!(permitted(text), [false, false, true], "{text}");
        }
    }

    #[test]
    fn link_local_special_and_wrapped_addresses_are_never_permitted() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.0.1",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::2",
            "::10.0.0.1",
            "::ffff:1.1.1.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:0a00:0001::1",
            "2002:0101:0101::1",
            "3fff::1",
            "4000::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert_eq!(permitted(text), [false, false, false], "{text}");
        }
    }

    #[test]
    fn a_server_on_loopback_opens_loopback() {
        assert_eq!(policy(&["127.0.0.1", "::1"]), AddressPolicy::Loopback);
    }

    #[test]
    fn one_public_address_keeps_loopback_closed() {
        assert_eq!(policy(&["127.0.0.1", "1.1.1.1"]), AddressPolicy::Public);
    }

    #[test]
    fn one_private_address_opens_the_private_network_only() {
        assert_eq!(policy(&["1.1.1.1", "10.0.0.1"]), AddressPolicy::Private);
        assert_eq!(policy(&["127.0.0.1", "10.0.0.1"]), AddressPolicy::Private);
    }

    #[test]
    fn link_local_and_missing_addresses_widen_nothing() {
        assert_eq!(policy(&["169.254.169.254"]), AddressPolicy::Public);
        assert_eq!(policy(&["fe80::1", "1.1.1.1"]), AddressPolicy::Public);
        assert_eq!(policy(&[]), AddressPolicy::Public);
    }
}
