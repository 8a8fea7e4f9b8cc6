//! `weather`: a forecast that is always the same, from a server that can be made to flap.

use std::path::PathBuf;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, DiscoverResult};
use rmcp::schemars::JsonSchema;
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::json;

/// The answer to a handshake is written by then.
const ANSWERED: Duration = Duration::from_millis(20);

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

    /// The handshake of the modern era, after which nothing is told to the server.
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if self.flaps() {
            tokio::spawn(async {
                tokio::time::sleep(ANSWERED).await;
                std::process::exit(1);
            });
        }
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }
}
