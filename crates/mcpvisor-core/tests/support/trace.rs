//! The trace of a history as text, to print it or to compare its hash.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use mcpvisor_core::{Effect, Input, StateName};

/// How much of a history is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Nothing, for speed.
    Off,
    /// A hash of every line.
    Hash,
    /// Every line on stdout, and the hash.
    Print,
}

#[derive(Debug)]
pub struct Trace {
    detail: Detail,
    hasher: DefaultHasher,
}

impl Trace {
    pub fn new(detail: Detail) -> Self {
        Self {
            detail,
            hasher: DefaultHasher::new(),
        }
    }

    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// One step, with times from the start, so that every run gives the same text.
    pub fn step(&mut self, begin: Instant, now: Instant, input: &Input, state: StateName) {
        let input = match input {
            Input::Call(call) => {
                let (mut call, left) = (call.clone(), call.deadline - now);
                call.deadline = begin;
                let text = format!("{call:?}");
                let until = text.find("deadline").unwrap_or(text.len());
                format!(
                    "Call({}) within {left:?}, idle {:?}",
                    &text[..until],
                    call.idle
                )
            }
            other => format!("{other:?}"),
        };
        self.line(now - begin, &format!("{input} in {state}"));
    }

    pub fn effect(&mut self, at: Duration, effect: &Effect) {
        if self.detail == Detail::Off {
            return;
        }
        let text = match effect {
            // Its instant differs from run to run.
            Effect::AttemptFailed { attempt, fault, .. } => {
                format!("AttemptFailed {{ {attempt}, {fault:?} }}")
            }
            other => format!("{other:?}"),
        };
        self.line(at, &format!("    {text}"));
    }

    pub fn is_on(&self) -> bool {
        self.detail != Detail::Off
    }

    pub fn line(&mut self, at: Duration, line: &str) {
        if self.detail == Detail::Off {
            return;
        }
        (at, line).hash(&mut self.hasher);
        if self.detail == Detail::Print {
            println!("{:>12.6} {line}", at.as_secs_f64());
        }
    }
}
