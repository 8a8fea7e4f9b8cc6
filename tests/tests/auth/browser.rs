//! A browser whose user approves everything.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Redirects of one login: to the callback, and to the page after it.
const MAX_REDIRECTS: usize = 3;

/// Opens a URL and follows its redirects. Returns the status of the last page.
pub(crate) async fn open_in_browser(mut url: String) -> u16 {
    for _ in 0..=MAX_REDIRECTS {
        let page = get(&url).await;
        let status = page.split(' ').nth(1).unwrap_or_default().parse().unwrap();
        let mut lines = page.lines().take_while(|line| !line.is_empty());
        let location = lines.find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("location")
                .then(|| value.trim().to_owned())
        });
        match location {
            Some(location) => url = location,
            None => return status,
        }
    }
    panic!("too many redirects");
}

/// Gets the head of a page, and perhaps more.
async fn get(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap());
    let mut stream = TcpStream::connect(authority)
        .await
        .unwrap_or_else(|problem| panic!("{authority}: {problem}"));
    let head = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut page = Vec::new();
    // A server may keep the connection open, and only the head matters.
    while !page.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let count = stream.read_buf(&mut page).await.unwrap();
        assert_ne!(count, 0, "{authority} closed the connection");
    }
    String::from_utf8(page).unwrap()
}
