//! The stream of what the server says of its own accord, and when it is opened again.

use std::time::Duration;

use tokio::time::Instant;

use super::exchange::Resume;
use super::sse::Place;

/// Without a wish of the server's, a stream that ended is opened again after so long, doubling each
/// time that it was no good one.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait, also when the server wishes a longer one.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// A stream that was open for so long was a good one, whether anything came on it or not.
const GOOD: Duration = Duration::from_secs(10);

/// Whether there is such a stream.
#[derive(Debug, Default)]
pub(super) struct Listen {
    state: State,
    place: Place,
    /// When it was opened last, until it ends.
    opened: Option<Instant>,
    /// It was open before in this session.
    was_open: bool,
    /// A message came on it since it was opened.
    heard: bool,
    /// How often it ended in a row, soon and without going on where it ended.
    poor_ends: u32,
    /// When it was last opened again without a wait.
    hurried: Option<Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// The session has not begun, or the server has no such stream.
    #[default]
    Off,
    /// It is open, or being opened.
    On,
}

impl Listen {
    pub(super) fn begin(&mut self) {
        self.state = State::On;
    }

    /// The server has none, or none any more.
    pub(super) fn stop(&mut self) {
        self.state = State::Off;
    }

    pub(super) fn is_on(&self) -> bool {
        self.state == State::On
    }

    /// Whether the server has opened it in this session.
    pub(super) fn was_open(&self) -> bool {
        self.was_open
    }

    /// A message came on it.
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Where it is gone on with.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The server opened it. Says whether something may have been missed since it ended.
    pub(super) fn opened(&mut self, now: Instant) -> bool {
        self.opened = Some(now);
        self.heard = false;
        std::mem::replace(&mut self.was_open, true) && self.place.last_id.is_none()
    }

    /// It broke off: how long to wait before it is opened again. A good one is opened at once, if
    /// the server has no wish: the session may be gone, and that is how to find out.
    pub(super) fn broke(&mut self, resume: Option<Resume>, now: Instant) -> Duration {
        let opened = self.opened.is_some();
        let wait = self.ended(resume, now);
        let rested = self.hurried.is_none_or(|at| now - at >= GOOD);
        if opened && self.place.retry.is_none() && self.poor_ends == 1 && rested {
            self.hurried = Some(now);
            return Duration::ZERO;
        }
        wait
    }

    /// It ended: how long to wait before it is opened again. A server that numbers its events may
    /// end a stream whenever it has said something; the next one goes on there.
    pub(super) fn ended(&mut self, resume: Option<Resume>, now: Instant) -> Duration {
        let lasted = self.opened.take().is_some_and(|at| now - at >= GOOD);
        if let Some(resume) = resume {
            self.place = resume.place;
        }
        let goes_on = std::mem::take(&mut self.heard) && self.place.last_id.is_some();
        if lasted || goes_on {
            self.poor_ends = 0;
        }
        let grown = FIRST * 2_u32.saturating_pow(self.poor_ends.min(8));
        self.poor_ends = self.poor_ends.saturating_add(1);
        let wish = self.place.retry.unwrap_or_default();
        wish.max(grown).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resume(last_id: Option<&str>, retry: Option<u64>) -> Option<Resume> {
        Some(Resume {
            place: Place {
                last_id: last_id.map(str::to_owned),
                retry: retry.map(Duration::from_secs),
            },
            moved: true,
        })
    }

    fn ended(listen: &mut Listen, retry: Option<u64>) -> Duration {
        listen.ended(resume(Some("7"), retry), Instant::now())
    }

    #[test]
    fn a_good_stream_that_breaks_off_is_opened_at_once_but_not_over_and_over() {
        let mut listen = Listen::default();
        let now = Instant::now();
        let broke = |listen: &mut Listen, lived, retry| {
            listen.opened(now);
            listen.broke(resume(None, retry), now + lived)
        };
        let soon = Duration::ZERO;
        assert_eq!(broke(&mut listen, soon, None), Duration::ZERO);
        assert_eq!(broke(&mut listen, soon, None).as_secs(), 2);
        assert_eq!(broke(&mut listen, GOOD, None), Duration::ZERO);
        assert_eq!(broke(&mut listen, 2 * GOOD, Some(5)).as_secs(), 5, "a wish");
        let mut listen = Listen::default();
        assert_eq!(
            listen.broke(resume(None, None), now).as_secs(),
            1,
            "never opened"
        );
    }

    #[test]
    fn a_stream_that_says_one_thing_and_breaks_off_is_opened_more_and_more_slowly() {
        let mut listen = Listen::default();
        let now = Instant::now();
        let waits = |listen: &mut Listen, id: Option<&str>| -> Vec<u64> {
            let waits = (0..5).map(|_| {
                listen.opened(now);
                listen.heard();
                listen.broke(resume(id, None), now).as_secs()
            });
            waits.collect()
        };
        assert_eq!(waits(&mut listen, None), [0, 2, 4, 8, 16]);
        let mut numbered = Listen::default();
        assert_eq!(waits(&mut numbered, Some("7")), [0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_stream_that_says_nothing_is_opened_more_and_more_slowly() {
        let mut listen = Listen::default();
        let waits: Vec<u64> = (0..7).map(|_| ended(&mut listen, None).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        listen.heard();
        assert_eq!(ended(&mut listen, None).as_secs(), 1);
        assert_eq!(listen.place().last_id.as_deref(), Some("7"));
    }

    #[test]
    fn the_servers_wish_counts_up_to_a_bound() {
        let mut listen = Listen::default();
        assert_eq!(ended(&mut listen, Some(5)).as_secs(), 5);
        listen.heard();
        assert_eq!(ended(&mut listen, Some(3_600)), LONGEST);
    }

    #[test]
    fn something_may_have_been_missed_where_the_events_have_no_numbers() {
        let mut listen = Listen::default();
        let now = Instant::now();
        assert!(!listen.opened(now), "the first one");
        listen.ended(resume(None, None), now);
        assert!(listen.opened(now));
        listen.ended(resume(Some("7"), None), now);
        assert!(!listen.opened(now), "it goes on after the last");
    }
}
