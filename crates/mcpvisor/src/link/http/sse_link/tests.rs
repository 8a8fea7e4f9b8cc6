//! What is known about a request at each moment, with a server that is written by hand.

use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{ClientRequest, PingRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::SseLink;
use crate::auth::{Authorization, ServerAuth};
use crate::link::http::{HttpContext, HttpEndpoint};
use crate::link::limits::MessageLimits;
use crate::link::{DownKind, Inbound, Link as _, LinkDown, PendingSnapshot, ReplyKind};

/// Upper bound for every step, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const ENDPOINT: &str = "event: endpoint\ndata: /messages?id=1\n\n";
const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 8\r\n\r\nAccepted";
const REPLY: &str = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";

struct Scene {
    listener: TcpListener,
    link: SseLink,
    pending: PendingSnapshot,
}

impl Scene {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        let context = HttpContext::with_proxies(Matcher::builder().build());
        let authorization = Authorization::default();
        let auth = ServerAuth::Static(authorization.revision);
        let endpoint = HttpEndpoint::new(url);
        let limits = MessageLimits::default();
        let link = SseLink::open(&endpoint, &context, limits, auth, authorization, None);
        Self {
            listener,
            link: link.await.unwrap(),
            pending: PendingSnapshot(vec![
                (CallId(1), ReplyKind::Empty),
                (CallId(2), ReplyKind::Empty),
            ]),
        }
    }

    fn ping(&mut self, id: u64) {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let pushed = self.link.push_request(CallId(id), &mut Some(ping), false);
        pushed.unwrap();
    }

    fn is_written(&self, id: u64) -> bool {
        self.link.is_written(CallId(id), 0)
    }

    /// Runs the link while the server does something.
    async fn during<T>(&mut self, server: impl AsyncFnOnce(&TcpListener) -> T) -> T {
        let (link, pending, listener) = (&mut self.link, &self.pending, &self.listener);
        tokio::select! {
            biased;
            inbound = link.next(pending) => panic!("{inbound:?}"),
            done = server(listener) => done,
            () = tokio::time::sleep(LONG) => panic!("the server waits in vain"),
        }
    }

    async fn next(&mut self) -> Result<Inbound, LinkDown> {
        let next = tokio::time::timeout(LONG, self.link.next(&self.pending)).await;
        next.unwrap_or_else(|_| panic!("the link hangs"))
    }
}

/// Accepts a connection and reads one request, of which it returns the first line.
async fn request(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut text = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0);
        let head = text.windows(4).position(|part| part == b"\r\n\r\n");
        let is_post = text.starts_with(b"POST");
        if head.is_some_and(|head| !is_post || text.len() > head + 4) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    (stream, text.lines().next().unwrap().to_owned())
}

#[tokio::test]
async fn a_request_is_written_only_once_the_endpoint_is_known() {
    let mut scene = Scene::new().await;
    scene.ping(1);
    let mut stream = scene
        .during(async |listener| {
            let (mut stream, line) = request(listener).await;
            assert_eq!(line, "GET /sse HTTP/1.1");
            stream.write_all(STREAM.as_bytes()).await.unwrap();
            stream
        })
        .await;
    assert!(!scene.is_written(1), "there is no endpoint yet");
    stream.write_all(ENDPOINT.as_bytes()).await.unwrap();
    let (mut post, line) = scene.during(async |listener| request(listener).await).await;
    assert_eq!(line, "POST /messages?id=1 HTTP/1.1");
    assert!(scene.is_written(1));
    post.write_all(ACCEPTED.as_bytes()).await.unwrap();
    stream.write_all(REPLY.as_bytes()).await.unwrap();
    let reply = scene.next().await;
    assert!(
        matches!(reply, Ok(Inbound::Response { id: CallId(1), .. })),
        "{reply:?}"
    );
}

#[tokio::test]
async fn the_end_of_the_stream_ends_the_link_and_later_requests_are_not_written() {
    let mut scene = Scene::new().await;
    scene.ping(1);
    let (stream, post) = scene
        .during(async |listener| {
            let (mut stream, _) = request(listener).await;
            let both = format!("{STREAM}{ENDPOINT}");
            stream.write_all(both.as_bytes()).await.unwrap();
            let (post, _) = request(listener).await;
            (stream, post)
        })
        .await;
    drop(stream);
    let down = scene.next().await.unwrap_err();
    assert_eq!(down.kind, DownKind::Closed, "{down:?}");
    assert!(scene.is_written(1), "the server may have run it");
    scene.ping(2);
    assert!(!scene.is_written(2));
    assert_eq!(scene.next().await.unwrap_err(), down, "the reason stays");
    drop(post);
}

#[tokio::test]
async fn a_request_that_is_not_written_when_the_stream_ends_never_reaches_the_server() {
    let mut scene = Scene::new().await;
    scene.ping(1);
    let stream = scene
        .during(async |listener| {
            let (mut stream, _) = request(listener).await;
            stream.write_all(STREAM.as_bytes()).await.unwrap();
            stream
        })
        .await;
    // The endpoint and the end arrive together, so the POST hardly has a connection yet.
    let mut stream = stream;
    stream.write_all(ENDPOINT.as_bytes()).await.unwrap();
    drop(stream);
    let down = scene.next().await.unwrap_err();
    assert_eq!(down.kind, DownKind::Closed, "{down:?}");
    let is_written = scene.is_written(1);
    let grace = CloseSettings::new(Duration::ZERO, LONG, LONG);
    scene.link.close(grace).await.unwrap();
    let dialled = tokio::time::timeout(Duration::from_millis(200), async {
        let (mut stream, _) = scene.listener.accept().await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        text
    })
    .await;
    let sent = dialled.unwrap_or_default();
    let sent = String::from_utf8_lossy(&sent);
    assert!(is_written || sent.is_empty(), "{sent}");
}

#[tokio::test]
async fn an_endpoint_elsewhere_leaves_the_request_unwritten() {
    let mut scene = Scene::new().await;
    scene.ping(1);
    let (mut stream, _) = scene.during(async |listener| request(listener).await).await;
    let elsewhere = format!("{STREAM}event: endpoint\ndata: http://evil.example/\n\n");
    stream.write_all(elsewhere.as_bytes()).await.unwrap();
    let down = scene.next().await.unwrap_err();
    assert_eq!(down.kind, DownKind::Misdirected, "{down:?}");
    assert!(!scene.is_written(1) && scene.link.has_endpoint());
}

#[tokio::test]
async fn a_refused_stream_is_the_answer_to_the_requests_that_wait_for_it() {
    let mut scene = Scene::new().await;
    scene.ping(1);
    let (mut stream, _) = scene.during(async |listener| request(listener).await).await;
    let refused = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(refused.as_bytes()).await.unwrap();
    let failed = scene.next().await;
    let Ok(Inbound::Failed { id, failed }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!((id, failed.status), (CallId(1), Some(404)));
    assert!(scene.next().await.is_err());
}
