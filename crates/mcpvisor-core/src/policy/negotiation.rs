//! Which era of the protocol a server speaks, found out step by step.
//!
//! The modern era begins with `server/discover`, the older ones with `initialize`. A server whose
//! era is not known is asked for the modern one first, and whatever it makes of that leads on: an
//! error, silence, or its end. What was found out is remembered; sending and waiting is left to
//! others.

use std::time::Duration;

/// How long a server of which nothing is known may be silent on the question for the modern era.
pub const PROBE_WAIT: Duration = Duration::from_secs(1);

/// How long a server that spoke the modern era before may be silent on it, and one that refused the
/// other era.
pub const REMEMBERED_WAIT: Duration = Duration::from_secs(10);

/// An era of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Without a handshake: every request says what it needs to say.
    Modern,
    /// With `initialize`, up to 2025-11-25.
    Legacy,
}

/// What is known of a server's era before it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownEra {
    /// Nothing.
    #[default]
    Unknown,
    /// It ended when it was asked for the other one.
    Assumed(Era),
    /// It spoke this one before.
    Remembered(Era),
    /// Its config wants this one where the server speaks both.
    Preferred(Era),
    /// It has to be this one.
    Pinned(Era),
}

/// What to say to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeRequest {
    /// `server/discover`.
    Discover,
    /// `initialize`.
    Initialize,
}

/// What the server made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeReply {
    /// It answered `server/discover`, and speaks a modern version of ours.
    Discovered,
    /// It speaks the modern era, but no modern version of ours. Perhaps an older one, as it says.
    OtherVersions {
        /// It says that it speaks an older version of ours.
        legacy: bool,
        /// It says that it speaks a modern version of ours after all.
        modern: bool,
    },
    /// It refused `server/discover` with an error of the modern era.
    ModernRefusal,
    /// It answered `server/discover` with any other error, or with nonsense.
    NotDiscovered,
    /// It answered `initialize`, with a version of ours.
    Initialized,
    /// It answered `initialize`, with a version that we do not speak.
    OtherVersion,
    /// It refused `initialize`.
    NotInitialized,
    /// Nothing was heard for as long as [`Negotiation::reply_timeout`] says.
    Silence,
    /// The connection ended.
    Lost,
    /// The server could not be reached, so it heard nothing of the question.
    Unreachable,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Say this, on the same connection.
    Send(HandshakeRequest),
    /// Wait on.
    Wait,
    /// The server speaks this era.
    Agreed(Era),
    /// There is no version in common.
    Incompatible,
    /// It refused, for a reason of its own.
    Refused,
    /// It seems to end when it is asked for the modern era: connect again and ask for the other.
    TryOtherEra,
    /// The connection ended.
    Lost,
    /// There was nobody to ask.
    Unreachable,
}

/// One way to an era, on one connection.
#[derive(Debug, Clone)]
pub struct Negotiation {
    known: KnownEra,
    /// What is unanswered.
    waiting: Waiting,
    /// `server/discover` was answered or refused.
    discover_answered: bool,
    /// It was answered, after `initialize` had been sent.
    discovered_late: bool,
    /// `initialize` was refused, and what that comes to if the other way is closed too.
    refused: Option<NextStep>,
    /// A version that the server named was tried already.
    retried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Discover,
    Initialize,
    /// The one was answered by silence, so the other was sent too.
    Both,
}

impl Negotiation {
    /// What to say first, and the state after it.
    pub fn begin(known: KnownEra) -> (Self, HandshakeRequest) {
        let say = match known {
            KnownEra::Unknown
            | KnownEra::Assumed(Era::Modern)
            | KnownEra::Remembered(Era::Modern)
            | KnownEra::Preferred(Era::Modern)
            | KnownEra::Pinned(Era::Modern) => HandshakeRequest::Discover,
            KnownEra::Assumed(Era::Legacy)
            | KnownEra::Remembered(Era::Legacy)
            | KnownEra::Preferred(Era::Legacy)
            | KnownEra::Pinned(Era::Legacy) => HandshakeRequest::Initialize,
        };
        let negotiation = Self {
            known,
            waiting: match say {
                HandshakeRequest::Discover => Waiting::Discover,
                HandshakeRequest::Initialize => Waiting::Initialize,
            },
            discover_answered: false,
            discovered_late: false,
            refused: None,
            retried: false,
        };
        (negotiation, say)
    }

