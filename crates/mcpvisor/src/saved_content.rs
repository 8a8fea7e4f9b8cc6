//! Saves the content of results as files: images, audio and embedded resources.
//!
//! The content and its names come from servers, so names are reduced to safe characters, and no file
//! is overwritten unless the program asks for it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rmcp::model::{ContentBlock, ResourceContents};

/// Files of one name in one folder.
const MAX_NUMBER: u32 = 10_000;

/// Characters of a file name, without its extension.
const MAX_NAME: usize = 64;

/// The name of content that has none.
const DEFAULT_NAME: &str = "content";

/// Some servers omit the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A folder in which the content of results is saved.
///
/// A file is named after the last part of its URI, else after [`ContentFolder::default_name`] and its
/// MIME type. Names are reduced to letters, digits, `-`, `_` and `.`, so no file leaves the folder.
/// An existing file is kept: the next one is `name-2.png`. The methods block, so use them on a
/// blocking thread.
///
/// ```no_run
/// # fn example(result: mcpvisor::rmcp::model::CallToolResult) -> Result<(), mcpvisor::SaveError> {
/// use mcpvisor::ContentFolder;
///
/// let mut folder = ContentFolder::new("pictures");
/// for block in &result.content {
///     // Text and links are not files.
///     if let Some(saved) = folder.save(block)? {
///         println!("{} ({} bytes)", saved.path.display(), saved.bytes);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ContentFolder {
    folder: PathBuf,
    default_name: String,
    overwrite: bool,
    /// The next number of each name and extension, so that none is tried twice.
    next: HashMap<(String, String), u32>,
}

/// Content that can be a file, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileContent<'a> {
    /// The URI of an embedded resource.
    pub uri: Option<&'a str>,
    /// Its MIME type, as the server says; `text/plain` for text without one.
    pub mime: Option<&'a str>,
    /// Its content.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> FileContent<'a> {
    /// Decodes an image, audio or an embedded resource. `None` for other content.
    pub fn of_block(block: &'a ContentBlock) -> Result<Option<Self>, SaveError> {
        let (mime, data) = match block {
            ContentBlock::Image(image) => (&image.mime_type, &image.data),
            ContentBlock::Audio(audio) => (&audio.mime_type, &audio.data),
            ContentBlock::Resource(embedded) => return Self::of_resource(&embedded.resource),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            uri: None,
            mime: Some(mime),
            bytes: decode(data)?,
        }))
    }

    /// Decodes the contents of a resource. `None` for a kind of contents that rmcp may add.
    pub fn of_resource(contents: &'a ResourceContents) -> Result<Option<Self>, SaveError> {
        let (uri, mime, bytes) = match contents {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                ..
            } => {
                let mime = mime_type.as_deref().unwrap_or("text/plain");
                (uri, Some(mime), text.as_bytes().into())
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => (uri, mime_type.as_deref(), decode(blob)?),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            uri: Some(uri),
            mime,
            bytes,
        }))
    }
}

fn decode(data: &str) -> Result<Cow<'static, [u8]>, SaveError> {
    let length = data.len();
    let bytes = BASE64.decode(data.as_bytes());
    bytes
        .map(Cow::Owned)
        .map_err(|_| SaveError::InvalidBase64 { length })
}

/// Content that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedContent {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: usize,
}

