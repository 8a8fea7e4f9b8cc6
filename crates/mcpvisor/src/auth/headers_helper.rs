//! A program of the user that prints the headers to send.
//!
//! It is run without a shell and prints a JSON object of headers, or a bare token. Its output is
//! cached for a configured time, and discarded when the server refuses it. Its stderr is discarded,
//! because it may contain secrets.
//!
//! Unlike a stdio server it inherits the whole environment. It is a program of the user's choice that
//! provides credentials, and finds its own by variables that no list can name: profiles, agent
//! sockets, vault addresses, session tokens. A server is code of a third party, and is not to have
//! them.

use std::process::Stdio;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// Time for the program to print its headers and end.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of its output.
const MAX_OUTPUT: u64 = 64 * 1024;

/// Runs the program. Errors never contain its output.
pub(crate) async fn run(command: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let [program, arguments @ ..] = command else {
        return Err("\"headersHelper\" is empty".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|error| format!("{program}: {error}"))?;
    let mut unfinished = HelperGroup(child.id());
    let Some(stdout) = child.stdout.take() else {
        return Err(format!("{program}: no output"));
    };
    let finish = async {
        let mut output = Vec::new();
        stdout.take(MAX_OUTPUT + 1).read_to_end(&mut output).await?;
        let status = child.wait().await?;
        Ok::<_, std::io::Error>((output, status))
    };
    let finished = tokio::time::timeout(HELPER_TIMEOUT, finish).await;
    let finished = finished.map_err(|_| format!("{program}: no end within {HELPER_TIMEOUT:?}"))?;
    unfinished.0 = None;
    let (output, status) = finished.map_err(|error| format!("{program}: {error}"))?;
    // First, since the closed pipe may have ended it.
    if output.len() as u64 > MAX_OUTPUT {
        return Err(format!("{program}: more than {MAX_OUTPUT} bytes of output"));
    }
    if !status.success() {
        return Err(format!("{program}: {status}"));
    }
    parse(&output).ok_or_else(|| {
        format!("{program}: its output is neither a JSON object of headers nor a token")
    })
}

/// The process group of a helper that has not ended. It is killed when it is dropped, with the
/// children that the helper started.
struct HelperGroup(Option<u32>);

impl Drop for HelperGroup {
    fn drop(&mut self) {
        let group = self.0.and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The headers in the output of a helper: a JSON object, or a bare token.
fn parse(output: &[u8]) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let text = std::str::from_utf8(output).ok()?.trim();
    if text.starts_with('{') {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
        let header = |(name, value): (String, serde_json::Value)| {
            let name: HeaderName = name.parse().ok()?;
            Some((name, sensitive(value.as_str()?)?))
        };
        return object.into_iter().map(header).collect();
    }
    let token = text.strip_prefix("Bearer ").unwrap_or(text);
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let bearer = is_token.then(|| sensitive(&format!("Bearer {token}")))??;
    Some(vec![(AUTHORIZATION, bearer)])
}

fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn a_helper_prints_headers_or_a_token() {
        let object = shell("echo '{\"X-Key\":\"k\",\"Authorization\":\"Basic x\"}'");
        let headers = run(&object).await.unwrap();
        assert_eq!(headers.len(), 2);
        assert!(headers.iter().all(|(_, value)| value.is_sensitive()));
        for script in ["echo token-1", "printf 'Bearer token-1\\n'"] {
            let headers = run(&shell(script)).await.unwrap();
            assert_eq!(headers[0].0, AUTHORIZATION);
            assert_eq!(headers[0].1, "Bearer token-1");
        }
    }

    #[tokio::test]
    async fn a_helper_that_fails_says_why_without_its_output() {
        for (script, problem) in [
            ("echo canary; exit 3", "exit status: 3"),
            ("echo 'canary with spaces'", "neither"),
            ("echo '{\"a\": 1, \"b\": \"canary\"}'", "neither"),
            ("true", "neither"),
            ("head -c 100000 /dev/zero | tr '\\0' c", "bytes of output"),
        ] {
            let error = run(&shell(script)).await.unwrap_err();
            assert!(error.contains(problem), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
        let error = run(&["/does/not/exist".to_owned()]).await.unwrap_err();
        assert!(error.starts_with("/does/not/exist"), "{error}");
        assert!(run(&[]).await.is_err());
    }

    /// Variables of Cargo are inherited by no stdio server.
    #[tokio::test]
    async fn a_helper_inherits_the_whole_environment() {
        let mut names = std::env::vars().map(|(name, _)| name);
        let name = names.find(|name| name.starts_with("CARGO_")).unwrap();
        let script = format!("env | grep -q '^{name}=' && echo token-1");
        run(&shell(&script)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_helper_that_hangs_is_killed() {
        let error = run(&shell("sleep 1000")).await.unwrap_err();
        assert!(error.contains("within 10s"), "{error}");
    }
}
