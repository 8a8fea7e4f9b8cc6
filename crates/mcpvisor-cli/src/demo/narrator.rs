//! Prints the demo: one line per event with the time since the start, or lines of the live screen.

use std::time::{Duration, Instant};

use crate::output::{ColorMode, Output, paint, printable};
use crate::screen::{ScreenUpdate, StoryLine, Tone, UpdateSender};

/// Writes the lines. With JSON it prints nothing: the summary is the only document.
#[derive(Debug, Clone)]
pub(super) struct Narrator {
    output: Output,
    color: ColorMode,
    /// Factor applied to every pause.
    pace: f64,
    story: Option<UpdateSender>,
    started: Instant,
}

impl Narrator {
    pub(super) fn new(
        output: Output,
        color: ColorMode,
        pace: f64,
        story: Option<UpdateSender>,
    ) -> Self {
        Self {
            output,
            color,
            pace,
            story,
            started: Instant::now(),
        }
    }

    /// Announces an act.
    pub(super) fn act(&self, title: &str, about: &str) {
        if self.story.is_some() {
            self.send(Tone::Title, "", &format!("{title}. {about}"));
            return;
        }
        let title = paint(self.color, "1", title);
        self.print(&format!("\n{title}\n{about}\n"));
    }

    /// Prints one line: who, and what happened.
    pub(super) fn line(&self, tone: Tone, who: &str, text: &str) {
        if self.story.is_some() {
            self.send(tone, who, text);
            return;
        }
        let color = match tone {
            Tone::Plain => "0",
            Tone::Good => "32",
            Tone::Bad => "33",
            Tone::Fault => "1;31",
            Tone::Title => "1",
        };
        let at = self.started.elapsed().as_secs_f64();
        let text = paint(self.color, color, &printable(text));
        self.print(&format!("{at:>7.3} s  {who:<9} {text}"));
    }

    /// Pauses for the reader.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::time::sleep(pause.mul_f64(self.pace)).await;
    }

    /// Time since the demo started.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn send(&self, tone: Tone, who: &str, text: &str) {
        if let Some(story) = &self.story {
            story.send(ScreenUpdate::Line(StoryLine {
                at: self.started.elapsed(),
                who: who.to_owned(),
                text: text.to_owned(),
                tone,
            }));
        }
    }

    fn print(&self, line: &str) {
        if !self.output.json() {
            // Stdout may be closed; the demo goes on and still checks its promises.
            let _ = self.output.text(line);
        }
    }
}
