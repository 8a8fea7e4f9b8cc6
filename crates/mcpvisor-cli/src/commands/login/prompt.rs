//! Shows a login to the user, and waits for it. The listener races a callback that is pasted on stdin.

use std::future::pending;
use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

use mcpvisor::ServerHandle;
use mcpvisor::auth::mcpvisor_auth::AuthError;
use mcpvisor::auth::mcpvisor_auth::callback::MAX_CALLBACK_BYTES;
use mcpvisor::auth::mcpvisor_auth::config::Grant;
use mcpvisor::auth::mcpvisor_auth::login::{Login, LoginPrompt, Paster};
use mcpvisor::auth::mcpvisor_auth::record::CredentialRecord;
use tokio::sync::mpsc;

use super::{failed, refused};
use crate::args::LoginArgs;
use crate::browser;
use crate::failure::Failure;
use crate::output::printable;

/// Why there is no login.
pub(super) enum Problem {
    /// It could not be started: discovery, registration or the listener failed.
    NotStarted(AuthError),
    /// It was refused, or it was not finished.
    Failed(Failure),
}

/// Starts a login, shows it, and waits for the user.
pub(super) async fn run(
    login: Login,
    server: &ServerHandle,
    args: &LoginArgs,
    limit: Duration,
) -> Result<CredentialRecord, Problem> {
    let done = |error| Problem::Failed(refused(server, error));
    if args.device || matches!(login.grant(), Grant::DeviceCode) {
        let pending = login.device().await.map_err(Problem::NotStarted)?;
        show(&pending.prompt(), args);
        return pending.finish(limit).await.map_err(done);
    }
    let pending = login.begin().await.map_err(Problem::NotStarted)?;
    show(&pending.prompt(), args);
    let (paster, listening) = (pending.paster(), pending.is_listening());
    tokio::select! {
        record = pending.finish(limit) => record.map_err(done),
        () = paste(&paster, listening) => {
            let problem = "no callback was pasted, and none can be received";
            Err(Problem::Failed(failed(server, problem)))
        }
    }
}

/// Prints where to log in, and opens the browser.
fn show(prompt: &LoginPrompt<'_>, args: &LoginArgs) {
    let server = &args.name;
    match prompt {
        LoginPrompt::Browser {
            authorization_url,
            listening,
            ..
        } => {
            print(&format!("Log in to {server} in a browser:\n\n"));
            print(&format!("  {}\n\n", printable(authorization_url)));
            let opened = !args.no_browser && browser::open(authorization_url);
            let hint = match (opened, listening) {
                (_, false) => "Then paste the URL that the browser ends on.\n",
                (true, true) => {
                    "The browser was opened. If it is on another machine, paste the URL that it ends on.\n"
                }
                (false, true) => {
                    "If the browser is on another machine, paste the URL that it ends on.\n"
                }
            };
            print(hint);
        }
        LoginPrompt::Device {
            user_code,
            verification_uri,
            expires_in,
            ..
        } => {
            let (code, url) = (printable(user_code), printable(verification_uri));
            let minutes = expires_in.as_secs().div_ceil(60);
            print(&format!(
                "Log in to {server}: open {url} and enter the code {code}. It expires in {minutes} min.\n"
            ));
        }
        _ => {}
    }
}

/// Passes pasted lines to the login. Ends only if no callback can arrive any more.
async fn paste(paster: &Paster, listening: bool) {
    let mut lines = read_lines();
    while let Some(line) = lines.recv().await {
        if line.trim().is_empty() {
            continue;
        }
        match paster.paste(&line) {
            Ok(()) => return pending().await,
            Err(reason) => print(&format!("Ignored: {reason}.\n")),
        }
    }
    if listening {
        pending().await
    }
}

/// The lines of stdin. A read cannot be cancelled, so the thread ends with the process.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            // A longer line is read in parts, and none of them is a callback.
            let limit = u64::try_from(MAX_CALLBACK_BYTES).unwrap_or(u64::MAX);
            match stdin.by_ref().take(limit).read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {}
                _ => break,
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
