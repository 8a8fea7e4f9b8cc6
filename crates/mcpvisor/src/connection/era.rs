//! What is known of a server's era, and what every request of the modern one says.

use std::sync::Arc;

use mcpvisor_core::{Era, KnownEra};
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, DiscoverResult, ErrorCode, InitializeRequestParams, ProtocolVersion,
    RequestMetaObject, ResultType, ServerResult,
};
use serde_json::{Value, json};

use super::handshake_error::Stop;
use crate::api::transport::TransportKind;
use crate::server::slot::ServerSlot;
use crate::state::era_cache;

/// The version of the modern era.
pub(super) const MODERN: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// The versions that `initialize` can agree on, newest first.
pub(super) const LEGACY: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// All that we speak, newest first.
pub(super) fn spoken() -> Vec<ProtocolVersion> {
    std::iter::once(MODERN).chain(LEGACY).collect()
}

/// Versions for people.
pub(super) fn names(versions: &[ProtocolVersion]) -> String {
    if versions.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<&str> = versions.iter().map(ProtocolVersion::as_str).collect();
    names.join(", ")
}

/// What is known of the server's era: by its config, from its last connection, from an earlier run.
pub(super) async fn known(slot: &Arc<ServerSlot>) -> Result<KnownEra, Stop> {
    let config = slot.config();
    if let Some(pinned) = &config.protocol {
        return if *pinned == MODERN {
            Ok(KnownEra::Pinned(Era::Modern))
        } else if LEGACY.contains(pinned) {
            Ok(KnownEra::Pinned(Era::Legacy))
        } else {
            let ours = names(&spoken());
            Err(Stop::Incompatible(format!("we speak {ours}")))
        };
    }
    // A service of this program answers at once to what every server understands.
    if matches!(config.transport.0, TransportKind::Channel { .. }) {
        return Ok(KnownEra::Pinned(Era::Legacy));
    }
    if config.prefer_older_protocol {
        return Ok(KnownEra::Preferred(Era::Legacy));
    }
    let (known, loaded) = {
        let mut state = slot.restart_state();
        let loaded = std::mem::replace(&mut state.era.loaded, true);
        (state.era.known, loaded)
    };
    if loaded || known != KnownEra::Unknown {
        return Ok(known);
    }
    Ok(era_cache::load(slot).await)
}

/// Remembers what was learned, for the next connection and for the next run.
pub(super) fn learn(slot: &Arc<ServerSlot>, known: KnownEra, lesson: KnownEra) {
    if matches!(lesson, KnownEra::Pinned(_) | KnownEra::Preferred(_)) {
        return;
    }
    slot.restart_state().era.known = lesson;
    if lesson != known {
        era_cache::save(slot, lesson);
    }
}

/// The server speaks another era than it did: the next connection asks.
pub(super) fn forget(slot: &Arc<ServerSlot>) {
    let known = slot.restart_state().era.known;
    learn(slot, known, KnownEra::Unknown);
}

/// What every request of the modern era says about us.
pub(super) fn request_meta(client: &InitializeRequestParams) -> RequestMetaObject {
    RequestMetaObject::with_client_context(
        MODERN,
        client.client_info.clone(),
        client.capabilities.clone(),
    )
}

/// The errors of the modern era.
pub(super) fn is_modern(error: &ErrorData) -> bool {
    matches!(
        error.code,
        ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
    )
}

/// Whether a server that was asked in the modern era says that it could ask its own questions only in
/// an older one. Its words are all there is to see of that: they decide about a warning, and nothing else.
pub(super) fn cannot_ask(answer: &Result<ServerResult, ErrorData>) -> bool {
    const WORDS: &str = "server-initiated requests";
    match answer {
        Ok(ServerResult::CallToolResult(result)) if result.is_error == Some(true) => {
            let texts = result.content.iter().filter_map(|block| block.as_text());
            let mut short = texts.filter(|it| it.text.len() <= LONGEST_REFUSAL);
            short.any(|it| it.text.contains(WORDS))
        }
        Err(error) => error.message.len() <= LONGEST_REFUSAL && error.message.contains(WORDS),
        Ok(_) => false,
    }
}

/// A longer text of a server is no refusal, in bytes.
const LONGEST_REFUSAL: usize = 1024;

/// A server of another era refuses what it does not know, in one way or another, or takes it and says
/// nothing (202).
pub(super) fn may_be_another(status: Option<u16>) -> bool {
    matches!(status, Some(202 | 400 | 404 | 405 | 406 | 415 | 422 | 501))
}

/// Whether an error says that the server does not speak this version. In the older eras the code is
/// anybody's, so there it has to come with the versions that the server speaks.
pub(super) fn refuses_version(error: &ErrorData, ours: &ProtocolVersion) -> bool {
    error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        && match supported(error) {
            Some(theirs) => !theirs.contains(ours),
            None => *ours == MODERN,
        }
}

/// Whether an error that answers `server/discover` is none of the modern era. One that fails for a
/// while may still be of it.
pub(super) fn denies_discovery(error: &ErrorData) -> bool {
    !is_modern(error) && error.code != ErrorCode::INTERNAL_ERROR
}

/// The versions that a refusal names.
pub(super) fn supported(error: &ErrorData) -> Option<Vec<ProtocolVersion>> {
    let supported = error.data.as_ref()?.get("supported")?;
    serde_json::from_value(supported.clone()).ok()
}

/// The answer to `server/discover`. Members that nobody needs may be missing.
pub(super) fn read_discovery(result: ServerResult) -> Option<DiscoverResult> {
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
    // A time below zero is none.
    if members["ttlMs"].as_u64().is_none() {
        members.insert("ttlMs".to_owned(), Value::from(0));
    }
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_ask_in_this_era_is_recognised_by_its_words() {
        let result = |is_error: bool, text: &str| {
            let content = json!([{ "type": "text", "text": text }]);
            let result = json!({ "content": content, "isError": is_error });
            Ok(ServerResult::CallToolResult(
                serde_json::from_value(result).unwrap(),
            ))
        };
        let fastmcp =
            "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.";
        assert!(cannot_ask(&result(true, fastmcp)));
        assert!(!cannot_ask(&result(false, fastmcp)));
        assert!(!cannot_ask(&result(true, "no such file")));
        assert!(!cannot_ask(&result(true, &fastmcp.repeat(100))));
        let sdk = "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests.";
        assert!(cannot_ask(&Err(ErrorData::invalid_request(sdk, None))));
        assert!(!cannot_ask(&Err(ErrorData::invalid_request("no", None))));
    }
}
