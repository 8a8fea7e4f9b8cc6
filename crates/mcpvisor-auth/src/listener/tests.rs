use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

fn expected() -> ExpectedCallback {
    ExpectedCallback {
        path: "/callback".into(),
        state: Secret::new("state-1"),
        issuer: "https://as.example.com".into(),
        issuer_exception: None,
        iss_required: false,
    }
}

struct Waiting {
    port: u16,
    result: JoinHandle<Result<Secret, AuthError>>,
}

async fn start() -> Waiting {
    let address = ListenAddress::new(None, None).unwrap();
    let listener = CallbackListener::bind(&address).await.unwrap();
    let port = listener.ipv4.local_addr().unwrap().port();
    let redirect_uri = format!("http://127.0.0.1:{port}/callback");
    assert_eq!(listener.redirect_uri(), redirect_uri);
    let result = tokio::spawn(async move { listener.wait(&expected()).await });
    Waiting { port, result }
}

impl Waiting {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Sends raw bytes and returns the response; empty if the connection was reset.
    async fn send(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(request).await;
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        let _ = timeout(DEADLINE, read).await.expect("no response in time");
        String::from_utf8(response).unwrap()
    }

    async fn get(&self, target: &str) -> String {
        self.get_as(target, &format!("Host: 127.0.0.1:{}\r\n", self.port))
            .await
    }

    /// Sends a request with these headers.
    async fn get_as(&self, target: &str, headers: &str) -> String {
        let request = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
        self.send(request.as_bytes()).await
    }

    /// Sends the genuine callback and expects its code.
    async fn succeed(self) {
        let page = self.get("/callback?code=code-1&state=state-1").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("Login received"), "{page}");
        assert!(
            !page.contains("code-1") && !page.contains("state-1"),
            "{page}"
        );
        let result = timeout(DEADLINE, self.result).await.unwrap().unwrap();
        assert_eq!(result, Ok(Secret::new("code-1")));
    }
}

fn assert_status(response: &str, status: &str) {
    assert!(
        response.starts_with(&format!("HTTP/1.1 {status}")),
        "{response}"
    );
}

#[tokio::test]
async fn the_callback_ends_the_wait() {
    start().await.succeed().await;
}

#[tokio::test]
async fn what_does_not_belong_to_the_login_is_refused_and_the_wait_goes_on() {
    let waiting = start().await;
    assert_status(&waiting.get("/favicon.ico").await, "404");
    assert_status(&waiting.get("/").await, "400");
    assert_status(&waiting.get("/other?code=c&state=state-1").await, "400");
    assert_status(
        &waiting.get("/callback?code=forged&state=guess").await,
        "400",
    );
    assert_status(
        &waiting
            .get("/callback?error=access_denied&state=guess")
            .await,
        "400",
    );
    assert_status(
        &waiting.send(b"POST /callback HTTP/1.1\r\n\r\n").await,
        "405",
    );
    assert_status(
        &waiting.send(b"GET http://x/ HTTP/1.1\r\n\r\n").await,
        "400",
    );
    assert_status(&waiting.send(b"\xff\xfe\r\n\r\n").await, "400");
    assert_status(&waiting.send(b"GET /callback\r\n\r\n").await, "400");
    waiting.succeed().await;
}

#[tokio::test]
async fn a_callback_that_names_another_host_is_refused_and_the_wait_goes_on() {
    let waiting = start().await;
    let callback = "/callback?code=code-1&state=state-1";
    let own = format!("127.0.0.1:{}", waiting.port);
    for headers in [
        format!("Host: rebound.example.com:{}\r\n", waiting.port),
        "Host: 127.0.0.1\r\n".to_owned(),
        format!("Host: {own}\r\nhost: {own}\r\n"),
        format!("X-Host: {own}\r\n"),
        String::new(),
    ] {
        let page = waiting.get_as(callback, &headers).await;
        assert_status(&page, "400");
        assert!(!waiting.result.is_finished(), "{headers}");
    }
    waiting.succeed().await;
}

