//! Negotiates which era of the protocol a server speaks.
//!
//! The modern era begins with `server/discover`, the legacy one with `initialize`. A server whose era is
//! unknown is probed for the modern one first. An error, silence or a closed connection leads to the
//! legacy one. The result is cached for the next connect; the handshake sends the requests and waits.

use std::time::Duration;

/// How long a server of unknown era may take to answer `server/discover`.
pub const PROBE_WAIT: Duration = Duration::from_secs(1);

/// How long a server may take to answer `server/discover` that spoke the modern era before, or that
/// refused `initialize`.
pub const REMEMBERED_WAIT: Duration = Duration::from_secs(10);

/// An era of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Without a handshake: every request is self-contained.
    Modern,
    /// With `initialize`, up to 2025-11-25.
    Legacy,
}

/// What is known about the era of a server before the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownEra {
    /// Nothing.
    #[default]
    Unknown,
    /// It closed the connection when it was probed for the other one.
    Assumed(Era),
    /// It spoke this one before.
    Remembered(Era),
    /// The config prefers this one if the server speaks both.
    Preferred(Era),
    /// The config requires this one.
    Pinned(Era),
}

/// A request that begins a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeRequest {
    /// `server/discover`.
    Discover,
    /// `initialize`.
    Initialize,
}

/// How the server reacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeReply {
    /// It answered `server/discover` with a modern version that we support.
    Discovered,
    /// It speaks the modern era, but not the version that was requested. It names others.
    OtherVersions {
        /// It names a legacy version that we support.
        legacy: bool,
        /// It names a modern version that we support.
        modern: bool,
    },
    /// It refused `server/discover` with an error of the modern era.
    ModernRefusal,
    /// It answered `server/discover` with any other error, or with an invalid reply.
    NotDiscovered,
    /// It answered `initialize` with a version that we support.
    Initialized,
    /// It answered `initialize` with a version that we do not support.
    OtherVersion,
    /// It refused `initialize`.
    NotInitialized,
    /// Nothing arrived within [`Negotiation::reply_timeout`].
    Silence,
    /// The connection ended.
    Lost,
    /// The server could not be reached, so it did not see the request.
    Unreachable,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Send this on the same connection.
    Send(HandshakeRequest),
    /// Keep waiting.
    Wait,
    /// The server speaks this era.
    Agreed(Era),
    /// No version is shared.
    Incompatible,
    /// The server refused for another reason.
    Refused,
    /// It seems to close the connection when it is probed for the modern era: connect again and use the
    /// other.
    TryOtherEra,
    /// The connection ended.
    Lost,
    /// The server could not be reached.
    Unreachable,
}

/// The negotiation of one connection.
#[derive(Debug, Clone)]
pub struct Negotiation {
    known: KnownEra,
    pending: Pending,
    /// `server/discover` was answered or refused.
    discover_answered: bool,
    /// It was answered after `initialize` had been sent.
    discovered_late: bool,
    /// `initialize` was refused: the result unless the modern era works.
    refused: Option<NextStep>,
    /// A version that the server named was tried.
    retried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    Discover,
    Initialize,
    /// `server/discover` got no answer in time, so `initialize` was sent too.
    Both,
}

impl Negotiation {
    /// Begins a negotiation. Returns the first request to send.
    pub fn begin(known: KnownEra) -> (Self, HandshakeRequest) {
        let era = match known {
            KnownEra::Unknown => Era::Modern,
            KnownEra::Assumed(era)
            | KnownEra::Remembered(era)
            | KnownEra::Preferred(era)
            | KnownEra::Pinned(era) => era,
        };
        let (request, pending) = match era {
            Era::Modern => (HandshakeRequest::Discover, Pending::Discover),
            Era::Legacy => (HandshakeRequest::Initialize, Pending::Initialize),
        };
        let negotiation = Self {
            known,
            pending,
            discover_answered: false,
            discovered_late: false,
            refused: None,
            retried: false,
        };
        (negotiation, request)
    }

