//! Headers that a program of the user prints.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mcpvisor::auth::AuthConfig;
use mcpvisor::{Action, FaultClass, Known, Runtime, ServerHandle, StateName, Transport};
use mcpvisor_testkit::eventually::eventually;

use crate::fleet::reaches;
use crate::folder::{CLIENT, Folder};
use crate::protected::{LONG, Protected, run, run_many, web};

/// A helper that prints the contents of a file and counts its runs.
struct Helper {
    folder: Folder,
}

impl Helper {
    fn new() -> Self {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn prints(&self, text: &str) {
        // Replaced at once, since a run may read it now.
        fs::write(self.file("next"), text).unwrap();
        fs::rename(self.file("next"), self.file("output")).unwrap();
    }

    /// Prints a token that the server accepts.
    fn prints_token(&self, protected: &Protected) {
        let resource = protected.server.resource();
        let issued = protected
            .auth
            .issue_tokens(CLIENT, &["mcp"], Some(&resource));
        self.prints(&issued.0);
    }

    fn fails(&self) {
        fs::remove_file(self.file("output")).unwrap();
    }

    fn runs(&self) -> usize {
        fs::read(self.file("runs")).map_or(0, |runs| runs.len())
    }

    fn command(&self) -> Vec<String> {
        let [runs, output] = ["runs", "output"].map(|name| self.file(name));
        let script = format!("printf x >> {}; cat {}", runs.display(), output.display());
        ["sh", "-c", &script].map(str::to_owned).to_vec()
    }

    async fn start(&self, protected: &Protected, ttl: Option<Duration>) -> (Runtime, ServerHandle) {
        let mut auth = AuthConfig::default();
        auth.headers_helper = Some(self.command());
        auth.headers_helper_ttl = ttl;
        let endpoint = Transport::http(protected.server.url()).auth(auth);
        let mut config = web("web", endpoint);
        config.settings.backoff.initial = Duration::from_millis(50);
        let builder = protected.builder().server(config);
        let runtime = builder.start().await.unwrap();
        let handle = runtime.server("web").unwrap();
        (runtime, handle)
    }
}

#[tokio::test]
async fn a_helper_is_run_once_for_many_calls_and_again_when_its_token_is_refused() {
    let protected = Protected::new().await;
    let helper = Helper::new();
    helper.prints_token(&protected);
    let (runtime, web) = helper.start(&protected, None).await;
    runtime.ready(LONG).await.unwrap();
    for outcome in run_many(&web, "first", 64).await {
        outcome.unwrap();
    }
    assert_eq!(helper.runs(), 1);
    protected.auth.expire_access_tokens();
    helper.prints_token(&protected);
    for outcome in run_many(&web, "second", 64).await {
        outcome.unwrap();
    }
    assert_eq!(helper.runs(), 2);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_helper_is_run_again_after_its_time_to_live() {
    let protected = Protected::new().await;
    let helper = Helper::new();
    helper.prints_token(&protected);
    let ttl = Duration::from_secs(1);
    let (runtime, web) = helper.start(&protected, Some(ttl)).await;
    runtime.ready(LONG).await.unwrap();
    helper.prints_token(&protected);
    let new = fs::read_to_string(helper.file("output")).unwrap();
    eventually(LONG, "a second run", || helper.runs() >= 2).await;
    let bearer = format!("Bearer {new}");
    for number in 0..1_000 {
        run(&web, &number.to_string()).await.unwrap();
        let received = protected.server.received();
        if received.last().unwrap().header("authorization") == Some(&bearer) {
            break;
        }
        assert!(number < 999, "the new token is never used");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(protected.server.unauthorized(), 0);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_helper_that_prints_what_is_refused_fails_the_server_with_what_to_do() {
    let protected = Protected::new().await;
    let helper = Helper::new();
    helper.prints("wrong-token");
    let (runtime, web) = helper.start(&protected, None).await;
    reaches(&web, StateName::PermanentlyFailed).await;
    let status = web.status();
    assert_eq!(status.last_error.unwrap().class, FaultClass::Authorization);
    assert!(matches!(status.action, Some(Action::FixKeys(_))));
    assert_eq!(helper.runs(), 2, "once more, then no loop");
    assert!(protected.server.unauthorized() <= 2);
    let error = run(&web, "not sent").await.unwrap_err();
    assert_eq!(error.known(), Known::NotSent);
    assert!(!error.to_string().contains("wrong-token"), "{error}");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_helper_that_fails_for_a_while_costs_no_connection() {
    let protected = Protected::new().await;
    let helper = Helper::new();
    helper.prints_token(&protected);
    let (runtime, web) = helper.start(&protected, None).await;
    runtime.ready(LONG).await.unwrap();
    helper.fails();
    protected.auth.expire_access_tokens();
    let error = run(&web, "refused").await.unwrap_err();
    assert_eq!(error.known(), Known::Refused);
    assert!(error.to_string().contains("exit status: 1"), "{error}");
    assert_eq!(web.status().state, StateName::Connected);
    helper.prints_token(&protected);
    run(&web, "after").await.unwrap();
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_helper_that_fails_at_the_start_is_tried_again() {
    let protected = Protected::new().await;
    let helper = Helper::new();
    let (runtime, web) = helper.start(&protected, None).await;
    eventually(LONG, "a failed run", || web.status().last_error.is_some()).await;
    helper.prints_token(&protected);
    reaches(&web, StateName::Connected).await;
    run(&web, "after").await.unwrap();
    assert_eq!(
        protected.server.unauthorized(),
        0,
        "nothing is sent without it"
    );
    runtime.shutdown(LONG).await;
}
