//! Reads the responses of a token endpoint: lenient with tokens, strict with what is displayed.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value};

use super::{TokenResponse, TokenType};
use crate::dpop::{SCHEME, USE_NONCE};
use crate::error::{AuthError, http_code};
use crate::secret::Secret;

/// The longest lifetime of a token; longer ones are clamped (ten years).
pub const MAX_LIFETIME_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// Bytes of a token. It is a header of every request, and every text of the server is searched for
/// it.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The error code of a success that cannot be read.
pub(crate) const INVALID_RESPONSE: &str = "invalid_response";

/// Characters of an error code.
const MAX_CODE_CHARS: usize = 64;

/// Characters of an error description.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Shorter values are no secrets; redacting them would garble a description.
const MIN_REDACTED_BYTES: usize = 6;

/// What a requested token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// A token for the MCP server.
    Access,
    /// The assertion of a token exchange, whose type is `N_A` (RFC 8693).
    Assertion,
}

/// One request to an issuer: its name, and the secrets it contained.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: String,
    pub(crate) secrets: Vec<Secret>,
    /// The request proved the possession of a key, which the token may be bound to.
    pub(crate) has_proof: bool,
}

impl Exchange {
    /// Reads the token of a response. `obtained_at` is the time before the request.
    pub(crate) fn token(
        &self,
        response: &Response<Bytes>,
        token_use: TokenUse,
        obtained_at: u64,
    ) -> Result<TokenResponse, AuthError> {
        let fields = self.fields(response)?;
        let Some(access) = text(&fields, "access_token") else {
            return Err(self.refusal(
                response.status(),
                &fields,
                "the response has no access token",
            ));
        };
        if !access.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                self.invalid("the access token contains characters that no header may have")
            );
        }
        let refresh = text(&fields, "refresh_token");
        let longest = access.len().max(refresh.map_or(0, str::len));
        if longest > MAX_TOKEN_BYTES {
            return Err(self.invalid(&format!("a token is longer than {MAX_TOKEN_BYTES} bytes")));
        }
        let token_type = self.token_type(&fields, token_use)?;
        let lifetime = fields.get("expires_in").and_then(lifetime_seconds);
        Ok(TokenResponse {
            access: Secret::new(access),
            refresh: refresh.map(Secret::new),
            expires_at: lifetime.map(|lifetime| obtained_at.saturating_add(lifetime)),
            obtained_at,
            scopes: fields.get("scope").and_then(scopes),
            issued_token_type: text(&fields, "issued_token_type").map(str::to_owned),
            token_type,
        })
    }

    /// Whether the issuer refused the request because its proof lacks a nonce.
    pub(crate) fn demands_nonce(&self, response: &Response<Bytes>) -> bool {
        let fields = parse_fields(response.body()).unwrap_or_default();
        !response.status().is_success() && text(&fields, "error") == Some(USE_NONCE)
    }

    /// The fields of a successful response, in JSON or form-encoded.
    pub(crate) fn fields(
        &self,
        response: &Response<Bytes>,
    ) -> Result<Map<String, Value>, AuthError> {
        let fields = parse_fields(response.body());
        match fields {
            Some(fields) if response.status().is_success() => Ok(fields),
            fields => Err(self.refusal(
                response.status(),
                &fields.unwrap_or_default(),
                "the response is neither JSON nor a form",
            )),
        }
    }

    /// The error of a response. `without_error` describes a success that lacks what was requested.
    pub(crate) fn refusal(
        &self,
        status: StatusCode,
        fields: &Map<String, Value>,
        without_error: &str,
    ) -> AuthError {
        let code = text(fields, "error").map(|code| self.clean_code(code));
        let description = text(fields, "error_description")
            .or_else(|| text(fields, "message"))
            .or_else(|| fields.get("error")?.get("message")?.as_str())
            .and_then(|description| self.clean(description, MAX_DESCRIPTION_CHARS));
        let success = status.is_success();
        AuthError::Refused {
            request: self.request.clone(),
            status: status.as_u16(),
            description: match description {
                None if code.is_none() && success => Some(without_error.to_owned()),
                description => description,
            },
            error: code.unwrap_or_else(|| match success {
                true => INVALID_RESPONSE.to_owned(),
                false => http_code(status.as_u16()),
            }),
        }
    }

    /// A description without control characters and secrets of the request, truncated.
    pub(crate) fn clean(&self, text: &str, max_chars: usize) -> Option<String> {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if secret.expose().len() >= MIN_REDACTED_BYTES {
                text = text.replace(secret.expose(), "***");
            }
        }
        clean(&text, max_chars)
    }

    fn clean_code(&self, code: &str) -> String {
        self.clean(code, MAX_CODE_CHARS)
            .unwrap_or_else(|| "unknown_error".into())
    }

    fn token_type(
        &self,
        fields: &Map<String, Value>,
        token_use: TokenUse,
    ) -> Result<Option<TokenType>, AuthError> {
        let Some(token_type) = text(fields, "token_type") else {
            return Ok(None);
        };
        let is = |name: &str| token_type.eq_ignore_ascii_case(name);
        if is("bearer") {
            return Ok(Some(TokenType::Bearer));
        }
        if token_use == TokenUse::Assertion && is("n_a") {
            return Ok(None);
        }
        match is(SCHEME) {
            true if self.has_proof => Ok(Some(TokenType::Dpop)),
            true => Err(self.invalid(
                "the token is bound to a key (DPoP), but the request named none; set auth.dpop to \
                 \"always\"",
            )),
            false => {
                let token_type = self.clean_code(token_type);
                Err(self.invalid(&format!(
                    "the token has type {token_type:?}; only bearer and DPoP tokens are supported"
                )))
            }
        }
    }

    fn invalid(&self, problem: &str) -> AuthError {
        AuthError::Invalid(format!("{}: {problem}", self.request))
    }
}