#[tokio::test]
async fn an_error_ends_the_wait_and_is_shown_escaped() {
    let waiting = start().await;
    let page = waiting
        .get("/callback?error=access_denied&error_description=%3Cb%3Eno&state=state-1")
        .await;
    assert_status(&page, "400");
    assert!(page.contains("access_denied: &lt;b&gt;no"), "{page}");
    let result = timeout(DEADLINE, waiting.result).await.unwrap().unwrap();
    assert!(
        matches!(&result, Err(AuthError::Refused { error, .. }) if error == "access_denied"),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_wrong_issuer_ends_the_wait() {
    let waiting = start().await;
    let page = waiting
        .get("/callback?code=c&state=state-1&iss=https://evil.example.com")
        .await;
    assert_status(&page, "400");
    let result = timeout(DEADLINE, waiting.result).await.unwrap().unwrap();
    assert!(matches!(result, Err(AuthError::Invalid(_))), "{result:?}");
}

#[tokio::test]
async fn huge_requests_do_not_end_the_wait() {
    let waiting = start().await;
    let mut request = b"GET /callback?".to_vec();
    request.resize(4 * MAX_REQUEST_BYTES, b'x');
    let response = waiting.send(&request).await;
    assert!(
        response.is_empty() || response.starts_with("HTTP/1.1 431"),
        "{response}"
    );
    waiting.succeed().await;
}

#[tokio::test]
async fn closed_connections_do_not_end_the_wait() {
    let waiting = start().await;
    for _ in 0..20 {
        drop(waiting.connect().await);
    }
    waiting.succeed().await;
}

#[tokio::test]
async fn slow_connections_are_closed_and_delay_the_callback_only_briefly() {
    let waiting = start().await;
    let mut slow = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = waiting.connect().await;
        stream.write_all(b"GET /callback?").await.unwrap();
        slow.push(stream);
    }
    let started = Instant::now();
    waiting.succeed().await;
    assert!(started.elapsed() < CONNECTION_TIMEOUT * 3);
}

#[tokio::test]
async fn a_request_in_small_pieces_is_read() {
    let waiting = start().await;
    let mut stream = waiting.connect().await;
    let (target, port) = ("/callback?code=code-1&state=state-1", waiting.port);
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    for byte in request.as_bytes() {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let result = timeout(DEADLINE, waiting.result).await.unwrap().unwrap();
    assert_eq!(result, Ok(Secret::new("code-1")));
}

#[tokio::test]
async fn a_repeated_callback_is_told_so() {
    let address = ListenAddress::new(None, None).unwrap();
    let listener = CallbackListener::bind(&address).await.unwrap();
    let port = listener.ipv4.local_addr().unwrap().port();
    let result = tokio::spawn(async move { match listener.answer_repeated(&expected()).await {} });
    let waiting = Waiting { port, result };
    let page = waiting.get("/callback?code=code-1&state=state-1").await;
    assert!(page.contains("already received"), "{page}");
    assert_status(
        &waiting.get("/callback?code=code-1&state=other").await,
        "400",
    );
    waiting.result.abort();
}

#[tokio::test]
async fn a_busy_fixed_port_is_a_typed_error() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let address = ListenAddress::new(None, Some(port)).unwrap();
    let error = CallbackListener::bind(&address).await.unwrap_err();
    assert!(matches!(error, ListenError::PortInUse { port: busy } if busy == port));
}

#[tokio::test]
async fn localhost_is_served_where_the_browser_connects_first() {
    let address = ListenAddress::new(Some("http://localhost/cb"), None).unwrap();
    let listener = CallbackListener::bind(&address).await.unwrap();
    let port = listener.ipv4.local_addr().unwrap().port();
    assert_eq!(
        listener.redirect_uri(),
        format!("http://localhost:{port}/cb")
    );
    if let Some(ipv6) = &listener.ipv6 {
        assert_eq!(ipv6.local_addr().unwrap().port(), port);
    }
}

#[tokio::test]
async fn dropping_the_wait_frees_the_port() {
    let waiting = start().await;
    waiting.result.abort();
    let _ = waiting.result.await;
    TcpListener::bind(("127.0.0.1", waiting.port))
        .await
        .unwrap();
}

proptest! {
    #[test]
    fn parsing_a_request_never_panics(head in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_request(&head);
    }
}
