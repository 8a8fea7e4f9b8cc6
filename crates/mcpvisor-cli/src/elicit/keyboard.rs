//! The lines that the person types, each for the question that is shown.
//!
//! Nothing ends a read of a terminal. When a question is taken back, its read goes on, and the next
//! question takes it over; what was typed before that question was shown is no answer to it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::prompter::say;

/// Nobody reads a question and answers it sooner. Only a line that was meant for the question before
/// comes so early.
const READING: Duration = Duration::from_millis(500);

/// The one keyboard.
#[derive(Debug, Clone, Default)]
pub(super) struct Keyboard(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// A thread waits for the next line.
    reading: bool,
    /// Who gets that line. Whoever went away gets nothing.
    wanted: Option<oneshot::Sender<Option<String>>>,
}

/// The keyboard for the time of one question.
#[derive(Debug)]
pub(super) struct Keys {
    keyboard: Keyboard,
    /// The question before was taken back, and its read goes on.
    inherited: bool,
    shown: Option<Instant>,
}

impl Keyboard {
    /// The keyboard for a question that is about to be shown.
    pub(super) fn begin(&self) -> Keys {
        discard_typed_ahead();
        Keys {
            keyboard: self.clone(),
            inherited: self.state().reading,
            shown: None,
        }
    }

    /// The next line; nothing when the terminal is gone.
    async fn line(&self) -> Option<String> {
        let (sink, line) = oneshot::channel();
        {
            let mut state = self.state();
            state.wanted = Some(sink);
            if !state.reading {
                let keyboard = self.clone();
                let read = move || keyboard.deliver(read());
                state.reading = std::thread::Builder::new().spawn(read).is_ok();
                if !state.reading {
                    return None;
                }
            }
        }
        line.await.ok().flatten()
    }

    fn deliver(&self, line: Option<String>) {
        let mut state = self.state();
        state.reading = false;
        if let Some(wanted) = state.wanted.take() {
            let _ = wanted.send(line);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    /// The next line of an answer; nothing when the terminal is gone.
    pub(super) async fn line(&mut self) -> Option<String> {
        let shown = *self.shown.get_or_insert_with(Instant::now);
        loop {
            let line = self.keyboard.line().await?;
            if !self.inherited || shown.elapsed() >= READING {
                return Some(line);
            }
            say("  that was typed before this question could be read; once more: ");
        }
    }
}

fn read() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).unwrap_or(0);
    (read > 0).then_some(line)
}

/// Discards what was typed and not yet read, also half a line.
pub(crate) fn discard_typed_ahead() {
    #[cfg(unix)]
    {
        use rustix::termios::{QueueSelector, tcflush};
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyboard {
        /// As the thread does it, and another read begins.
        async fn types(&self, line: &str) {
            while self.state().wanted.is_none() {
                tokio::task::yield_now().await;
            }
            self.deliver(Some(line.to_owned()));
            self.state().reading = true;
        }
    }

    #[tokio::test]
    async fn a_line_for_the_question_before_is_not_taken_for_this_one() {
        let keyboard = Keyboard::default();
        // A question that was taken back left its read.
        keyboard.state().reading = true;
        let mut keys = keyboard.begin();
        let typed = async {
            keyboard.types("meant for the other").await;
            tokio::time::sleep(READING).await;
            keyboard.types("meant for this").await;
        };
        let both = async { tokio::join!(keys.line(), typed) };
        let both = tokio::time::timeout(READING * 20, both).await;
        let (line, ()) = both.expect("the first line was taken");
        assert_eq!(line.as_deref(), Some("meant for this"));
        // From then on the person knows what is asked.
        let (line, ()) = tokio::join!(keys.line(), keyboard.types("more"));
        assert_eq!(line.as_deref(), Some("more"));
    }
}
