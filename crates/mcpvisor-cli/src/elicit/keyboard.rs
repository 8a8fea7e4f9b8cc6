//! Lines typed at the terminal, each for the question that is shown.
//!
//! A blocking read of a terminal cannot be cancelled. When a question is withdrawn, its read goes on,
//! and the next question takes it over; a line typed before that question was shown is discarded.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::prompter::print;

/// A line that comes sooner after a question was meant for the previous one.
const MIN_ANSWER_TIME: Duration = Duration::from_millis(500);

/// The keyboard of the process.
#[derive(Debug, Clone, Default)]
pub(super) struct Keyboard(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// A thread reads the next line.
    reading: bool,
    /// Receives that line. Its receiver may be gone.
    wanted: Option<oneshot::Sender<Option<String>>>,
}

/// The keyboard for one question.
#[derive(Debug)]
pub(super) struct Keys {
    keyboard: Keyboard,
    /// The previous question was withdrawn, and its read goes on.
    inherited: bool,
    shown: Option<Instant>,
}

impl Keyboard {
    /// Starts a question that is about to be shown.
    pub(super) fn begin(&self) -> Keys {
        discard_typed_ahead();
        Keys {
            keyboard: self.clone(),
            inherited: self.state().reading,
            shown: None,
        }
    }

    /// The next line; `None` if the terminal is gone.
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
    /// The next line of an answer; `None` if the terminal is gone.
    pub(super) async fn line(&mut self) -> Option<String> {
        let shown = *self.shown.get_or_insert_with(Instant::now);
        loop {
            let line = self.keyboard.line().await?;
            if !self.inherited || shown.elapsed() >= MIN_ANSWER_TIME {
                return Some(line);
            }
            print("  ignored: typed before this question. Answer again: ");
        }
    }
}

fn read() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).unwrap_or(0);
    (read > 0).then_some(line)
}

/// Discards typed input that was not read yet, including partial lines.
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
        /// Delivers a line as the thread does, and starts another read.
        async fn types(&self, line: &str) {
            while self.state().wanted.is_none() {
                tokio::task::yield_now().await;
            }
            self.deliver(Some(line.to_owned()));
            self.state().reading = true;
        }
    }

    #[tokio::test]
    async fn a_line_for_a_withdrawn_question_does_not_answer_the_next_one() {
        let keyboard = Keyboard::default();
        // A withdrawn question left its read.
        keyboard.state().reading = true;
        let mut keys = keyboard.begin();
        let typed = async {
            keyboard.types("meant for the other").await;
            tokio::time::sleep(MIN_ANSWER_TIME).await;
            keyboard.types("meant for this").await;
        };
        let both = async { tokio::join!(keys.line(), typed) };
        let both = tokio::time::timeout(MIN_ANSWER_TIME * 20, both).await;
        let (line, ()) = both.expect("the first line was taken");
        assert_eq!(line.as_deref(), Some("meant for this"));
        // Further lines answer this question.
        let (line, ()) = tokio::join!(keys.line(), keyboard.types("more"));
        assert_eq!(line.as_deref(), Some("more"));
    }
}
