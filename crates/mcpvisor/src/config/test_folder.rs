//! A folder for one test, removed at its end.

use std::path::{Path, PathBuf};

pub(crate) struct TestFolder(PathBuf);

impl TestFolder {
    /// Names must differ between the tests of the crate.
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("mcpvisor-config-{}-{test}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left behind by a killed process with the same id.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder.canonicalize().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
