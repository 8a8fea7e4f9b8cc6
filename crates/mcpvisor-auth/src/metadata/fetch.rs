//! Gets one JSON document, following redirects with every check repeated.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use serde_json::{Map, Value};

use crate::address::AddressPolicy;
use crate::error::AuthError;
use crate::http_client::{
    HttpClient, HttpError, MAX_RESPONSE_BYTES, METADATA_TIMEOUT, RequestLimits,
};
use crate::url;

/// Redirects that one document may take.
const MAX_REDIRECTS: usize = 3;

/// A JSON object and the URL it was requested from, without query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) source: String,
    pub(crate) object: Map<String, Value>,
}

/// The bounds of a request of discovery or registration.
pub(crate) fn metadata_limits(addresses: AddressPolicy) -> RequestLimits {
    RequestLimits {
        addresses,
        max_bytes: MAX_RESPONSE_BYTES,
        timeout: METADATA_TIMEOUT,
    }
}

/// Gets the first document that exists. `None` if each answer is "not there"; every other failure
/// ends the search, so that a fault of the right server never leads to another one.
pub(crate) async fn get_first(
    http: &dyn HttpClient,
    urls: &[String],
    addresses: AddressPolicy,
) -> Result<Option<Document>, AuthError> {
    for text in urls {
        if let Some(document) = get(http, text, addresses).await? {
            return Ok(Some(document));
        }
    }
    Ok(None)
}

/// Gets a document; `None` if the answer is a 4xx that does not ask to come back later.
async fn get(
    http: &dyn HttpClient,
    text: &str,
    addresses: AddressPolicy,
) -> Result<Option<Document>, AuthError> {
    let mut url = url::parse_secure(text).map_err(|error| {
        AuthError::Invalid(format!(
            "the server names a metadata URL that cannot be used: {error}; ask its operator"
        ))
    })?;
    for _ in 0..=MAX_REDIRECTS {
        let source = url::without_query(&url);
        let response = send_get(http, &url, &source, addresses).await?;
        let status = response.status();
        if status == StatusCode::OK {
            let object = json_object(response.body(), &source)?;
            return Ok(Some(Document { source, object }));
        }
        if status.is_redirection() {
            url = redirect_target(&url, &response, &source)?;
        } else if is_missing(status) {
            return Ok(None);
        } else {
            return Err(unexpected_status("metadata request", &source, status));
        }
    }
    Err(AuthError::Invalid(format!(
        "{} redirects more than {MAX_REDIRECTS} times",
        url::without_query(&url)
    )))
}

async fn send_get(
    http: &dyn HttpClient,
    url: &Uri,
    source: &str,
    addresses: AddressPolicy,
) -> Result<Response<Bytes>, AuthError> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = url.clone();
    let json = header::HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::ACCEPT, json);
    let limits = metadata_limits(addresses);
    let response = http.send(request, limits).await;
    response.map_err(|error| AuthError::Http {
        request: format!("metadata request to {source}"),
        error,
    })
}

/// An answer that may be another one later: retry.
pub(crate) fn unexpected_status(request: &str, source: &str, status: StatusCode) -> AuthError {
    AuthError::Http {
        request: format!("{request} to {source}"),
        error: HttpError::Interrupted(format!("unexpected status {}", status.as_u16())),
    }
}

fn is_missing(status: StatusCode) -> bool {
    let come_back = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !come_back.contains(&status)
}

fn redirect_target(url: &Uri, response: &Response<Bytes>, source: &str) -> Result<Uri, AuthError> {
    let location = response.headers().get(header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    let target = url::resolve_location(url, location.unwrap_or_default());
    target.map_err(|error| AuthError::Invalid(format!("{source} redirects to a bad URL: {error}")))
}

/// The body as a JSON object. `serde_json` bounds its nesting.
fn json_object(body: &[u8], source: &str) -> Result<Map<String, Value>, AuthError> {
    if body.len() > MAX_RESPONSE_BYTES {
        return Err(AuthError::Http {
            request: format!("metadata request to {source}"),
            error: HttpError::TooLarge(MAX_RESPONSE_BYTES),
        });
    }
    serde_json::from_slice(body)
        .map_err(|_| AuthError::Invalid(format!("{source} returned no JSON object")))
}

#[cfg(test)]
mod tests;
