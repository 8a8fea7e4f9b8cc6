//! The key of the encrypted store, which lives in a keyring.
//!
//! A keyring blocks, and may wait for a person to unlock it. So a thread of its own obtains the key,
//! once per process and state folder, and callers wait for it with a time limit.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcpvisor_files::file_ops::WRITE_TIMEOUT;
use mcpvisor_files::fingerprint;
use mcpvisor_files::lock_file::FileLock;
use mcpvisor_files::state_dir::StateDir;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::LOCK_TIMEOUT;
use super::record_files::{FOLDER, in_folder, record_names};
use super::sealed::{KEY_BYTES, SealedEncoding, StoreKey, random_bytes};

/// How long to wait for a keyring.
pub const KEYRING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for a keyring during a login: a person may unlock it.
pub const KEYRING_LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The service under which keys are stored. The user is the id of the store.
const SERVICE: &str = "mcpvisor";

/// The file with the id of the store.
const ID_FILE: &str = "keyring.json";

/// Locked while a key is created.
const CREATION_LOCK: &str = "keyring.lock";

/// Pause between two attempts to lock the creation of a key.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// A keyring. Its methods run on a thread of their own and may block forever.
pub trait Keyring: Send + Sync + 'static {
    /// A secret; `None` if there is none. The error is a text without secrets.
    fn get(&self, service: &str, user: &str) -> Result<Option<Vec<u8>>, String>;

    /// Stores a secret. The error is a text without secrets.
    fn set(&self, service: &str, user: &str, secret: &[u8]) -> Result<(), String>;
}

/// Why the key of a store could not be obtained.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// It may wait for a person to unlock it.
    #[error("the keyring did not respond within {} s", .within.as_secs_f32())]
    TimedOut {
        /// The time limit.
        within: Duration,
    },
    /// It reported an error.
    #[error("the keyring cannot be used: {0}")]
    Unusable(String),
    /// Encrypted credentials exist, but not their key.
    #[error("the keyring has no key for the encrypted credentials in {}", .folder.display())]
    KeyMissing {
        /// The folder of the credentials.
        folder: PathBuf,
    },
    /// The folder of the credentials cannot be used.
    #[error("{0}")]
    Folder(String),
    /// This build does not include one.
    #[error("this program is built without support for the system's keyring")]
    NotSupported,
}

fn folder_error(error: io::Error) -> KeyringError {
    KeyringError::Folder(error.to_string())
}

type KeyResult = Result<StoreKey, KeyringError>;

/// A keyring, and what it answered. The first answer for a state folder is final. Clones share it.
#[derive(Clone)]
pub struct KeyringSession {
    keyring: Arc<dyn Keyring>,
    /// The answer for each folder, `None` while its thread runs.
    answers: Arc<Mutex<BTreeMap<PathBuf, watch::Receiver<Option<KeyResult>>>>>,
}

impl fmt::Debug for KeyringSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyringSession").finish_non_exhaustive()
    }
}

impl KeyringSession {
    /// A session with a keyring.
    pub fn new(keyring: impl Keyring) -> Self {
        Self {
            keyring: Arc::new(keyring),
            answers: Arc::default(),
        }
    }

    /// The key of a state folder's store. It is created unless encrypted credentials exist. After
    /// the time limit the keyring may still answer: a later call gets that answer.
    pub async fn key(&self, state: &StateDir, within: Duration) -> Result<StoreKey, KeyringError> {
        let mut answer = self.answer(state)?;
        let answered = tokio::time::timeout(within, answer.wait_for(Option::is_some)).await;
        match answered {
            Err(_) => Err(KeyringError::TimedOut { within }),
            Ok(Ok(answer)) => answer.clone().unwrap_or_else(|| Err(panicked())),
            Ok(Err(_)) => Err(panicked()),
        }
    }

    /// Starts the thread of a state folder unless it was started before.
    fn answer(&self, state: &StateDir) -> Result<watch::Receiver<Option<KeyResult>>, KeyringError> {
        let folder = state.path(FOLDER);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(&folder) {
            return Ok(answer.clone());
        }
        let (sender, answer) = watch::channel(None);
        let (keyring, state) = (Arc::clone(&self.keyring), state.clone());
        let thread = std::thread::Builder::new().name("mcpvisor-keyring".to_owned());
        let spawned = thread.spawn(move || {
            let result = obtain_key(keyring.as_ref(), &state);
            sender.send_replace(Some(result));
        });
        spawned.map_err(|error| KeyringError::Unusable(error.to_string()))?;
        answers.insert(folder, answer.clone());
        Ok(answer)
    }
}

