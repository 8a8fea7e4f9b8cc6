//! A journal of the built-in servers, in a file that survives them.
//!
//! The demo reads it for all process ids and for held calls.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes entries to a file, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    file: Option<PathBuf>,
}

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A server's process started.
    Started(u32),
    /// A held call was received.
    Began(String),
}

impl Journal {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file }
    }

    pub(crate) fn started(&self) {
        self.append(&format!("started {}", std::process::id()));
    }

    pub(crate) fn began(&self, call: &str) {
        self.append(&format!("began {call}"));
    }

    /// All entries of a journal; none if it does not exist.
    pub(crate) fn read(file: &Path) -> Vec<Entry> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().filter_map(Entry::read).collect()
    }

    fn append(&self, line: &str) {
        let Some(file) = &self.file else {
            return;
        };
        if let Err(error) = append_line(file, line) {
            let _ = writeln!(std::io::stderr(), "built-in server: journal: {error}");
        }
    }
}

impl Entry {
    fn read(line: &str) -> Option<Self> {
        match line.split_once(' ')? {
            ("started", pid) => Some(Self::Started(pid.parse().ok()?)),
            ("began", call) => Some(Self::Began(call.to_owned())),
            _ => None,
        }
    }
}

/// Appends one line in one write, so that lines of several processes do not mix.
pub(super) fn append_line(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes())
}