    /// How long to wait for an answer before [`HandshakeReply::Silence`]; `None` for no limit.
    pub fn reply_timeout(&self) -> Option<Duration> {
        match (self.pending, self.known) {
            (_, KnownEra::Pinned(_)) | (Pending::Initialize, _) => None,
            // It speaks the modern era and does not answer `initialize`.
            (Pending::Both, _) => self.discovered_late.then_some(PROBE_WAIT),
            // It may speak only the modern era, and be slow.
            (Pending::Discover, _) if self.refused.is_some() => Some(REMEMBERED_WAIT),
            (Pending::Discover, KnownEra::Remembered(_) | KnownEra::Preferred(_)) => {
                Some(REMEMBERED_WAIT)
            }
            (Pending::Discover, KnownEra::Unknown | KnownEra::Assumed(_)) => Some(PROBE_WAIT),
        }
    }

    /// What follows from a reaction of the server.
    pub fn on_reply(&mut self, reply: HandshakeReply) -> NextStep {
        match reply {
            HandshakeReply::Discovered => match self.pending {
                Pending::Discover => NextStep::Agreed(Era::Modern),
                // `initialize` is pending: a server that answers both speaks both.
                Pending::Both | Pending::Initialize => {
                    self.discover_answered = true;
                    self.discovered_late = true;
                    NextStep::Wait
                }
            },
            HandshakeReply::OtherVersions { modern, legacy } => self.other_versions(modern, legacy),
            HandshakeReply::ModernRefusal => NextStep::Refused,
            HandshakeReply::NotDiscovered => self.not_discovered(),
            HandshakeReply::Initialized => NextStep::Agreed(Era::Legacy),
            HandshakeReply::OtherVersion => self.not_initialized(NextStep::Incompatible),
            HandshakeReply::NotInitialized => self.not_initialized(NextStep::Refused),
            HandshakeReply::Silence => self.silence(),
            HandshakeReply::Lost => self.lost(),
            HandshakeReply::Unreachable => NextStep::Unreachable,
        }
    }

    fn other_versions(&mut self, modern: bool, legacy: bool) -> NextStep {
        if self.pending != Pending::Discover {
            self.discover_answered = true;
            return NextStep::Wait;
        }
        if modern && !std::mem::replace(&mut self.retried, true) {
            return NextStep::Send(HandshakeRequest::Discover);
        }
        if legacy && self.refused.is_none() && !self.is_pinned() {
            return self.initialize();
        }
        NextStep::Incompatible
    }

    fn not_discovered(&mut self) -> NextStep {
        let answered_before = std::mem::replace(&mut self.discover_answered, true);
        match (self.pending, self.refused) {
            (Pending::Both | Pending::Initialize, _) => NextStep::Wait,
            (Pending::Discover, _) if self.is_pinned() => NextStep::Incompatible,
            (Pending::Discover, Some(verdict)) => verdict,
            (Pending::Discover, None) if answered_before => NextStep::Refused,
            (Pending::Discover, None) => self.initialize(),
        }
    }

    /// `initialize` was refused. That is final only if `server/discover` is answered: over HTTP the refusal
    /// may overtake the other answer.
    fn not_initialized(&mut self, verdict: NextStep) -> NextStep {
        if self.refused.replace(verdict).is_some() {
            return verdict;
        }
        if self.discovered_late {
            return NextStep::Agreed(Era::Modern);
        }
        if self.pending == Pending::Both && !self.discover_answered {
            self.pending = Pending::Discover;
            return NextStep::Wait;
        }
        match (self.known, verdict) {
            // The cached era may be out of date, and the preferred one may not be supported.
            (
                KnownEra::Assumed(_) | KnownEra::Remembered(_) | KnownEra::Preferred(_),
                NextStep::Refused,
            ) if !self.discover_answered => {
                self.pending = Pending::Discover;
                NextStep::Send(HandshakeRequest::Discover)
            }
            _ => verdict,
        }
    }

