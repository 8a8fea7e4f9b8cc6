//! Which addresses a request may go to.

use std::net::IpAddr;

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
    /// The policy for requests on behalf of a server that has these addresses.
    pub fn for_server(_addresses: &[IpAddr]) -> Self {
        todo!()
    }

    /// Whether this address may be dialled. Link-local ones never are.
    pub fn permits(self, _address: IpAddr) -> bool {
        todo!()
    }
}