/// Removes control and invisible formatting characters, joins white space, and truncates. `None` if
/// nothing is left.
pub(crate) fn clean(text: &str, max_chars: usize) -> Option<String> {
    let mut cleaned = String::new();
    for word in text.split_whitespace() {
        if !cleaned.is_empty() {
            cleaned.push(' ');
        }
        cleaned.extend(
            word.chars()
                .filter(|c| !c.is_control() && !is_invisible(*c)),
        );
    }
    let cleaned = cleaned.trim();
    match cleaned.char_indices().nth(max_chars) {
        Some((end, _)) => Some(format!("{}…", &cleaned[..end])),
        None if cleaned.is_empty() => None,
        None => Some(cleaned.to_owned()),
    }
}

/// Characters that hide or reorder text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The object of a JSON body, or the pairs of a form. Other content has no fields.
fn parse_fields(body: &[u8]) -> Option<Map<String, Value>> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        return match value {
            Value::Object(fields) => Some(fields),
            _ => None,
        };
    }
    let pairs: Map<String, Value> = form_urlencoded::parse(body)
        .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
        .collect();
    let is_form = pairs.contains_key("access_token") || pairs.contains_key("error");
    is_form.then_some(pairs)
}

/// A text that is not empty.
pub(crate) fn text<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f str> {
    fields
        .get(name)?
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// A lifetime as a number, float or text. Negative ones are 0, huge ones are clamped.
pub(crate) fn lifetime_seconds(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse::<f64>().ok()?,
        _ => return None,
    };
    if seconds.is_nan() {
        return None;
    }
    // The range fits, and a fraction of a second must not outlive the token.
    Some(seconds.clamp(0.0, MAX_LIFETIME_SECONDS as f64) as u64)
}

fn scopes(value: &Value) -> Option<Vec<String>> {
    let scopes: Vec<String> = match value {
        Value::String(text) => text.split_whitespace().map(str::to_owned).collect(),
        Value::Array(items) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => return None,
    };
    (!scopes.is_empty()).then_some(scopes)
}
