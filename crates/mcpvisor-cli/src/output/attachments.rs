//! Binary content of results: saved as files with `--out`, else described.
//!
//! Names come from servers, so they are reduced to safe characters. No file is overwritten.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::printable;
use crate::exit::Exit;
use crate::failure::Failure;

/// Files of one name in one folder.
const MAX_NUMBER: u32 = 10_000;

/// Files saved of one result; further ones are described.
const MAX_FILES: u32 = 256;

/// Characters of a file name, without its extension.
const MAX_NAME: usize = 64;

/// Some servers omit the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The binary content of one result.
#[derive(Debug)]
pub(crate) struct Attachments {
    folder: Option<PathBuf>,
    /// The name of files without one.
    name: String,
    /// Files written so far.
    files: Cell<u32>,
    /// The next number of each name and extension, so that none is tried twice.
    next: RefCell<HashMap<(String, String), u32>>,
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
        Ok(Self {
            folder: folder.map(Path::to_owned),
            name: safe(name),
            files: Cell::default(),
            next: RefCell::default(),
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

    /// Saves content, and describes it in one line.
    pub(crate) fn content(
        &self,
        kind: &str,
        mime: Option<&str>,
        uri: Option<&str>,
        data: &str,
    ) -> String {
        let what = match mime {
            Some(mime) => printable(&format!("{kind} {mime}")),
            None => kind.to_owned(),
        };
        let Ok(bytes) = BASE64.decode(data.as_bytes()) else {
            return format!("[{what}: {} characters of invalid base64]", data.len());
        };
        let size = size(bytes.len());
        let Some(folder) = &self.folder else {
            return format!("[{what}, {size}; save it with --out DIR]");
        };
        if self.files.get() == MAX_FILES {
            let message = format!(
                "only the first {MAX_FILES} files of the result were saved; use --json for all"
            );
            *self.failure.borrow_mut() = Some(Failure::unexpected(message));
            return format!("[{what}, {size}: not saved]");
        }
        match self.write(folder, self.named(mime, uri), &bytes) {
            Ok(path) => {
                self.files.set(self.files.get() + 1);
                let path = printable(&path.display().to_string());
                format!("[{what}, {size}: saved as {path}]")
            }
            Err(error) => {
                let folder = folder.display();
                let message = format!("cannot save the {what} in {folder}: {error}");
                *self.failure.borrow_mut() = Some(Failure::unexpected(message));
                format!("[{what}, {size}: not saved]")
            }
        }
    }

    /// Writes a new file: `name.png`, `name-2.png`, and so on.
    fn write(&self, folder: &Path, name: (String, String), bytes: &[u8]) -> io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let (stem, ending) = name.clone();
        let mut next = self.next.borrow_mut();
        let next = next.entry(name).or_insert(1);
        while *next <= MAX_NUMBER {
            let name = match *next {
                1 => format!("{stem}.{ending}"),
                number => format!("{stem}-{number}.{ending}"),
            };
            *next += 1;
            let path = folder.join(name);
            // An existing link counts as a file, wherever it points.
            match File::options().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    file.write_all(bytes)?;
                    return Ok(path);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            ErrorKind::AlreadyExists,
            format!("{MAX_NUMBER} files named {stem} exist already"),
        ))
    }

    /// The name and extension of a file: from its URI, else from its MIME type.
    fn named(&self, mime: Option<&str>, uri: Option<&str>) -> (String, String) {
        let last = uri.and_then(|uri| {
            let path = uri.split(['?', '#']).next().unwrap_or_default();
            path.rsplit('/').next().filter(|last| !last.is_empty())
        });
        let ending = ending(mime.unwrap_or_default());
        match last.map(safe) {
            Some(name) => match name.rsplit_once('.') {
                Some((stem, own)) if !stem.is_empty() && !own.is_empty() => {
                    (stem.to_owned(), own.to_owned())
                }
                _ => (name, ending.to_owned()),
            },
            None => (self.name.clone(), ending.to_owned()),
        }
    }
}

/// Checks that a file can be created in a directory. Leaves nothing behind.
pub(crate) fn probe_writable(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".mcpvisor-{}", std::process::id()));
    std::fs::File::create_new(&probe)?;
    std::fs::remove_file(probe)
}

/// Replaces characters that are special to a shell, a path or a terminal.
fn safe(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c
        } else {
            '_'
        }
    };
    let name: String = name.chars().take(MAX_NAME).map(plain).collect();
    // No hidden files, and no names that `rm *` would take for options.
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() {
        "content".to_owned()
    } else {
        name.to_owned()
    }
}

fn ending(mime: &str) -> &'static str {
    let mime = mime.split(';').next().unwrap_or_default().trim();
    match mime {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "video/mp4" => "mp4",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        _ if mime.starts_with("text/") => "txt",
        _ => "bin",
    }
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
    use super::*;

    #[test]
    fn file_names_cannot_leave_the_folder() {
        for (name, expected) in [
            ("../../etc/passwd", "_.._etc_passwd"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a b\u{1b}[2J", "a_b__2J"),
            ("", "content"),
            ("..", "content"),
        ] {
            assert_eq!(safe(name), expected, "{name:?}");
        }
        assert_eq!(safe(&"x".repeat(500)).len(), MAX_NAME);
    }

    #[test]
    fn a_file_is_named_by_its_uri_or_its_mime_type() {
        let attachments = Attachments::new(None, "shot").unwrap();
        let named = |mime, uri| {
            let (stem, ending) = attachments.named(mime, uri);
            format!("{stem}.{ending}")
        };
        assert_eq!(named(Some("image/png"), None), "shot.png");
        assert_eq!(named(None, Some("file:///a/b/c.tar.gz?x=1")), "c.tar.gz");
        assert_eq!(
            named(Some("image/jpeg"), Some("camera://front")),
            "front.jpg"
        );
        assert_eq!(named(Some("x/y"), Some("file:///../..")), "content.bin");
    }

    #[test]
    fn no_file_is_overwritten_and_every_byte_is_saved() {
        let folder =
            std::env::temp_dir().join(format!("mcpvisor-attachments-{}", std::process::id()));
        let attachments = Attachments::new(Some(&folder), "shot").unwrap();
        let first = attachments.content("image", Some("image/png"), None, "AAEC/w==");
        let second = attachments.content("image", Some("image/png"), None, "AQ");
        assert!(first.contains("4 bytes: saved as"));
        assert!(second.contains("shot-2.png"));
        assert_eq!(
            std::fs::read(folder.join("shot.png")).unwrap(),
            [0, 1, 2, 255]
        );
        assert_eq!(std::fs::read(folder.join("shot-2.png")).unwrap(), [1]);
        // No name is tried twice.
        std::fs::remove_file(folder.join("shot.png")).unwrap();
        let third = attachments.content("image", Some("image/png"), None, "AQ");
        assert!(third.contains("shot-3.png"), "{third}");
        let broken = attachments.content("image", None, None, "not base64!");
        assert!(broken.contains("invalid base64"), "{broken}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
