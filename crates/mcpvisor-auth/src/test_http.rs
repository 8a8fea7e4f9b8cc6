//! A scripted HTTP client: answers by URL, and a record of the requests.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, FutureExt};
use serde_json::Value;

use crate::address::AddressPolicy;
use crate::http_client::{HttpClient, HttpError, RequestLimits};

/// Answers by URL; 404 for every other one.
#[derive(Default)]
pub(crate) struct ScriptedHttp {
    answers: HashMap<String, Answer>,
    addresses: Option<Vec<IpAddr>>,
    requests: Mutex<Vec<Recorded>>,
}

type Answer = Result<http::Response<Bytes>, HttpError>;

/// One request that was sent.
pub(crate) struct Recorded {
    pub(crate) method: http::Method,
    pub(crate) url: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) limits: RequestLimits,
}

impl ScriptedHttp {
    /// A client for which every host has a public address.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The addresses that every host resolves to.
    pub(crate) fn addresses(mut self, addresses: &[&str]) -> Self {
        let parse = |text: &&str| text.parse().unwrap();
        self.addresses = Some(addresses.iter().map(parse).collect());
        self
    }

    /// Answers 200 with JSON.
    pub(crate) fn json(self, url: &str, body: Value) -> Self {
        self.status(url, 200, &body.to_string())
    }

    /// Answers with a status and a body.
    pub(crate) fn status(self, url: &str, status: u16, body: &str) -> Self {
        let response = http::Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Bytes::copy_from_slice(body.as_bytes()))
            .unwrap();
        self.answer(url, Ok(response))
    }

    /// Answers with a redirect.
    pub(crate) fn redirect(self, url: &str, location: &str) -> Self {
        let response = http::Response::builder()
            .status(302)
            .header("location", location)
            .body(Bytes::new())
            .unwrap();
        self.answer(url, Ok(response))
    }

    /// Fails requests to this URL.
    pub(crate) fn fail(self, url: &str, error: HttpError) -> Self {
        self.answer(url, Err(error))
    }

    /// The URLs of the requests so far.
    pub(crate) fn urls(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| request.url.clone()).collect()
    }

    /// Takes the requests so far.
    pub(crate) fn take_requests(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// The address policies of the requests so far.
    pub(crate) fn policies(&self) -> Vec<AddressPolicy> {
        let requests = self.requests.lock().unwrap();
        let policy = |request: &Recorded| request.limits.addresses;
        requests.iter().map(policy).collect()
    }

    fn answer(mut self, url: &str, answer: Answer) -> Self {
        self.answers.insert(url.to_owned(), answer);
        self
    }
}

impl HttpClient for ScriptedHttp {
    fn send(
        &self,
        request: http::Request<Bytes>,
        limits: RequestLimits,
    ) -> BoxFuture<'static, Answer> {
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string();
        let answer = match self.answers.get(&url) {
            Some(answer) => answer.clone(),
            None => {
                let mut response = http::Response::new(Bytes::new());
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                Ok(response)
            }
        };
        self.requests.lock().unwrap().push(Recorded {
            method: parts.method,
            url,
            headers: parts.headers,
            body,
            limits,
        });
        future::ready(answer).boxed()
    }

    fn resolve(&self, _host: &str) -> BoxFuture<'static, Result<Vec<IpAddr>, HttpError>> {
        let public = || vec![IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1))];
        let addresses = self.addresses.clone().unwrap_or_else(public);
        future::ready(Ok(addresses)).boxed()
    }
}
