use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, Generation};
use rmcp::model::{
    ClientJsonRpcMessage, CustomNotification, EmptyResult, JsonRpcMessage, NumberOrString,
    PingRequest, ServerJsonRpcMessage, ServerNotification,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::link::{DownKind, Inbound, Link, LinkDown, PendingRequests, ReplyKind};

/// A test that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(20);

const GRACE: CloseSettings = CloseSettings::new(
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(100),
);

/// Every request is pending.
struct EverythingPending;

impl PendingRequests for EverythingPending {
    fn reply_kind(&self, _: CallId) -> Option<ReplyKind> {
        Some(ReplyKind::Any)
    }

    #[cfg(feature = "stdio")]
    fn snapshot(&self) -> crate::link::PendingSnapshot {
        crate::link::PendingSnapshot(Vec::new())
    }
}

fn serve<F: Future<Output = ()> + Send + 'static>(
    server: impl Fn(ServerEnd) -> F + Send + Sync + 'static,
) -> ChannelLink {
    let serve: ServeFn = Arc::new(move |end| Box::pin(server(end)));
    ChannelLink::open(&serve, Generation::from(3))
}

fn ping(id: i64) -> ClientJsonRpcMessage {
    JsonRpcMessage::request(PingRequest::default().into(), NumberOrString::Number(id))
}

fn notification() -> ServerJsonRpcMessage {
    let notification = CustomNotification::new("notifications/x", None);
    JsonRpcMessage::notification(ServerNotification::CustomNotification(notification))
}

async fn next(link: &mut ChannelLink) -> Result<Inbound, LinkDown> {
    timeout(DEADLINE, link.next(&EverythingPending))
        .await
        .unwrap()
}

/// Answers every ping.
async fn answer(mut end: ServerEnd) {
    while let Some(message) = end.incoming.recv().await {
        if let JsonRpcMessage::Request(request) = message {
            let reply = JsonRpcMessage::response(EmptyResult {}.into(), request.id);
            let _ = end.outgoing.send(reply);
        }
    }
}

#[tokio::test]
async fn messages_travel_in_order() {
    let mut link = serve(answer);
    for id in 0..100 {
        assert_eq!(link.push(ping(id)).unwrap(), id as u64);
    }
    assert_eq!(link.sent(), 100);
    for expected in 0..100 {
        let inbound = match link.try_next(&EverythingPending) {
            Some(inbound) => inbound,
            None => next(&mut link).await.unwrap(),
        };
        let Inbound::Response { id, result: Ok(_) } = inbound else {
            panic!("{inbound:?}");
        };
        assert_eq!(id, CallId(expected));
    }
    link.close(GRACE).await.unwrap();
}

#[tokio::test]
async fn a_request_that_could_not_be_sent_is_kept_for_the_next_connection() {
    let mut link = serve(|_| async {});
    next(&mut link).await.unwrap_err();
    let mut request = Some(PingRequest::default().into());
    let position = link.push_request(CallId(1), &mut request, false).unwrap();
    assert!(link.sent() <= position, "not sent");
    assert!(request.is_some());
}

#[tokio::test]
async fn a_reply_to_nothing_is_stray() {
    struct Nothing;
    impl PendingRequests for Nothing {
        fn reply_kind(&self, _: CallId) -> Option<ReplyKind> {
            None
        }

        #[cfg(feature = "stdio")]
        fn snapshot(&self) -> crate::link::PendingSnapshot {
            crate::link::PendingSnapshot(Vec::new())
        }
    }
    let mut link = serve(answer);
    link.push(ping(1)).unwrap();
    let inbound = timeout(DEADLINE, link.next(&Nothing)).await.unwrap();
    assert!(matches!(inbound, Ok(Inbound::Stray { .. })), "{inbound:?}");
}

#[tokio::test]
async fn the_last_messages_of_a_server_arrive_before_its_end() {
    let mut link = serve(|end| async move {
        assert_eq!(end.generation, Generation::from(3));
        end.outgoing.send(notification()).unwrap();
        end.outgoing.send(notification()).unwrap();
    });
    assert!(matches!(
        next(&mut link).await,
        Ok(Inbound::Notification { .. })
    ));
    assert!(matches!(
        next(&mut link).await,
        Ok(Inbound::Notification { .. })
    ));
    let expected = LinkDown::new(DownKind::Closed, "the server ended");
    assert_eq!(next(&mut link).await.unwrap_err(), expected);
    assert_eq!(next(&mut link).await.unwrap_err(), expected);

    let sent = link.sent();
    assert_eq!(link.push(ping(1)).unwrap(), sent);
    assert_eq!(link.sent(), sent, "nothing counts as sent any more");
    link.close(GRACE).await.unwrap();
}

#[tokio::test]
async fn a_panic_is_reported() {
    let mut link = serve(|_end| async { panic!("boom") });
    let down = next(&mut link).await.unwrap_err();
    assert_eq!(
        down,
        LinkDown::new(DownKind::Closed, "the server panicked: boom")
    );
}

