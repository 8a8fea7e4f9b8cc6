//! `logout`: removes a login, and revokes its tokens where the issuer can.

use mcpvisor::auth::LoginError;
use mcpvisor::auth::mcpvisor_auth::login::Revocation;
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
        let revocations = match server.logout(&account).await {
            Ok(revocations) => revocations,
            Err(LoginError::NotUsed { .. }) => Vec::new(),
            Err(error) => return Err(Failure::unexpected(error).with_server(&args.name)),
        };
        let document = Document {
            server: &args.name,
            account,
            removed: revocations.len(),
            tokens: revocations.into_iter().map(Outcome::from).collect(),
        };
        invocation.output.result(&document, || document.render())
    })
    .await
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
        if self.tokens.is_empty() {
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
        let outcomes: Vec<String> = self.tokens.iter().map(text).collect();
        format!("Logged out of {server}. {}\n", outcomes.join(" "))
    }
}
