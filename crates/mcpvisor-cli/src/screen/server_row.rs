//! One server of the screen: its status as plain values, and its latency.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mcpvisor::ServerStatus;

use crate::output::action_text;

/// Latency samples of a server; one column of the sparkline each.
pub(super) const SAMPLES: usize = 12;

/// The bars of a sparkline, from fast to slow.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A ping without an answer.
const LOST: char = '×';

/// A server as shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) generation: u64,
    pub(crate) attempts_used: u32,
    pub(crate) attempts_limit: u32,
    pub(crate) retry_at: Option<Instant>,
    pub(crate) in_flight: usize,
    pub(crate) waiting: usize,
    pub(crate) tools: usize,
    pub(crate) prompts: usize,
    pub(crate) resources: usize,
    pub(crate) stale: bool,
    pub(crate) transport: String,
    pub(crate) protocol: String,
    pub(crate) server: String,
    pub(crate) last_error: String,
    pub(crate) action: String,
    pub(crate) restarts: u64,
}

impl From<&ServerStatus> for Row {
    fn from(status: &ServerStatus) -> Self {
        let server = status.server.as_ref();
        Self {
            name: status.name.to_string(),
            state: status.state.to_string(),
            generation: status.generation.get(),
            attempts_used: status.attempts_used,
            attempts_limit: status.attempts_limit,
            retry_at: status.retry_at,
            in_flight: status.in_flight,
            waiting: status.waiting,
            tools: status.tools,
            prompts: status.prompts,
            resources: status.resources,
            stale: status.stale,
            transport: status.transport.to_owned(),
            protocol: status.protocol.clone().unwrap_or_default(),
            server: server.map_or_else(String::new, |it| format!("{} {}", it.name, it.version)),
            last_error: status
                .last_error
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            action: status.action.as_ref().map(action_text).unwrap_or_default(),
            restarts: status.restarts,
        }
    }
}

impl Row {
    /// Used attempts of the budget, and the time until the next one, for the table.
    pub(super) fn attempts(&self, now: Instant) -> String {
        let used = match self.attempts_used {
            0 => String::new(),
            used => format!("{used}/{}", self.attempts_limit),
        };
        match self.retry_at {
            Some(at) => {
                let wait = at.saturating_duration_since(now).as_secs_f64();
                format!("{used} in {wait:.1} s").trim_start().to_owned()
            }
            None => used,
        }
    }

    /// The same in messages.
    pub(super) fn attempts_in_words(&self, now: Instant) -> String {
        let used = match self.attempts_used {
            0 => None,
            used => Some(format!("{used} of {}", self.attempts_limit)),
        };
        let next = self.retry_at.map(|at| {
            let wait = at.saturating_duration_since(now).as_secs_f64();
            format!("next in {wait:.1} s")
        });
        let parts: Vec<String> = used.into_iter().chain(next).collect();
        parts.join(", ")
    }

    /// Calls in flight, and queued calls.
    pub(super) fn calls(&self) -> String {
        match self.waiting {
            0 => self.in_flight.to_string(),
            waiting => format!("{}+{waiting}", self.in_flight),
        }
    }

    /// The number of tools; a question mark if it is not confirmed.
    pub(super) fn catalog(&self) -> String {
        match (self.stale, self.tools) {
            (false, tools) => tools.to_string(),
            (true, 0) => "-".to_owned(),
            (true, tools) => format!("{tools}?"),
        }
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

#[cfg(test)]
mod tests {
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
        let mut row = Row {
            attempts_limit: 10,
            ..Row::default()
        };
        assert_eq!(row.attempts(now), "");
        row.attempts_used = 2;
        row.retry_at = Some(now + Duration::from_millis(1_500));
        assert_eq!(row.attempts(now), "2/10 in 1.5 s");
        assert_eq!(row.attempts(now + Duration::from_secs(9)), "2/10 in 0.0 s");
    }
}