#[tokio::test]
async fn an_end_is_noticed_even_if_a_sender_is_leaked() {
    let (leak, mut leaked) = mpsc::unbounded_channel();
    let mut link = serve(move |end| {
        leak.send(end.outgoing).unwrap();
        async {}
    });
    let down = next(&mut link).await.unwrap_err();
    assert_eq!(down.message, "the server ended");
    drop(leaked.recv().await);
}

#[tokio::test]
async fn a_server_that_drops_its_sender_is_down() {
    let mut link = serve(|end| async move {
        drop(end.outgoing);
        std::future::pending().await
    });
    let down = next(&mut link).await.unwrap_err();
    assert_eq!(down.message, "the server closed its channel");
    let closed = link.close(GRACE).await;
    assert!(closed.unwrap_err().contains("aborted"));
}

#[tokio::test]
async fn a_dropped_link_ends_its_server() {
    let alive = Arc::new(());
    let watched = Arc::downgrade(&alive);
    let serve: ServeFn = Arc::new(move |_end| {
        let alive = Arc::clone(&alive);
        Box::pin(async move {
            let _alive = alive;
            std::future::pending().await
        })
    });
    let link = ChannelLink::open(&serve, Generation::NONE.next());
    drop(serve);
    tokio::task::yield_now().await;
    assert!(watched.upgrade().is_some());
    drop(link);
    is_gone(&watched).await;
}

async fn is_gone(watched: &Weak<()>) {
    let deadline = Instant::now() + DEADLINE;
    while watched.upgrade().is_some() {
        assert!(Instant::now() < deadline, "still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(feature = "in-process")]
mod with_rmcp {
    use rmcp::ErrorData;
    use rmcp::ServerHandler;
    use rmcp::model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ContentBlock, InitializeRequest,
        InitializeRequestParams, InitializedNotification, ServerCapabilities, ServerConfig,
        ServerResult,
    };
    use rmcp::service::{RequestContext, RoleServer};

    use super::*;

    /// One tool, which answers or sleeps forever.
    #[derive(Clone)]
    struct Tools {
        _alive: Arc<()>,
    }

    impl ServerHandler for Tools {
        fn get_info(&self) -> ServerConfig {
            ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
        }

        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            _context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::CallToolResponse, ErrorData> {
            if request.name == "hang" {
                std::future::pending::<()>().await;
            }
            assert_ne!(request.name, "panic", "a handler that panics");
            Ok(CallToolResult::success(vec![ContentBlock::text("hi")]).into())
        }
    }

    fn request(id: i64, request: impl Into<rmcp::model::ClientRequest>) -> ClientJsonRpcMessage {
        JsonRpcMessage::request(request.into(), NumberOrString::Number(id))
    }

    fn call(id: i64, tool: &'static str) -> ClientJsonRpcMessage {
        request(id, CallToolRequest::new(CallToolRequestParams::new(tool)))
    }

    /// A link to a server after its handshake, and a weak reference that lives as long as the
    /// service.
    async fn connected() -> (ChannelLink, Weak<()>) {
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let tools = Tools { _alive: alive };
        let serve = serve_made(move || tools.clone());
        let mut link = ChannelLink::open(&serve, Generation::NONE.next());
        let params = InitializeRequestParams::default();
        link.push(request(0, InitializeRequest::new(params)))
            .unwrap();
        let answer = next(&mut link).await.unwrap();
        assert!(
            matches!(
                answer,
                Inbound::Response {
                    id: CallId(0),
                    result: Ok(ServerResult::InitializeResult(_))
                }
            ),
            "{answer:?}"
        );
        let initialized = InitializedNotification::default();
        link.push(JsonRpcMessage::notification(initialized.into()))
            .unwrap();
        (link, watched)
    }

    #[tokio::test]
    async fn a_service_of_rmcp_answers_and_ends_with_its_link() {
        let (mut link, alive) = connected().await;
        link.push(call(1, "greet")).unwrap();
        let answer = next(&mut link).await.unwrap();
        assert!(
            matches!(
                answer,
                Inbound::Response {
                    id: CallId(1),
                    result: Ok(ServerResult::CallToolResult(_))
                }
            ),
            "{answer:?}"
        );
        link.close(GRACE).await.unwrap();
        is_gone(&alive).await;
    }

    #[tokio::test]
    async fn a_close_does_not_wait_for_a_handler_that_hangs() {
        let (mut link, alive) = connected().await;
        link.push(call(1, "hang")).unwrap();
        link.push(call(2, "greet")).unwrap();
        next(&mut link).await.unwrap();
        let closing = Instant::now();
        assert!(link.close(GRACE).await.is_err());
        assert!(closing.elapsed() < Duration::from_secs(5));
        is_gone(&alive).await;
    }

    #[tokio::test]
    async fn a_panic_of_a_handler_fails_only_its_request() {
        let (mut link, _alive) = connected().await;
        link.push(call(1, "panic")).unwrap();
        let answer = next(&mut link).await.unwrap();
        let Inbound::Response {
            id: CallId(1),
            result: Err(error),
        } = answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!(error.message, "the handler panicked");
        link.push(call(2, "greet")).unwrap();
        let answer = next(&mut link).await.unwrap();
        assert!(
            matches!(answer, Inbound::Response { result: Ok(_), .. }),
            "{answer:?}"
        );
    }
}
