//! Cheap marks to detect that a file was replaced.

use std::fs::Metadata;
use std::time::SystemTime;

/// The state of a file, to compare: it differs after every replacement of the file. Getting one
/// reads no contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileMark {
    /// 0 on systems without inodes.
    inode: u64,
    modified: Option<SystemTime>,
    bytes: u64,
    /// 0 on systems without modes.
    mode: u32,
}

impl FileMark {
    #[cfg(unix)]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            inode: metadata.ino(),
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            mode: metadata.mode(),
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            inode: 0,
            modified: metadata.modified().ok(),
            bytes: metadata.len(),
            mode: 0,
        }
    }

    /// When the file was last written, to the nanosecond where the file system records it.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Whether others than the owner have any access. Always `false` on systems without modes.
    pub fn is_exposed(&self) -> bool {
        self.mode & 0o077 != 0
    }

    /// The mark as bytes, for the mark of several files.
    pub fn to_bytes(&self) -> Vec<u8> {
        let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).ok();
        let modified = self.modified.and_then(since).unwrap_or_default();
        let parts = [
            self.inode.to_be_bytes(),
            modified.as_secs().to_be_bytes(),
            u64::from(modified.subsec_nanos()).to_be_bytes(),
            self.bytes.to_be_bytes(),
        ];
        parts.concat()
    }
}
