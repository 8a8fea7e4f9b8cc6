//! The result types of the protocol that a request can return.

use rmcp::model::ServerResult;
use serde_json::Value;

use crate::unknown_fields;

/// A result type of a [`Request`](crate::Request).
pub trait FromResult: Sized + sealed::Sealed {
    /// Converts the server's result, if it is of this type.
    #[doc(hidden)]
    fn from_result(result: ServerResult) -> Result<Self, String>;
}

pub(super) mod sealed {
    /// Restricts the implementors to the protocol's results.
    pub trait Sealed {}
}

macro_rules! results {
    ($decode:path: $($variant:ident),* $(,)?) => {$(
        impl sealed::Sealed for rmcp::model::$variant {}
        impl FromResult for rmcp::model::$variant {
            fn from_result(result: ServerResult) -> Result<Self, String> {
                let expected = concat!("expected a ", stringify!($variant));
                match result {
                    ServerResult::$variant(result) => Ok(result),
                    // The reply was read as JSON: it might have required input.
                    ServerResult::CustomResult(result) => {
                        $decode(result.0).map_err(|problem| format!("{expected}: {problem}"))
                    }
                    _ => Err(format!("{expected}, got another kind")),
                }
            }
        }
    )*};
}

results!(
    unknown_fields::from_value: CallToolResult,
    ListToolsResult,
    ListPromptsResult,
    GetPromptResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
);
results!(serde_json::from_value: CompleteResult);

impl sealed::Sealed for Value {}
impl FromResult for Value {
    fn from_result(result: ServerResult) -> Result<Self, String> {
        match result {
            ServerResult::CustomResult(result) => Ok(result.0),
            // A server in this process answers with the types of rmcp.
            other => serde_json::to_value(other).map_err(|problem| problem.to_string()),
        }
    }
}

impl sealed::Sealed for () {}
impl FromResult for () {
    fn from_result(_: ServerResult) -> Result<Self, String> {
        // Servers are expected to send an empty object, but some send other results.
        Ok(())
    }
}
