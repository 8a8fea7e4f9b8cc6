//! Runs the binary on a pseudo-terminal: keys in, a screen out.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by several tests, each of which uses a part"
)]

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::{BINARY, LIMIT, OF_THE_CALLER};

/// A process on its own pseudo-terminal.
pub struct Pty {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    parser: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    /// Reads until all processes have closed the terminal.
    reading: JoinHandle<()>,
    /// The terminal settings before the process started.
    before: String,
}

impl Pty {
    /// Runs the binary in a folder, on a terminal of this size.
    pub fn start(folder: &Path, args: &[&str], rows: u16, cols: u16) -> Self {
        Self::start_with(folder, args, &[], rows, cols)
    }

    pub fn start_with(
        folder: &Path,
        args: &[&str],
        env: &[(&str, &str)],
        rows: u16,
        cols: u16,
    ) -> Self {
        let pair = native_pty_system().openpty(size(rows, cols)).unwrap();
        let mut command = CommandBuilder::new(BINARY);
        command.cwd(folder);
        command.args(args);
        for name in OF_THE_CALLER {
            command.env_remove(name);
        }
        command.env("TERM", "xterm-256color");
        command.env("MCPVISOR_STATE_DIR", folder.join("state"));
        for (name, value) in env {
            command.env(name, value);
        }
        let before = settings(&*pair.master);
        let child = pair.slave.spawn_command(command).unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(lines(rows), lines(cols), 0)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (shown, kept) = (Arc::clone(&parser), Arc::clone(&raw));
        let reading = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                shown.lock().unwrap().process(&buffer[..read]);
                kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self {
            child,
            writer: pair.master.take_writer().unwrap(),
            master: pair.master,
            parser,
            raw,
            reading,
            before,
        }
    }

    /// The current contents of the screen.
    pub fn screen(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// The rows of the screen. A wrapped line spans several.
    pub fn rows(&self) -> Vec<String> {
        let parser = self.parser.lock().unwrap();
        let (_, columns) = parser.screen().size();
        parser.screen().rows(0, columns.get()).collect()
    }

    /// Everything written to the terminal so far.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.raw.lock().unwrap()).into_owned()
    }

    /// Waits until the screen satisfies a condition.
    #[track_caller]
    pub fn awaits(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let until = Instant::now() + LIMIT;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return;
            }
            assert!(Instant::now() < until, "{what} never came:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.awaits(text, |screen| screen.contains(text));
    }

    /// Sends keys to the process.
    pub fn types(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        self.parser
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(lines(rows), lines(cols));
        self.master.resize(size(rows, cols)).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Waits until the process exits. Returns its exit code.
    #[track_caller]
    pub fn ends(&mut self) -> u32 {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.is_read_to_its_end(until);
                return status.exit_code();
            }
            if Instant::now() > until {
                let _ = self.child.kill();
                panic!("the command did not end:\n{}", self.screen());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the last output of the process has been read.
    #[track_caller]
    fn is_read_to_its_end(&self, until: Instant) {
        while !self.reading.is_finished() {
            let screen = self.screen();
            assert!(Instant::now() < until, "someone keeps it:\n{screen}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fails unless the terminal is restored to its settings before the process started.
    #[track_caller]
    pub fn assert_restored(&self) {
        let parser = self.parser.lock().unwrap();
        assert!(
            !parser.screen().alternate_screen(),
            "still on the other screen"
        );
        assert!(!parser.screen().hide_cursor(), "the cursor is hidden");
        drop(parser);
        assert_eq!(settings(&*self.master), self.before);
    }

    /// Whether the process uses the alternate screen.
    pub fn is_alternate(&self) -> bool {
        self.parser.lock().unwrap().screen().alternate_screen()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn lines(number: u16) -> std::num::NonZero<u16> {
    number.try_into().unwrap()
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize {
        rows,
        cols,
        pixel_width: 0,
        pixel_height: 0,
    }
}

fn settings(master: &dyn MasterPty) -> String {
    format!("{:?}", master.get_termios())
}
