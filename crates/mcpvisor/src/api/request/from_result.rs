//! The result types of the protocol that a request can return.

use rmcp::model::ServerResult;
use serde_json::Value;

/// A result type of a [`Request`](crate::Request).
pub trait FromResult: Sized + sealed::Sealed {
    /// Converts the server's result, if it is of this type.
    #[doc(hidden)]
    fn from_result(result: ServerResult) -> Result<Self, &'static str>;
}

pub(super) mod sealed {
    /// Restricts the implementors to the protocol's results.
    pub trait Sealed {}
}

macro_rules! results {
    ($($variant:ident),* $(,)?) => {$(
        impl sealed::Sealed for rmcp::model::$variant {}
        impl FromResult for rmcp::model::$variant {
            fn from_result(result: ServerResult) -> Result<Self, &'static str> {
                match result {
                    ServerResult::$variant(result) => Ok(result),
                    // The reply was read as JSON: it might have required input.
                    ServerResult::CustomResult(result) => serde_json::from_value(result.0)
                        .map_err(|_| concat!("expected a ", stringify!($variant))),
                    _ => Err(concat!("expected a ", stringify!($variant))),
                }
            }
        }
    )*};
}

results!(
    CallToolResult,
    ListToolsResult,
    ListPromptsResult,
    GetPromptResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    CompleteResult,
);

impl sealed::Sealed for Value {}
impl FromResult for Value {
    fn from_result(result: ServerResult) -> Result<Self, &'static str> {
        match result {
            ServerResult::CustomResult(result) => Ok(result.0),
            // A server in this process answers with the types of rmcp.
            other => serde_json::to_value(other).map_err(|_| "expected JSON"),
        }
    }
}

impl sealed::Sealed for () {}
impl FromResult for () {
    fn from_result(_: ServerResult) -> Result<Self, &'static str> {
        // Servers are expected to send an empty object, but some send other results.
        Ok(())
    }
}
