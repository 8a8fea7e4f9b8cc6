//! `weather`: a forecast that is always the same, from a server that can be made to flap.

use std::path::PathBuf;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::JsonSchema;
use rmcp::service::NotificationContext;
use rmcp::{RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Clone)]
pub(super) struct Weather {
    flap_while: Option<PathBuf>,
}

/// The arguments of `forecast`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Forecast {
    /// Which place.
    city: String,
}

#[tool_router]
impl Weather {
    pub(super) fn new(flap_while: Option<PathBuf>) -> Self {
        Self { flap_while }
    }

    /// Tell tomorrow's weather.
    #[tool(annotations(read_only_hint = true))]
    async fn forecast(&self, Parameters(wish): Parameters<Forecast>) -> CallToolResult {
        CallToolResult::structured(json!({
            "city": wish.city,
            "sky": "sunny",
            "pid": std::process::id(),
        }))
    }
}

#[tool_handler(name = "weather", version = "1.0.0")]
impl ServerHandler for Weather {
    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {
        if self.flap_while.as_ref().is_some_and(|file| file.exists()) {
            std::process::exit(1);
        }
    }
}
