//! The cost of authorization: a call with a stored OAuth token, compared with one whose config has
//! the same token in a header.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use mcpvisor::auth::StoreChoice;
use mcpvisor::auth::mcpvisor_auth::Secret;
use mcpvisor::auth::mcpvisor_auth::record::{
    ClientAuthMethod, ClientRecord, ClientSource, CredentialKey, CredentialRecord, Endpoints,
    RECORD_VERSION, TokenSet, unix_seconds,
};
use mcpvisor::auth::mcpvisor_auth::store::{CredentialStore as _, FileStore};
use mcpvisor::{Runtime, Transport};
use mcpvisor_files::state_dir::StateDir;

use crate::Outcome;
use crate::caller::{Callers, Load};
use crate::instructions;
use crate::ours::Ours;
use crate::report::{Both, Row};

use super::ours;
use super::server::Server;

/// The lifetime of the token, in seconds: longer than any measurement.
const LIFETIME: u64 = 86_400;

/// The length of a usual JWT.
const TOKEN_BYTES: usize = 800;

/// Where the token comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Credential {
    /// A header in the config.
    Header,
    /// A stored login.
    Login,
}

impl Credential {
    /// The word on the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Login => "login",
        }
    }
}

impl FromStr for Credential {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Self::Header, Self::Login]
            .into_iter()
            .find(|credential| credential.word() == word)
            .ok_or_else(|| format!("no credential {word}"))
    }
}

/// Instructions of a call with a stored token, over those with a header.
pub(crate) fn compare(callers: Callers, gate: Option<f64>) -> Outcome<Row> {
    let count = |credential: Credential| {
        instructions::per_call(&["authorized-client", credential.word()], callers)
    };
    let both = Both::of_figures(count(Credential::Login)?, count(Credential::Header)?);
    let measure = format!("http, {callers}: instructions with OAuth (bare: a header)");
    Ok(Row::ratio(measure, "Ir", both, gate))
}

/// The main function of a client process: connect, call, close.
pub(crate) async fn client(credential: Credential, load: Load) -> Outcome<()> {
    let token = "t".repeat(TOKEN_BYTES);
    let server = Server::protected(&token).await?;
    let state = Folder::new();
    let url = server.url();
    let endpoint = match credential {
        Credential::Header => {
            Transport::http(url).header("Authorization", format!("Bearer {token}"))
        }
        Credential::Login => {
            save_login(&state.0, url, token).await?;
            Transport::http(url)
        }
    };
    let runtime = Runtime::builder()
        .state_dir(&state.0)
        .auth_store(StoreChoice::File)
        .server(ours::server("bench", endpoint)?);
    let ours = Ours::start(runtime).await?;
    load.run(&ours.caller()?).await?;
    ours.close().await;
    Ok(())
}

/// Saves a login that is valid for the whole measurement.
async fn save_login(state: &Path, url: &str, token: String) -> Outcome<()> {
    let now = unix_seconds(SystemTime::now());
    let issuer = "http://127.0.0.1:1";
    let record = CredentialRecord {
        dpop: None,
        version: RECORD_VERSION,
        revision: 1,
        key: CredentialKey {
            server_url: url.to_owned(),
            issuer: issuer.to_owned(),
            resource: Some(url.to_owned()),
            account: String::new(),
        },
        client: ClientRecord {
            id: "bench".to_owned(),
            secret: None,
            secret_expires_at: None,
            auth_method: ClientAuthMethod::None,
            source: ClientSource::Registered,
            redirect_uri: None,
        },
        endpoints: Endpoints {
            token: format!("{issuer}/token"),
            revocation: None,
        },
        tokens: TokenSet {
            access: Secret::new(token),
            refresh: Some(Secret::new("refresh-token")),
            obtained_at: now,
            expires_at: Some(now + LIFETIME),
        },
        scopes: vec!["mcp".to_owned()],
        logged_in_at: now,
        rejected: None,
    };
    let store = FileStore::new(StateDir::new(state));
    Ok(store.save(record).await?)
}

/// A state folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("mcpvisor-bench-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
