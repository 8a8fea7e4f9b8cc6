//! Eras and versions: the known era of a server, and what its errors imply.

use std::sync::Arc;

use mcpvisor_core::{Era, KnownEra};
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, ClientCapabilities, DiscoverResult, ErrorCode, InitializeRequestParams, JsonObject,
    ProtocolVersion, RequestMetaObject, ResultType, ServerResult, TASKS_EXTENSION_ID,
};
use serde_json::{Value, json};

use super::handshake::error::HandshakeError;
use crate::api::transport::TransportKind;
#[cfg(feature = "http")]
use crate::link::http::HttpEndpoint;
use crate::server::restart_state::EraKnowledge;
use crate::server::slot::ServerSlot;
use crate::state::era_cache;

/// The version of the modern era.
pub(super) const MODERN: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// The versions that `initialize` can negotiate, newest first.
pub(super) const LEGACY: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// All supported versions, newest first.
pub(super) fn our_versions() -> Vec<ProtocolVersion> {
    std::iter::once(MODERN).chain(LEGACY).collect()
}

/// Versions as text.
pub(super) fn join_versions(versions: &[ProtocolVersion]) -> String {
    if versions.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = versions.iter().map(ProtocolVersion::as_str).collect();
    names.join(", ")
}

/// The known era of a server: from its config, its last connection, or an earlier run. `is_legacy`:
/// its transport exists only in the legacy era.
pub(super) async fn load_known(
    slot: &Arc<ServerSlot>,
    is_legacy: bool,
) -> Result<KnownEra, HandshakeError> {
    let config = slot.config();
    if let Some(pinned) = &config.protocol {
        return if *pinned == MODERN && is_legacy {
            let theirs = format!("HTTP+SSE has {}", join_versions(&LEGACY));
            Err(HandshakeError::Incompatible(theirs))
        } else if *pinned == MODERN {
            Ok(KnownEra::Pinned(Era::Modern))
        } else if LEGACY.contains(pinned) {
            Ok(KnownEra::Pinned(Era::Legacy))
        } else {
            let ours = join_versions(&our_versions());
            Err(HandshakeError::Incompatible(format!("we speak {ours}")))
        };
    }
    // An in-process service answers `initialize` at once, so probing gains nothing.
    if is_legacy || matches!(config.transport.0, TransportKind::Channel { .. }) {
        return Ok(KnownEra::Pinned(Era::Legacy));
    }
    // A server that ends the only stream when it is probed could not be reached again.
    #[cfg(feature = "stream")]
    if matches!(&config.transport.0, TransportKind::Stream(opener) if opener.is_once()) {
        return Ok(KnownEra::Preferred(Era::Legacy));
    }
    if config.prefer_older_protocol {
        return Ok(KnownEra::Preferred(Era::Legacy));
    }
    Ok(load_cached(slot).await.known)
}

/// What is remembered of a server: from its last connection, or from an earlier run.
async fn load_cached(slot: &Arc<ServerSlot>) -> EraKnowledge {
    let remembered = slot.restart_state().era;
    if remembered.loaded || remembered.known != KnownEra::Unknown {
        return remembered;
    }
    let config = slot.config();
    let cached = EraKnowledge {
        loaded: true,
        ..era_cache::load(slot).await
    };
    // What is cached for an old address or command does not apply to a new one.
    if config.transport.is_reached_as(&slot.config().transport) {
        slot.restart_state().era = cached;
    }
    cached
}

/// Whether the server is known to speak HTTP+SSE.
#[cfg(feature = "http")]
pub(super) async fn is_sse(slot: &Arc<ServerSlot>) -> bool {
    load_cached(slot).await.is_sse
}

/// Remembers whether the server at this address speaks HTTP+SSE, for the next connection and the next
/// run.
#[cfg(feature = "http")]
pub(super) fn remember_sse(slot: &Arc<ServerSlot>, endpoint: &HttpEndpoint, is_sse: bool) {
    let TransportKind::Http(configured) = &slot.config().transport.0 else {
        return;
    };
    if !configured.differences(endpoint).is_empty() {
        return;
    }
    let era = EraKnowledge {
        known: match is_sse {
            true => KnownEra::Remembered(Era::Legacy),
            false => KnownEra::Unknown,
        },
        is_sse,
        loaded: true,
    };
    slot.restart_state().era = era;
    era_cache::save(slot, era);
}

/// Remembers the learned era, for the next connection and the next run.
pub(super) fn remember(slot: &Arc<ServerSlot>, known: KnownEra, learned: KnownEra) {
    if matches!(learned, KnownEra::Pinned(_) | KnownEra::Preferred(_)) {
        return;
    }
    let era = {
        let mut state = slot.restart_state();
        state.era.known = learned;
        state.era
    };
    if learned != known {
        era_cache::save(slot, era);
    }
}

