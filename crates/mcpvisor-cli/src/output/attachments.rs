//! Binary content and embedded resources of results: saved as files with `--out`, else described.

use std::cell::{Cell, RefCell};
use std::path::Path;

use mcpvisor::{ContentFolder, FileContent, SaveError};

use super::content::UNKNOWN;
use super::printable;
use crate::exit::Exit;
use crate::failure::Failure;

/// Files saved of one result; further ones are described.
const MAX_FILES: u32 = 256;

/// The files of one result.
#[derive(Debug)]
pub(crate) struct Attachments {
    folder: Option<RefCell<ContentFolder>>,
    /// Files written so far.
    files: Cell<u32>,
    /// Why a file could not be saved.
    failure: RefCell<Option<Failure>>,
}

impl Attachments {
    /// Checks the folder before the request is sent, because its result cannot be fetched twice.
    pub(crate) fn new(folder: Option<&Path>, name: &str) -> Result<Self, Failure> {
        if let Some(folder) = folder {
            let made = std::fs::create_dir_all(folder);
            let there = made.and_then(|()| probe_writable(folder));
            there.map_err(|error| {
                let folder = folder.display();
                Failure::usage(format!(
                    "cannot write to {folder}: {error}. Choose another folder with `--out`."
                ))
            })?;
        }
        let folder = folder.map(|folder| ContentFolder::new(folder).default_name(name));
        Ok(Self {
            folder: folder.map(RefCell::new),
            files: Cell::default(),
            failure: RefCell::new(None),
        })
    }

    /// Shows a result, and fails if a file could not be saved. Runs on a blocking thread, because
    /// disks and readers of stdout may be slow, and an interrupt must still work.
    pub(crate) async fn show(
        self,
        show: impl FnOnce(&Self) -> Result<Exit, Failure> + Send + 'static,
    ) -> Result<Exit, Failure> {
        let shown = tokio::task::spawn_blocking(move || {
            let exit = show(&self)?;
            self.failure.into_inner().map_or(Ok(exit), Err)
        });
        let shown = shown.await;
        shown.unwrap_or_else(|error| Err(Failure::unexpected(error)))
    }

    /// Whether files are saved.
    pub(crate) fn is_saving(&self) -> bool {
        self.folder.is_some()
    }

    /// Saves content, and describes it in one line. `what` is printable.
    pub(crate) fn describe(
        &self,
        what: &str,
        content: Result<Option<FileContent<'_>>, SaveError>,
    ) -> String {
        let content = match content {
            Ok(Some(content)) => content,
            Ok(None) => return UNKNOWN.to_owned(),
            Err(problem) => {
                if self.is_saving() {
                    let problem = format!("the {what} was not saved: {problem}");
                    *self.failure.borrow_mut() = Some(Failure::unexpected(problem));
                }
                return format!("[{what}: {problem}]");
            }
        };
        let size = size(content.bytes.len());
        let Some(folder) = &self.folder else {
            return format!("[{what}, {size}; save it with --out DIR]");
        };
        let problem = if self.files.get() == MAX_FILES {
            format!("only the first {MAX_FILES} files of the result were saved; use --json for all")
        } else {
            match folder.borrow_mut().save_content(&content) {
                Ok(saved) => {
                    self.files.set(self.files.get() + 1);
                    let path = printable(&saved.path.display().to_string());
                    return format!("[{what}, {size}: saved as {path}]");
                }
                Err(SaveError::Write { folder, error, .. }) => {
                    let folder = folder.display();
                    format!("cannot save the {what} in {folder}: {error}")
                }
                Err(error) => error.to_string(),
            }
        };
        *self.failure.borrow_mut() = Some(Failure::unexpected(problem));
        format!("[{what}, {size}: not saved]")
    }
}

/// Checks that a file can be created in a directory. Leaves nothing behind.
pub(crate) fn probe_writable(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".mcpvisor-{}", std::process::id()));
    std::fs::File::create_new(&probe)?;
    std::fs::remove_file(probe)
}

fn size(bytes: usize) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..=1_023 => format!("{bytes} bytes"),
        1_024..=1_048_575 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use mcpvisor::rmcp::model::ContentBlock;

    use super::*;

    #[test]
    fn content_that_cannot_be_decoded_fails_only_if_it_was_to_be_saved() {
        let broken = ContentBlock::image("%%%", "image/png");
        let folder = std::env::temp_dir().join(format!("mcpvisor-broken-{}", std::process::id()));
        for (out, fails) in [(None, false), (Some(folder.as_path()), true)] {
            let attachments = Attachments::new(out, "tool").unwrap();
            attachments.describe("image", FileContent::of_block(&broken));
            assert_eq!(attachments.failure.borrow().is_some(), fails);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
