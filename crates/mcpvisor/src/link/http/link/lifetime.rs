//! Whether the link is up.

use mcpvisor_core::CallId;

use crate::link::LinkDown;

/// The state of the link.
#[derive(Debug)]
pub(super) enum Lifetime {
    Open,
    /// The server cannot be reached.
    Down {
        reason: LinkDown,
        /// Requests that were not sent because of that. The connection task collects them with the
        /// others.
        unsent: Vec<CallId>,
    },
}

impl Lifetime {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Ends the link. The first reason stays.
    pub(super) fn end(&mut self, reason: LinkDown) {
        if self.is_open() {
            *self = Self::Down {
                reason,
                unsent: Vec::new(),
            };
        }
    }

    pub(super) fn down_reason(&self) -> Option<&LinkDown> {
        match self {
            Self::Open => None,
            Self::Down { reason, .. } => Some(reason),
        }
    }

    /// Records that a request was not sent because the link is down. Returns false if it is up.
    pub(super) fn record_unsent(&mut self, id: CallId) -> bool {
        match self {
            Self::Open => false,
            Self::Down { unsent, .. } => {
                unsent.push(id);
                true
            }
        }
    }

    pub(super) fn is_unsent(&self, id: CallId) -> bool {
        match self {
            Self::Open => false,
            Self::Down { unsent, .. } => unsent.contains(&id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::DownKind;

    #[test]
    fn only_a_link_that_is_down_records_unsent_requests() {
        let mut lifetime = Lifetime::Open;
        assert!(!lifetime.record_unsent(CallId(1)) && !lifetime.is_unsent(CallId(1)));
        for reason in ["first", "second"] {
            lifetime.end(LinkDown::new(DownKind::Unreachable, reason));
        }
        assert_eq!(lifetime.down_reason().unwrap().message, "first");
        assert!(lifetime.record_unsent(CallId(1)) && lifetime.is_unsent(CallId(1)));
        assert!(!lifetime.is_unsent(CallId(2)));
    }
}
