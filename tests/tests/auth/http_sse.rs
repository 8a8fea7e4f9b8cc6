//! Tokens of a server that speaks HTTP+SSE: refused on its stream, and at its endpoint.

use mcpvisor::{Runtime, ServerHandle, Transport};
use mcpvisor_testkit::auth_server::{AuthOptions, ProtectedOptions};
use mcpvisor_testkit::http_server::HttpOptions;

use crate::protected::{LONG, Protected, run_many, web};

/// Callers at once.
const CALLERS: usize = 64;

async fn protected() -> Protected {
    let http = HttpOptions::http_sse();
    let options = ProtectedOptions {
        http,
        ..ProtectedOptions::default()
    };
    Protected::with(AuthOptions::default(), options).await
}

async fn connected(protected: &Protected, is_known: bool) -> (Runtime, ServerHandle) {
    let url = protected.server.url();
    let endpoint = match is_known {
        true => Transport::sse(url),
        false => Transport::http(url),
    };
    let builder = protected.builder().server(web("web", endpoint));
    let runtime = builder.start().await.unwrap();
    runtime.ready(LONG).await.unwrap();
    let handle = runtime.server("web").unwrap();
    (runtime, handle)
}

#[tokio::test]
async fn callers_of_an_expired_token_cause_one_refresh_and_the_stream_stays() {
    for is_known in [true, false] {
        let protected = protected().await;
        protected.log_in().await;
        let (runtime, handle) = connected(&protected, is_known).await;
        protected.auth.expire_access_tokens();
        for outcome in run_many(&handle, "first", CALLERS).await {
            outcome.unwrap();
        }
        assert_eq!(protected.refreshes(), 1);
        assert_eq!(protected.server.all_runs(), CALLERS as u64);
        assert_eq!(protected.server.ran_twice(), Vec::<String>::new());
        let status = handle.status();
        assert_eq!((status.transport, status.generation.get()), ("sse", 1));
        assert_eq!(protected.server.sessions_opened(), 1, "the same session");
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_is_opened_with_a_renewed_token() {
    for is_known in [true, false] {
        let protected = protected().await;
        protected.log_in().await;
        protected.auth.expire_access_tokens();
        let (runtime, handle) = connected(&protected, is_known).await;
        assert_eq!(protected.refreshes(), 1);
        assert_eq!(handle.status().generation.get(), 1, "in the same attempt");
        runtime.shutdown(LONG).await;
    }
}
