//! Opens the byte streams of a connection, as the embedding program says.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use mcpvisor_core::machine::Action;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::link::{OpenFailure, OpenFailureClass};
use crate::mutex::lock;

/// What to do about a stream that is used up.
const REPLACE: &str = "configure a new stream for it, or use `Transport::stream`, which opens one for \
                       each connection";

pub(super) type Reader = Pin<Box<dyn AsyncRead + Send>>;
pub(super) type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// Both directions of one connection.
pub(crate) type Streams = (Reader, Writer);

type OpenFn = dyn Fn() -> BoxFuture<'static, io::Result<Streams>> + Send + Sync;

/// Opens the streams of each connection. Clones share it.
#[derive(Clone)]
pub(crate) enum StreamOpener {
    /// A function opens them.
    Each(Arc<OpenFn>),
    /// There is one pair, for one connection.
    Once(Arc<Mutex<Option<Streams>>>),
}

impl StreamOpener {
    pub(crate) fn each<F, Fut, R, W>(open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<(R, W)>> + Send + 'static,
        R: AsyncRead + Send + 'static,
        W: AsyncWrite + Send + 'static,
    {
        Self::Each(Arc::new(move || {
            let opening = open();
            Box::pin(async move {
                let (reader, writer) = opening.await?;
                Ok((Box::pin(reader) as Reader, Box::pin(writer) as Writer))
            })
        }))
    }

    pub(crate) fn once(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
    ) -> Self {
        let streams: Streams = (Box::pin(reader), Box::pin(writer));
        Self::Once(Arc::new(Mutex::new(Some(streams))))
    }

    /// Opens the streams of a connection.
    pub(super) async fn open(&self) -> Result<Streams, OpenFailure> {
        match self {
            Self::Each(open) => {
                let opened = open().await;
                opened.map_err(|error| {
                    OpenFailure::transient(format!("cannot open the stream: {error}"))
                })
            }
            Self::Once(streams) => {
                let streams = lock(streams).take();
                streams.ok_or_else(|| {
                    OpenFailure::new(
                        OpenFailureClass::StreamUsedUp,
                        "its stream has ended and cannot be opened again",
                        Action::Custom(REPLACE.to_owned()),
                    )
                })
            }
        }
    }

    /// Whether there is no second connection.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self, Self::Once(_))
    }

    /// Whether both open the same streams.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Each(ours), Self::Each(theirs)) => Arc::ptr_eq(ours, theirs),
            (Self::Once(ours), Self::Once(theirs)) => Arc::ptr_eq(ours, theirs),
            (Self::Each(_), Self::Once(_)) | (Self::Once(_), Self::Each(_)) => false,
        }
    }
}

impl fmt::Debug for StreamOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamOpener")
    }
}
