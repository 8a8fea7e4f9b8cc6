//! Proxies, which other tests could only set through the environment, and links that are down.

use hyper_util::client::proxy::matcher::Matcher;
use mcpvisor_core::CallId;
use rmcp::model::{ClientRequest, PingRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::net::connect_error::ConnectError;
use super::net::dial::dial;
use super::{HttpContext, HttpEndpoint, HttpLink};
use crate::auth::{Authorization, ServerAuth};
use crate::link::limits::MessageLimits;
use crate::link::{
    DownKind, Inbound, Link as _, LinkDown, OpenFailure, PendingSnapshot, ReplyKind,
};

async fn open(endpoint: &HttpEndpoint, context: &HttpContext) -> Result<HttpLink, OpenFailure> {
    let authorization = Authorization::default();
    let auth = ServerAuth::Static(authorization.revision);
    HttpLink::open(
        endpoint,
        context,
        MessageLimits::default(),
        auth,
        authorization,
    )
    .await
}

/// Sends a ping through a proxy that answers it itself. Returns the head of the request.
async fn ping_through_proxy(url: &str, answer: &str) -> (String, Result<Inbound, LinkDown>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://me:pass@{}", listener.local_addr().unwrap());
    let proxies = Matcher::builder().all(proxy).build();
    let context = HttpContext::with_proxies(proxies);
    let mut link = open(&HttpEndpoint::new(url), &context).await.unwrap();
    let ping = ClientRequest::PingRequest(PingRequest {
        method: Default::default(),
        extensions: Default::default(),
    });
    link.push_request(CallId(1), &mut Some(ping), false)
        .unwrap();
    let pending = PendingSnapshot(vec![(CallId(1), ReplyKind::Empty)]);
    let answering = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|part| part == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&head).into_owned()
    };
    let (head, inbound) = futures_util::future::join(answering, link.next(&pending)).await;
    (head, inbound)
}

#[tokio::test]
async fn a_forward_proxy_gets_the_request_and_its_credentials() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
    let (head, inbound) = ping_through_proxy("http://server.test/mcp?key=1", answer).await;
    assert!(
        head.starts_with("POST http://server.test/mcp?key=1 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("proxy-authorization: Basic bWU6cGFzcw=="),
        "{head}"
    );
    assert!(head.contains("host: server.test"), "{head}");
    assert!(
        matches!(inbound, Ok(Inbound::Response { result: Ok(_), .. })),
        "{inbound:?}"
    );
}

#[tokio::test]
async fn a_proxy_only_tunnels_encrypted_requests() {
    let refused = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
    let (head, inbound) = ping_through_proxy("https://server.test/mcp?key=1", refused).await;
    assert!(
        head.starts_with("CONNECT server.test:443 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.to_ascii_lowercase()
            .contains("proxy-authorization: basic bwu6cgfzcw=="),
        "{head}"
    );
    assert!(!head.contains("key"), "{head}");
    let down = inbound.unwrap_err();
    assert_eq!(down.kind, DownKind::Unreachable);
    assert!(
        down.message.contains("proxy") && !down.message.contains("pass"),
        "{}",
        down.message
    );
}

#[tokio::test]
async fn a_socket_is_reached_without_a_proxy_and_without_dns() {
    let proxies = Matcher::builder().all("http://127.0.0.1:9").build();
    let context = HttpContext::with_proxies(proxies);
    let endpoint = HttpEndpoint::new("http://server.test/mcp");
    let target = context.resolve_target(&endpoint).await.unwrap();
    assert!(target.proxy.is_some());
    let endpoint = endpoint.unix_socket("/no/such.sock");
    let target = context.resolve_target(&endpoint).await.unwrap();
    assert!(target.proxy.is_none());
    let error = dial(std::sync::Arc::new(target)).await.err().unwrap();
    assert!(!error.is_local);
    assert_eq!(
        error.problem,
        "cannot reach http://server.test through the socket /no/such.sock: the socket does not \
         exist: start the server, or correct \"socketPath\""
    );
}

#[tokio::test]
async fn only_a_link_that_is_down_records_unsent_requests() {
    let context = HttpContext::with_proxies(Matcher::builder().build());
    let endpoint = HttpEndpoint::new("http://127.0.0.1:9/mcp");
    let mut link = open(&endpoint, &context).await.unwrap();
    let pending = PendingSnapshot::default();
    assert!(link.is_written(CallId(1), 0));
    for problem in ["first", "second"] {
        link.connect_failed(&ConnectError::remote(problem.to_owned()), &pending);
    }
    let ping = ClientRequest::PingRequest(PingRequest::default());
    link.push_request(CallId(1), &mut Some(ping), false)
        .unwrap();
    assert!(!link.is_written(CallId(1), 0) && link.is_written(CallId(2), 0));
    assert_eq!(link.next(&pending).await.unwrap_err().message, "first");
}
