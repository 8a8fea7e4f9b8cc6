//! What the audience sees: one line per event, with the time since the start.

use std::time::{Duration, Instant};

use crate::output::{Output, Tty, paint, printable};

/// Pauses that let a reader follow are this much shorter when nobody reads.
const FAST: u32 = 8;

/// The narrator. With JSON it says nothing: there the summary is the only document.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    output: Output,
    tty: Tty,
    fast: bool,
    started: Instant,
}

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Fault,
}

impl Stage {
    pub(super) fn new(output: Output, tty: Tty, fast: bool) -> Self {
        Self {
            output,
            tty,
            fast,
            started: Instant::now(),
        }
    }

    /// The title of an act, and what it is about.
    pub(super) fn act(&self, title: &str, about: &str) {
        let title = paint(self.tty, "1", title);
        self.print(&format!("\n{title}\n{about}\n"));
    }

    /// One line: who, and what happened.
    pub(super) fn line(&self, tone: Tone, who: &str, text: &str) {
        let colour = match tone {
            Tone::Plain => "0",
            Tone::Good => "32",
            Tone::Bad => "33",
            Tone::Fault => "1;31",
        };
        let at = self.started.elapsed().as_secs_f64();
        let text = paint(self.tty, colour, &printable(text));
        self.print(&format!("{at:>7.3} s  {who:<9} {text}"));
    }

    /// A pause for the reader.
    pub(super) async fn pause(&self, pause: Duration) {
        let pause = if self.fast { pause / FAST } else { pause };
        tokio::time::sleep(pause).await;
    }

    fn print(&self, line: &str) {
        if !self.output.json() {
            // Nobody may be listening any more; the show goes on, its promises are still checked.
            let _ = self.output.text(line);
        }
    }
}
