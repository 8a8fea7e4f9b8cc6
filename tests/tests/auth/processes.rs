//! Several processes with one login, and processes that are killed while they refresh it. (Figures
//! 28 and 29.)

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcpvisor::auth::StoreChoice;
use mcpvisor::auth::mcpvisor_auth::record::CredentialRecord;
use mcpvisor::auth::mcpvisor_auth::store::CredentialStore as _;
use mcpvisor::{Runtime, Transport};
use mcpvisor_testkit::auth_server::{AuthFault, Endpoint};
use mcpvisor_testkit::eventually::eventually;

use crate::fleet::{in_full, millis, no_governor, size};
use crate::folder::{new_login, refresh_token};
use crate::protected::{LONG, Protected, run, web};

/// Set in a child: folder, URL, number and callers, separated by spaces.
const CHILD: &str = "MCPVISOR_AUTH_CHILD";

/// The header that tells the processes apart.
const PROCESS: &str = "x-process";

/// A process that calls the server until its stdin is closed.
struct CallingProcess(Child);

impl CallingProcess {
    fn start(protected: &Protected, number: usize, callers: usize) -> Self {
        let folder = protected.folder.0.display();
        let value = format!("{folder} {} {number} {callers}", protected.server.url());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::a_child_that_calls_all_the_time", "--exact"])
            .args(["--ignored", "--nocapture"])
            .env(CHILD, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// Ends it. Every call of it must have been answered.
    async fn finish(mut self) {
        drop(self.0.stdin.take());
        let output = tokio::task::spawn_blocking(|| self.0.wait_with_output());
        let output = output.await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "runs until its stdin is closed; the tests below run it"]
async fn a_child_that_calls_all_the_time() {
    let Ok(value) = std::env::var(CHILD) else {
        return;
    };
    let [folder, url, number, callers] = value.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{value}");
    };
    let endpoint = Transport::http(url).header(PROCESS, number);
    let runtime = Runtime::builder()
        .state_dir(Path::new(folder))
        .auth_store(StoreChoice::File)
        .governor(no_governor())
        .server(web("web", endpoint));
    let runtime = runtime.start().await.unwrap();
    runtime.ready(LONG).await.unwrap();
    let handle = runtime.server("web").unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let ended = Arc::clone(&ended);
        move || {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            ended.store(true, Ordering::Relaxed);
        }
    });
    let callers = (0..callers.parse().unwrap()).map(|caller: usize| {
        let (handle, ended) = (handle.clone(), Arc::clone(&ended));
        async move {
            let mut call = 0;
            while !ended.load(Ordering::Relaxed) {
                let key = format!("{number} {caller} {call}");
                run(&handle, &key).await.unwrap();
                call += 1;
                tokio::time::sleep(millis(3)).await;
            }
        }
    });
    futures_util::future::join_all(callers).await;
    assert_eq!(handle.status().generation.get(), 1, "no reconnect");
    runtime.shutdown(LONG).await;
}

/// Waits until every process was answered with the token that is valid now.
async fn all_use_the_new_token(protected: &Protected, processes: usize, callers: usize) {
    // Each caller has one call in flight, so one more request shows an answer; a process sends a few
    // requests of its own.
    let enough = callers + 4;
    eventually(LONG, "every process uses the new token", || {
        let tokens = protected.auth.current_tokens().access;
        let Some((token, _)) = tokens.last() else {
            return Err("no token".to_owned());
        };
        let bearer = format!("Bearer {token}");
        let mut seen = BTreeMap::new();
        for request in protected.server.received().iter().rev() {
            if request.header("authorization") == Some(&bearer) {
                let process = request.header(PROCESS).map(str::to_owned);
                *seen.entry(process).or_insert(0) += 1;
            }
        }
        let done = seen.values().filter(|count| **count >= enough).count();
        (done == processes).then_some(()).ok_or(format!("{seen:?}"))
    })
    .await;
}

#[tokio::test]
async fn figure_28_processes_that_share_a_login_refresh_each_token_once_and_are_never_logged_out() {
    let (processes, callers) = (size(3, 4), 16);
    let expiries = size(40, 200);
    let protected = Protected::new().await;
    protected.log_in().await;
    let children: Vec<_> = (0..processes)
        .map(|number| CallingProcess::start(&protected, number, callers))
        .collect();
    all_use_the_new_token(&protected, processes, callers).await;
    for expiry in 1..=expiries {
        protected.auth.expire_access_tokens();
        eventually(LONG, "a refresh", || protected.refreshes() >= expiry).await;
        all_use_the_new_token(&protected, processes, callers).await;
    }
    for child in children {
        child.finish().await;
    }
    let counters = protected.auth.counters();
    assert_eq!(counters.families_revoked, 0, "never logged out");
    assert_eq!(counters.reused, 0);
    assert_eq!(protected.refreshes(), expiries, "one refresh per expiry");
    assert_eq!(protected.auth.most_token_requests(), 1, "one at a time");
    assert_eq!(protected.server.ran_twice(), Vec::<String>::new());
    assert!(protected.record().await.rejected.is_none());
}

/// What a kill left of the login.
fn is_valid_at(protected: &Protected, record: &CredentialRecord) -> bool {
    let token = refresh_token(record);
    let current = protected.auth.current_tokens().refresh;
    current.iter().any(|(known, _)| *known == token)
}

#[tokio::test]
async fn figure_29_a_process_that_is_killed_during_a_refresh_leaves_a_store_that_can_be_read() {
    let kills = size(16, 50);
    let protected = Protected::new().await;
    let other = Protected::new().await;
    let other_login = new_login(&other.auth, &other.server, &["mcp"]);
    protected.folder.save(&other_login).await;
    protected.log_in().await;
    let (mut lost, mut saved) = (0, 0);
    for round in 0..kills {
        let before = protected.record().await;
        let refreshes = protected.refreshes();
        let mut child = CallingProcess::start(&protected, round, 4);
        all_use_the_new_token(&protected, 1, 4).await;
        let pause = AuthFault::DelayAnswer(millis(fastrand::u64(0..30)));
        protected.auth.fault(pause).on(Endpoint::Token).once();
        protected.auth.expire_access_tokens();
        let asked = || protected.refreshes() > refreshes;
        eventually(LONG, "a refresh", asked).await;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..60_000))).await;
        child.kill();
        protected.auth.disarm();

        let stored = protected.folder.store().list().await.unwrap();
        assert_eq!(stored.len(), 2, "round {round}");
        assert!(
            stored.iter().all(Result::is_ok),
            "round {round}: {stored:?}"
        );
        let untouched = protected.folder.record_of(&other.server.url()).await;
        assert_eq!(untouched, other_login, "round {round}");
        let after = protected.record().await;
        assert!(after.rejected.is_none(), "round {round}");
        if is_valid_at(&protected, &after) {
            // The next process continues with it.
            saved += usize::from(after.tokens != before.tokens);
        } else {
            // Only the issuer knows the new token.
            assert_eq!(after.tokens, before.tokens, "round {round}");
            lost += 1;
            protected.log_in().await;
        }
    }
    println!("of {kills} kills, {saved} came after the save and {lost} before it");
    assert!(!in_full() || saved > 0 && lost > 0, "{saved} {lost}");
    assert_eq!(protected.auth.counters().families_revoked, 0);
}
