//! An HTTP client whose requests can be cancelled until they are sent.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};

use crate::http_client::{HttpClient, HttpError, RequestLimits, SendProgress};

/// Sends requests through another client, and tracks how far they have got.
pub(super) struct TrackedClient {
    client: Arc<dyn HttpClient>,
    progress: SendProgress,
}

impl TrackedClient {
    pub(super) fn new(client: Arc<dyn HttpClient>, progress: SendProgress) -> Self {
        Self { client, progress }
    }
}

impl HttpClient for TrackedClient {
    fn send(
        &self,
        mut request: Request<Bytes>,
        limits: RequestLimits,
    ) -> BoxFuture<'static, Result<Response<Bytes>, HttpError>> {
        request.extensions_mut().insert(self.progress.clone());
        let sent = self.client.send(request, limits);
        match self.progress.handed_over() {
            true => sent,
            false => async { Err(HttpError::NotSent("the request was cancelled".into())) }.boxed(),
        }
    }

    fn resolve(&self, host: &str) -> BoxFuture<'static, Result<Vec<IpAddr>, HttpError>> {
        self.client.resolve(host)
    }
}