    /// How long silence may last now, before it is [`HandshakeReply::Silence`].
    pub fn reply_timeout(&self) -> Option<Duration> {
        match (self.waiting, self.known) {
            (_, KnownEra::Pinned(_)) | (Waiting::Initialize, _) => None,
            // It speaks the modern era, and does not answer the other.
            (Waiting::Both, _) => self.discovered_late.then_some(PROBE_WAIT),
            // It may be of the modern era alone, and take its time.
            (Waiting::Discover, _) if self.refused.is_some() => Some(REMEMBERED_WAIT),
            (Waiting::Discover, KnownEra::Remembered(_) | KnownEra::Preferred(_)) => {
                Some(REMEMBERED_WAIT)
            }
            (Waiting::Discover, KnownEra::Unknown | KnownEra::Assumed(_)) => Some(PROBE_WAIT),
        }
    }

    /// What follows from what was heard.
    pub fn on_reply(&mut self, heard: HandshakeReply) -> NextStep {
        match heard {
            HandshakeReply::Discovered => match self.waiting {
                Waiting::Discover => NextStep::Agreed(Era::Modern),
                // The other way is under way: whoever answers both speaks both.
                Waiting::Both | Waiting::Initialize => {
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
        if self.waiting != Waiting::Discover {
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
        let waited = std::mem::replace(&mut self.discover_answered, true);
        match (self.waiting, self.refused) {
            (Waiting::Both | Waiting::Initialize, _) => NextStep::Wait,
            (Waiting::Discover, _) if self.is_pinned() => NextStep::Incompatible,
            (Waiting::Discover, Some(verdict)) => verdict,
            (Waiting::Discover, None) if waited => NextStep::Refused,
            (Waiting::Discover, None) => self.initialize(),
        }
    }

    /// `initialize` led to nothing. Nothing is concluded from that while the server still has the
    /// other question: over HTTP a refusal may overtake the answer that is being worked on.
    fn not_initialized(&mut self, verdict: NextStep) -> NextStep {
        if self.refused.replace(verdict).is_some() {
            return verdict;
        }
        if self.discovered_late {
            return NextStep::Agreed(Era::Modern);
        }
        if self.waiting == Waiting::Both && !self.discover_answered {
            self.waiting = Waiting::Discover;
            return NextStep::Wait;
        }
        match (self.known, verdict) {
            // What is known may be out of date, and what is preferred may not be there.
            (
                KnownEra::Assumed(_) | KnownEra::Remembered(_) | KnownEra::Preferred(_),
                NextStep::Refused,
            ) if !self.discover_answered => {
                self.waiting = Waiting::Discover;
                NextStep::Send(HandshakeRequest::Discover)
            }
            _ => verdict,
        }
    }

    fn silence(&mut self) -> NextStep {
        match (self.waiting, self.refused) {
            (Waiting::Discover, Some(verdict)) => verdict,
            (Waiting::Discover, None) => {
                self.waiting = Waiting::Both;
                NextStep::Send(HandshakeRequest::Initialize)
            }
            (Waiting::Both, _) if self.discovered_late => NextStep::Agreed(Era::Modern),
            (Waiting::Both | Waiting::Initialize, _) => NextStep::Wait,
        }
    }

    fn lost(&self) -> NextStep {
        let unanswered = !self.discover_answered && self.refused.is_none();
        match (self.known, self.waiting) {
            (KnownEra::Unknown, Waiting::Discover | Waiting::Both) if unanswered => {
                NextStep::TryOtherEra
            }
            _ => NextStep::Lost,
        }
    }

    fn initialize(&mut self) -> NextStep {
        self.waiting = Waiting::Initialize;
        NextStep::Send(HandshakeRequest::Initialize)
    }

    /// Whether the server never said which era it speaks.
    pub fn is_open(&self) -> bool {
        matches!(self.known, KnownEra::Unknown | KnownEra::Assumed(_))
    }

    fn is_pinned(&self) -> bool {
        matches!(self.known, KnownEra::Pinned(_))
    }

    /// What to remember once this came of it. What was learned from a server's end is kept until
    /// the server says otherwise, so that a server which always dies is not asked twice each time.
    pub fn learned_era(&self, next: NextStep) -> KnownEra {
        match (next, self.known) {
            (_, KnownEra::Pinned(era)) => KnownEra::Pinned(era),
            // What was agreed on under a preference says nothing of what the server would choose.
            (_, KnownEra::Preferred(era)) => KnownEra::Preferred(era),
            // It answered both, the modern question too late for this connection.
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

    /// Everything that is said in the course of what is heard, and what comes of it.
    fn course(
        known: KnownEra,
        heard: &[HandshakeReply],
    ) -> (Vec<HandshakeRequest>, NextStep, KnownEra) {
        let (mut negotiation, first) = Negotiation::begin(known);
        let mut said = vec![first];
        let mut next = NextStep::Wait;
        for heard in heard {
            next = negotiation.on_reply(*heard);
            if let NextStep::Send(say) = next {
                said.push(say);
            }
        }
        (said, next, negotiation.learned_era(next))
    }

    const MODERN: KnownEra = KnownEra::Remembered(Era::Modern);
    const LEGACY: KnownEra = KnownEra::Remembered(Era::Legacy);
    const ASSUMED: KnownEra = KnownEra::Assumed(Era::Legacy);
    use HandshakeReply::*;
    use HandshakeRequest::{Discover, Initialize};
    use KnownEra::{Pinned, Unknown};

    #[test]
    fn a_server_of_which_nothing_is_known_is_asked_for_the_modern_era_first() {
        assert_eq!(
            course(Unknown, &[Discovered]),
            (vec![Discover], NextStep::Agreed(Era::Modern), MODERN)
        );
        for other in [NotDiscovered, Silence] {
            assert_eq!(
                course(Unknown, &[other, Initialized]),
                (
                    vec![Discover, Initialize],
                    NextStep::Agreed(Era::Legacy),
                    LEGACY
                )
            );
        }
    }

    #[test]
    fn what_is_remembered_is_asked_for_first_and_forgotten_when_it_no_longer_works() {
        assert_eq!(
            course(LEGACY, &[Initialized]),
            (vec![Initialize], NextStep::Agreed(Era::Legacy), LEGACY)
        );
        assert_eq!(
            course(MODERN, &[Discovered]),
            (vec![Discover], NextStep::Agreed(Era::Modern), MODERN)
        );
        assert_eq!(
            course(LEGACY, &[NotInitialized, Discovered]),
            (
                vec![Initialize, Discover],
                NextStep::Agreed(Era::Modern),
                MODERN
            )
        );
        for other in [NotDiscovered, Silence] {
            assert_eq!(
                course(MODERN, &[other, Initialized]),
                (
                    vec![Discover, Initialize],
                    NextStep::Agreed(Era::Legacy),
                    LEGACY
                )
            );
        }
        for known in [MODERN, LEGACY] {
            assert_eq!(course(known, &[Lost]).1, NextStep::Lost);
            assert_eq!(course(known, &[Lost]).2, Unknown);
        }
    }

    #[test]
    fn the_preferred_era_is_asked_for_first_and_the_other_where_it_is_refused() {
        let preferred = KnownEra::Preferred(Era::Legacy);
        assert_eq!(
            course(preferred, &[Initialized]),
            (vec![Initialize], NextStep::Agreed(Era::Legacy), preferred)
        );
        assert_eq!(
            course(preferred, &[NotInitialized, Discovered]),
            (
                vec![Initialize, Discover],
                NextStep::Agreed(Era::Modern),
                preferred
            )
        );
        assert_eq!(
            course(preferred, &[NotInitialized, NotDiscovered]).1,
            NextStep::Refused
        );
        assert_eq!(course(preferred, &[Lost]).1, NextStep::Lost);
    }

    #[test]
    fn a_server_that_ends_on_the_question_is_asked_for_the_other_era_next_and_only_once() {
        for heard in [&[Lost][..], &[Silence, Lost][..]] {
            let (_, next, lesson) = course(Unknown, heard);
            assert_eq!((next, lesson), (NextStep::TryOtherEra, ASSUMED));
        }
        assert_eq!(
            course(ASSUMED, &[Lost]),
            (vec![Initialize], NextStep::Lost, ASSUMED)
        );
        assert_eq!(course(ASSUMED, &[Initialized]).2, LEGACY);
        assert_eq!(
            course(Unknown, &[NotDiscovered, Lost]).1,
            NextStep::Lost,
            "it answered the question, so it was not that"
        );
    }

    #[test]
    fn a_server_that_cannot_be_reached_teaches_nothing() {
        for known in [Unknown, ASSUMED, MODERN, LEGACY, Pinned(Era::Legacy)] {
            let (_, next, lesson) = course(known, &[Unreachable]);
            assert_eq!((next, lesson), (NextStep::Unreachable, known));
        }
        let (said, next, lesson) = course(Unknown, &[NotDiscovered, Unreachable]);
        assert_eq!(said, [Discover, Initialize]);
        assert_eq!((next, lesson), (NextStep::Unreachable, Unknown));
    }

    #[test]
    fn a_late_answer_changes_nothing_unless_the_other_way_is_closed() {
        assert_eq!(
            course(Unknown, &[Silence, NotDiscovered, Initialized]),
            (
                vec![Discover, Initialize],
                NextStep::Agreed(Era::Legacy),
                LEGACY
            )
        );
        assert_eq!(
            course(Unknown, &[Silence, Discovered, Initialized]),
            (
                vec![Discover, Initialize],
                NextStep::Agreed(Era::Legacy),
                MODERN
            ),
            "a slow starter that speaks both is met in the modern era the next time"
        );
        for end in [NotInitialized, Silence] {
            assert_eq!(
                course(Unknown, &[Silence, Discovered, end]),
                (
                    vec![Discover, Initialize],
                    NextStep::Agreed(Era::Modern),
                    MODERN
                )
            );
        }
    }

    #[test]
    fn a_slow_answer_is_waited_for_though_the_other_way_is_closed_and_not_for_ever() {
        for known in [Unknown, MODERN] {
            for (refusal, verdict) in [
                (NotInitialized, NextStep::Refused),
                (OtherVersion, NextStep::Incompatible),
            ] {
                assert_eq!(
                    course(known, &[Silence, refusal]).1,
                    NextStep::Wait,
                    "{known:?}: nothing is concluded yet"
                );
                assert_eq!(
                    course(known, &[Silence, refusal, Discovered]),
                    (
                        vec![Discover, Initialize],
                        NextStep::Agreed(Era::Modern),
                        MODERN
                    )
                );
                assert_eq!(
                    course(known, &[Silence, Discovered, refusal]).1,
                    NextStep::Agreed(Era::Modern)
                );
                for end in [Silence, NotDiscovered] {
                    assert_eq!(course(known, &[Silence, refusal, end]).1, verdict);
                    assert_eq!(course(known, &[Silence, NotDiscovered, refusal]).1, verdict);
                }
                let (mut negotiation, _) = Negotiation::begin(known);
                negotiation.on_reply(Silence);
                negotiation.on_reply(refusal);
                assert_eq!(negotiation.reply_timeout(), Some(REMEMBERED_WAIT));
                assert_eq!(
                    negotiation.on_reply(Lost),
                    NextStep::Lost,
                    "it refused the other"
                );
            }
        }
    }

    #[test]
    fn versions_that_the_server_names_are_tried_once() {
        let other = |modern, legacy| OtherVersions { modern, legacy };
        assert_eq!(
            course(Unknown, &[other(true, false), Discovered]),
            (
                vec![Discover, Discover],
                NextStep::Agreed(Era::Modern),
                MODERN
            )
        );
        assert_eq!(
            course(Unknown, &[other(true, false), other(true, false)]).1,
            NextStep::Incompatible
        );
        assert_eq!(
            course(Unknown, &[other(false, true), Initialized]),
            (
                vec![Discover, Initialize],
                NextStep::Agreed(Era::Legacy),
                LEGACY
            )
        );
        assert_eq!(
            course(Unknown, &[other(false, false)]).1,
            NextStep::Incompatible
        );
        assert_eq!(
            course(LEGACY, &[NotInitialized, other(false, true)]).1,
            NextStep::Incompatible
        );
    }

    #[test]
    fn a_modern_refusal_is_no_reason_for_the_other_era() {
        assert_eq!(
            course(Unknown, &[ModernRefusal]),
            (vec![Discover], NextStep::Refused, Unknown)
        );
    }

    #[test]
    fn a_pinned_era_is_the_only_one() {
        let modern = Pinned(Era::Modern);
        assert_eq!(
            course(modern, &[NotDiscovered]),
            (vec![Discover], NextStep::Incompatible, modern)
        );
        assert_eq!(Negotiation::begin(modern).0.reply_timeout(), None);
        let legacy = Pinned(Era::Legacy);
        assert_eq!(
            course(legacy, &[NotInitialized]),
            (vec![Initialize], NextStep::Refused, legacy)
        );
    }

    #[test]
    fn no_course_goes_on_for_ever() {
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
            let mut said = 0;
            while !courses.is_empty() {
                said += 1;
                assert!(said <= 4, "{known:?}: {courses:?}");
                let followed = courses.iter().flat_map(|(course, _)| {
                    all.iter().filter_map(|heard| {
                        let mut course = course.clone();
                        // Waiting on says nothing.
                        match course.on_reply(*heard) {
                            NextStep::Send(say) => Some((course, say)),
                            _ => None,
                        }
                    })
                });
                courses = followed.collect();
            }
        }
    }
}
