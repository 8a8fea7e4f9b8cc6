//! Folders that something is written into.

use std::path::Path;

/// Tries whether a file can be made in a folder, and leaves nothing behind.
pub(crate) fn writable(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".mcpvisor-{}", std::process::id()));
    std::fs::File::create_new(&probe)?;
    std::fs::remove_file(probe)
}