fn panicked() -> KeyringError {
    KeyringError::Unusable("its thread panicked".to_owned())
}

/// Reads the key, or creates it.
fn obtain_key(keyring: &dyn Keyring, state: &StateDir) -> KeyResult {
    if let Some(id) = read_id(state)?
        && let Some(key) = get_key(keyring, &id)?
    {
        return Ok(key);
    }
    // Two processes must not create two keys. This thread holds the lock until the keyring answers,
    // even if no caller waits any more.
    let _lock = lock_creation(state)?;
    let id = match read_id(state)? {
        Some(id) => id,
        None => create_id(state)?,
    };
    match get_key(keyring, &id)? {
        Some(key) => Ok(key),
        None if has_sealed_records(state).map_err(folder_error)? => {
            let folder = state.path(FOLDER);
            Err(KeyringError::KeyMissing { folder })
        }
        None => create_key(keyring, &id),
    }
}

fn get_key(keyring: &dyn Keyring, id: &str) -> Result<Option<StoreKey>, KeyringError> {
    let secret = keyring.get(SERVICE, id).map_err(KeyringError::Unusable)?;
    let invalid = || KeyringError::Unusable(format!("its key {id} is not {KEY_BYTES} bytes long"));
    let key = |secret: Vec<u8>| StoreKey::new(&secret).ok_or_else(invalid);
    secret.map(key).transpose()
}

/// Creates a key and reads it back: some keyrings accept a secret and lose it.
fn create_key(keyring: &dyn Keyring, id: &str) -> KeyResult {
    let key = random_bytes::<KEY_BYTES>().map_err(folder_error)?;
    let set = keyring.set(SERVICE, id, &key);
    set.map_err(KeyringError::Unusable)?;
    let stored = keyring.get(SERVICE, id).map_err(KeyringError::Unusable)?;
    match StoreKey::new(&key) {
        Some(store_key) if stored.as_deref() == Some(&key) => Ok(store_key),
        _ => {
            let problem = "it did not return the key that was stored";
            Err(KeyringError::Unusable(problem.to_owned()))
        }
    }
}

/// The contents of [`ID_FILE`].
#[derive(Serialize, Deserialize)]
struct StoreId {
    id: String,
}

/// Runs a file operation with a timeout.
fn run<T: Send + 'static>(
    state: &StateDir,
    file: &'static str,
    operation: impl FnOnce(&StateDir, &str) -> io::Result<T> + Send + 'static,
) -> Result<T, KeyringError> {
    let (owned, file) = (state.clone(), in_folder(file));
    let path = state.path(&file);
    let operation = move || operation(&owned, &file);
    let result = state.ops().run_blocking(&path, WRITE_TIMEOUT, operation);
    result.map_err(folder_error)
}

fn read_id(state: &StateDir) -> Result<Option<String>, KeyringError> {
    let contents = run(state, ID_FILE, |state, file| state.read(file))?;
    let parse = |contents: Vec<u8>| match serde_json::from_slice::<StoreId>(&contents) {
        Ok(store) => Ok(store.id),
        Err(_) => {
            let path = state.path(&in_folder(ID_FILE));
            let problem = format!("{} is damaged; restore it", path.display());
            Err(KeyringError::Folder(problem))
        }
    };
    contents.map(parse).transpose()
}

/// A random id, so that the keys of two state folders differ, also of a copied path.
fn create_id(state: &StateDir) -> Result<String, KeyringError> {
    let random = random_bytes::<16>().map_err(folder_error)?;
    let id: String = fingerprint::sha256_hex(&random).chars().take(32).collect();
    let contents = serde_json::to_vec(&StoreId { id: id.clone() });
    let contents = contents.map_err(|error| folder_error(error.into()))?;
    run(state, ID_FILE, move |state, file| {
        state.write(file, &contents)
    })?;
    Ok(id)
}

fn lock_creation(state: &StateDir) -> Result<FileLock, KeyringError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        let attempt = |state: &StateDir, file: &str| state.try_lock_file(file);
        if let Some(lock) = run(state, CREATION_LOCK, attempt)? {
            return Ok(lock);
        }
        if Instant::now() >= until {
            let problem = "another process waits for the keyring";
            return Err(KeyringError::Unusable(problem.to_owned()));
        }
        std::thread::sleep(LOCK_POLL);
    }
}

/// Whether encrypted credentials exist. May block.
pub(super) fn has_sealed_records(state: &StateDir) -> io::Result<bool> {
    Ok(!record_names::<SealedEncoding>(state, "")?.is_empty())
}
