//! Bounds the log lines that one server can cause at will.
//!
//! Lines about a state or a connection are not counted here: reconnects have a budget of their own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::Level;

/// Lines that may be written at once.
const BURST: u32 = 15;

/// After that, one line each so often.
const EACH: Duration = Duration::from_secs(2);

/// The limit of one server, apart for warnings and for what is only of interest when debugging.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    warnings: Mutex<Lines>,
    details: Mutex<Lines>,
}

/// A line that may be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Lines that were left out since the last one, if there were any.
    pub(crate) suppressed: Option<u64>,
}

impl LogLimit {
    /// Asks for a line of this level.
    pub(crate) fn admit(&self, level: Level) -> Option<Admitted> {
        let lines = if level <= Level::WARN {
            &self.warnings
        } else {
            &self.details
        };
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.admit(Instant::now())
    }
}

#[derive(Debug, Default)]
struct Lines {
    /// When a whole burst may be written again.
    full_at: Option<Instant>,
    suppressed: u64,
}

impl Lines {
    fn admit(&mut self, now: Instant) -> Option<Admitted> {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + EACH;
        if full_at - now > EACH * BURST {
            self.suppressed += 1;
            return None;
        }
        self.full_at = Some(full_at);
        let suppressed = std::mem::take(&mut self.suppressed);
        Some(Admitted {
            suppressed: (suppressed > 0).then_some(suppressed),
        })
    }
}

/// Writes a log line that a server can cause at will, if its limit admits it.
macro_rules! log_limited {
    ($limit:expr, $level:ident, $($line:tt)+) => {
        if tracing::enabled!(tracing::Level::$level)
            && let Some(admitted) = $limit.admit(tracing::Level::$level)
        {
            tracing::event!(
                tracing::Level::$level,
                suppressed = admitted.suppressed,
                $($line)+
            );
        }
    };
}
pub(crate) use log_limited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_written_then_one_line_each_so_often_and_the_rest_is_counted() {
        let now = Instant::now();
        let mut lines = Lines::default();
        let written = (0..1_000).filter(|_| lines.admit(now).is_some()).count();
        assert_eq!(written, BURST as usize);
        let next = lines.admit(now + EACH);
        let suppressed = Some(1_000 - u64::from(BURST));
        assert_eq!(next, Some(Admitted { suppressed }));
        assert_eq!(lines.admit(now + EACH), None);
    }

    #[test]
    fn details_leave_room_for_warnings() {
        let limit = LogLimit::default();
        while limit.admit(Level::DEBUG).is_some() {}
        assert!(limit.admit(Level::WARN).is_some());
    }
}
