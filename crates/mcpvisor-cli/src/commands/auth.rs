//! `auth`: the stored logins of all servers, without their tokens.

use std::time::SystemTime;

use mcpvisor::Config;
use mcpvisor::auth::{Account, LoginError};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Table, TextFormat};
use crate::request::server_ready;

/// One stored login.
#[derive(Debug, Serialize)]
struct Listed {
    server: String,
    #[serde(flatten)]
    account: Account,
}

pub(super) async fn run(invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = invocation.source()?.read()?;
    fleet::warn(&config, &invocation.output);
    fleet::with(without_starting(config), invocation, async |runtime| {
        let mut listed = Vec::new();
        for name in runtime.servers() {
            let server = server_ready::server(runtime, name.as_str())?;
            let accounts = match server.accounts().await {
                Ok(accounts) => accounts,
                Err(LoginError::NotUsed { .. }) => continue,
                Err(error) => {
                    let failure = Failure::unexpected(error).with_server(name.as_str());
                    invocation.output.partial_failure(&failure);
                    continue;
                }
            };
            let server = name.to_string();
            listed.extend(accounts.into_iter().map(|account| Listed {
                server: server.clone(),
                account,
            }));
        }
        invocation.output.result(&listed, || render(&listed))
    })
    .await
}

/// The same config with every server disabled: its logins can be used, and nothing is started.
pub(super) fn without_starting(mut config: Config) -> Config {
    for server in &mut config.servers {
        server.enabled = false;
    }
    config
}

/// The time until the access token expires, if that is known.
pub(super) fn expiry(account: &Account) -> Option<String> {
    let left = account.expires_at?.duration_since(SystemTime::now());
    let seconds = left.unwrap_or_default().as_secs();
    Some(match seconds {
        172_800.. => format!("{} days", seconds / 86_400),
        7_200.. => format!("{} h", seconds / 3_600),
        120.. => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    })
}

fn render(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "No logins. Log in with `mcpvisor login NAME`.\n".to_owned();
    }
    let mut table = Table::new([
        "SERVER", "ACCOUNT", "EXPIRES", "RENEWED", "STORE", "ISSUER", "SCOPES", "NOTE",
    ]);
    for Listed { server, account } in listed {
        let or_dash = |text: String| match text.is_empty() {
            true => "-".to_owned(),
            false => text,
        };
        let expires = match expiry(account).as_deref() {
            None => "-".to_owned(),
            Some("0 s") => "expired".to_owned(),
            Some(left) => format!("in {left}"),
        };
        table.row([
            server.clone(),
            or_dash(account.account.clone()),
            expires,
            if account.refreshable { "yes" } else { "no" }.to_owned(),
            account.store.to_owned(),
            account.issuer.clone(),
            or_dash(account.scopes.join(" ")),
            match &account.rejected {
                Some(reason) => format!("rejected: {reason}"),
                None => String::new(),
            },
        ]);
    }
    table.render(TextFormat::of_stdout())
}
