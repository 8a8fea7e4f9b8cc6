//! Validates a transport without opening it.
//!
//! The same rules apply to config files and to configs in code. Whether the program or the URL
//! exists is left to the connection.

#![cfg_attr(
    not(all(feature = "stdio", feature = "http", feature = "config-files")),
    allow(dead_code, reason = "each kind of transport uses its part")
)]

use mcpvisor_core::InvalidSetting;

use super::{Transport, TransportKind};

/// The problem with an invalid variable name.
pub(crate) const VARIABLE: &str = "holds a name that is empty or contains '='; remove it";

/// The problem with an invalid header name.
pub(crate) const HEADER: &str =
    "holds a name that is no header; write letters, digits and \"-\" alone";

/// The problem with an invalid URL.
pub(crate) const ADDRESS: &str = "must be an address that begins with http:// or https://";

/// The problem with an invalid value of a header or a variable.
pub(crate) const VALUE: &str = "holds a line break or a NUL, which cannot be sent; remove it";

/// The problem with an invalid path of a Unix socket.
const SOCKET: &str = "must be the path of a socket";

/// The problem with an empty command.
const PROGRAM: &str = "must be the program to start";

/// The problem with a NUL in a command.
const NUL: &str = "holds a NUL, which no program can be given; remove it";

/// Characters that are invalid in a variable's value.
pub(crate) const NOT_IN_VARIABLES: &[char] = &['\0'];

/// Characters that are invalid in a header's value.
pub(crate) const NOT_IN_HEADERS: &[char] = &['\0', '\n', '\r'];

impl Transport {
    /// Rejects settings that can never work.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        match &self.0 {
            #[cfg(feature = "stdio")]
            TransportKind::Stdio(command) => command.check(),
            #[cfg(feature = "http")]
            TransportKind::Http(endpoint) => endpoint.check(),
            #[cfg(feature = "stream")]
            TransportKind::Stream(_) => Ok(()),
            TransportKind::Channel { .. } => Ok(()),
        }
    }
}

#[cfg(feature = "stdio")]
impl super::StdioCommand {
    fn check(&self) -> Result<(), InvalidSetting> {
        refuse(
            "command",
            PROGRAM,
            !is_program(&self.program().to_string_lossy()),
        )?;
        self.check_given()
    }

    /// Rejects values that cannot be passed to any program.
    pub(crate) fn check_given(&self) -> Result<(), InvalidSetting> {
        let nul = |part: &std::ffi::OsStr| part.as_encoded_bytes().contains(&0);
        let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
        refuse("command", NUL, nul(self.program()))?;
        refuse("args", NUL, self.arguments().any(nul))?;
        for (name, value) in self.set_variables() {
            refuse("env", VARIABLE, !is_variable(&text(name)))?;
            refuse("env", VALUE, nul(value))?;
        }
        let folder = self.folder().map(std::path::Path::as_os_str);
        refuse("cwd", NUL, folder.is_some_and(nul))
    }
}

#[cfg(feature = "http")]
impl super::HttpEndpoint {
    fn check(&self) -> Result<(), InvalidSetting> {
        refuse("url", ADDRESS, !is_address(self.identity()))?;
        let is_socket = |path: &std::path::Path| {
            let path = path.as_os_str().as_encoded_bytes();
            !path.is_empty() && !path.contains(&0)
        };
        refuse(
            "socketPath",
            SOCKET,
            !self.socket_path().is_none_or(is_socket),
        )?;
        for (name, value) in self.named_headers() {
            refuse("headers", HEADER, !is_header(name))?;
            refuse("headers", VALUE, value.contains(NOT_IN_HEADERS))?;
        }
        #[cfg(feature = "auth")]
        self.auth.check()?;
        Ok(())
    }
}

pub(crate) fn refuse(
    name: &'static str,
    problem: &'static str,
    is_wrong: bool,
) -> Result<(), InvalidSetting> {
    match is_wrong {
        true => Err(InvalidSetting::new(name, problem)),
        false => Ok(()),
    }
}

/// Whether this is a valid program name.
pub(crate) fn is_program(program: &str) -> bool {
    !program.trim().is_empty()
}

/// Whether this is a valid variable name.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Whether this is a valid header name.
pub(crate) fn is_header(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(allowed)
}

/// Whether this is a valid HTTP URL, without resolving it.
pub(crate) fn is_address(url: &str) -> bool {
    let scheme = |scheme: &str| {
        let begin = url.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    let host = |scheme: &str| &url[scheme.len()..];
    let named = |host: &str| !host.is_empty() && !host.starts_with(['/', '?', '#', ':']);
    let whole = !url.contains(|c: char| c.is_whitespace() || c.is_control());
    let https = scheme("https://") && named(host("https://"));
    whole && (https || scheme("http://") && named(host("http://")))
}

#[cfg(all(feature = "stdio", feature = "http"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerConfig;

    fn refused(transport: impl Into<Transport>) -> Option<String> {
        let server = ServerConfig::new("a", transport).unwrap();
        server.validate().err().map(|problem| problem.to_string())
    }

    #[test]
    fn what_no_file_may_say_no_code_may_either() {
        let plain = || Transport::stdio("x");
        for (command, name) in [
            (Transport::stdio(""), "command"),
            (Transport::stdio(" "), "command"),
            (Transport::stdio("a\0b"), "command"),
            (plain().arg("a\0b"), "args"),
            (plain().env("", "v"), "env"),
            (plain().env("A=B", "v"), "env"),
            (plain().env("A\0", "v"), "env"),
            (plain().env("A", "v\0"), "env"),
            (plain().cwd("/\0"), "cwd"),
        ] {
            let problem = refused(command).unwrap_or_default();
            assert!(
                problem.starts_with(&format!("the setting {name} ")),
                "{name}: {problem}"
            );
        }
        let plain = || Transport::http("http://localhost/mcp");
        for (endpoint, name) in [
            (Transport::http(""), "url"),
            (Transport::http("not an address"), "url"),
            (Transport::http("ftp://host/"), "url"),
            (Transport::http("https://"), "url"),
            (plain().header("", "v"), "headers"),
            (plain().header("X Y", "v"), "headers"),
            (plain().header("X", "two\nlines"), "headers"),
            (plain().header("X", "v\0"), "headers"),
            (plain().unix_socket(""), "socketPath"),
            (plain().unix_socket("/a\0b"), "socketPath"),
        ] {
            let problem = refused(endpoint).unwrap_or_default();
            assert!(
                problem.starts_with(&format!("the setting {name} ")),
                "{name}: {problem}"
            );
        }
        let good = Transport::stdio("x")
            .arg("")
            .env("A", "two\nlines")
            .cwd("/");
        assert_eq!(refused(good), None);
        let good = plain().header("X-Key", "ä").header("authorization", "");
        assert_eq!(refused(good), None);
        assert_eq!(refused(Transport::channel(|_| async {})), None);
    }
}
