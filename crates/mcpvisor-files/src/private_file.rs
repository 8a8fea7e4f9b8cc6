//! Files and folders that only their owner can read.
//!
//! Everything here may block forever: the callers run it within an operation of
//! [`FileOps`](crate::file_ops::FileOps).

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Age after which a temporary file counts as left behind by a process that died.
pub(crate) const STALE_TEMP_AGE: Duration = Duration::from_secs(300);

/// Options to write a file that, if created, only its owner can read.
pub(crate) fn private_options() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A unique name for a temporary file. The process id alone is not enough: in containers it is often the same.
pub(crate) fn temp_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!(".{}.{now:x}.{number}.tmp", std::process::id())
}

/// Whether a temporary file was left behind by a process that died.
pub(crate) fn is_stale_temp(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let age = || {
        let written = entry.metadata().and_then(|it| it.modified()).ok()?;
        SystemTime::now().duration_since(written).ok()
    };
    name.starts_with('.') && name.ends_with(".tmp") && age().is_some_and(|age| age > STALE_TEMP_AGE)
}

/// Creates a file that only its owner can read, and flushes it.
pub(crate) fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = private_options().create_new(true).open(path)?;
    file.write_all(contents)?;
    // The contents must be on disk before the rename is.
    file.sync_all()
}

/// Flushes a folder's entries to disk.
#[cfg(unix)]
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    #[cfg(test)]
    crate::state_dir::tests::SYNCED.with_borrow_mut(|synced| synced.push(folder.to_owned()));
    // The parent of a relative path is empty.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let folder = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        opened => opened?,
    };
    match rustix::fs::fsync(folder) {
        // Some file systems cannot flush a folder.
        Ok(()) | Err(Errno::INVAL | Errno::NOTSUP | Errno::BADF | Errno::ROFS) => Ok(()),
        Err(problem) => Err(problem.into()),
    }
}

#[cfg(not(unix))]
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates a folder and its parents, for their owner alone.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Restricts a folder to its owner. Returns whether others had access.
pub(crate) fn restrict_folder(path: &Path) -> io::Result<bool> {
    restrict(path, fs::metadata(path), 0o700)
}

/// Restricts a regular file to its owner. Returns whether others had access.
pub(crate) fn restrict_file(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Ok(false),
        metadata => restrict(path, metadata, 0o600),
    }
}

#[cfg(unix)]
fn restrict(path: &Path, metadata: io::Result<fs::Metadata>, mode: u32) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    let restricted = metadata.and_then(|metadata| {
        if metadata.permissions().mode() & 0o077 == 0 {
            return Ok(false);
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Ok(true)
    });
    match restricted {
        // It does not exist yet, or another process removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        restricted => restricted,
    }
}

#[cfg(not(unix))]
fn restrict(_: &Path, _: io::Result<fs::Metadata>, _: u32) -> io::Result<bool> {
    Ok(false)
}
