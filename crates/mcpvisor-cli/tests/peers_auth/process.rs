//! A process that is controlled by lines: commands on its stdin, events on its stdout.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Upper bound for every step, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// The process; killed on drop. Its errors are shown with those of the test.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|problem| panic!("{command:?}: {problem}"));
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                all.lock().unwrap().push(line);
            }
        });
        Self {
            stdin: child.stdin.take().unwrap(),
            child,
            lines,
        }
    }

    /// All lines of its stdout up to now.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits until its lines show something.
    #[track_caller]
    pub(crate) fn wait_until<T>(&mut self, find: impl Fn(&[String]) -> Option<T>) -> T {
        let until = Instant::now() + LONG;
        loop {
            let lines = self.lines();
            if let Some(found) = find(&lines) {
                return found;
            }
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "the process ended: {lines:?}");
            assert!(Instant::now() < until, "not in its lines: {lines:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its first line.
    #[track_caller]
    pub(crate) fn first_line(&mut self) -> String {
        self.wait_until(|lines| lines.first().cloned())
    }

    /// Sends a command, and waits for the line that confirms it.
    #[track_caller]
    pub(crate) fn execute(&mut self, command: &str, confirmation: &str) {
        let count = |lines: &[String]| lines.iter().filter(|it| *it == confirmation).count();
        let before = count(&self.lines());
        writeln!(self.stdin, "{command}").unwrap();
        self.wait_until(|lines| (count(lines) > before).then_some(()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
