//! Why a connection could not be opened: the server's fault, or a shortage in this process.
//!
//! A shortage here says nothing about the server, so it ends no link and no session.

use std::io;
use std::net::{IpAddr, UdpSocket};

use rustix::io::Errno;

/// Why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Undialled {
    /// The cause is a shortage in this process or on this machine.
    pub(super) local: bool,
    /// A fragment for a person.
    pub(super) problem: String,
}

impl Undialled {
    /// The server, the network or a proxy refused it.
    pub(super) fn remote(problem: String) -> Self {
        let local = false;
        Self { local, problem }
    }

    /// What an attempt to connect to this host failed with.
    pub(super) fn of(error: &(dyn std::error::Error + 'static), host: &str) -> Self {
        let shortage = errno(error).and_then(|errno| shortage(errno, host));
        // The resolver does not report its own lack of descriptors as such.
        let shortage = shortage.or_else(|| errno(error).is_none().then(probe).flatten());
        match shortage {
            Some(problem) => Self {
                local: true,
                problem: problem.to_owned(),
            },
            None => Self::remote(super::in_words(error)),
        }
    }

    /// The same, with where the connection was to lead.
    pub(super) fn about(mut self, place: &str) -> Self {
        self.problem = match self.local {
            true => format!("no connection to {place} can be opened: {}", self.problem),
            false => format!("cannot reach {place}: {}", self.problem),
        };
        self
    }
}

impl From<String> for Undialled {
    fn from(problem: String) -> Self {
        Self::remote(problem)
    }
}

/// The error number that the system gave.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<Errno> {
    let io = error.downcast_ref::<io::Error>();
    if let Some(found) = io.and_then(Errno::from_io_error) {
        return Some(found);
    }
    // An I/O error that wraps another one does not name it as its source.
    match io.and_then(io::Error::get_ref) {
        Some(inner) => errno(inner),
        None => errno(error.source()?),
    }
}

/// The local shortage that an error number stands for, with what to do about it.
fn shortage(errno: Errno, host: &str) -> Option<&'static str> {
    Some(match errno {
        Errno::MFILE => "too many open files in this process: raise the limit (`ulimit -n`)",
        Errno::NFILE => "too many open files on this machine: raise its limit",
        Errno::NOBUFS => "this machine is out of network buffers",
        Errno::NOMEM => "this machine is out of memory",
        Errno::ADDRNOTAVAIL if means_ports(host) => {
            "this machine is out of local ports: close connections or widen the port range"
        }
        _ => return None,
    })
}

/// Without IPv6 the same number only says that an IPv6 address of the server cannot be used.
fn means_ports(host: &str) -> bool {
    let is_v4 = matches!(host.parse(), Ok(IpAddr::V4(_)));
    is_v4 || UdpSocket::bind("[::1]:0").is_ok()
}

/// Whether a descriptor can be opened at all.
fn probe() -> Option<&'static str> {
    let refused = UdpSocket::bind("127.0.0.1:0").err()?;
    shortage(Errno::from_io_error(&refused)?, "127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undialled(errno: Errno, host: &str) -> Undialled {
        Undialled::of(&io::Error::from(errno), host)
    }

    #[test]
    fn a_shortage_here_is_told_from_a_server_that_cannot_be_reached() {
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
        ] {
            assert!(undialled(errno, "127.0.0.1").local, "{errno}");
        }
        for errno in [
            Errno::CONNREFUSED,
            Errno::CONNRESET,
            Errno::NETUNREACH,
            Errno::TIMEDOUT,
        ] {
            assert!(!undialled(errno, "127.0.0.1").local, "{errno}");
        }
    }

    #[test]
    fn the_message_names_the_cause_and_what_to_do() {
        let failure = undialled(Errno::MFILE, "127.0.0.1").about("http://127.0.0.1:1");
        assert_eq!(
            failure.problem,
            "no connection to http://127.0.0.1:1 can be opened: too many open files in this \
             process: raise the limit (`ulimit -n`)"
        );
        let failure = undialled(Errno::CONNREFUSED, "127.0.0.1").about("http://127.0.0.1:1");
        assert!(
            failure
                .problem
                .starts_with("cannot reach http://127.0.0.1:1: "),
            "{failure:?}"
        );
    }

    #[test]
    fn the_cause_is_found_inside_of_other_errors() {
        let inner = io::Error::from(Errno::MFILE);
        let outer = io::Error::other(inner);
        assert!(Undialled::of(&outer, "server.test").local);
    }
}
