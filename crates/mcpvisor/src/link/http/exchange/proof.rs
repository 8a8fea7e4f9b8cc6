//! Requests that are signed with the key of their token (RFC 9449), and the nonces of the server.

use http::Request;
use http::header::HeaderMap;
use http::uri::PathAndQuery;

use super::event::ExchangeOutcome;
use crate::auth::{Challenge, INVALID_PROOF, Nonce, PROOF_HEADER, RequestSigner, USE_NONCE};
use crate::link::http::target::Target;

/// Why a server refused a signed request although its token may be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProofRefusal {
    /// The proof lacks the nonce of the server.
    Nonce,
    /// The proof is not valid for the server.
    Invalid,
}

impl ProofRefusal {
    /// Why a signed request was refused, as far as its proof is the reason.
    pub(super) fn of(
        signer: Option<&RequestSigner>,
        challenge: Option<&Challenge>,
    ) -> Option<Self> {
        signer?;
        match challenge?.error.as_deref()? {
            USE_NONCE => Some(Self::Nonce),
            INVALID_PROOF => Some(Self::Invalid),
            _ => None,
        }
    }
}

/// Adds a new proof to a request.
pub(super) fn add_proof<B>(
    request: &mut Request<B>,
    signer: &RequestSigner,
    target: &Target,
    path: &PathAndQuery,
    nonce: Option<&Nonce>,
) {
    // Signing fails only if the system has no random numbers; the server then refuses the request.
    if let Ok(proof) = signer.sign(request.method(), &target.url(path), nonce) {
        request.headers_mut().insert(PROOF_HEADER, proof);
    }
}

/// The nonces of the responses to one request, and whether it was repeated with one.
#[derive(Debug, Default)]
pub(super) struct NonceRetry {
    latest: Option<Nonce>,
    is_used: bool,
}

impl NonceRetry {
    /// Keeps the nonce of a response, for this request and for further ones.
    pub(super) fn note(&mut self, signer: Option<&RequestSigner>, headers: &HeaderMap) {
        self.latest = signer.and_then(|signer| signer.note_nonce(headers));
    }

    /// The nonce of the last response. Others may use it up, so it goes before the shared one.
    pub(super) fn nonce(&self) -> Option<&Nonce> {
        self.latest.as_ref()
    }

    /// Whether a request that ended so is repeated with the nonce of the response: once, because
    /// the server refused it before running it.
    pub(super) fn begin(&mut self, outcome: &ExchangeOutcome) -> bool {
        let ExchangeOutcome::Refused(refusal) = outcome else {
            return false;
        };
        let demanded = refusal.proof == Some(ProofRefusal::Nonce) && self.latest.is_some();
        demanded && !std::mem::replace(&mut self.is_used, true)
    }
}
