//! `notes`: a file with one note per line. Appending has an effect, searching has none.

use std::path::PathBuf;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::schemars::JsonSchema;
use rmcp::{ErrorData, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::json;

use super::Journal;
use super::journal::append_line;

/// Maximum delay of a held answer.
const MAX_HOLD: Duration = Duration::from_secs(10);

/// How often a held call polls its flag file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub(super) struct Notes {
    /// One note per line.
    pub(super) file: PathBuf,
    pub(super) journal: Journal,
    /// Calls with `hold` are not answered while this file exists.
    pub(super) hold_while: Option<PathBuf>,
}

/// The arguments of `append`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Append {
    /// The note, one line.
    text: String,
    /// Write the note, but delay the answer.
    #[serde(default)]
    hold: bool,
}

/// The arguments of `search`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Search {
    /// What the notes must contain; empty finds all.
    #[serde(default)]
    text: String,
    /// Delay the answer.
    #[serde(default)]
    hold: bool,
}

#[tool_router]
impl Notes {
    /// Append a note.
    #[tool(annotations(read_only_hint = false, idempotent_hint = false))]
    async fn append(
        &self,
        Parameters(args): Parameters<Append>,
    ) -> Result<CallToolResult, ErrorData> {
        append_line(&self.file, &args.text).map_err(failed)?;
        if args.hold {
            self.hold("append").await;
        }
        Ok(answer(json!({ "written": true })))
    }

    /// Find notes.
    #[tool(annotations(read_only_hint = true))]
    async fn search(
        &self,
        Parameters(args): Parameters<Search>,
    ) -> Result<CallToolResult, ErrorData> {
        if args.hold {
            self.hold("search").await;
        }
        let notes = self.read().map_err(failed)?;
        let found: Vec<&str> = notes
            .lines()
            .filter(|note| note.contains(&args.text))
            .collect();
        Ok(answer(json!({ "count": found.len() })))
    }

    fn read(&self) -> std::io::Result<String> {
        match std::fs::read_to_string(&self.file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }

    async fn hold(&self, call: &str) {
        self.journal.began(call);
        let held = async {
            while self.hold_while.as_ref().is_some_and(|file| file.exists()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        // After the maximum delay it answers anyway.
        let _ = tokio::time::timeout(MAX_HOLD, held).await;
    }
}

#[tool_handler(name = "notes", version = "1.0.0")]
impl ServerHandler for Notes {}

/// An answer with the process id.
fn answer(mut value: serde_json::Value) -> CallToolResult {
    value["pid"] = json!(std::process::id());
    CallToolResult::structured(value)
}

fn failed(error: std::io::Error) -> ErrorData {
    ErrorData::internal_error(format!("cannot access the notes: {error}"), None)
}
