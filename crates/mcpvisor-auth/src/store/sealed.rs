//! Records encrypted with a key that is stored elsewhere.
//!
//! A file has JSON with the version, a random nonce, and the record encrypted with AES-256-GCM. The
//! name of the file and the version are authenticated, so files cannot be swapped.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use mcpvisor_files::state_dir::StateDir;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::encoding::{RecordEncoding, RecordProblem, check_version, parse};
use super::folder::FolderStore;
use crate::record::{CredentialRecord, RECORD_VERSION};

/// The length of a key.
pub(super) const KEY_BYTES: usize = 32;

/// One encrypted file per credential; the key is in a keyring, so the size limits of keyrings do
/// not matter.
pub type KeyringStore = FolderStore<SealedEncoding>;

impl KeyringStore {
    /// The store of a state folder, with its key.
    pub fn new(state: StateDir, key: StoreKey) -> Self {
        Self::with_encoding(state, SealedEncoding(key))
    }
}

/// The key of a store. `Debug` hides it.
#[derive(Clone)]
pub struct StoreKey(LessSafeKey);

impl StoreKey {
    /// A key of 32 bytes; `None` for any other length.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, bytes).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(***)")
    }
}

/// Fills a buffer with random bytes.
pub(super) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

/// Encrypts records.
#[derive(Debug)]
pub struct SealedEncoding(StoreKey);

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct SealedRecord {
    version: u32,
    nonce: String,
    data: String,
}

impl RecordEncoding for SealedEncoding {
    const EXTENSION: &'static str = "enc";
    const STORE_NAME: &'static str = "keyring";

    fn encode(&self, file_name: &str, record: &CredentialRecord) -> io::Result<Vec<u8>> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut data = serde_json::to_vec(record)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        let bound_to = bound_to(file_name, RECORD_VERSION);
        let sealed = self
            .0
            .0
            .seal_in_place_append_tag(unique, bound_to, &mut data);
        sealed.map_err(|_| io::Error::other("the credential cannot be encrypted"))?;
        Ok(serde_json::to_vec(&SealedRecord {
            version: RECORD_VERSION,
            nonce: BASE64.encode(nonce),
            data: BASE64.encode(data),
        })?)
    }

    fn decode(&self, file_name: &str, contents: &[u8]) -> Result<CredentialRecord, RecordProblem> {
        let version = check_version(contents)?;
        let sealed: SealedRecord = parse(contents)?;
        let nonce = BASE64.decode(&sealed.nonce).ok();
        let nonce = nonce.and_then(|it| Nonce::try_assume_unique_for_key(&it).ok());
        let data = BASE64.decode(&sealed.data).ok();
        let (nonce, mut data) = nonce.zip(data).ok_or(RecordProblem::Undecryptable)?;
        let bound_to = bound_to(file_name, version);
        let opened = self.0.0.open_in_place(nonce, bound_to, &mut data);
        parse(opened.map_err(|_| RecordProblem::Undecryptable)?)
    }
}

/// What the encryption authenticates besides the record.
fn bound_to(file_name: &str, version: u32) -> Aad<Vec<u8>> {
    Aad::from(format!("{file_name}\n{version}").into_bytes())
}
