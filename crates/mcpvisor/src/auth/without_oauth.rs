//! What the HTTP link uses of the feature `auth`, without it: nothing is learned from a challenge,
//! and no request is signed.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};

pub(crate) const PROOF_HEADER: HeaderName = HeaderName::from_static("dpop");
pub(crate) const USE_NONCE: &str = "use_dpop_nonce";
pub(crate) const INVALID_PROOF: &str = "invalid_dpop_proof";

#[derive(Debug, Clone, Default)]
pub(crate) struct Challenge {
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

impl Challenge {
    pub(crate) fn parse<'v>(_values: impl IntoIterator<Item = &'v str>) -> Self {
        Self::default()
    }

    pub(crate) fn needs_step_up(&self) -> bool {
        false
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Nonce {}

impl Nonce {
    pub(crate) fn of(_: &HeaderMap) -> Option<Self> {
        None
    }
}

#[derive(Debug, Clone)]
pub(crate) enum RequestSigner {}

impl RequestSigner {
    pub(crate) fn sign(
        &self,
        _: &Method,
        _: &Uri,
        _: Option<&Nonce>,
    ) -> Result<HeaderValue, String> {
        match *self {}
    }

    pub(crate) fn share_nonce(&self, _: Nonce) {
        match *self {}
    }

    pub(crate) fn proof_prefix(&self) -> &str {
        match *self {}
    }
}
