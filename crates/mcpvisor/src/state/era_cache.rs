//! The cached protocol eras of servers, and their transports over HTTP.
//!
//! One small file per server, named by the fingerprint of its transport: another command or address
//! is another server. An unreadable file is ignored and the era is negotiated again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcpvisor_core::{Era, KnownEra};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::mutex::lock;
use crate::server::restart_state::EraKnowledge;
use crate::server::slot::ServerSlot;
use crate::state::file_ops::{WRITE_TIMEOUT, was_already_hung};
use crate::state::state_dir::StateDir;

/// Timeout of a read. It is short because the connection task handles no message meanwhile, not
/// even a close.
const LOAD_TIMEOUT: Duration = Duration::from_millis(500);

/// The contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct CacheFile {
    era: CachedEra,
    /// The transport of a server over HTTP, if it is not Streamable HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transport: Option<CachedTransport>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CachedTransport {
    Sse,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CachedEra {
    Modern,
    Legacy,
    Unknown,
}

/// Reads what an earlier run learned.
pub(crate) async fn load(slot: &Arc<ServerSlot>) -> EraKnowledge {
    let Some((state, file)) = cache_file(slot) else {
        return EraKnowledge::UNKNOWN;
    };
    let path = state.path(&file);
    let ops = state.ops().clone();
    let read = ops.run(&path, LOAD_TIMEOUT, move || state.read(&file));
    let problem = match read.await {
        Ok(None) => return EraKnowledge::UNKNOWN,
        Ok(Some(contents)) => match serde_json::from_slice::<CacheFile>(&contents) {
            Ok(cached) => return cached.into(),
            Err(problem) => problem.to_string(),
        },
        Err(problem) if was_already_hung(&problem) => return EraKnowledge::UNKNOWN,
        Err(problem) => problem.to_string(),
    };
    tracing::warn!(server = %slot.name(), path = %path.display(), problem, "cannot read the cached era; it is negotiated again");
    EraKnowledge::UNKNOWN
}

/// Caches an era in the background. Eras that were not negotiated are not cached.
pub(crate) fn save(slot: &Arc<ServerSlot>, era: EraKnowledge) {
    let cached = match era.known {
        KnownEra::Remembered(Era::Modern) => CachedEra::Modern,
        KnownEra::Remembered(Era::Legacy) => CachedEra::Legacy,
        KnownEra::Unknown => CachedEra::Unknown,
        KnownEra::Assumed(_) | KnownEra::Preferred(_) | KnownEra::Pinned(_) => return,
    };
    let Some((state, file)) = cache_file(slot) else {
        return;
    };
    let cached = CacheFile {
        era: cached,
        transport: era.is_sse.then_some(CachedTransport::Sse),
    };
    let Ok(contents) = serde_json::to_vec(&cached) else {
        return;
    };
    let server = slot.name().clone();
    slot.shared.era_writes.write(async move {
        let (ops, path) = (state.ops().clone(), state.path(&file));
        let write = move || state.write(&file, &contents);
        if let Err(problem) = ops.run(&path, WRITE_TIMEOUT, write).await
            && !was_already_hung(&problem)
        {
            tracing::warn!(%server, %problem, "failed to cache the era");
        }
    });
}

/// Pending writes of one server's era. They run in order, so that the last one wins.
#[derive(Debug, Default)]
pub(crate) struct EraWriteQueue(Mutex<Option<JoinHandle<()>>>);

impl EraWriteQueue {
    fn write(&self, write: impl Future<Output = ()> + Send + 'static) {
        let mut last = lock(&self.0);
        let before = last.take();
        *last = Some(tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            // If the tokio runtime ends, the write is dropped and the old file stays.
            write.await;
        }));
    }

    /// Waits for all pending writes.
    pub(crate) async fn finish(&self) {
        let last = lock(&self.0).take();
        if let Some(last) = last {
            let _ = last.await;
        }
    }
}

impl From<CacheFile> for EraKnowledge {
    fn from(cached: CacheFile) -> Self {
        Self {
            known: match cached.era {
                CachedEra::Modern => KnownEra::Remembered(Era::Modern),
                CachedEra::Legacy => KnownEra::Remembered(Era::Legacy),
                CachedEra::Unknown => KnownEra::Unknown,
            },
            is_sse: matches!(cached.transport, Some(CachedTransport::Sse)),
            ..Self::UNKNOWN
        }
    }
}

/// The folder and the file of a server's era; `None` without a state folder, and for a server in
/// this process.
fn cache_file(slot: &ServerSlot) -> Option<(StateDir, String)> {
    let state = slot.host.state.clone()?;
    let config = slot.config();
    let file = config.transport.needs_io().then(|| {
        let fingerprint = config.fingerprint();
        format!("eras/{}.json", fingerprint.trim_start_matches("sha256:"))
    });
    Some((state, file?))
}