/// Forgets the era of a server that changed it; the next connection probes again.
pub(super) fn forget(slot: &Arc<ServerSlot>) {
    let known = slot.restart_state().era.known;
    remember(slot, known, KnownEra::Unknown);
}

/// The metadata of every modern request: our version, name and capabilities.
pub(super) fn request_meta(client: &InitializeRequestParams) -> RequestMetaObject {
    RequestMetaObject::with_client_context(
        MODERN,
        client.client_info.clone(),
        modern_capabilities(client.capabilities.clone()),
    )
}

/// What a modern request advertises: what is answered, and that a call may become a task.
pub(super) fn modern_capabilities(mut capabilities: ClientCapabilities) -> ClientCapabilities {
    let extensions = capabilities.extensions.get_or_insert_default();
    extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
    capabilities
}

/// Whether only the modern era has this error.
pub(super) fn is_modern_error(error: &ErrorData) -> bool {
    matches!(
        error.code,
        ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
    )
}

/// Whether a modern server reports that it can send its own requests only in an older era. Only the
/// text of the error shows this, so it decides about a warning and nothing else.
pub(super) fn lacks_server_requests(answer: &Result<ServerResult, ErrorData>) -> bool {
    const PHRASE: &str = "server-initiated requests";
    match answer {
        Ok(ServerResult::CallToolResult(result)) if result.is_error == Some(true) => {
            let texts = result.content.iter().filter_map(|block| block.as_text());
            let mut short = texts.filter(|it| it.text.len() <= MAX_REFUSAL);
            short.any(|it| it.text.contains(PHRASE))
        }
        Err(error) => error.message.len() <= MAX_REFUSAL && error.message.contains(PHRASE),
        Ok(_) => false,
    }
}

/// The longest text that is searched for a refusal, in bytes.
const MAX_REFUSAL: usize = 1024;

/// Whether a server of another era may answer an unknown method with this status: a refusal, or an
/// acknowledgement without content (202).
pub(super) fn status_may_mean_other_era(status: Option<u16>) -> bool {
    matches!(status, Some(202 | 400 | 404 | 405 | 406 | 415 | 422 | 501))
}

/// Whether an error says that the server does not speak this version. The legacy era does not
/// reserve the code, so there the error must also name the server's versions.
pub(super) fn refuses_version(error: &ErrorData, ours: &ProtocolVersion) -> bool {
    error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        && match versions_in_error(error) {
            Some(theirs) => !theirs.contains(ours),
            None => *ours == MODERN,
        }
}

/// Whether an error that answers `server/discover` shows a legacy server. An internal error does
/// not: a modern server may fail for a while.
pub(super) fn denies_discovery(error: &ErrorData) -> bool {
    !is_modern_error(error) && error.code != ErrorCode::INTERNAL_ERROR
}

/// The versions that a refusal names.
pub(super) fn versions_in_error(error: &ErrorData) -> Option<Vec<ProtocolVersion>> {
    let supported = error.data.as_ref()?.get("supported")?;
    serde_json::from_value(supported.clone()).ok()
}

/// Parses the result of `server/discover`. Members that are not used may be missing.
pub(super) fn parse_discover_result(result: ServerResult) -> Option<DiscoverResult> {
    let mut value = match result {
        ServerResult::DiscoverResult(result) => return Some(result),
        ServerResult::CustomResult(custom) => custom.0,
        _ => return None,
    };
    let members = value.as_object_mut()?;
    let defaults = [
        ("resultType", json!(ResultType::COMPLETE)),
        ("capabilities", json!({})),
        ("ttlMs", json!(0)),
        ("cacheScope", json!(CacheScope::Private)),
    ];
    for (name, default) in defaults {
        members.entry(name).or_insert(default);
    }
    // Ignore a negative time.
    if members["ttlMs"].as_u64().is_none() {
        members.insert("ttlMs".to_owned(), Value::from(0));
    }
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_send_requests_in_this_era_is_recognised_by_its_text() {
        let result = |is_error: bool, text: &str| {
            let content = json!([{ "type": "text", "text": text }]);
            let result = json!({ "content": content, "isError": is_error });
            Ok(ServerResult::CallToolResult(
                serde_json::from_value(result).unwrap(),
            ))
        };
        let fastmcp =
            "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.";
        assert!(lacks_server_requests(&result(true, fastmcp)));
        assert!(!lacks_server_requests(&result(false, fastmcp)));
        assert!(!lacks_server_requests(&result(true, "no such file")));
        assert!(!lacks_server_requests(&result(true, &fastmcp.repeat(100))));
        let sdk = "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests.";
        assert!(lacks_server_requests(&Err(ErrorData::invalid_request(
            sdk, None
        ))));
        assert!(!lacks_server_requests(&Err(ErrorData::invalid_request(
            "no", None
        ))));
    }
}
