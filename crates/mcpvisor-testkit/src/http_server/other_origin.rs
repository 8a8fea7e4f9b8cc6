//! Another origin as the target of redirects. It records every byte it receives.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::control::Shared;

/// After this silence, the client's request counts as complete.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the other origin. It runs until the returned handle aborts it.
pub(super) async fn open(shared: &Arc<Shared>) -> std::io::Result<AbortHandle> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let _ = shared.other_origin.set(listener.local_addr()?);
    let shared = Arc::clone(shared);
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(write_down(stream, Arc::clone(&shared)));
        }
    });
    Ok(task.abort_handle())
}

async fn write_down(mut stream: TcpStream, shared: Arc<Shared>) {
    let number = {
        let mut record = shared.record();
        record.other_origin.push(String::new());
        record.other_origin.len() - 1
    };
    let mut bytes = [0; 4096];
    while let Ok(Ok(length @ 1..)) = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await {
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let whole = {
            let mut record = shared.record();
            record.other_origin[number].push_str(&text);
            record.other_origin[number].contains("\r\n\r\n")
        };
        if whole {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    }
}
