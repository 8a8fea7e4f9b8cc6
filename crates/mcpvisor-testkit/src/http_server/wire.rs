//! HTTP/1.1 as bytes: one request in, one reply out, with the precision that faults need.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum length of a request, head and body together.
const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// One request of a client.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case, in order of arrival.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
    /// The `Keep-Alive: timeout` in every head, in seconds.
    announced: Option<u64>,
    /// Further headers in every head.
    pub(crate) extra: Vec<(&'static str, String)>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, announced: Option<u64>) -> Self {
        Self {
            stream,
            read: Vec::new(),
            announced,
            extra: Vec::new(),
        }
    }

    /// The next request, or `None` when the client has disconnected.
    pub(crate) async fn request(&mut self) -> io::Result<Option<Request>> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            if !self.more().await? {
                return Ok(None);
            }
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end + 4);
        let mut request = parse_head(&head)?;
        request.body = self.body(&request).await?;
        Ok(Some(request))
    }

    async fn body(&mut self, request: &Request) -> io::Result<Vec<u8>> {
        if request.header("transfer-encoding") == Some("chunked") {
            return self.chunks().await;
        }
        let length = request.header("content-length").unwrap_or("0");
        let length: usize = length.parse().map_err(io::Error::other)?;
        self.exactly(length).await
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.read.drain(..length).collect())
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(end) = find(&self.read, b"\r\n") {
                    break self.read.drain(..end + 2).collect::<Vec<u8>>();
                }
                if !self.more().await? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            let line = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let chunk = self.exactly(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        if self.read.len() > MAX_REQUEST {
            return Err(io::Error::other("the request is too long"));
        }
        Ok(self.stream.read_buf(&mut self.read).await? > 0)
    }

    /// Writes a complete reply. The connection can be reused.
    pub(crate) async fn answer(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let length = body.len().to_string();
        let mut bytes = self.head(status, headers, &[("content-length", &length)]);
        bytes.extend_from_slice(body);
        self.write(&bytes).await
    }

    /// Writes the head of a reply with this `Content-Length`, however much of the body follows.
    pub(crate) async fn announce(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        length: usize,
    ) -> io::Result<()> {
        let length = length.to_string();
        let bytes = self.head(status, headers, &[("content-length", &length)]);
        self.write(&bytes).await
    }

    /// Writes the head of a chunked reply.
    pub(crate) async fn begin(&mut self, status: u16, headers: &[(&str, &str)]) -> io::Result<()> {
        let bytes = self.head(status, headers, &[("transfer-encoding", "chunked")]);
        self.write(&bytes).await
    }

    pub(crate) async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(&chunk(bytes)).await
    }

    /// Writes the last chunk of a reply and its end in one packet, as most servers do.
    pub(crate) async fn last_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = chunk(bytes);
        chunk.extend_from_slice(LAST);
        self.write(&chunk).await
    }

    /// Ends a chunked reply.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        self.write(LAST).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    fn head(&self, status: u16, headers: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers.iter().chain(more) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for (name, value) in &self.extra {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(seconds) = self.announced {
            head.push_str(&format!("keep-alive: timeout={seconds}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Waits until the client disconnects.
    pub(crate) async fn client_closed(&mut self) {
        loop {
            match self.more().await {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        410 => "Gone",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Whatever",
    }
}

fn parse_head(head: &str) -> io::Result<Request> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path)) = (first.next(), first.next()) else {
        return Err(io::Error::other("no request line"));
    };
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_lowercase(), value.trim().to_owned()))
    };
    Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: lines.filter_map(header).collect(),
        body: Vec::new(),
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// The end of a chunked reply.
const LAST: &[u8] = b"0\r\n\r\n";

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}
