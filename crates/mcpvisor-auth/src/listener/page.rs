//! The pages that the listener answers with: plain words, no scripts, nothing from elsewhere.

/// A page for the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    /// The login arrived; the program now redeems the code.
    Received,
    /// The login failed, for this reason.
    Failed(String),
    /// The login arrived before.
    Repeated,
    /// The request does not belong to the login.
    BadRequest,
    /// There is no such page.
    NotFound,
    /// Not a GET.
    MethodNotAllowed,
    /// The request is too large.
    TooLarge,
}

impl Page {
    /// The whole HTTP response.
    pub(super) fn response(&self) -> String {
        let (status, title, text) = self.content();
        let title = escape(title);
        let text = escape(&text);
        let body = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
             <title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n<p>{text}</p>\n</body>\n</html>\n"
        );
        format!(
            "HTTP/1.1 {status}\r\n\
             Content-Type: text/html; charset=utf-8\r\n\
             Content-Length: {}\r\n\
             Cache-Control: no-store\r\n\
             Referrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n\
             X-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn content(&self) -> (&'static str, &'static str, String) {
        const OK: &str = "200 OK";
        const BAD_REQUEST: &str = "400 Bad Request";
        match self {
            Self::Received => (
                OK,
                "Login received",
                "You can close this page and return to the program that asked you to log in."
                    .into(),
            ),
            Self::Failed(reason) => (
                BAD_REQUEST,
                "Login failed",
                format!("{reason}. Return to the program that asked you to log in."),
            ),
            Self::Repeated => (
                OK,
                "Login already received",
                "This login was received before. You can close this page.".into(),
            ),
            Self::BadRequest => (
                BAD_REQUEST,
                "Not part of this login",
                "This address does not belong to the login that is in progress. \
                 Use the newest login page, or start the login again."
                    .into(),
            ),
            Self::NotFound => (
                "404 Not Found",
                "Not found",
                "There is no such page.".into(),
            ),
            Self::MethodNotAllowed => (
                "405 Method Not Allowed\r\nAllow: GET",
                "Not supported",
                "Only GET requests are answered here.".into(),
            ),
            Self::TooLarge => (
                "431 Request Header Fields Too Large",
                "Request too large",
                "The request is too large.".into(),
            ),
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_reason_is_escaped() {
        let response = Page::Failed("<script>\"a\" & 'b'</script>".into()).response();
        assert!(response.contains("&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"));
        assert!(!response.contains("<script"));
    }

    #[test]
    fn a_page_refers_to_nothing_and_is_not_stored() {
        let response = Page::Received.response();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(response.contains("\r\nReferrer-Policy: no-referrer\r\n"));
        assert!(response.contains("\r\nCache-Control: no-store\r\n"));
        for reference in ["http:", "https:", "src=", "href=", "url("] {
            assert!(!response.contains(reference), "{reference}");
        }
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }

    proptest! {
        #[test]
        fn escaped_text_contains_no_markup(text in any::<String>()) {
            prop_assert!(!escape(&text).contains(['<', '>', '"', '\'']));
        }
    }
}
