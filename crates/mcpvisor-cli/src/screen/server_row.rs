//! One server of the screen: the cells of its row, and its latency.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mcpvisor::ServerStatus;

/// Latency samples of a server; one column of the sparkline each.
pub(super) const SAMPLES: usize = 12;

/// The bars of a sparkline, from fast to slow.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A ping without an answer.
const LOST: char = '×';

/// Used attempts of the budget, and the time until the next one, for the table.
pub(super) fn attempts(status: &ServerStatus, now: Instant) -> String {
    let used = match status.attempts_used {
        0 => String::new(),
        used => format!("{used}/{}", status.attempts_limit),
    };
    match status.retry_at {
        Some(at) => {
            let wait = at.saturating_duration_since(now).as_secs_f64();
            format!("{used} in {wait:.1} s").trim_start().to_owned()
        }
        None => used,
    }
}

/// The same in messages.
pub(super) fn attempts_in_words(status: &ServerStatus, now: Instant) -> String {
    let used = match status.attempts_used {
        0 => None,
        used => Some(format!("{used} of {}", status.attempts_limit)),
    };
    let next = status.retry_at.map(|at| {
        let wait = at.saturating_duration_since(now).as_secs_f64();
        format!("next in {wait:.1} s")
    });
    let parts: Vec<String> = used.into_iter().chain(next).collect();
    parts.join(", ")
}

/// Calls in flight, and queued calls.
pub(super) fn calls(status: &ServerStatus) -> String {
    match status.waiting {
        0 => status.in_flight.to_string(),
        waiting => format!("{}+{waiting}", status.in_flight),
    }
}

/// The number of tools; a question mark if it is not confirmed.
pub(super) fn catalog(status: &ServerStatus) -> String {
    match (status.stale, status.tools) {
        (false, tools) => tools.to_string(),
        (true, 0) => "-".to_owned(),
        (true, tools) => format!("{tools}?"),
    }
}

/// The last round trips to a server; `None` for one without an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Latency(VecDeque<Option<Duration>>);

impl Latency {
    pub(super) fn add(&mut self, sample: Option<Duration>) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The samples as bars, and the last one as a number.
    pub(super) fn shown(&self) -> String {
        let slowest = self.0.iter().flatten().max().copied().unwrap_or_default();
        let bar = |sample: &Option<Duration>| match sample {
            Some(_) if slowest.is_zero() => BARS[0],
            Some(sample) => {
                let share = sample.as_secs_f64() / slowest.as_secs_f64();
                BARS[((share * 7.0).round() as usize).min(7)]
            }
            None => LOST,
        };
        let bars: String = self.0.iter().map(bar).collect();
        let last = match self.0.back() {
            Some(Some(last)) => millis(*last),
            Some(None) => "lost".to_owned(),
            None => return String::new(),
        };
        format!("{bars:<SAMPLES$} {last}")
    }
}

fn millis(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1_000.0;
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// The status of a server that is not running.
#[cfg(test)]
pub(super) fn status(name: &str, state: mcpvisor::StateName) -> ServerStatus {
    use mcpvisor::config::{ConfigProblem, Severity};
    use mcpvisor::{Config, ServerName};

    let name = ServerName::new(name).unwrap();
    let mut config = Config::new();
    config.problems = vec![ConfigProblem::of(&name, Severity::Excluded, "for a test")];
    let mut status = config.unusable_servers().remove(0);
    status.state = state;
    (status.last_error, status.action, status.stale) = (None, None, false);
    status
}

#[cfg(test)]
mod tests {
    use mcpvisor::StateName;

    use super::*;

    #[test]
    fn the_slowest_answer_is_the_highest_bar() {
        let mut latency = Latency::default();
        assert_eq!(latency.shown(), "");
        for ms in [1, 7, 14] {
            latency.add(Some(Duration::from_millis(ms)));
        }
        latency.add(None);
        assert_eq!(latency.shown(), "▂▅█×         lost");
        for _ in 0..SAMPLES {
            latency.add(Some(Duration::from_millis(3)));
        }
        assert_eq!(latency.shown(), "████████████ 3.0 ms");
    }

    #[test]
    fn attempts_count_down() {
        let now = Instant::now();
        let mut status = status("weather", StateName::Reconnecting);
        status.attempts_limit = 10;
        assert_eq!(attempts(&status, now), "");
        status.attempts_used = 2;
        status.retry_at = Some(now + Duration::from_millis(1_500));
        assert_eq!(attempts(&status, now), "2/10 in 1.5 s");
        let later = now + Duration::from_secs(9);
        assert_eq!(attempts(&status, later), "2/10 in 0.0 s");
    }
}
