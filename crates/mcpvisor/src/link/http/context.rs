//! What all HTTP links of one runtime share: proxies, DNS, trusted certificates, keep-alive times.
//!
//! None of it is global, so two runtimes never interfere. Connections are not shared: each belongs
//! to the link that opened it, and ends with it.

use std::sync::Arc;

use hyper_util::client::proxy::matcher::Matcher;

use super::endpoint::HttpEndpoint;
use super::net::dns::Resolver;
use super::net::pool::KeepAliveTable;
use super::no_proxy::NoProxy;
use super::target::Target;
use super::tls::trusted_roots::TrustedRoots;
use crate::link::OpenFailure;
use crate::state::file_ops::FileOps;

/// The HTTP state of one runtime.
#[derive(Debug)]
pub(crate) struct HttpContext {
    proxies: Matcher,
    no_proxy: NoProxy,
    pub(crate) resolver: Resolver,
    trusted_roots: TrustedRoots,
    pub(super) keep_alive: Arc<KeepAliveTable>,
}

impl HttpContext {
    /// Reads the proxies from the environment of this process.
    pub(crate) fn new(ops: FileOps, resolver: Resolver) -> Self {
        Self {
            proxies: Matcher::from_env(),
            no_proxy: NoProxy::from_env(),
            resolver,
            trusted_roots: TrustedRoots::new(ops),
            keep_alive: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn with_proxies(proxies: Matcher) -> Self {
        Self {
            proxies,
            ..Self::new(FileOps::default(), Resolver::default())
        }
    }

    /// Validates an endpoint, and decides how it is reached: proxy, DNS, TLS.
    pub(crate) async fn resolve_target(
        &self,
        endpoint: &HttpEndpoint,
    ) -> Result<Target, OpenFailure> {
        let mut target = Target::new(endpoint, |name| std::env::var_os(name))?;
        if target.unix_socket.is_none() && !self.no_proxy.matches(&target) {
            target.proxy = self.proxies.intercept(&target.origin());
        }
        target.resolver = self.resolver.clone();
        if target.scheme == http::uri::Scheme::HTTPS {
            target.tls = Some(self.trusted_roots.client_config(endpoint).await?);
        }
        Ok(target)
    }
}
