//! Rate-limits log lines that a server can trigger.
//!
//! Lines about states and connections are not limited here, because the reconnect budget limits
//! them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::Level;

use crate::mutex::lock;

/// Lines per burst.
const BURST: u32 = 15;

/// The interval between lines after a burst.
const INTERVAL: Duration = Duration::from_secs(2);

/// The limits of one server: one for warnings, one for debug lines.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    warnings: Mutex<RateLimit>,
    debug_lines: Mutex<RateLimit>,
}

/// Permission to write a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Lines suppressed since the last one, if any.
    pub(crate) suppressed: Option<u64>,
}

impl LogLimit {
    /// Requests permission to write a line of this level.
    pub(crate) fn admit(&self, level: Level) -> Option<Admitted> {
        let lines = if level <= Level::WARN {
            &self.warnings
        } else {
            &self.debug_lines
        };
        lock(lines).admit(Instant::now())
    }
}

#[derive(Debug, Default)]
struct RateLimit {
    /// When a full burst is available again.
    full_at: Option<Instant>,
    suppressed: u64,
}

impl RateLimit {
    fn admit(&mut self, now: Instant) -> Option<Admitted> {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + INTERVAL;
        if full_at - now > INTERVAL * BURST {
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

/// Writes a log line that a server can trigger, if the rate limit admits it.
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
    fn after_a_burst_one_line_per_interval_is_written_and_the_rest_is_counted() {
        let now = Instant::now();
        let mut lines = RateLimit::default();
        let written = (0..1_000).filter(|_| lines.admit(now).is_some()).count();
        assert_eq!(written, BURST as usize);
        let next = lines.admit(now + INTERVAL);
        let suppressed = Some(1_000 - u64::from(BURST));
        assert_eq!(next, Some(Admitted { suppressed }));
        assert_eq!(lines.admit(now + INTERVAL), None);
    }

    #[test]
    fn debug_lines_do_not_suppress_warnings() {
        let limit = LogLimit::default();
        while limit.admit(Level::DEBUG).is_some() {}
        assert!(limit.admit(Level::WARN).is_some());
    }
}
