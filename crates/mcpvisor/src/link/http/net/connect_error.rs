//! Why a connection could not be opened: the server's fault, or a shortage on this machine.
//!
//! A local shortage says nothing about the server, so it ends no link and no session.

use std::io;
use std::net::{IpAddr, UdpSocket};

use rustix::io::Errno;

/// Why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectError {
    /// The cause is a shortage in this process or on this machine.
    pub(crate) is_local: bool,
    /// A message fragment for people.
    pub(crate) problem: String,
}

impl ConnectError {
    /// The server, the network or a proxy refused the connection.
    pub(crate) fn remote(problem: String) -> Self {
        Self {
            is_local: false,
            problem,
        }
    }

    /// Classifies the error of an attempt to connect to this host.
    pub(super) fn new(error: &(dyn std::error::Error + 'static), host: &str) -> Self {
        let shortage = errno(error).and_then(|errno| describe_shortage(errno, host));
        // The system resolver hides that it ran out of descriptors.
        let shortage = shortage.or_else(|| errno(error).is_none().then(probe_shortage).flatten());
        match shortage {
            Some(problem) => Self {
                is_local: true,
                problem: problem.to_owned(),
            },
            None => Self::remote(error_chain(error)),
        }
    }

    /// Adds the destination to the message.
    pub(super) fn with_destination(mut self, origin: &str) -> Self {
        self.problem = match self.is_local {
            true => format!("cannot open a connection to {origin}: {}", self.problem),
            false => format!("cannot reach {origin}: {}", self.problem),
        };
        self
    }
}

impl From<String> for ConnectError {
    fn from(problem: String) -> Self {
        Self::remote(problem)
    }
}

/// The message of an error and those of its sources.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The first error number in the chain.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<Errno> {
    let io = error.downcast_ref::<io::Error>();
    if let Some(found) = io.and_then(Errno::from_io_error) {
        return Some(found);
    }
    // An I/O error that wraps another error does not return it from `source`.
    match io.and_then(io::Error::get_ref) {
        Some(inner) => errno(inner),
        None => errno(error.source()?),
    }
}

/// The local shortage that an error number stands for, with what to do about it.
fn describe_shortage(errno: Errno, host: &str) -> Option<&'static str> {
    Some(match errno {
        Errno::MFILE => "too many open files in this process: raise the limit (`ulimit -n`)",
        Errno::NFILE => "too many open files on this machine: raise its limit",
        Errno::NOBUFS => "this machine is out of network buffers",
        Errno::NOMEM => "this machine is out of memory",
        Errno::ADDRNOTAVAIL if means_no_ports(host) => {
            "this machine is out of local ports: close connections or widen the port range"
        }
        _ => return None,
    })
}

/// Whether `EADDRNOTAVAIL` means a lack of ports. On a machine without IPv6 it only means that the
/// IPv6 address of the server cannot be used.
fn means_no_ports(host: &str) -> bool {
    let is_v4 = matches!(host.parse(), Ok(IpAddr::V4(_)));
    is_v4 || UdpSocket::bind("[::1]:0").is_ok()
}

/// The shortage that keeps this process from opening any socket, if there is one.
fn probe_shortage() -> Option<&'static str> {
    let refused = UdpSocket::bind("127.0.0.1:0").err()?;
    describe_shortage(Errno::from_io_error(&refused)?, "127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect_error(errno: Errno, host: &str) -> ConnectError {
        ConnectError::new(&io::Error::from(errno), host)
    }

    #[test]
    fn a_local_shortage_is_distinguished_from_an_unreachable_server() {
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
        ] {
            assert!(connect_error(errno, "127.0.0.1").is_local, "{errno}");
        }
        for errno in [
            Errno::CONNREFUSED,
            Errno::CONNRESET,
            Errno::NETUNREACH,
            Errno::TIMEDOUT,
        ] {
            assert!(!connect_error(errno, "127.0.0.1").is_local, "{errno}");
        }
    }

    #[test]
    fn the_message_names_the_cause_and_what_to_do() {
        let origin = "http://127.0.0.1:1";
        let error = connect_error(Errno::MFILE, "127.0.0.1").with_destination(origin);
        assert_eq!(
            error.problem,
            "cannot open a connection to http://127.0.0.1:1: too many open files in this \
             process: raise the limit (`ulimit -n`)"
        );
        let error = connect_error(Errno::CONNREFUSED, "127.0.0.1").with_destination(origin);
        assert!(
            error
                .problem
                .starts_with("cannot reach http://127.0.0.1:1: "),
            "{error:?}"
        );
    }

    #[test]
    fn the_cause_is_found_inside_other_errors() {
        let inner = io::Error::from(Errno::MFILE);
        let outer = io::Error::other(inner);
        assert!(ConnectError::new(&outer, "server.test").is_local);
    }
}
