use std::time::Duration;

use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{ClientRequest, PingRequest};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, BufWriter,
    DuplexStream, duplex, split,
};

use super::{StreamLink, StreamOpener};
use crate::link::limits::MessageLimits;
use crate::link::{DownKind, Inbound, Link as _, OpenFailureClass, PendingSnapshot, ReplyKind};

/// Upper bound for every step, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const GRACE: CloseSettings = CloseSettings::new(
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_millis(200),
);

/// A link, and the end of the server.
async fn open(capacity: usize) -> (StreamLink, DuplexStream) {
    let (ours, theirs) = duplex(capacity);
    let (reader, writer) = split(ours);
    // A writer that keeps bytes until it is flushed.
    let opener = StreamOpener::once(reader, BufWriter::new(writer));
    let link = StreamLink::open(&opener, MessageLimits::default()).await;
    (link.ok().unwrap(), theirs)
}

fn ping(link: &mut StreamLink, id: u64) -> u64 {
    let ping = ClientRequest::PingRequest(PingRequest::default());
    link.push_request(CallId(id), &mut Some(ping), false)
        .unwrap()
}

fn pending(id: u64) -> PendingSnapshot {
    PendingSnapshot(vec![(CallId(id), ReplyKind::Empty)])
}

async fn next(
    link: &mut StreamLink,
    pending: &PendingSnapshot,
) -> Result<Inbound, crate::link::LinkDown> {
    let next = tokio::time::timeout(LONG, link.next(pending)).await;
    next.unwrap_or_else(|_| panic!("the link hangs"))
}

#[tokio::test]
async fn requests_are_flushed_and_replies_are_read() {
    let (mut link, server) = open(64 * 1024).await;
    ping(&mut link, 1);
    let serving = async {
        let mut server = BufReader::new(server);
        let mut line = String::new();
        server.read_line(&mut line).await.unwrap();
        assert!(line.contains("\"ping\""), "{line}");
        let reply = b"not JSON\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        server.write_all(reply).await.unwrap();
        server
    };
    let pending = pending(1);
    let (server, stray) = tokio::join!(serving, next(&mut link, &pending));
    assert!(matches!(stray, Ok(Inbound::Stray { .. })), "{stray:?}");
    let reply = next(&mut link, &pending).await;
    assert!(matches!(reply, Ok(Inbound::Response { .. })), "{reply:?}");
    drop(server);
    let down = next(&mut link, &pending).await.unwrap_err();
    assert_eq!(down.kind, DownKind::Closed, "{down:?}");
    link.close(GRACE).await.unwrap();
}

#[tokio::test]
async fn the_last_line_of_a_server_counts_without_its_newline() {
    let (mut link, mut server) = open(64 * 1024).await;
    server
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}")
        .await
        .unwrap();
    drop(server);
    let reply = next(&mut link, &pending(1)).await;
    assert!(matches!(reply, Ok(Inbound::Response { .. })), "{reply:?}");
    assert!(next(&mut link, &pending(1)).await.is_err());
}

#[tokio::test]
async fn a_request_that_the_stream_did_not_take_is_not_written() {
    let (ours, mut server) = duplex(100);
    let (reader, writer) = split(ours);
    let opener = StreamOpener::once(reader, writer);
    let link = StreamLink::open(&opener, MessageLimits::default()).await;
    let mut link = link.ok().unwrap();
    let positions: Vec<u64> = (1..=50).map(|id| ping(&mut link, id)).collect();
    // The server reads one message and dies.
    let dying = async {
        let mut read = [0; 20];
        server.read_exact(&mut read).await.unwrap();
        drop(server);
    };
    let pending = PendingSnapshot::default();
    let ((), down) = tokio::join!(dying, next(&mut link, &pending));
    assert!(down.is_err(), "{down:?}");
    assert!(link.is_written(CallId(1), positions[0]));
    assert!(!link.is_written(CallId(50), positions[49]));
}

#[tokio::test]
async fn closing_shuts_the_writer_down_and_drains_the_reader() {
    let (mut link, mut server) = open(100).await;
    let serving = tokio::spawn(async move {
        // More than fits into the stream, so that it has to be drained meanwhile.
        server.write_all(&[b'x'; 10_000]).await.unwrap();
        let mut read = String::new();
        server.read_to_string(&mut read).await.unwrap();
        read
    });
    ping(&mut link, 1);
    let grace = CloseSettings::new(Duration::ZERO, LONG, LONG);
    link.close(grace).await.unwrap();
    assert!(serving.await.unwrap().contains("\"ping\""));
}

#[tokio::test]
async fn closing_does_not_wait_for_a_server_that_does_not_end() {
    let (mut link, server) = open(100).await;
    let problem = link.close(GRACE).await.unwrap_err();
    assert!(problem.contains("did not end the stream"), "{problem}");
    let mut server = BufReader::new(server);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).await.unwrap();
    assert!(
        server.write_all(b"x").await.is_err(),
        "the reader is dropped"
    );
}

#[tokio::test]
async fn an_endless_line_breaks_the_link() {
    let (mut link, mut server) = open(64 * 1024).await;
    let flooding = tokio::spawn(async move {
        let piece = vec![b'x'; 64 * 1024];
        while server.write_all(&piece).await.is_ok() {}
    });
    let down = next(&mut link, &PendingSnapshot::default())
        .await
        .unwrap_err();
    assert_eq!(down.kind, DownKind::Broken, "{down:?}");
    drop(link);
    flooding.await.unwrap();
}

#[tokio::test]
async fn a_pair_of_streams_is_opened_once() {
    let (ours, _theirs) = duplex(100);
    let (reader, writer) = split(ours);
    let opener = StreamOpener::once(reader, writer);
    let limits = MessageLimits::default;
    assert!(StreamLink::open(&opener, limits()).await.is_ok());
    let Err(failure) = StreamLink::open(&opener, limits()).await else {
        panic!("opened twice");
    };
    assert_eq!(failure.class, OpenFailureClass::StreamUsedUp);
    assert!(failure.action.is_some());
}
