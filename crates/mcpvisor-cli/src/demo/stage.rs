//! What the audience sees: one line per event, with the time since the start; on a terminal they go
//! to the live screen.

use std::time::{Duration, Instant};

use crate::output::{Output, Tty, paint, printable};
use crate::screen::{Meaning, News, Story, Told};

/// The narrator. With JSON it says nothing: there the summary is the only document.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    output: Output,
    tty: Tty,
    /// The share of each pause that is made.
    pace: f64,
    story: Option<Story>,
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
    pub(super) fn new(output: Output, tty: Tty, pace: f64, story: Option<Story>) -> Self {
        Self {
            output,
            tty,
            pace,
            story,
            started: Instant::now(),
        }
    }

    /// The title of an act, and what it is about.
    pub(super) fn act(&self, title: &str, about: &str) {
        if self.story.is_some() {
            self.tell(Meaning::Title, "", &format!("{title}. {about}"));
            return;
        }
        let title = paint(self.tty, "1", title);
        self.print(&format!("\n{title}\n{about}\n"));
    }

    /// One line: who, and what happened.
    pub(super) fn line(&self, tone: Tone, who: &str, text: &str) {
        let (colour, meaning) = match tone {
            Tone::Plain => ("0", Meaning::Plain),
            Tone::Good => ("32", Meaning::Good),
            Tone::Bad => ("33", Meaning::Bad),
            Tone::Fault => ("1;31", Meaning::Fault),
        };
        if self.story.is_some() {
            self.tell(meaning, who, text);
            return;
        }
        let at = self.started.elapsed().as_secs_f64();
        let text = paint(self.tty, colour, &printable(text));
        self.print(&format!("{at:>7.3} s  {who:<9} {text}"));
    }

    /// A pause for the reader.
    pub(super) async fn pause(&self, pause: Duration) {
        tokio::time::sleep(pause.mul_f64(self.pace)).await;
    }

    /// How long the show has been running.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn tell(&self, meaning: Meaning, who: &str, text: &str) {
        if let Some(story) = &self.story {
            story.tell(News::Told(Told {
                at: self.started.elapsed(),
                who: who.to_owned(),
                text: text.to_owned(),
                meaning,
            }));
        }
    }

    fn print(&self, line: &str) {
        if !self.output.json() {
            // Nobody may be listening any more; the show goes on, its promises are still checked.
            let _ = self.output.text(line);
        }
    }
}
