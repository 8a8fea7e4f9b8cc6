//! The runtime's own requests: listings with all their pages, and checks.
//!
//! Each runs as a task and reports to the actor with a message. None keeps the connection open:
//! they end with it.

mod weight;

use std::collections::BTreeSet;
use std::time::Duration;

use mcpvisor_core::machine::{Fault, FaultClass};
use mcpvisor_core::retry::RequestFailure;
use mcpvisor_core::settings::ListingSettings;
use mcpvisor_core::{Generation, ListKind, ServerSettings};
use ractor::ActorRef;
use rmcp::model::{
    ClientRequest, ErrorCode, ListPromptsRequest, ListResourceTemplatesRequest,
    ListResourcesRequest, ListToolsRequest, PaginatedRequestParams, PingRequest, ServerResult,
};

use crate::catalog::ListItems;
use crate::connection::{InternalFailure, InternalReply, InternalRequestSender};
use crate::server::message::{FetchFailure, ServerMessage};

/// Memory of all pages of one listing, in bytes, as estimated by `weight`.
const MAX_LISTING: usize = 128 * 1024 * 1024;

/// Pings the server. A ping without an answer is only cancelled here: the machine has its own
/// deadline for it.
pub(crate) async fn check(
    connection: InternalRequestSender,
    actor: ActorRef<ServerMessage>,
    generation: Generation,
    limit: Duration,
) {
    let ping = ClientRequest::PingRequest(PingRequest::default());
    // `None` means that the connection ended, which its task reports.
    if let Ok(Some(answer)) = tokio::time::timeout(limit, connection.request(ping)).await {
        let _ = actor.send_message(ServerMessage::CheckEnded {
            generation,
            failure: failure_of(answer),
        });
    }
}

/// Why a check failed. A server that answers anything is alive. One that fails a ping or cannot
/// be reached may not be: a new connection decides. A ping that was
/// not sent for lack of a connection, while the link lives on, proves nothing.
fn failure_of(answer: InternalReply) -> Option<Fault> {
    match answer {
        Ok(_) | Err(InternalFailure::Error(_) | InternalFailure::Unreadable(_)) => None,
        Err(InternalFailure::Failed { failure, fault }) => {
            let dead = matches!(
                failure,
                RequestFailure::ServerFault | RequestFailure::NotWritten
            );
            let message = format!("a ping failed: {}", fault.message);
            dead.then(|| Fault::new(fault.class, message))
        }
    }
}

/// Fetches a list page by page. Returns it and how long it stays valid, if the server says so.
pub(crate) async fn fetch(
    connection: InternalRequestSender,
    list: ListKind,
    settings: ServerSettings,
) -> Result<(ListItems, Option<Duration>), FetchFailure> {
    let refused = |problem| Err(FetchFailure::Refused(problem));
    let failed = |problem| Err(FetchFailure::Failed(problem));
    let timeout = settings.timeouts.listing;
    let ListingSettings {
        max_pages,
        max_items,
        ..
    } = settings.listing;
    let mut items = ListItems::empty(list);
    let mut time_to_live = None;
    let mut cursor: Option<String> = None;
    let mut cursors = BTreeSet::new();
    let mut weight: usize = 0;
    for _ in 0..max_pages {
        let request = page_request(list, cursor.take());
        let answer = connection.request(request);
        let page = match tokio::time::timeout(timeout, answer).await {
            Ok(Some(Ok(page))) => page,
            Ok(Some(Err(InternalFailure::Error(error)))) => match error.code {
                ErrorCode::METHOD_NOT_FOUND => return Ok((items, None)),
                _ => return refused(error.message.into_owned()),
            },
            Ok(Some(Err(InternalFailure::Unreadable(problem)))) => return failed(problem),
            Ok(Some(Err(InternalFailure::Failed { fault, .. }))) => {
                return Err(match fault.class {
                    FaultClass::Authorization => FetchFailure::Unauthorized(fault.message),
                    _ => FetchFailure::Failed(fault.message),
                });
            }
            Ok(None) => return failed("the connection ended".to_owned()),
            Err(_) => return failed(format!("no answer within {timeout:?}")),
        };
        time_to_live = shorter(time_to_live, page_time_to_live(&page));
        // A single page is bounded by the limit of one message, and need not be weighed.
        if weight > 0 || has_next(&page) {
            weight = weight.saturating_add(weight::weigh(&page));
        }
        if weight > MAX_LISTING {
            return refused(format!("more than {} MiB", MAX_LISTING / 1024 / 1024));
        }
        let next = append(&mut items, page)?;
        if items.len() > max_items {
            return refused(format!("more than {max_items} items"));
        }
        match next {
            None => return Ok((items, time_to_live)),
            // Cursors are opaque and an empty one is valid; a repeated one is a loop.
            Some(next) if !cursors.insert(next.clone()) => {
                return refused("a cursor that repeats".to_owned());
            }
            Some(next) => cursor = Some(next),
        }
    }
    refused(format!("more than {max_pages} pages"))
}

/// How long a page stays valid. Zero counts as unknown.
fn page_time_to_live(page: &ServerResult) -> Option<Duration> {
    let millis = match page {
        ServerResult::ListToolsResult(page) => page.ttl_ms,
        ServerResult::ListPromptsResult(page) => page.ttl_ms,
        ServerResult::ListResourcesResult(page) => page.ttl_ms,
        ServerResult::ListResourceTemplatesResult(page) => page.ttl_ms,
        _ => None,
    };
    millis
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis)
}

/// A list expires with its first page that does.
fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

pub(crate) fn page_request(list: ListKind, cursor: Option<String>) -> ClientRequest {
    let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
    match list {
        ListKind::Tools => ListToolsRequest {
            params,
            ..Default::default()
        }
        .into(),
        ListKind::Prompts => ListPromptsRequest {
            params,
            ..Default::default()
        }
        .into(),
        ListKind::Resources => ListResourcesRequest {
            params,
            ..Default::default()
        }
        .into(),
        ListKind::Templates => ListResourceTemplatesRequest {
            params,
            ..Default::default()
        }
        .into(),
    }
}

fn has_next(page: &ServerResult) -> bool {
    match page {
        ServerResult::ListToolsResult(page) => page.next_cursor.is_some(),
        ServerResult::ListPromptsResult(page) => page.next_cursor.is_some(),
        ServerResult::ListResourcesResult(page) => page.next_cursor.is_some(),
        ServerResult::ListResourceTemplatesResult(page) => page.next_cursor.is_some(),
        _ => false,
    }
}

/// Appends a page; returns the cursor of the next one.
fn append(list: &mut ListItems, page: ServerResult) -> Result<Option<String>, FetchFailure> {
    match (list, page) {
        (ListItems::Tools(items), ServerResult::ListToolsResult(page)) => {
            items.extend(page.tools);
            Ok(page.next_cursor)
        }
        (ListItems::Prompts(items), ServerResult::ListPromptsResult(page)) => {
            items.extend(page.prompts);
            Ok(page.next_cursor)
        }
        (ListItems::Resources(items), ServerResult::ListResourcesResult(page)) => {
            items.extend(page.resources);
            Ok(page.next_cursor)
        }
        (ListItems::Templates(items), ServerResult::ListResourceTemplatesResult(page)) => {
            items.extend(page.resource_templates);
            Ok(page.next_cursor)
        }
        _ => Err(FetchFailure::Failed(
            "the answer is not a list of this kind".to_owned(),
        )),
    }
}
