//! The link to a server that is reached over Streamable HTTP.

mod endpoint;

pub use self::endpoint::HttpEndpoint;
