//! All parts of an endpoint, secrets included, for the config writer.

use super::HttpEndpoint;

/// The parts of an [`HttpEndpoint`]. The reader has to redact the secrets.
pub(crate) struct EndpointParts<'e> {
    pub(crate) url: &'e str,
    pub(crate) headers: Vec<(&'e str, &'e str)>,
    pub(crate) bearer_env: Option<&'e str>,
    /// The name of the variable, unless it may be a pasted token.
    pub(crate) shown_bearer_env: Option<&'e str>,
    pub(crate) root_certificates: Vec<String>,
    pub(crate) client_certificate: Option<String>,
    pub(crate) unix_socket: Option<String>,
    pub(crate) is_sse: bool,
    pub(crate) secrets: Vec<String>,
}

impl HttpEndpoint {
    pub(crate) fn parts(&self) -> EndpointParts<'_> {
        let files = self.root_certificates.iter();
        let client = self.client_certificate.as_ref();
        let socket = self.unix_socket.as_ref();
        let secrets = self.secrets.iter();
        EndpointParts {
            url: self.url.expose(),
            headers: self.named_headers().collect(),
            bearer_env: self.bearer_env.as_deref(),
            shown_bearer_env: self.shown_bearer_env(),
            root_certificates: files
                .map(|file| file.to_string_lossy().into_owned())
                .collect(),
            client_certificate: client.map(|file| file.to_string_lossy().into_owned()),
            unix_socket: socket.map(|file| file.to_string_lossy().into_owned()),
            is_sse: self.is_sse,
            secrets: secrets
                .map(|secret| secret.expose().to_string_lossy().into_owned())
                .collect(),
        }
    }
}
