//! `auth`: the stored logins of all servers, without their tokens.

use std::path::PathBuf;
use std::time::SystemTime;

use mcpvisor::auth::mcpvisor_auth::AuthError;
use mcpvisor::auth::mcpvisor_auth::store::UnreadableRecord;
use mcpvisor::auth::{Account, LoginError, UnreadableLogin};
use mcpvisor::{Config, Runtime, ServerHandle};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Table, TextFormat, sentence, suggest_command};
use crate::request::server_ready;

/// What to do about a file that belongs to no account of a configured server.
pub(super) const UNASSIGNED_ACTION: &str = "It belongs to no server of this config, or to another \
    account: run `mcpvisor logout NAME --account ACCOUNT`, or remove the file.";

/// One stored login.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Listed {
    Login {
        server: String,
        #[serde(flatten)]
        account: Account,
    },
    /// One that cannot be read.
    Unreadable {
        /// `None` if it belongs to no account of a configured server.
        server: Option<String>,
        account: Option<String>,
        /// Always false.
        in_use: bool,
        file: PathBuf,
        problem: String,
        /// What to do about it.
        action: String,
    },
}

pub(super) async fn run(invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = invocation.source()?.read()?;
    fleet::warn(&config, &invocation.output);
    fleet::with(without_starting(config), invocation, async |runtime| {
        let unassigned = unassigned_files(runtime).await;
        let unassigned = unassigned.map_err(Failure::unexpected)?;
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
            let name = name.to_string();
            listed.extend(accounts.logins.into_iter().map(|account| Listed::Login {
                server: name.clone(),
                account,
            }));
            let unreadable = accounts.unreadable.into_iter();
            listed.extend(unreadable.map(|login| Listed::Unreadable {
                action: unreadable_action(&server, &login),
                server: Some(name.clone()),
                account: Some(login.account),
                in_use: false,
                file: login.file,
                problem: login.problem,
            }));
        }
        listed.extend(unassigned.into_iter().map(|file| Listed::Unreadable {
            server: None,
            account: None,
            in_use: false,
            file: file.path,
            problem: file.problem,
            action: UNASSIGNED_ACTION.to_owned(),
        }));
        invocation.output.result(&listed, || render(&listed))
    })
    .await
}

/// What to do about a login that cannot be read.
pub(super) fn unreadable_action(server: &ServerHandle, login: &UnreadableLogin) -> String {
    let (name, account) = (server.name().as_str(), login.account.as_str());
    let configured = server.configured_account().unwrap_or_default();
    let logout = match account == configured {
        true => suggest_command(&["logout", name]),
        false => suggest_command(&["logout", name, "--account", account]),
    };
    match login.remedy {
        Some(remedy) => sentence(&format!("{remedy}, or run `{logout}` and log in again")),
        None => format!("Run `{logout}`, then log in again."),
    }
}

/// The unreadable files of the token store that belong to no account of a configured server.
pub(super) async fn unassigned_files(
    runtime: &Runtime,
) -> Result<Vec<UnreadableRecord>, AuthError> {
    let files = runtime.unreadable_logins().await;
    let mut files = files.map_err(|error| AuthError::Store(error.to_string()))?;
    for name in runtime.servers() {
        if let Ok(server) = runtime.server(name.as_str())
            && let Ok(accounts) = server.accounts().await
        {
            files.retain(|file| !accounts.unreadable.iter().any(|it| it.file == file.path));
        }
    }
    Ok(files)
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
        "SERVER", "ACCOUNT", "IN USE", "EXPIRES", "RENEWED", "STORE", "ISSUER", "SCOPES", "NOTE",
    ]);
    listed.iter().for_each(|listed| table.row(listed.cells()));
    table.render(TextFormat::of_stdout())
}

impl Listed {
    fn cells(&self) -> [String; 9] {
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let or_dash = |text: &str| match text.is_empty() {
            true => "-".to_owned(),
            false => text.to_owned(),
        };
        match self {
            Self::Login { server, account } => [
                server.clone(),
                or_dash(&account.account),
                yes_no(account.in_use),
                match expiry(account).as_deref() {
                    None => "-".to_owned(),
                    Some("0 s") => "expired".to_owned(),
                    Some(left) => format!("in {left}"),
                },
                yes_no(account.refreshable),
                account.store.to_owned(),
                account.issuer.clone(),
                or_dash(&account.scopes.join(" ")),
                match &account.rejected {
                    Some(reason) => format!("rejected: {reason}"),
                    None => String::new(),
                },
            ],
            Self::Unreadable {
                server,
                account,
                in_use,
                file,
                problem,
                action,
            } => [
                or_dash(server.as_deref().unwrap_or_default()),
                or_dash(account.as_deref().unwrap_or_default()),
                yes_no(*in_use),
                or_dash(""),
                or_dash(""),
                or_dash(""),
                or_dash(""),
                or_dash(""),
                format!("{} {problem}. {action}", file.display()),
            ],
        }
    }
}
