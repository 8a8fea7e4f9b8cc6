//! What every host does with the library: start itself as a server, call it, lose it in mid-call,
//! call it again, and leave nothing behind.

use std::error::Error;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use mcpvisor::{CallError, Runtime, ServerConfig, Transport};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(30);

/// Is the server, if this process was started as one.
pub fn served() -> bool {
    if std::env::args().nth(1).as_deref() != Some("serve") {
        return false;
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(request) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "host", "version": "1" },
            }),
            Some("tools/list") => json!({ "tools": [] }),
            Some("tools/call") if request["params"]["name"] == "die" => std::process::exit(70),
            Some(_) => json!({ "content": [{ "type": "text", "text": "here" }] }),
            None => continue,
        };
        if !request["id"].is_null() {
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            let _ = writeln!(std::io::stdout(), "{answer}");
        }
    }
    true
}

/// The whole life of a fleet.
pub async fn live() -> Result<(), Box<dyn Error>> {
    let command = Transport::stdio(std::env::current_exe()?).arg("serve");
    let runtime = Runtime::builder()
        .server(ServerConfig::new("itself", command)?)
        .start()
        .await?;
    runtime.ready(DEADLINE).await?;
    let server = runtime.server("itself")?;
    server
        .call_tool("look", Value::Null)
        .deadline(DEADLINE)
        .await?;
    match server
        .call_tool("die", Value::Null)
        .deadline(DEADLINE)
        .await
    {
        Err(CallError::OutcomeUnknown { .. }) => {}
        other => return Err(format!("a call that died: {other:?}").into()),
    }
    server
        .call_tool("look", Value::Null)
        .deadline(DEADLINE)
        .await?;
    if server.status().generation.get() != 2 {
        return Err(format!("after one crash: {:?}", server.status()).into());
    }
    let report = runtime.shutdown(DEADLINE).await;
    if !report.is_clean() {
        return Err(format!("it did not close: {report:?}").into());
    }
    Ok(())
}

/// Says how it went.
pub fn verdict(host: &str, lived: Result<(), Box<dyn Error>>) -> ExitCode {
    match lived {
        Ok(()) => {
            println!("{host}: a fleet lived and ended here");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{host}: {error}");
            ExitCode::FAILURE
        }
    }
}
