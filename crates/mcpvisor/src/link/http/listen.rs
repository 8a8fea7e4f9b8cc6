//! The stream of what the server says of its own accord, and when it is opened again.

use std::time::Duration;

use tokio::time::Instant;

use super::exchange::Resume;

/// Without a wish of the server's, a stream that ended is opened again after so long, doubling each
/// time that nothing came on it.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait, also when the server wishes a longer one.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// A stream that was open for so long was a good one, whether anything came on it or not.
const GOOD: Duration = Duration::from_secs(10);

/// Whether there is such a stream.
#[derive(Debug, Default)]
pub(super) struct Listen {
    state: State,
    last_id: Option<String>,
    /// When it was opened last.
    opened: Option<Instant>,
    /// How often it ended in a row, soon and without having said anything.
    idle_ends: u32,
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

    /// A message came on it.
    pub(super) fn heard(&mut self) {
        self.idle_ends = 0;
    }

    pub(super) fn last_id(&self) -> Option<&String> {
        self.last_id.as_ref()
    }

    /// The server opened it.
    pub(super) fn opened(&mut self, now: Instant) {
        self.opened = Some(now);
    }

    /// It broke off: how long to wait before it is opened again. A good one is opened at once, if
    /// the server has no wish: the session may be gone, and that is how to find out.
    pub(super) fn broke(&mut self, resume: Option<Resume>, now: Instant) -> Duration {
        let wishes = resume.as_ref().is_some_and(|resume| resume.retry.is_some());
        let opened = self.opened.is_some();
        let wait = self.ended(resume, now);
        if opened && !wishes && self.idle_ends == 1 {
            return Duration::ZERO;
        }
        wait
    }

    /// It ended: how long to wait before it is opened again.
    pub(super) fn ended(&mut self, resume: Option<Resume>, now: Instant) -> Duration {
        if self.opened.take().is_some_and(|at| now - at >= GOOD) {
            self.idle_ends = 0;
        }
        let grown = FIRST * 2_u32.saturating_pow(self.idle_ends.min(8));
        self.idle_ends = self.idle_ends.saturating_add(1);
        let wish = resume.as_ref().and_then(|resume| resume.retry);
        if let Some(resume) = resume {
            self.last_id = resume.last_id;
        }
        wish.unwrap_or_default().max(grown).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resume(retry: Option<u64>) -> Option<Resume> {
        Some(Resume {
            last_id: Some("7".to_owned()),
            retry: retry.map(Duration::from_secs),
            moved: true,
        })
    }

    fn ended(listen: &mut Listen, retry: Option<u64>) -> Duration {
        listen.ended(resume(retry), Instant::now())
    }

    #[test]
    fn a_good_stream_that_breaks_off_is_opened_at_once_but_not_over_and_over() {
        let mut listen = Listen::default();
        let now = Instant::now();
        listen.opened(now);
        assert_eq!(listen.broke(resume(None), now), Duration::ZERO);
        listen.opened(now);
        assert_eq!(listen.broke(resume(None), now).as_secs(), 2);
        listen.opened(now);
        assert_eq!(listen.broke(resume(None), now + GOOD), Duration::ZERO);
        listen.heard();
        listen.opened(now);
        assert_eq!(listen.broke(resume(Some(5)), now).as_secs(), 5, "a wish");
        listen.heard();
        assert_eq!(listen.broke(resume(None), now).as_secs(), 1, "never opened");
    }

    #[test]
    fn a_stream_that_says_nothing_is_opened_more_and_more_slowly() {
        let mut listen = Listen::default();
        let waits: Vec<u64> = (0..7).map(|_| ended(&mut listen, None).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        listen.heard();
        assert_eq!(ended(&mut listen, None).as_secs(), 1);
        assert_eq!(listen.last_id().map(String::as_str), Some("7"));
    }

    #[test]
    fn the_servers_wish_counts_up_to_a_bound() {
        let mut listen = Listen::default();
        assert_eq!(ended(&mut listen, Some(5)).as_secs(), 5);
        listen.heard();
        assert_eq!(ended(&mut listen, Some(3_600)), LONGEST);
    }
}
