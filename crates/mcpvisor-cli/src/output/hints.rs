//! What the library says to do, in what a person at a terminal can do.
//!
//! A program that embeds the library reconnects and enables servers; a command starts them anew.

use mcpvisor::{ServerStatus, StateName};

/// The ends of the library's sentences that name a call of its own, and what to type instead.
const ENDS: [(&str, &str); 8] = [
    ("; it is probed slowly, or reconnect it", ", then ask again"),
    (", then call again or reconnect it", ", then ask again"),
    (
        "; enable it first",
        "; write \"enabled\": true in its entry",
    ),
    (", then reconnect the server", ", then ask again"),
    (", then enable it again", ", then ask again"),
    (", then reconnect it", ", then ask again"),
    (", then enable it", ", then ask again"),
    ("; try again, or see the server's status", "; ask again"),
];

/// What to do about a server of a command that ends. Of one whose attempt failed the library says that
/// it is probed, which it is not here: what went wrong says enough.
pub(crate) fn of(status: &ServerStatus) -> Option<String> {
    match status.state {
        StateName::Disconnected => None,
        _ => status.action.as_deref().map(here),
    }
}

/// The same hint for someone who has the command line alone.
pub(crate) fn here(hint: &str) -> String {
    for (end, instead) in ENDS {
        if let Some(begin) = hint.strip_suffix(end) {
            return format!("{begin}{instead}");
        }
    }
    hint.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_program_can_do_is_not_asked_of_a_person() {
        assert_eq!(
            here("set TOKEN in the environment, then reconnect the server"),
            "set TOKEN in the environment, then ask again"
        );
        assert_eq!(here("install it"), "install it");
    }
}