    fn silence(&mut self) -> NextStep {
        match (self.pending, self.refused) {
            (Pending::Discover, Some(verdict)) => verdict,
            (Pending::Discover, None) => {
                self.pending = Pending::Both;
                NextStep::Send(HandshakeRequest::Initialize)
            }
            (Pending::Both, _) if self.discovered_late => NextStep::Agreed(Era::Modern),
            (Pending::Both | Pending::Initialize, _) => NextStep::Wait,
        }
    }

    fn lost(&self) -> NextStep {
        let unanswered = !self.discover_answered && self.refused.is_none();
        match (self.known, self.pending) {
            (KnownEra::Unknown, Pending::Discover | Pending::Both) if unanswered => {
                NextStep::TryOtherEra
            }
            _ => NextStep::Lost,
        }
    }

    fn initialize(&mut self) -> NextStep {
        self.pending = Pending::Initialize;
        NextStep::Send(HandshakeRequest::Initialize)
    }

    /// Whether the era of the server was unknown before.
    pub fn is_open(&self) -> bool {
        matches!(self.known, KnownEra::Unknown | KnownEra::Assumed(_))
    }

    fn is_pinned(&self) -> bool {
        matches!(self.known, KnownEra::Pinned(_))
    }

    /// What to cache after a negotiation with this result. An era that was assumed because the server
    /// closed the connection stays until the server answers, so that a server which always dies is not
    /// probed twice each time.
    pub fn learned_era(&self, next: NextStep) -> KnownEra {
        match (next, self.known) {
            (_, KnownEra::Pinned(era)) => KnownEra::Pinned(era),
            // An agreement under a preference does not show what the server would choose.
            (_, KnownEra::Preferred(era)) => KnownEra::Preferred(era),
            // It answered both, but `server/discover` too late for this connection.
            (NextStep::Agreed(Era::Legacy), _) if self.discovered_late => {
                KnownEra::Remembered(Era::Modern)
            }
            (NextStep::Agreed(era), _) => KnownEra::Remembered(era),
            (NextStep::TryOtherEra, _) => KnownEra::Assumed(Era::Legacy),
            (NextStep::Lost, KnownEra::Assumed(era)) => KnownEra::Assumed(era),
            (NextStep::Lost | NextStep::Refused | NextStep::Incompatible, _) => KnownEra::Unknown,
            (NextStep::Send(_) | NextStep::Wait | NextStep::Unreachable, known) => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests of a negotiation with these replies, its result, and what is cached.
    fn negotiate(
        known: KnownEra,
        replies: &[HandshakeReply],
    ) -> (Vec<HandshakeRequest>, NextStep, KnownEra) {
        let (mut negotiation, first) = Negotiation::begin(known);
        let mut sent = vec![first];
        let mut next = NextStep::Wait;
        for reply in replies {
            next = negotiation.on_reply(*reply);
            if let NextStep::Send(request) = next {
                sent.push(request);
            }
        }
        (sent, next, negotiation.learned_era(next))
    }

    const MODERN: KnownEra = KnownEra::Remembered(Era::Modern);
    const LEGACY: KnownEra = KnownEra::Remembered(Era::Legacy);
    const ASSUMED: KnownEra = KnownEra::Assumed(Era::Legacy);
    use HandshakeReply::*;
    use HandshakeRequest::{Discover, Initialize};
    use KnownEra::{Pinned, Unknown};

    #[test]
    fn a_server_of_unknown_era_is_probed_for_the_modern_one_first() {
        assert_eq!(
            negotiate(Unknown, &[Discovered]),
            (vec![Discover], NextStep::Agreed(Era::Modern), MODERN)
        );
        for other in [NotDiscovered, Silence] {
            assert_eq!(
                negotiate(Unknown, &[other, Initialized]),
                (
                    vec![Discover, Initialize],
                    NextStep::Agreed(Era::Legacy),
                    LEGACY
                )
            );
        }
    }

    #[test]
    fn the_cached_era_is_tried_first_and_dropped_when_it_no_longer_works() {
        assert_eq!(
            negotiate(LEGACY, &[Initialized]),
            (vec![Initialize], NextStep::Agreed(Era::Legacy), LEGACY)
        );
        assert_eq!(
            negotiate(MODERN, &[Discovered]),
            (vec![Discover], NextStep::Agreed(Era::Modern), MODERN)
        );
        assert_eq!(
            negotiate(LEGACY, &[NotInitialized, Discovered]),
            (
                vec![Initialize, Discover],
                NextStep::Agreed(Era::Modern),
                MODERN
            )
        );
        for other in [NotDiscovered, Silence] {
            assert_eq!(
                negotiate(MODERN, &[other, Initialized]),
                (
                    vec![Discover, Initialize],
                    NextStep::Agreed(Era::Legacy),
                    LEGACY
                )
            );
        }
        for known in [MODERN, LEGACY] {
            assert_eq!(negotiate(known, &[Lost]).1, NextStep::Lost);
            assert_eq!(negotiate(known, &[Lost]).2, Unknown);
        }
    }

    #[test]
    fn the_preferred_era_is_tried_first_and_the_other_if_it_is_refused() {
        let preferred = KnownEra::Preferred(Era::Legacy);
        assert_eq!(
            negotiate(preferred, &[Initialized]),
            (vec![Initialize], NextStep::Agreed(Era::Legacy), preferred)
        );
        assert_eq!(
            negotiate(preferred, &[NotInitialized, Discovered]),
            (
                vec![Initialize, Discover],
                NextStep::Agreed(Era::Modern),
                preferred
            )
        );
        assert_eq!(
            negotiate(preferred, &[NotInitialized, NotDiscovered]).1,
            NextStep::Refused
        );
        assert_eq!(negotiate(preferred, &[Lost]).1, NextStep::Lost);
    }

    #[test]
    fn a_server_that_closes_on_the_probe_is_tried_in_the_other_era_once() {
        for replies in [&[Lost][..], &[Silence, Lost][..]] {
            let (_, next, cached) = negotiate(Unknown, replies);
            assert_eq!((next, cached), (NextStep::TryOtherEra, ASSUMED));
        }
        assert_eq!(
            negotiate(ASSUMED, &[Lost]),
            (vec![Initialize], NextStep::Lost, ASSUMED)
        );
        assert_eq!(negotiate(ASSUMED, &[Initialized]).2, LEGACY);
        assert_eq!(
            negotiate(Unknown, &[NotDiscovered, Lost]).1,
            NextStep::Lost,
            "it answered the probe, so the probe did not kill it"
        );
    }

    #[test]
    fn an_unreachable_server_changes_nothing_in_the_cache() {
        for known in [Unknown, ASSUMED, MODERN, LEGACY, Pinned(Era::Legacy)] {
            let (_, next, cached) = negotiate(known, &[Unreachable]);
            assert_eq!((next, cached), (NextStep::Unreachable, known));
        }
        let (sent, next, cached) = negotiate(Unknown, &[NotDiscovered, Unreachable]);
        assert_eq!(sent, [Discover, Initialize]);
        assert_eq!((next, cached), (NextStep::Unreachable, Unknown));
    }

    #[test]
    fn a_late_answer_changes_nothing_unless_the_other_era_fails() {
        assert_eq!(
            negotiate(Unknown, &[Silence, NotDiscovered, Initialized]),
            (
                vec![Discover, Initialize],
                NextStep::Agreed(Era::Legacy),
                LEGACY
            )
        );
        assert_eq!(
            negotiate(Unknown, &[Silence, Discovered, Initialized]),
            (
                vec![Discover, Initialize],
                NextStep::Agreed(Era::Legacy),
                MODERN
            ),
            "a slow server that speaks both is probed for the modern era next time"
        );
        for end in [NotInitialized, Silence] {
            assert_eq!(
                negotiate(Unknown, &[Silence, Discovered, end]),
                (
                    vec![Discover, Initialize],
                    NextStep::Agreed(Era::Modern),
                    MODERN
                )
            );
        }
    }

    #[test]
    fn a_slow_answer_gets_limited_time_after_the_other_era_was_refused() {
        for known in [Unknown, MODERN] {
            for (refusal, verdict) in [
                (NotInitialized, NextStep::Refused),
                (OtherVersion, NextStep::Incompatible),
            ] {
                assert_eq!(
                    negotiate(known, &[Silence, refusal]).1,
                    NextStep::Wait,
                    "{known:?}: not final yet"
                );
                assert_eq!(
                    negotiate(known, &[Silence, refusal, Discovered]),
                    (
                        vec![Discover, Initialize],
                        NextStep::Agreed(Era::Modern),
                        MODERN
                    )
                );
                assert_eq!(
                    negotiate(known, &[Silence, Discovered, refusal]).1,
                    NextStep::Agreed(Era::Modern)
                );
                for end in [Silence, NotDiscovered] {
                    assert_eq!(negotiate(known, &[Silence, refusal, end]).1, verdict);
                    assert_eq!(
                        negotiate(known, &[Silence, NotDiscovered, refusal]).1,
                        verdict
                    );
                }
                let (mut negotiation, _) = Negotiation::begin(known);
                negotiation.on_reply(Silence);
                negotiation.on_reply(refusal);
                assert_eq!(negotiation.reply_timeout(), Some(REMEMBERED_WAIT));
                assert_eq!(
                    negotiation.on_reply(Lost),
                    NextStep::Lost,
                    "it refused the other era"
                );
            }
        }
    }

    #[test]
    fn versions_that_the_server_names_are_tried_once() {
        let other = |modern, legacy| OtherVersions { modern, legacy };
        assert_eq!(
            negotiate(Unknown, &[other(true, false), Discovered]),
            (
                vec![Discover, Discover],
                NextStep::Agreed(Era::Modern),
                MODERN
            )
        );
        assert_eq!(
            negotiate(Unknown, &[other(true, false), other(true, false)]).1,
            NextStep::Incompatible
        );
        assert_eq!(
            negotiate(Unknown, &[other(false, true), Initialized]),
            (
                vec![Discover, Initialize],
                NextStep::Agreed(Era::Legacy),
                LEGACY
            )
        );
        assert_eq!(
            negotiate(Unknown, &[other(false, false)]).1,
            NextStep::Incompatible
        );
        assert_eq!(
            negotiate(LEGACY, &[NotInitialized, other(false, true)]).1,
            NextStep::Incompatible
        );
    }

    #[test]
    fn a_modern_refusal_does_not_lead_to_the_other_era() {
        assert_eq!(
            negotiate(Unknown, &[ModernRefusal]),
            (vec![Discover], NextStep::Refused, Unknown)
        );
    }

    #[test]
    fn a_pinned_era_is_the_only_one() {
        let modern = Pinned(Era::Modern);
        assert_eq!(
            negotiate(modern, &[NotDiscovered]),
            (vec![Discover], NextStep::Incompatible, modern)
        );
        assert_eq!(Negotiation::begin(modern).0.reply_timeout(), None);
        let legacy = Pinned(Era::Legacy);
        assert_eq!(
            negotiate(legacy, &[NotInitialized]),
            (vec![Initialize], NextStep::Refused, legacy)
        );
    }

    #[test]
    fn every_negotiation_ends() {
        let all = [
            Discovered,
            OtherVersions {
                modern: true,
                legacy: true,
            },
            ModernRefusal,
            NotDiscovered,
            NotInitialized,
            Silence,
            Lost,
            Unreachable,
        ];
        for known in [
            Unknown,
            ASSUMED,
            MODERN,
            LEGACY,
            Pinned(Era::Modern),
            Pinned(Era::Legacy),
        ] {
            let mut courses = vec![Negotiation::begin(known)];
            let mut sent = 0;
            while !courses.is_empty() {
                sent += 1;
                assert!(sent <= 4, "{known:?}: {courses:?}");
                let followed = courses.iter().flat_map(|(course, _)| {
                    all.iter().filter_map(|replies| {
                        let mut course = course.clone();
                        match course.on_reply(*replies) {
                            NextStep::Send(request) => Some((course, request)),
                            _ => None,
                        }
                    })
                });
                courses = followed.collect();
            }
        }
    }
}
