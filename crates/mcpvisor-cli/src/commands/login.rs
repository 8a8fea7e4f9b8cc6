//! `login`: a person logs in to a server, with a browser or on another device.

mod prompt;

use std::time::Duration;

use mcpvisor::auth::mcpvisor_auth::AuthError;
use mcpvisor::auth::mcpvisor_auth::config::Grant;
use mcpvisor::auth::mcpvisor_auth::login::{LOGIN_TIMEOUT, Login};
use mcpvisor::auth::mcpvisor_auth::record::CredentialRecord;
use mcpvisor::auth::{Account, LoginError};
use mcpvisor::{FaultClass, ListKind, ListState, ServerHandle, ServerStatus, StateName};
use serde::Serialize;

use super::auth::expiry;
use crate::args::LoginArgs;
use crate::exit::Exit;
use crate::failure::{Failure, join_sentences, needs_authorization};
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{after_command, printable};
use crate::request::server_ready;

/// Limit for the connect that shows whether the server accepts the login.
const CHECK: Duration = Duration::from_secs(10);

/// The result, without the token.
#[derive(Debug, Serialize)]
struct Document<'a> {
    server: &'a str,
    /// False if the server needs no login; the other fields are absent then.
    needed: bool,
    #[serde(flatten)]
    account: Option<Account>,
}

pub(super) async fn run(args: &LoginArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = fleet::only(invocation.source()?.read_to_start()?, &args.name)?;
    fleet::warn(&config, &invocation.output);
    let until = invocation.deadline.ready_until(&config);
    fleet::with(config, invocation, async |runtime| {
        let server = server_ready::server(runtime, &args.name)?;
        let lists = [ListKind::Tools];
        let Some(status) = fleet::settled(&server, &lists, until).await else {
            return Err(server_ready::late(&server, &lists, &invocation.deadline));
        };
        let limit = invocation.deadline.remaining().unwrap_or(LOGIN_TIMEOUT);
        let account = tokio::select! {
            // The limit of the login passes at the same time, and is another error.
            biased;
            () = invocation.deadline.passed() => {
                let within = invocation.deadline.describe();
                let message = format!("{}: no login {within}", args.name);
                return Err(Failure::deadline(message).with_server(&args.name));
            }
            account = log_in(&server, &status, args, limit) => account?,
        };
        let document = Document {
            server: &args.name,
            needed: account.is_some(),
            account,
        };
        invocation.output.result(&document, || document.render())
    })
    .await
}

/// Logs in, unless the server needs no login.
async fn log_in(
    server: &ServerHandle,
    status: &ServerStatus,
    args: &LoginArgs,
    limit: Duration,
) -> Result<Option<Account>, Failure> {
    let connected = status.state == StateName::Connected;
    if !connected && status.state != StateName::Disabled && !needs_authorization(status) {
        return Err(server_ready::unreachable(server, status));
    }
    let login = match server.login() {
        Ok(login) if needs_person(&login) => login,
        Ok(_) | Err(LoginError::NotUsed { .. }) if connected => return Ok(None),
        Ok(_) | Err(LoginError::NotUsed { .. }) if needs_authorization(status) => {
            return Err(Failure::unreachable(status));
        }
        Ok(_) => return Err(failed(server, "its grant needs no login")),
        Err(error) => return Err(Failure::config(error).with_server(&args.name)),
    };
    let account = match &args.account {
        Some(account) => account.clone(),
        None => server.configured_account().map_err(Failure::config)?,
    };
    let optional = connected && is_optional(server, status, args, &account).await?;
    let login = login
        .account(account.clone())
        .extra_scopes(args.scopes.clone());
    let record = match prompt::run(login, server, args, limit).await {
        // No authorization server was found, and none is needed.
        Err(prompt::Problem::NotStarted(error)) if optional => {
            tracing::info!(server = args.name, %error, "no login is possible");
            return Ok(None);
        }
        Err(prompt::Problem::NotStarted(error)) => return Err(refused(server, error)),
        Err(prompt::Problem::Failed(failure)) => return Err(failure),
        Ok(record) => record,
    };
    if !connected && server.configured_account().ok() == Some(account) {
        check(server, status).await?;
    }
    Ok(Some(saved(server, &record).await?))
}

fn needs_person(login: &Login) -> bool {
    matches!(login.grant(), Grant::AuthorizationCode | Grant::DeviceCode)
}

/// Whether a connected server may need no login at all.
async fn is_optional(
    server: &ServerHandle,
    status: &ServerStatus,
    args: &LoginArgs,
    account: &str,
) -> Result<bool, Failure> {
    let refused = match status.list(ListKind::Tools) {
        ListState::Failed(fault) => fault.class == FaultClass::Authorization,
        _ => false,
    };
    let requested = args.device || args.account.is_some() || !args.scopes.is_empty();
    let accounts = server.accounts().await.map_err(Failure::unexpected)?;
    let stored = accounts.logins.iter().any(|it| it.account == account);
    Ok(!refused && !requested && !stored)
}

/// Waits for the connect with the new login. Only a refusal is a failure: the login is saved.
async fn check(server: &ServerHandle, before: &ServerStatus) -> Result<(), Failure> {
    if before.state == StateName::Disabled {
        return Ok(());
    }
    let reloaded = server.reload_credential().await;
    reloaded.map_err(Failure::unexpected)?;
    let mut status = server.watch();
    let settled = status.wait_for(|status| {
        let done = [StateName::Connected, StateName::PermanentlyFailed];
        status.generation != before.generation && done.contains(&status.state)
    });
    drop(tokio::time::timeout(CHECK, settled).await);
    let status = server.status();
    match &status.last_error {
        Some(fault) if status.state == StateName::PermanentlyFailed => {
            let problem = format!("refuses the new login: {fault}");
            let problem = join_sentences([Some(problem), after_command(&status)]);
            Err(failed(server, &problem))
        }
        _ => Ok(()),
    }
}

/// The login as stored.
async fn saved(server: &ServerHandle, record: &CredentialRecord) -> Result<Account, Failure> {
    let accounts = server.accounts().await.map_err(Failure::unexpected)?;
    let key = &record.key;
    let is_new = |it: &Account| it.account == key.account && it.issuer == key.issuer;
    let saved = accounts.logins.into_iter().find(is_new);
    saved.ok_or_else(|| Failure::unexpected("the login was not stored"))
}

/// A login that failed, whatever the reason: authorization is still needed.
fn refused(server: &ServerHandle, error: AuthError) -> Failure {
    failed(server, &error.to_string())
}

fn failed(server: &ServerHandle, problem: &str) -> Failure {
    let name = server.name().as_str();
    Failure::login_refused(format!("{name}: {problem}")).with_server(name)
}

impl Document<'_> {
    fn render(&self) -> String {
        let server = self.server;
        let Some(account) = &self.account else {
            return format!("{server} needs no login.\n");
        };
        let name = match account.account.as_str() {
            "" => String::new(),
            name => format!(" as {}", printable(name)),
        };
        let scopes = match account.scopes.is_empty() {
            true => String::new(),
            false => format!(" (scopes: {})", printable(&account.scopes.join(" "))),
        };
        let expires = match expiry(account) {
            Some(left) => format!(" Expires in {left}."),
            None => String::new(),
        };
        let unused = match account.in_use || account.account.is_empty() {
            true => String::new(),
            false => format!(" {server} uses another account: set \"auth.account\" in its entry."),
        };
        format!("Logged in to {server}{name}{scopes}.{expires}{unused}\n")
    }
}
