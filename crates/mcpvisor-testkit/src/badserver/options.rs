//! The command line.

use std::net::SocketAddr;

use super::fault::Fault;
use crate::http_server::{HttpEra, HttpFault, HttpOptions, ReplyKind};

pub(super) const USAGE: &str = "\
usage: mcpvisor-badserver [--fault NAME[=NUMBER]]...
       mcpvisor-badserver --http ADDRESS [--sse | --http-sse] [--stateless] [--modern] [--fault NAME[=NUMBER]]...
       mcpvisor-badserver --list-faults

An MCP server over stdio, Streamable HTTP or HTTP+SSE that misbehaves as it is told. Without a fault it is well-behaved. Its tool
`misbehave` takes {\"fault\": \"NAME[=NUMBER]\"} and lets a fault strike that one call.
";

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Options {
    Help,
    ListFaults,
    Serve(Vec<Fault>),
    ServeHttp(Http),
}

/// Options of a server over HTTP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Http {
    pub(super) address: SocketAddr,
    pub(super) options: HttpOptions,
    pub(super) faults: Vec<HttpFault>,
}

impl Options {
    pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut faults = Vec::new();
        let mut address = None;
        let mut options = HttpOptions::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => return Ok(Self::Help),
                "--list-faults" => return Ok(Self::ListFaults),
                "--fault" => faults.push(words.next().ok_or("--fault needs a name")?),
                "--http" => address = Some(words.next().ok_or("--http needs an address")?),
                "--sse" => options.reply = ReplyKind::Sse,
                "--http-sse" => options.reply = ReplyKind::Session,
                "--stateless" => options.sessions = false,
                "--modern" => options.era = HttpEra::Modern,
                other => match other.strip_prefix("--fault=") {
                    Some(fault) => faults.push(fault.to_owned()),
                    None => return Err(format!("unknown option {other}")),
                },
            }
        }
        let Some(address) = address else {
            if options != HttpOptions::default() {
                return Err("--sse, --http-sse, --stateless and --modern need --http".to_owned());
            }
            return Ok(Self::Serve(parsed(&faults)?));
        };
        let address = address
            .parse()
            .map_err(|_| format!("no address to listen at: {address:?}"))?;
        Ok(Self::ServeHttp(Http {
            address,
            options,
            faults: parsed(&faults)?,
        }))
    }
}

fn parsed<F: std::str::FromStr<Err = String>>(faults: &[String]) -> Result<Vec<F>, String> {
    faults.iter().map(|fault| fault.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::badserver::fault::Kind;

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn faults_are_armed_in_the_order_of_the_command_line() {
        let Ok(Options::Serve(faults)) = parse(&["--fault", "flood=7", "--fault=exit-on-call"])
        else {
            panic!("not parsed");
        };
        let seen: Vec<_> = faults
            .iter()
            .map(|fault| (fault.kind, fault.amount))
            .collect();
        assert_eq!(seen, [(Kind::Flood, 7), (Kind::ExitOnCall, 1)]);
    }

    #[test]
    fn a_server_over_http_has_faults_of_its_own() {
        let words = ["--http", "127.0.0.1:0", "--sse", "--fault=http-503-after=7"];
        let Ok(Options::ServeHttp(http)) = parse(&words) else {
            panic!("not parsed");
        };
        assert_eq!(http.options, HttpOptions::sse());
        assert_eq!(http.faults, ["http-503-after=7".parse().unwrap()]);
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        assert!(parse(&["--fault", "flod"]).unwrap_err().contains("flood"));
        assert!(
            parse(&["--fault", "flood=x"])
                .unwrap_err()
                .contains("\"x\"")
        );
        assert!(
            parse(&["--fault", "garbage=1"])
                .unwrap_err()
                .contains("garbage")
        );
        assert!(parse(&["--fault", "http-404"]).is_err(), "over stdio");
        assert!(parse(&["--sse"]).is_err(), "over stdio");
        assert!(parse(&["--http", "somewhere"]).is_err());
        assert!(parse(&["--http", "127.0.0.1:0", "--fault", "garbage"]).is_err());
        assert!(parse(&["--fault"]).is_err());
        assert!(parse(&["flood"]).is_err());
    }
}
