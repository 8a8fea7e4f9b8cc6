//! The command line.

use super::fault::Fault;

pub(super) const USAGE: &str = "\
usage: mcpvisor-badserver [--fault NAME[=NUMBER]]...
       mcpvisor-badserver --list-faults

An MCP server over stdio that misbehaves as it is told. Without a fault it is well-behaved. Its tool
`misbehave` takes {\"fault\": \"NAME[=NUMBER]\"} and lets a fault strike that one call.
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Options {
    Help,
    ListFaults,
    Serve(Vec<Fault>),
}

impl Options {
    pub(super) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut faults = Vec::new();
        while let Some(word) = words.next() {
            let fault = match word.as_str() {
                "--help" | "-h" => return Ok(Self::Help),
                "--list-faults" => return Ok(Self::ListFaults),
                "--fault" => words.next().ok_or("--fault needs a name")?,
                other => match other.strip_prefix("--fault=") {
                    Some(fault) => fault.to_owned(),
                    None => return Err(format!("unknown option {other}")),
                },
            };
            faults.push(fault.parse()?);
        }
        Ok(Self::Serve(faults))
    }
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
        assert!(parse(&["--fault"]).is_err());
        assert!(parse(&["flood"]).is_err());
    }
}
