//! The eras of servers, kept from one run to the next in the state directory.
//!
//! One small file per server, named by a fingerprint of what it is reached by: another command or
//! address is another server. What cannot be read is learned again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcpvisor_core::{Era, KnownEra};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::server::slot::ServerSlot;
use crate::state::file_ops::{WRITE_WITHIN, hung_before};

/// A file system that takes longer is not waited for: the connection that asks hears nothing meanwhile,
/// not even that it shall close.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a file says.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    era: KeptEra,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptEra {
    Modern,
    Legacy,
    Unknown,
}

/// What an earlier run learned.
pub(crate) async fn load(slot: &Arc<ServerSlot>) -> KnownEra {
    let Some((state, file)) = place(slot) else {
        return KnownEra::Unknown;
    };
    let path = state.path(&file);
    let ops = state.ops().clone();
    let read = ops.run(&path, PATIENCE, move || state.read(&file));
    let problem = match read.await {
        Ok(None) => return KnownEra::Unknown,
        Ok(Some(contents)) => match serde_json::from_slice::<Kept>(&contents) {
            Ok(kept) => return kept.into(),
            Err(problem) => problem.to_string(),
        },
        Err(problem) if hung_before(&problem) => return KnownEra::Unknown,
        Err(problem) => problem.to_string(),
    };
    tracing::warn!(server = %slot.name(), path = %path.display(), problem, "the remembered era cannot be read, and is learned again");
    KnownEra::Unknown
}

/// Keeps what was learned, in the background. What is only assumed is not kept.
pub(crate) fn save(slot: &Arc<ServerSlot>, lesson: KnownEra) {
    let kept = match lesson {
        KnownEra::Remembered(Era::Modern) => KeptEra::Modern,
        KnownEra::Remembered(Era::Legacy) => KeptEra::Legacy,
        KnownEra::Unknown => KeptEra::Unknown,
        KnownEra::Assumed(_) | KnownEra::Preferred(_) | KnownEra::Pinned(_) => return,
    };
    let Some((state, file)) = place(slot) else {
        return;
    };
    let Ok(contents) = serde_json::to_vec(&Kept { era: kept }) else {
        return;
    };
    let server = slot.name().clone();
    slot.era_writes.write(async move {
        let (ops, path) = (state.ops().clone(), state.path(&file));
        let write = move || state.write(&file, &contents);
        if let Err(problem) = ops.run(&path, WRITE_WITHIN, write).await
            && !hung_before(&problem)
        {
            tracing::warn!(%server, %problem, "the era cannot be remembered");
        }
    });
}

/// What is being written for one server, one after the other: the last lesson is what stays.
#[derive(Debug, Default)]
pub(crate) struct EraWrites(Mutex<Option<JoinHandle<()>>>);

impl EraWrites {
    fn write(&self, write: impl Future<Output = ()> + Send + 'static) {
        let mut last = self.last();
        let before = last.take();
        *last = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            // A runtime that is going away takes the write with it; the file before it stays.
            write.await;
        }));
    }

    /// Waits until all of it is written.
    pub(crate) async fn finish(&self) {
        let last = self.last().take();
        if let Some(last) = last {
            let _ = last.await;
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Kept> for KnownEra {
    fn from(kept: Kept) -> Self {
        match kept.era {
            KeptEra::Modern => Self::Remembered(Era::Modern),
            KeptEra::Legacy => Self::Remembered(Era::Legacy),
            KeptEra::Unknown => Self::Unknown,
        }
    }
}

/// Where the era of a server is kept, if anywhere.
fn place(slot: &ServerSlot) -> Option<(crate::state::state_dir::StateDir, String)> {
    let state = slot.host.state.clone()?;
    let parts = slot.config().transport.reached_by()?;
    Some((state, format!("eras/{:016x}.json", fingerprint(&parts))))
}

/// FNV-1a over the parts and their borders. Two servers that share a fingerprint would only learn
/// their eras anew now and then.
fn fingerprint(parts: &[Vec<u8>]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for part in parts {
        part.len().to_le_bytes().into_iter().for_each(&mut add);
        part.iter().copied().for_each(&mut add);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_where_a_part_ends() {
        let parts = |parts: &[&str]| -> Vec<Vec<u8>> {
            parts.iter().map(|part| part.as_bytes().to_vec()).collect()
        };
        let one = fingerprint(&parts(&["stdio", "npx", "-y", "server"]));
        assert_eq!(one, fingerprint(&parts(&["stdio", "npx", "-y", "server"])));
        assert_ne!(one, fingerprint(&parts(&["stdio", "npx", "-yserver"])));
        assert_ne!(one, fingerprint(&parts(&["stdio", "npx", "server", "-y"])));
    }
}
