//! What needs the link itself: proxies, which others take from the environment.

use hyper_util::client::proxy::matcher::Matcher;
use mcpvisor_core::CallId;
use rmcp::model::{ClientRequest, PingRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{HttpEndpoint, HttpLink, HttpShared};
use crate::link::{
    DownKind, Inbound, Link as _, LinkDown, PendingRequests, PendingSnapshot, ReplyKind,
};

struct One;

impl PendingRequests for One {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        (id == CallId(1)).then_some(ReplyKind::Empty)
    }

    fn snapshot(&self) -> PendingSnapshot {
        PendingSnapshot(vec![(CallId(1), ReplyKind::Empty)])
    }
}

/// A proxy that answers the first request by itself; the head of it comes back.
async fn ask_by_proxy(url: &str, answer: &str) -> (String, Result<Inbound, LinkDown>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://me:pass@{}", listener.local_addr().unwrap());
    let proxies = Matcher::builder().all(proxy).build();
    let shared = HttpShared::with_proxies(proxies);
    let mut link = HttpLink::open(
        &HttpEndpoint::new(url),
        &shared,
        super::MessageLimits::default(),
    )
    .await
    .unwrap();
    let ping = ClientRequest::PingRequest(PingRequest {
        method: Default::default(),
        extensions: Default::default(),
    });
    link.push_request(CallId(1), &mut Some(ping), false)
        .unwrap();
    let answering = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|part| part == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&head).into_owned()
    };
    let (head, inbound) = futures_util::future::join(answering, link.next(&One)).await;
    (head, inbound)
}

#[tokio::test]
async fn a_proxy_fetches_what_is_not_encrypted_and_is_told_who_asks() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
    let (head, inbound) = ask_by_proxy("http://server.test/mcp?key=1", answer).await;
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
async fn a_proxy_is_asked_for_a_tunnel_where_the_server_is_encrypted_and_sees_nothing_else() {
    let refused = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
    let (head, inbound) = ask_by_proxy("https://server.test/mcp?key=1", refused).await;
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