/// Why content was not saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The server sent invalid base64.
    #[error("{length} characters of invalid base64")]
    InvalidBase64 {
        /// How much it sent, in characters.
        length: usize,
    },
    /// The file cannot be written.
    #[error("cannot save {name} in {}: {error}", folder.display())]
    Write {
        /// The name of the file.
        name: String,
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl ContentFolder {
    /// Saves in this folder, which is created with the first file.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            default_name: DEFAULT_NAME.to_owned(),
            overwrite: false,
            next: HashMap::new(),
        }
    }

    /// Names content without a URI. The default is `content`.
    #[must_use]
    pub fn default_name(mut self, name: &str) -> Self {
        self.default_name = safe(name);
        self
    }

    /// Sets whether existing files are replaced. A link is replaced, not what it points to.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Saves an image, audio or an embedded resource. `None` for other content.
    pub fn save(&mut self, block: &ContentBlock) -> Result<Option<SavedContent>, SaveError> {
        let content = FileContent::of_block(block)?;
        content
            .map(|content| self.save_content(&content))
            .transpose()
    }

    /// Saves content.
    pub fn save_content(&mut self, content: &FileContent<'_>) -> Result<SavedContent, SaveError> {
        let name = self.name(content.mime, content.uri);
        let shown = format!("{}.{}", name.0, name.1);
        let written = self.write(name, &content.bytes);
        let path = written.map_err(|error| SaveError::Write {
            name: shown,
            folder: self.folder.clone(),
            error,
        })?;
        let bytes = content.bytes.len();
        Ok(SavedContent { path, bytes })
    }

    /// Writes a file: `name.png`, or `name-2.png` and so on if it must not be overwritten.
    fn write(&mut self, name: (String, String), bytes: &[u8]) -> io::Result<PathBuf> {
        std::fs::create_dir_all(&self.folder)?;
        let (stem, ending) = name.clone();
        if self.overwrite {
            let path = self.folder.join(format!("{stem}.{ending}"));
            return replace(&path, bytes).map(|()| path);
        }
        let next = self.next.entry(name).or_insert(1);
        while *next <= MAX_NUMBER {
            let name = match *next {
                1 => format!("{stem}.{ending}"),
                number => format!("{stem}-{number}.{ending}"),
            };
            *next += 1;
            let path = self.folder.join(name);
            // An existing link counts as a file, wherever it points.
            match File::create_new(&path) {
                Ok(mut file) => return file.write_all(bytes).map(|()| path),
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
    fn name(&self, mime: Option<&str>, uri: Option<&str>) -> (String, String) {
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
            None => (self.default_name.clone(), ending.to_owned()),
        }
    }
}

/// Replaces a file as a whole. Its content goes to a new file first, so a link is not followed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}-{}", std::process::id(), fastrand::u64(..)));
    let new = PathBuf::from(new);
    let written = File::create_new(&new).and_then(|mut file| file.write_all(bytes));
    let replaced = written.and_then(|()| std::fs::rename(&new, path));
    if replaced.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&new);
    }
    replaced
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
    match name.trim_start_matches(['.', '-']) {
        "" => DEFAULT_NAME.to_owned(),
        name => name.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("mcpvisor-content-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&folder);
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

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
        let folder = ContentFolder::new("unused").default_name("shot");
        let name = |mime, uri| {
            let (stem, ending) = folder.name(mime, uri);
            format!("{stem}.{ending}")
        };
        assert_eq!(name(Some("image/png"), None), "shot.png");
        assert_eq!(name(None, Some("file:///a/b/c.tar.gz?x=1")), "c.tar.gz");
        assert_eq!(
            name(Some("image/jpeg"), Some("camera://front")),
            "front.jpg"
        );
        assert_eq!(name(Some("x/y"), Some("file:///../..")), "content.bin");
    }

    #[test]
    fn every_kind_of_content_is_saved_as_its_bytes() {
        let temporary = Folder::new("kinds");
        let mut folder = ContentFolder::new(&temporary.0).default_name("shot");
        let text = ResourceContents::text("ä", "notes://today/../../note");
        let blob = ResourceContents::blob("AAEC/w", "file:///a/b.dat");
        for (block, name, bytes) in [
            (
                ContentBlock::image("AAEC/w==", "image/png"),
                "shot.png",
                &[0, 1, 2, 255][..],
            ),
            (ContentBlock::audio("AQ", "audio/wav"), "shot.wav", &[1]),
            (ContentBlock::resource(text), "note.txt", "ä".as_bytes()),
            (ContentBlock::resource(blob), "b.dat", &[0, 1, 2, 255]),
        ] {
            let saved = folder.save(&block).unwrap().unwrap();
            assert_eq!(saved.path, temporary.0.join(name));
            assert_eq!(saved.bytes, bytes.len());
            assert_eq!(std::fs::read(saved.path).unwrap(), bytes);
        }
        assert_eq!(folder.save(&ContentBlock::text("x")).unwrap(), None);
        let broken = folder.save(&ContentBlock::image("not base64!", "image/png"));
        let broken = broken.unwrap_err().to_string();
        assert_eq!(broken, "11 characters of invalid base64");
        assert_eq!(std::fs::read_dir(&temporary.0).unwrap().count(), 4);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_overwritten_only_on_request_and_a_link_is_never_followed() {
        let temporary = Folder::new("links");
        std::fs::create_dir(&temporary.0).unwrap();
        let outside = temporary.0.join("outside");
        std::fs::write(&outside, "mine").unwrap();
        std::os::unix::fs::symlink(&outside, temporary.0.join("shot.png")).unwrap();
        let block = ContentBlock::image("AQ==", "image/png");

        let mut folder = ContentFolder::new(&temporary.0).default_name("shot");
        let saved = folder.save(&block).unwrap().unwrap();
        assert_eq!(saved.path, temporary.0.join("shot-2.png"));
        // No name is tried twice.
        std::fs::remove_file(&saved.path).unwrap();
        let saved = folder.save(&block).unwrap().unwrap();
        assert_eq!(saved.path, temporary.0.join("shot-3.png"));

        let mut folder = ContentFolder::new(&temporary.0)
            .default_name("shot")
            .overwrite(true);
        for _ in 0..2 {
            let saved = folder.save(&block).unwrap().unwrap();
            assert_eq!(saved.path, temporary.0.join("shot.png"));
            assert_eq!(std::fs::read(saved.path).unwrap(), [1]);
        }
        assert_eq!(std::fs::read(outside).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&temporary.0).unwrap().count(), 3);
    }

    #[test]
    fn an_error_names_the_file_and_the_folder() {
        let mut folder = ContentFolder::new("/proc/nowhere").default_name("shot");
        let failed = folder.save(&ContentBlock::image("AQ==", "image/png"));
        let text = failed.unwrap_err().to_string();
        assert!(
            text.starts_with("cannot save shot.png in /proc/nowhere: "),
            "{text}"
        );
    }
}
