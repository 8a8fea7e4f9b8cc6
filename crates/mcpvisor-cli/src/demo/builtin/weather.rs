//! `weather`: a constant forecast, from a server that can be made to flap.

use std::path::PathBuf;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, DiscoverResult};
use rmcp::schemars::JsonSchema;
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::json;

/// Enough time to write the answer to a handshake.
const WRITE_TIME: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub(super) struct Weather {
    flap_while: Option<PathBuf>,
}

/// The arguments of `forecast`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Forecast {
    /// The city.
    city: String,
}

#[tool_router]
impl Weather {
    pub(super) fn new(flap_while: Option<PathBuf>) -> Self {
        Self { flap_while }
    }

    /// Get tomorrow's weather.
    #[tool(annotations(read_only_hint = true))]
    async fn forecast(&self, Parameters(args): Parameters<Forecast>) -> CallToolResult {
        CallToolResult::structured(json!({
            "city": args.city,
            "sky": "sunny",
            "pid": std::process::id(),
        }))
    }
}

impl Weather {
    fn flaps(&self) -> bool {
        self.flap_while.as_ref().is_some_and(|file| file.exists())
    }
}

#[tool_handler(name = "weather", version = "1.0.0")]
impl ServerHandler for Weather {
    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {
        if self.flaps() {
            std::process::exit(1);
        }
    }

    /// The handshake of the modern era, which has no `initialized` notification.
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if self.flaps() {
            tokio::spawn(async {
                tokio::time::sleep(WRITE_TIME).await;
                std::process::exit(1);
            });
        }
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }
}
