//! Which configs a person trusts.
//!
//! Trust is bound to the path of a file and the hash of its text: an edited file, or the same text
//! at another path, must be trusted again. There is one small file per config, so that concurrent
//! changes lose nothing. A config whose record cannot be read is not trusted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::config::UserFolders;
use crate::config::{ConfigSource, Review};
use crate::state::file_ops::{READ_TIMEOUT, WRITE_TIMEOUT};
use crate::state::fingerprint::sha256_hex;
use crate::state::state_dir::StateDir;

/// The folder within the state folder.
const FOLDER: &str = "trusted";

/// Records that are listed.
const MAX_ENTRIES: usize = 10_000;

/// Remembers which configs a person trusts. Its methods block: for up to 2 s to read, and 10 s to
/// write. A config whose record cannot be read in time is not trusted.
///
/// ```
/// use mcpvisor::config::{ConfigSource, Trust, TrustStore};
///
/// # let folder = std::env::temp_dir().join(format!("mcpvisor-trust-doc-{}", std::process::id()));
/// let store = TrustStore::open(&folder);
/// let source = ConfigSource::new("/srv/clone/.mcp.json", r#"{ "mcpServers": {} }"#);
/// assert_eq!(store.check(&source), Trust::Unknown);
/// store.trust(&source)?;
/// assert!(store.is_trusted(&source));
///
/// let edited = ConfigSource::new(source.path(), r#"{ "mcpServers": { "new": {} } }"#);
/// assert_eq!(store.check(&edited), Trust::Changed);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TrustStore {
    state: StateDir,
}

/// Whether a config is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// This text at this path was trusted.
    Trusted,
    /// The file was edited after it was trusted.
    Changed,
    /// No config at this path was ever trusted.
    Unknown,
}

/// A config that was trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trusted {
    /// The file.
    pub path: PathBuf,
    /// The SHA-256 of its text, in hexadecimal.
    pub fingerprint: String,
    /// When it was trusted.
    pub at: SystemTime,
}

/// A [`Trusted`] in its file.
#[derive(Serialize, Deserialize)]
struct Record {
    path: String,
    sha256: String,
    /// Seconds since 1970.
    at: u64,
    /// Its review when it was trusted. Records of earlier versions have none.
    #[serde(default)]
    review: Option<Review>,
}

impl TrustStore {
    /// The store in this folder, which is created when the first config is trusted.
    pub fn open(folder: impl Into<PathBuf>) -> Self {
        Self {
            state: StateDir::new(folder),
        }
    }

    /// The store of the current user, in [`UserFolders::state`]; `None` without a home folder.
    pub fn of_user() -> Option<Self> {
        UserFolders::of_environment().state.map(Self::open)
    }

    /// Whether a config is trusted, and if not, whether it was edited.
    pub fn check(&self, source: &ConfigSource) -> Trust {
        let owned = source.clone();
        let check = move |store: &Self| Ok(store.check_blocking(&owned));
        let checked = self.run_within(READ_TIMEOUT, source.path(), check);
        checked.unwrap_or_else(|problem| {
            tracing::warn!(%problem, "the config is not trusted: its trust record cannot be read");
            Trust::Unknown
        })
    }

