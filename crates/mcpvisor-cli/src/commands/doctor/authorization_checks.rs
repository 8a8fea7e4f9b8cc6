//! Checks of a server's authorization: issuer, token store, logins and scopes.

use mcpvisor::auth::{Account, LoginError};
use mcpvisor::{Action, Runtime, ServerHandle, ServerStatus};

use super::super::auth::{UNASSIGNED_ACTION, expiry, unassigned_files, unreadable_action};
use super::report::Check;
use crate::failure::needs_authorization;
use crate::output::{action_text, server_notes};

/// Checks a server that uses logins.
pub(super) async fn check(server: &ServerHandle, status: &ServerStatus) -> Vec<Check> {
    let accounts = match server.accounts().await {
        Ok(accounts) => accounts,
        Err(LoginError::NotUsed { .. }) => return Vec::new(),
        Err(LoginError::InvalidConfig { problem, .. }) => {
            return vec![Check::bad("login", problem, "Correct \"auth\".")];
        }
        Err(error) => {
            let action = "Fix the state folder, or set MCPVISOR_STATE_DIR.";
            return vec![Check::bad("token store", error.to_string(), action)];
        }
    };
    let mut checks: Vec<Check> = token_store(server).await.into_iter().collect();
    if let Some(note) = server_notes::unsaved_login(status) {
        checks.push(Check::bad("login", note.text, note.action));
    }
    if needs_authorization(status) {
        checks.extend(issuer(server).await);
    }
    let configured = server.configured_account().unwrap_or_default();
    let has_login = accounts.logins.iter().any(|it| it.in_use);
    checks.extend(accounts.unreadable.iter().map(|login| {
        let detail = format!("{} {}", login.file.display(), login.problem);
        let action = unreadable_action(server, login);
        // The server fails for it unless it has a newer login, or uses another account.
        match has_login || login.account != configured {
            true => Check::warning("login", detail, action),
            false => Check::bad("login", detail, action),
        }
    }));
    for account in &accounts.logins {
        checks.push(login(server, account));
        if account.account == configured {
            checks.extend(scopes(server, account));
        }
    }
    checks
}

/// Checks whether a login or a renewed token can be saved.
async fn token_store(server: &ServerHandle) -> Option<Check> {
    match server.check_token_store().await {
        Err(LoginError::NotWritable {
            problem, action, ..
        }) => Some(Check::bad(
            "token store",
            format!("logins cannot be saved: {problem}"),
            action_text(server.name().as_str(), &action),
        )),
        _ => None,
    }
}

/// Checks whether the token store has files that cannot be read and belong to no server.
pub(super) async fn unassigned(runtime: &Runtime) -> Vec<Check> {
    let files = unassigned_files(runtime).await.unwrap_or_default();
    let warnings = files.iter().map(|file| {
        let detail = format!("{} {}", file.path.display(), file.problem);
        Check::warning("token store", detail, UNASSIGNED_ACTION)
    });
    warnings.collect()
}

/// Checks whether the authorization server can be found.
async fn issuer(server: &ServerHandle) -> Option<Check> {
    Some(match server.login().ok()?.discover_issuer().await {
        Ok(issuer) => Check::good("issuer", issuer),
        Err(error) => Check::bad(
            "issuer",
            error.to_string(),
            "Check that the authorization server is reachable.",
        ),
    })
}

/// Checks whether a stored login is valid.
fn login(server: &ServerHandle, account: &Account) -> Check {
    let name = match account.account.as_str() {
        "" => String::new(),
        name => format!("{name}, "),
    };
    let left = expiry(account);
    let expired = left.as_deref() == Some("0 s") && !account.refreshable;
    let problem = match &account.rejected {
        Some(reason) => Some(format!("{name}rejected by {} ({reason})", account.issuer)),
        None if expired => Some(format!("{name}expired")),
        None => None,
    };
    if let Some(problem) = problem {
        let scopes = Vec::new();
        let action = action_text(server.name().as_str(), &Action::Login { scopes });
        return Check::bad("login", problem, action);
    }
    let expires = match (left, account.refreshable) {
        (_, true) => "renewed automatically".to_owned(),
        (Some(left), false) => format!("expires in {left}"),
        (None, false) => "no known expiry".to_owned(),
    };
    let (issuer, store) = (&account.issuer, account.store);
    Check::good("login", format!("{name}{expires}, {issuer}, store {store}"))
}

/// Checks whether the server demanded scopes that the login lacks.
fn scopes(server: &ServerHandle, account: &Account) -> Option<Check> {
    let Action::Login { scopes } = server.authorization_action() else {
        return None;
    };
    let missing = scopes.into_iter().filter(|it| !account.scopes.contains(it));
    let scopes: Vec<String> = missing.collect();
    if scopes.is_empty() {
        return None;
    }
    let detail = format!("missing: {}", scopes.join(" "));
    let action = action_text(server.name().as_str(), &Action::Login { scopes });
    Some(Check::bad("scopes", detail, action))
}
