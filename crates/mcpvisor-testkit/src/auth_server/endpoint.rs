//! The endpoints of both servers, and their paths.

use std::str::FromStr;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// The metadata of the authorization server.
    Metadata,
    /// `/register`
    Register,
    /// `/authorize`
    Authorize,
    /// The answer of the login page.
    Decision,
    /// `/token`
    Token,
    /// `/revoke`
    Revoke,
    /// `/device_authorization`
    DeviceAuthorization,
    /// The page where a user enters the code of a device.
    DevicePage,
    /// The metadata of the protected server.
    ResourceMetadata,
    /// The MCP endpoint of the protected server.
    Mcp,
    /// `/control/…`
    Control,
    /// Any other path.
    Unknown,
}

/// The endpoints below the issuer's path.
const PATHS: &[(Endpoint, &str)] = &[
    (Endpoint::Register, "/register"),
    (Endpoint::Authorize, "/authorize"),
    (Endpoint::Decision, "/decision"),
    (Endpoint::Token, "/token"),
    (Endpoint::Revoke, "/revoke"),
    (Endpoint::DeviceAuthorization, "/device_authorization"),
    (Endpoint::DevicePage, "/device"),
];

impl Endpoint {
    /// The endpoint at a path below the issuer's.
    pub(super) fn at(path: &str) -> Self {
        let known = PATHS.iter().find(|(_, known)| *known == path);
        known.map_or(Self::Unknown, |(endpoint, _)| *endpoint)
    }

    /// The path below the issuer's.
    pub(super) fn path(self) -> &'static str {
        let known = PATHS.iter().find(|(endpoint, _)| *endpoint == self);
        known.map_or("", |(_, path)| path)
    }

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Register => "register",
            Self::Authorize => "authorize",
            Self::Decision => "decision",
            Self::Token => "token",
            Self::Revoke => "revoke",
            Self::DeviceAuthorization => "device_authorization",
            Self::DevicePage => "device",
            Self::ResourceMetadata => "resource_metadata",
            Self::Mcp => "mcp",
            Self::Control => "control",
            Self::Unknown => "unknown",
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let others = [Self::Metadata, Self::ResourceMetadata, Self::Mcp];
        let mut known = PATHS.iter().map(|(endpoint, _)| *endpoint).chain(others);
        let found = known.find(|endpoint| endpoint.name() == text);
        found.ok_or_else(|| format!("no endpoint {text:?}"))
    }
}