    /// Runs an operation on the record of a path.
    fn run_within<T: Send + 'static>(
        &self,
        within: Duration,
        path: &Path,
        operation: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let store = self.clone();
        let operation = move || operation(&store);
        self.state.ops().run_blocking(path, within, operation)
    }

    fn check_blocking(&self, source: &ConfigSource) -> Trust {
        let path = absolute(source.path());
        match self.record(&file_of(&path)) {
            Some(record) if record.path != path.to_string_lossy() => Trust::Unknown,
            Some(record) if record.sha256 == source.fingerprint() => Trust::Trusted,
            Some(_) => Trust::Changed,
            None => Trust::Unknown,
        }
    }

    /// Whether this text at this path was trusted.
    pub fn is_trusted(&self, source: &ConfigSource) -> bool {
        self.check(source) == Trust::Trusted
    }

    /// Trusts this text at this path, and replaces earlier trust in that path.
    pub fn trust(&self, source: &ConfigSource) -> io::Result<()> {
        let owned = source.clone();
        let trust = move |store: &Self| store.trust_blocking(&owned);
        self.run_within(WRITE_TIMEOUT, source.path(), trust)
    }

    fn trust_blocking(&self, source: &ConfigSource) -> io::Result<()> {
        let path = absolute(source.path());
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let record = Record {
            path: path.to_string_lossy().into_owned(),
            sha256: source.fingerprint(),
            at: since_1970.unwrap_or(Duration::ZERO).as_secs(),
            review: Review::of(source).ok(),
        };
        let contents = serde_json::to_vec_pretty(&record)?;
        self.state.write(&file_of(&path), &contents)
    }

    /// The review of the config at this path from when it was trusted, to compare it with the
    /// current one. `None` if it was never trusted, or by a version that saved no review.
    pub fn reviewed(&self, path: impl AsRef<Path>) -> Option<Review> {
        let owned = path.as_ref().to_owned();
        let reviewed = self.run_within(READ_TIMEOUT, path.as_ref(), move |store| {
            let path = absolute(&owned);
            let record = store.record(&file_of(&path));
            Ok(record.filter(|record| record.path == path.to_string_lossy()))
        });
        reviewed.ok()??.review
    }

    /// Revokes trust. Returns whether the path was trusted.
    pub fn distrust(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        let owned = path.as_ref().to_owned();
        self.run_within(WRITE_TIMEOUT, path.as_ref(), move |store| {
            let file = file_of(&absolute(&owned));
            match fs::remove_file(store.state.path(&file)) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// All trusted configs, sorted by path. Unreadable records are ignored.
    pub fn list(&self) -> io::Result<Vec<Trusted>> {
        let folder = self.state.path(FOLDER);
        self.run_within(READ_TIMEOUT, &folder, Self::list_blocking)
    }

    fn list_blocking(&self) -> io::Result<Vec<Trusted>> {
        let folder = match fs::read_dir(self.state.path(FOLDER)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut trusted = Vec::new();
        for entry in folder.take(MAX_ENTRIES) {
            let name = entry?.file_name();
            let record = self.record(&format!("{FOLDER}/{}", name.to_string_lossy()));
            trusted.extend(record.and_then(Record::into_trusted));
        }
        trusted.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(trusted)
    }

    fn record(&self, file: &str) -> Option<Record> {
        let contents = self.state.read(file).ok()??;
        serde_json::from_slice(&contents).ok()
    }
}

impl Record {
    fn into_trusted(self) -> Option<Trusted> {
        Some(Trusted {
            path: self.path.into(),
            fingerprint: self.sha256,
            at: SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.at))?,
        })
    }
}

/// The absolute path of a file, with links in its folder resolved. A file that is itself a link
/// keeps its own path: its relative paths start from where the link is.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// The record file of a path. Its name is a hash, because a path may not be a valid file name.
fn file_of(path: &Path) -> String {
    format!(
        "{FOLDER}/{}.json",
        sha256_hex(path.as_os_str().as_encoded_bytes())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::test_folder::TestFolder;

    fn read(path: &Path) -> ConfigSource {
        ConfigSource::read(path).unwrap()
    }

    #[test]
    fn a_config_is_trusted_until_it_is_edited() {
        let folder = TestFolder::new("trust-edited");
        let store = TrustStore::open(folder.path().join("state"));
        let config = folder.write(".mcp.json", "{}");
        assert_eq!(store.check(&read(&config)), Trust::Unknown);
        store.trust(&read(&config)).unwrap();
        assert_eq!(store.check(&read(&config)), Trust::Trusted);

        folder.write(".mcp.json", "{ }");
        assert_eq!(store.check(&read(&config)), Trust::Changed);
        assert!(!store.is_trusted(&read(&config)));
        store.trust(&read(&config)).unwrap();
        assert!(store.is_trusted(&read(&config)));
        assert_eq!(store.list().unwrap().len(), 1, "one path, one record");
    }

    #[test]
    fn a_trusted_config_is_remembered_without_its_secrets() {
        let folder = TestFolder::new("trust-reviewed");
        let store = TrustStore::open(folder.path().join("state"));
        let text = r#"{ "mcpServers": { "a": {
            "command": "sh", "args": ["-c", "run"], "env": { "TOKEN": "canary-1" } } } }"#;
        let config = folder.write(".mcp.json", text);
        assert_eq!(store.reviewed(&config), None);
        store.trust(&read(&config)).unwrap();
        folder.write(".mcp.json", "{}");
        let before = store.reviewed(&config).unwrap();
        assert_eq!(before.servers[0].facts[0].value, "sh -c run");
        let record = fs::read_to_string(store.state.path(&file_of(&absolute(&config)))).unwrap();
        assert!(!record.contains("canary"), "{record}");
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let folder = TestFolder::new("trust-earlier");
        let store = TrustStore::open(folder.path().join("state"));
        let config = folder.write(".mcp.json", "{}");
        store.trust(&read(&config)).unwrap();
        let file = store.state.path(&file_of(&absolute(&config)));
        let mut record: serde_json::Value =
            serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        record.as_object_mut().unwrap().remove("review");
        fs::write(&file, record.to_string()).unwrap();
        assert!(store.is_trusted(&read(&config)));
        assert_eq!(store.reviewed(&config), None);
    }

    #[test]
    fn the_same_text_at_another_path_is_not_trusted() {
        let folder = TestFolder::new("trust-elsewhere");
        let store = TrustStore::open(folder.path().join("state"));
        let one = folder.write("one.json", "{}");
        let other = folder.write("other.json", "{}");
        store.trust(&read(&one)).unwrap();
        assert_eq!(store.check(&read(&other)), Trust::Unknown);
        // Not even with a copied record.
        let record = |path: &Path| store.state.path(&file_of(&absolute(path)));
        fs::copy(record(&one), record(&other)).unwrap();
        assert_eq!(store.check(&read(&other)), Trust::Unknown);
    }

    #[test]
    fn trust_can_be_revoked_and_is_listed() {
        let folder = TestFolder::new("trust-list");
        let store = TrustStore::open(folder.path().join("state"));
        assert_eq!(store.list().unwrap(), []);
        let paths = ["b.json", "a.json"].map(|name| folder.write(name, name));
        for path in &paths {
            store.trust(&read(path)).unwrap();
        }
        let listed = store.list().unwrap();
        let names: Vec<_> = listed
            .iter()
            .map(|one| one.path.file_name().unwrap())
            .collect();
        assert_eq!(names, ["a.json", "b.json"]);
        assert_eq!(listed[1].fingerprint, read(&paths[0]).fingerprint());
        assert!(store.distrust(&paths[0]).unwrap());
        assert!(!store.distrust(&paths[0]).unwrap());
        assert_eq!(store.check(&read(&paths[0])), Trust::Unknown);
        assert!(store.is_trusted(&read(&paths[1])));
    }

    #[test]
    fn a_damaged_store_trusts_nothing_and_works_again() {
        let folder = TestFolder::new("trust-damaged");
        let store = TrustStore::open(folder.path().join("state"));
        let config = read(&folder.write("a.json", "{}"));
        store.trust(&config).unwrap();
        for entry in fs::read_dir(folder.path().join("state/trusted")).unwrap() {
            fs::write(entry.unwrap().path(), "{ \"path\": ").unwrap();
        }
        assert_eq!(store.check(&config), Trust::Unknown);
        assert_eq!(store.list().unwrap(), []);
        store.trust(&config).unwrap();
        assert!(store.is_trusted(&config));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_records() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TestFolder::new("trust-private");
        let store = TrustStore::open(folder.path().join("state"));
        store.trust(&read(&folder.write("a.json", "{}"))).unwrap();
        for entry in fs::read_dir(folder.path().join("state/trusted")).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_linked_file_needs_its_own_trust_and_a_linked_folder_does_not() {
        use std::os::unix::fs::symlink;

        let folder = TestFolder::new("trust-link");
        let store = TrustStore::open(folder.path().join("state"));
        fs::create_dir(folder.path().join("good")).unwrap();
        let real = folder.write("good/.mcp.json", "{}");
        store.trust(&read(&real)).unwrap();
        // Otherwise a clone could borrow the trust to run its own commands.
        fs::create_dir(folder.path().join("evil")).unwrap();
        let link = folder.path().join("evil/.mcp.json");
        symlink(&real, &link).unwrap();
        assert_eq!(store.check(&read(&link)), Trust::Unknown);
        store.trust(&read(&link)).unwrap();
        assert!(store.is_trusted(&read(&link)));

        let other = folder.path().join("other");
        symlink(folder.path().join("good"), &other).unwrap();
        assert!(store.is_trusted(&read(&other.join(".mcp.json"))));
    }
}
