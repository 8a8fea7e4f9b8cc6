//! `mcpvisor-authserver`: an authorization server and a protected MCP server as a program.
//!
//! It prints one line of JSON with its URLs and serves until its stdin is closed. Tests in other
//! processes control it over `/control/…`.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::fault::list_auth_faults;
use super::fault_queue::arm;
use super::options::{
    AuthOptions, AuthorizeMode, DpopRule, IssuerHost, MetadataLocation, NonceRule, ResourceRule,
};
use super::protected::{ProtectedOptions, ProtectedServer};
use super::server::AuthServer;
use crate::http_server::{HttpEra, ReplyKind};

const USAGE: &str = "\
usage: mcpvisor-authserver [OPTION]...
       mcpvisor-authserver --list-faults

  --lifetime MS       lifetime of access tokens (3600000)
  --no-rotation       a refresh keeps the refresh token
  --grace MS          a replaced refresh token may be used again for so long (0)
  --page              asks on a page instead of redirecting immediately
  --localhost         uses localhost in all URLs
  --issuer-path PATH  path of the issuer
  --oidc              serves the metadata as OpenID Connect does
  --no-registration   clients cannot register
  --client-documents  accepts https URLs as client ids
  --any-port          a loopback redirect URI may use any port
  --require-resource  refuses requests without a resource
  --dpop              binds tokens to keys, and the MCP server accepts no others
  --dpop-nonce        the same, and proofs need a nonce
  --sse               the MCP server replies with event streams
  --modern            the MCP server speaks only 2026-07-28
  --fault NAME[=VALUE][@ENDPOINT][*TIMES]
                      injects a fault; can be repeated

Prints one line of JSON with the URLs `issuer`, `mcp` and `control`. Ends with its stdin.
";

/// The parsed command line.
#[derive(Debug, Default)]
struct CommandLine {
    auth: AuthOptions,
    protected: ProtectedOptions,
    faults: Vec<String>,
}

/// The program: parses the command line, then serves.
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("--help") => io::stdout().write_all(USAGE.as_bytes()),
        Some("--list-faults") => io::stdout().write_all(fault_list().as_bytes()),
        _ => parse(words).map_err(io::Error::other).and_then(serve),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let _ = writeln!(io::stderr(), "mcpvisor-authserver: {problem}");
            ExitCode::from(2)
        }
    }
}

fn fault_list() -> String {
    let faults = list_auth_faults().into_iter();
    faults
        .map(|(usage, line)| format!("{usage:<40} {line}\n"))
        .collect()
}

fn parse(words: Vec<String>) -> Result<CommandLine, String> {
    let mut line = CommandLine::default();
    line.auth.control = true;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            let value = inline.clone().or_else(|| words.next());
            value.ok_or_else(|| format!("{name} needs a value"))
        };
        match name {
            "--lifetime" => line.auth.access_lifetime = millis(&value()?)?,
            "--grace" => line.auth.reuse_grace = millis(&value()?)?,
            "--no-rotation" => line.auth.rotate = false,
            "--page" => line.auth.mode = AuthorizeMode::Page,
            "--localhost" => {
                line.auth.host = IssuerHost::Localhost;
                line.protected.host = IssuerHost::Localhost;
            }
            "--issuer-path" => line.auth.path = value()?,
            "--oidc" => line.auth.metadata = vec![MetadataLocation::OidcAppended],
            "--no-registration" => line.auth.registration = false,
            "--client-documents" => line.auth.client_metadata_documents = true,
            "--any-port" => line.auth.any_loopback_port = true,
            "--require-resource" => line.auth.resource = ResourceRule::Required,
            "--dpop" => require_dpop(&mut line),
            "--dpop-nonce" => {
                require_dpop(&mut line);
                line.auth.nonces = NonceRule::OneTime;
                line.protected.nonces = NonceRule::OneTime;
            }
            "--sse" => line.protected.http.reply = ReplyKind::Sse,
            "--modern" => {
                line.protected.http.era = HttpEra::Modern;
                line.protected.http.sessions = false;
            }
            "--fault" => line.faults.push(value()?),
            other => return Err(format!("unknown option {other}\n{USAGE}")),
        }
    }
    Ok(line)
}

fn require_dpop(line: &mut CommandLine) {
    line.auth.dpop = true;
    line.protected.dpop = DpopRule::Required;
}

fn millis(text: &str) -> Result<Duration, String> {
    let number = text.parse().map(Duration::from_millis);
    number.map_err(|_| format!("not a number: {text:?}"))
}

fn serve(line: CommandLine) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let servers = runtime.block_on(async {
        let auth = AuthServer::start_with(line.auth).await;
        for fault in &line.faults {
            arm_word(&auth, fault).map_err(io::Error::other)?;
        }
        let server = ProtectedServer::start_with(&auth, line.protected).await;
        io::Result::Ok((auth, server))
    })?;
    let urls = json!({
        "issuer": servers.0.issuer(),
        "mcp": servers.1.url(),
        "control": servers.0.control_url(),
    });
    let mut stdout = io::stdout();
    writeln!(stdout, "{urls}")?;
    stdout.flush()?;
    // The runtime serves on its own threads meanwhile.
    io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink())?;
    drop(servers);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// Arms `NAME[=VALUE][@ENDPOINT][*TIMES]`.
fn arm_word(auth: &AuthServer, word: &str) -> Result<(), String> {
    let (word, times) = match word.rsplit_once('*') {
        Some((word, times)) => (word, Some(times)),
        None => (word, None),
    };
    let (fault, on) = match word.rsplit_once('@') {
        Some((fault, on)) => (fault, Some(on)),
        None => (word, None),
    };
    arm(auth.shared(), fault, on, None, times)
}
