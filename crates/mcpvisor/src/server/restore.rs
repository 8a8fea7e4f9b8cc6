//! What a server agreed to on earlier connections, and has to be asked for again on a new one.
//!
//! It is asked for one by one, beside the calls. A caller that wants something else of the same kind
//! meanwhile is newer than what is remembered: whatever was not asked for again by then is left to it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientRequest, LoggingLevel, SetLevelRequest, SetLevelRequestParams, SubscribeRequest,
    SubscribeRequestParams,
};

use super::slot::Memory;
use crate::connection::{InternalRequestSender, SentRequest};

/// What is still to be restored on one connection.
#[derive(Debug)]
pub(crate) struct Restoring(Mutex<Wishes>);

#[derive(Debug)]
struct Wishes {
    log_level: Option<LoggingLevel>,
    subscriptions: BTreeSet<String>,
}

impl Restoring {
    /// All that is remembered, if there is any.
    pub(super) fn of(memory: &Memory) -> Option<Self> {
        let wishes = Wishes {
            log_level: memory.log_level,
            subscriptions: memory.subscriptions.clone(),
        };
        let is_any = wishes.log_level.is_some() || !wishes.subscriptions.is_empty();
        is_any.then(|| Self(Mutex::new(wishes)))
    }

    /// Asks for the next of them, and gives its method. It is on its way before a later call can be.
    pub(crate) fn ask<'a>(
        &self,
        connection: &'a InternalRequestSender,
    ) -> Option<(String, SentRequest<'a>)> {
        let mut wishes = self.wishes();
        let request = wishes.next()?;
        let method = request.method().to_owned();
        Some((method, connection.send(request)?))
    }

    /// A caller's request goes out now. What it is about needs no restoring any more.
    pub(super) fn leave_to(&self, request: &ClientRequest) {
        match request {
            ClientRequest::SetLevelRequest(_) => self.wishes().log_level = None,
            ClientRequest::SubscribeRequest(request) => {
                self.wishes().subscriptions.remove(&request.params.uri);
            }
            ClientRequest::UnsubscribeRequest(request) => {
                self.wishes().subscriptions.remove(&request.params.uri);
            }
            _ => {}
        }
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wishes {
    fn next(&mut self) -> Option<ClientRequest> {
        if let Some(level) = self.log_level.take() {
            let params = SetLevelRequestParams::new(level);
            let request = SetLevelRequest::new(params);
            return Some(ClientRequest::SetLevelRequest(request));
        }
        let params = SubscribeRequestParams::new(self.subscriptions.pop_first()?);
        let request = SubscribeRequest::new(params);
        Some(ClientRequest::SubscribeRequest(request))
    }
}
