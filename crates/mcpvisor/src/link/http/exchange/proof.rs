//! Requests that are signed with the key of their token (RFC 9449), and the nonces of the server.

use http::Request;
use http::header::HeaderMap;
use http::uri::PathAndQuery;

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

/// The one time that a request is sent again, because the server demanded a nonce. It refused the
/// request before running it.
#[derive(Debug, Default)]
pub(super) struct NonceRetry {
    /// The nonce of the refusal. Other requests must not use it up, so it is not shared before the
    /// server has accepted it.
    nonce: Option<Nonce>,
    is_used: bool,
}

impl NonceRetry {
    /// Takes the nonce of a response: for this request if it is sent again, else for all.
    pub(super) fn note(
        &mut self,
        signer: &RequestSigner,
        headers: &HeaderMap,
        refusal: Option<ProofRefusal>,
    ) {
        let nonce = Nonce::of(headers);
        let is_refused = refusal == Some(ProofRefusal::Nonce);
        let accepted = self.nonce.take().filter(|_| !is_refused);
        if is_refused && !self.is_used {
            self.nonce = nonce;
        } else if let Some(nonce) = nonce.or(accepted) {
            signer.share_nonce(nonce);
        }
    }

    /// The nonce to send the request with; `None` for the shared one.
    pub(super) fn nonce(&self) -> Option<&Nonce> {
        self.nonce.as_ref()
    }

    /// Whether the request is sent again after this response, once.
    pub(super) fn begin(&mut self) -> bool {
        self.nonce.is_some() && !std::mem::replace(&mut self.is_used, true)
    }
}

#[cfg(feature = "auth")]
#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::{HeaderValue, Method};
    use mcpvisor_auth::Secret;
    use mcpvisor_auth::dpop::{NONCE_HEADER, ProofKey};
    use serde_json::Value;

    use super::*;
    use crate::link::http::HttpEndpoint;

    fn signer() -> RequestSigner {
        RequestSigner::new(ProofKey::generate().unwrap(), &Secret::new("token"))
    }

    fn response(nonce: Option<&'static str>) -> HeaderMap {
        let value = nonce.map(|nonce| (NONCE_HEADER, HeaderValue::from_static(nonce)));
        value.into_iter().collect()
    }

    /// The claims of the proof that a request would have.
    fn claims(signer: &RequestSigner, retry: &NonceRetry, path: &'static str) -> Value {
        let endpoint = HttpEndpoint::new("http://Example.com:80/mcp?key=1");
        let target = Target::new(&endpoint, |_| None).unwrap();
        let mut request = Request::new(());
        *request.method_mut() = Method::DELETE;
        let path = PathAndQuery::from_static(path);
        add_proof(&mut request, signer, &target, &path, retry.nonce());
        let proof = request.headers()[PROOF_HEADER].to_str().unwrap();
        let claims = proof.split('.').nth(1).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
    }

    fn nonce(signer: &RequestSigner, retry: &NonceRetry) -> Value {
        claims(signer, retry, "/")["nonce"].clone()
    }

    const DEMANDED: Option<ProofRefusal> = Some(ProofRefusal::Nonce);

    #[test]
    fn a_proof_names_the_method_and_the_address_that_is_requested() {
        let claims = claims(&signer(), &NonceRetry::default(), "/moved?key=1");
        assert_eq!(claims["htm"], "DELETE");
        assert_eq!(claims["htu"], "http://example.com/moved");
    }

    #[test]
    fn a_request_is_sent_again_once_with_a_nonce_of_its_own() {
        let (signer, mut retry) = (signer(), NonceRetry::default());
        retry.note(&signer, &response(Some("n1")), DEMANDED);
        let other = NonceRetry::default();
        assert_eq!(
            nonce(&signer, &other),
            Value::Null,
            "others cannot use it up"
        );
        assert!(retry.begin());
        assert_eq!(nonce(&signer, &retry), "n1");
        retry.note(&signer, &response(Some("n2")), DEMANDED);
        assert!(!retry.begin(), "once");
        assert_eq!(nonce(&signer, &other), "n2");
    }

    #[test]
    fn a_nonce_is_shared_once_the_server_has_accepted_it() {
        let (signer, mut retry) = (signer(), NonceRetry::default());
        retry.note(&signer, &response(Some("n1")), DEMANDED);
        assert!(retry.begin());
        retry.note(&signer, &response(None), None);
        assert!(!retry.begin());
        assert_eq!(nonce(&signer, &NonceRetry::default()), "n1");
        // Any response may replace it.
        NonceRetry::default().note(&signer, &response(Some("n2")), None);
        assert_eq!(nonce(&signer, &NonceRetry::default()), "n2");
    }

    #[test]
    fn nothing_is_sent_again_without_a_nonce_or_for_another_reason() {
        let signer = signer();
        for (nonce, refusal) in [
            (None, DEMANDED),
            (Some("n"), Some(ProofRefusal::Invalid)),
            (Some("n"), None),
        ] {
            let mut retry = NonceRetry::default();
            retry.note(&signer, &response(nonce), refusal);
            assert!(!retry.begin(), "{nonce:?} {refusal:?}");
        }
    }

    #[test]
    fn only_signed_requests_are_refused_for_their_proofs() {
        let signer = signer();
        let refusal = |signer, value| {
            let challenge = Challenge::parse([value]);
            ProofRefusal::of(signer, Some(&challenge))
        };
        let demand = "DPoP error=\"use_dpop_nonce\"";
        assert_eq!(refusal(Some(&signer), demand), DEMANDED);
        assert_eq!(refusal(None, demand), None);
        let invalid = "Bearer, DPoP error=\"invalid_dpop_proof\"";
        assert_eq!(refusal(Some(&signer), invalid), Some(ProofRefusal::Invalid));
        assert_eq!(refusal(Some(&signer), "DPoP error=\"invalid_token\""), None);
    }
}
