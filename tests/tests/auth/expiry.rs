//! Tokens that expire: under load, and before the server notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mcpvisor_testkit::auth_server::{AuthFault, AuthOptions, Endpoint, ProtectedOptions};
use mcpvisor_testkit::eventually::eventually;

use crate::folder::refresh_token;
use crate::protected::{LONG, Protected, run, run_many};

/// Callers at once.
const CALLERS: usize = 64;

#[tokio::test]
async fn sixty_four_callers_of_an_expired_token_cause_one_refresh_and_are_all_answered() {
    let protected = Protected::new().await;
    let before = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    assert_eq!(protected.refreshes(), 0, "a valid token is not refreshed");
    protected.auth.expire_access_tokens();
    for outcome in run_many(&web, "first", CALLERS).await {
        outcome.unwrap();
    }
    assert_eq!(protected.refreshes(), 1);
    assert_eq!(protected.server.all_runs(), CALLERS as u64);
    protected.assert_untouched(&web);
    let after = protected.record().await;
    assert_ne!(after.tokens, before.tokens, "the new token is saved");
    assert_ne!(refresh_token(&after), refresh_token(&before));
    assert_eq!(web.status().last_error, None);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn calls_that_arrive_during_a_refresh_are_sent_after_it_and_only_once() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let slow = AuthFault::Delay(Duration::from_secs(1));
    protected.auth.fault(slow).on(Endpoint::Token).once();
    protected.auth.expire_access_tokens();
    let first = tokio::spawn({
        let web = web.clone();
        async move { run(&web, "first").await }
    });
    protected
        .auth
        .wait_for_requests(Endpoint::Token, 1, LONG)
        .await;
    let refused = protected.server.unauthorized();
    for outcome in run_many(&web, "held", CALLERS).await {
        outcome.unwrap();
    }
    first.await.unwrap().unwrap();
    assert_eq!(protected.server.unauthorized(), refused, "none was refused");
    assert_eq!(protected.refreshes(), 1);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn tokens_that_expire_under_load_are_refreshed_once_each() {
    const EXPIRIES: usize = 5;
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (web, stop) = (web.clone(), Arc::clone(&stop));
            let answered: Arc<AtomicUsize> = Arc::clone(&answered);
            tokio::spawn(async move {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return number;
                    }
                    run(&web, &format!("{caller} {number}")).await.unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                unreachable!()
            })
        })
        .collect();
    for expiry in 1..=EXPIRIES {
        // Every caller was answered with the last token.
        let enough = answered.load(Ordering::Relaxed) + 2 * CALLERS;
        eventually(LONG, "calls are answered", || {
            answered.load(Ordering::Relaxed) >= enough
        })
        .await;
        protected.auth.expire_access_tokens();
        eventually(LONG, "a refresh", || protected.refreshes() >= expiry).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    assert_eq!(protected.refreshes(), EXPIRIES);
    assert_eq!(protected.server.all_runs(), calls);
    assert_eq!(protected.auth.counters().families_revoked, 0);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_is_refreshed_before_it_expires_and_the_server_never_sees_an_old_one() {
    const REFRESHES: usize = 3;
    let options = AuthOptions {
        access_lifetime: Duration::from_secs(4),
        ..AuthOptions::default()
    };
    let protected = Protected::with(options, ProtectedOptions::default()).await;
    let mut login = protected.log_in().await;
    login.tokens.expires_at = Some(login.tokens.obtained_at + 4);
    protected.folder.save(&login).await;
    let (runtime, web) = protected.connected().await;
    let mut calls = 0;
    while protected.refreshes() < REFRESHES {
        run(&web, &calls.to_string()).await.unwrap();
        calls += 1;
        assert!(calls < 10_000, "no refresh");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run(&web, "last").await.unwrap();
    assert_eq!(protected.server.unauthorized(), 0);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn callers_that_leave_do_not_cancel_a_refresh() {
    let protected = Protected::new().await;
    let before = protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let slow = AuthFault::Delay(Duration::from_millis(500));
    protected.auth.fault(slow).on(Endpoint::Token).once();
    protected.auth.expire_access_tokens();
    let callers = tokio::spawn({
        let web = web.clone();
        async move { drop(run_many(&web, "left", CALLERS).await) }
    });
    protected
        .auth
        .wait_for_requests(Endpoint::Token, 1, LONG)
        .await;
    callers.abort();
    assert!(callers.await.unwrap_err().is_cancelled());
    loop {
        let record = protected.record().await;
        if record.tokens != before.tokens {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        protected.server.all_runs(),
        0,
        "a call that was left never ran"
    );
    run(&web, "after").await.unwrap();
    assert_eq!(protected.refreshes(), 1);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}
