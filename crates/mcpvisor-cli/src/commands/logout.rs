//! `logout`: removes a login, and revokes its tokens where the issuer can.

use std::path::PathBuf;
use std::time::Duration;

use mcpvisor::auth::LoginError;
use mcpvisor::auth::mcpvisor_auth::login::{LoggedOut, Revocation};
use serde::Serialize;

use super::auth::without_starting;
use crate::args::LogoutArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::printable;
use crate::request::server_ready;

/// What became of the logins of an account.
#[derive(Debug, Serialize)]
struct Document<'a> {
    server: &'a str,
    account: String,
    /// The number of logins; one per issuer.
    removed: usize,
    tokens: Vec<Outcome>,
    /// The files that could not be read, and are removed.
    unreadable: Vec<PathBuf>,
}

/// What became of the tokens of one login.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Revoked,
    NotSupported,
    Failed(String),
}

pub(super) async fn run(args: &LogoutArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let config = fleet::only(invocation.source()?.read()?, &args.name)?;
    fleet::warn(&config, &invocation.output);
    fleet::with(without_starting(config), invocation, async |runtime| {
        let server = server_ready::server(runtime, &args.name)?;
        let account = match (&args.account, server.configured_account()) {
            (Some(account), _) => account.clone(),
            (None, Ok(account)) => account,
            (None, Err(_)) => String::new(),
        };
        let limit = invocation.deadline.remaining().unwrap_or(Duration::MAX);
        let logged_out = match server.logout(&account, limit).await {
            Ok(logged_out) => logged_out,
            Err(LoginError::NotUsed { .. }) => LoggedOut::default(),
            Err(error) => return Err(failed(&error, invocation).with_server(&args.name)),
        };
        let unreadable = logged_out.unreadable.into_iter();
        let tokens = logged_out.revocations.into_iter().map(Outcome::from);
        let tokens: Vec<Outcome> = tokens.collect();
        let document = Document {
            server: &args.name,
            account,
            removed: tokens.len(),
            tokens,
            unreadable: unreadable.map(|file| file.path).collect(),
        };
        invocation.output.result(&document, || document.render())
    })
    .await
}

/// A logout that failed: nothing, or not everything, was removed.
fn failed(error: &LoginError, invocation: &Invocation<'_>) -> Failure {
    match invocation.deadline.remaining() {
        Some(Duration::ZERO) => Failure::deadline(error),
        Some(_) | None => Failure::unexpected(error),
    }
}

impl From<Revocation> for Outcome {
    fn from(revocation: Revocation) -> Self {
        match revocation {
            Revocation::Revoked => Self::Revoked,
            Revocation::NotSupported => Self::NotSupported,
            Revocation::Failed(error) => Self::Failed(error.to_string()),
            other => Self::Failed(format!("{other:?}")),
        }
    }
}

impl Document<'_> {
    fn render(&self) -> String {
        let server = match self.account.as_str() {
            "" => self.server.to_owned(),
            account => format!("{} as {}", self.server, printable(account)),
        };
        if self.tokens.is_empty() && self.unreadable.is_empty() {
            return format!("Not logged in to {server}.\n");
        }
        let text = |outcome: &Outcome| match outcome {
            Outcome::Revoked => "The tokens were revoked.".to_owned(),
            Outcome::NotSupported => {
                "The issuer cannot revoke tokens: they stay valid until they expire.".to_owned()
            }
            Outcome::Failed(problem) => format!(
                "The tokens could not be revoked, and may stay valid until they expire: {}",
                printable(problem)
            ),
        };
        let unreadable = self.unreadable.iter().map(|file| {
            let file = printable(&file.to_string_lossy());
            format!("Removed {file}, which could not be read: its tokens could not be revoked.")
        });
        let outcomes: Vec<String> = self.tokens.iter().map(text).chain(unreadable).collect();
        format!("Logged out of {server}. {}\n", outcomes.join(" "))
    }
}
