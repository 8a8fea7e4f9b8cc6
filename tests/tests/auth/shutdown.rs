//! Runtimes that end while a token is being renewed.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use mcpvisor::auth::mcpvisor_auth::store::CredentialStore as _;
use mcpvisor_testkit::auth_server::{AuthFault, Endpoint};
use mcpvisor_testkit::eventually::eventually;

use crate::protected::{LONG, Protected, run};

/// Far below [`LONG`], and far above what a shutdown takes on a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_shutdown_during_a_refresh_saves_its_token() {
    let protected = Protected::new().await;
    let before = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    // The server replaces the refresh token at once; its answer is late.
    let slow = AuthFault::DelayAnswer(Duration::from_millis(700));
    protected.auth.fault(slow).on(Endpoint::Token).once();
    protected.auth.expire_access_tokens();
    let call = tokio::spawn(async move { run(&web, "interrupted").await });
    protected
        .auth
        .wait_for_requests(Endpoint::Token, 1, LONG)
        .await;
    runtime.shutdown(LONG).await;
    call.await.unwrap().unwrap_err();
    let after = protected.record().await;
    assert_ne!(after.tokens, before.tokens);
    let (runtime, web) = protected.connected().await;
    run(&web, "next run").await.unwrap();
    assert_eq!(protected.refreshes(), 1);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_renewal_that_outlasts_the_limit_is_named_and_can_be_waited_for() {
    let protected = Protected::new().await;
    let before = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let slow = AuthFault::DelayAnswer(Duration::from_secs(4));
    protected.auth.fault(slow).on(Endpoint::Token).once();
    protected.auth.expire_access_tokens();
    assert_eq!(runtime.renewing(), []);
    let call = tokio::spawn(async move { run(&web, "interrupted").await });
    protected
        .auth
        .wait_for_requests(Endpoint::Token, 1, LONG)
        .await;
    let names = |servers: Vec<mcpvisor::ServerName>| -> Vec<String> {
        servers.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(runtime.renewing()), ["web"]);
    runtime.shutdown(Duration::from_millis(100)).await;
    call.await.unwrap().unwrap_err();
    assert_eq!(names(runtime.renewing()), ["web"], "it still runs");
    assert_eq!(runtime.finish_renewals(LONG).await, []);
    assert_eq!(runtime.renewing(), []);
    assert_ne!(protected.record().await.tokens, before.tokens);
    let (runtime, web) = protected.connected().await;
    run(&web, "next run").await.unwrap();
    assert_eq!(protected.refreshes(), 1);
    assert_eq!(protected.auth.counters().families_revoked, 0);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_renewal_that_still_connects_does_not_delay_the_end() {
    let protected = Protected::new().await;
    let mut login = protected.log_in().await;
    // It accepts connections, and never answers the handshake of TLS.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    login.endpoints.token = format!("https://127.0.0.1:{port}/token");
    protected.folder.save(&login).await;
    let (runtime, web) = protected.connected().await;
    protected.auth.expire_access_tokens();
    let call = tokio::spawn(async move { run(&web, "refused").await });
    silent.set_nonblocking(true).unwrap();
    let dialled = || silent.accept().is_ok();
    eventually(LONG, "a connection to the token endpoint", dialled).await;
    assert_eq!(runtime.renewing(), [], "nothing was sent");
    let started = Instant::now();
    runtime.shutdown(LONG).await;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    call.await.unwrap().unwrap_err();
    assert_eq!(protected.record().await, login);
}

#[tokio::test]
async fn a_renewal_that_waits_for_another_process_does_not_delay_the_end() {
    let protected = Protected::new().await;
    let login = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let store = protected.folder.store();
    let lock = store.lock(&protected.server.url(), "").await.unwrap();
    protected.auth.expire_access_tokens();
    let call = tokio::spawn(async move { run(&web, "refused").await });
    let refused = || protected.server.unauthorized() > 0;
    eventually(LONG, "a refused call", refused).await;
    let started = Instant::now();
    runtime.shutdown(LONG).await;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    call.await.unwrap().unwrap_err();
    drop(lock);
    // The renewal is over: it sends nothing once the lock is free.
    let free = store.lock(&protected.server.url(), "").await.unwrap();
    drop(free);
    assert_eq!(protected.auth.count(Endpoint::Token), 0);
    assert_eq!(protected.record().await, login);
}
