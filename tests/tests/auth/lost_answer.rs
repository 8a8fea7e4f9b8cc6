//! Refreshes whose answer is lost: the issuer may have replaced the refresh token.

use std::time::Duration;

use mcpvisor::StateName;
use mcpvisor_testkit::auth_server::{AuthFault, AuthOptions, Endpoint, ProtectedOptions};

use crate::fleet::reaches;
use crate::protected::{LONG, Protected, run, run_many};

/// A server whose issuer accepts a replaced refresh token for this long.
async fn with_grace(reuse_grace: Duration) -> Protected {
    let options = AuthOptions {
        reuse_grace,
        ..AuthOptions::default()
    };
    Protected::with(options, ProtectedOptions::default()).await
}

#[tokio::test]
async fn a_refresh_whose_answer_is_lost_is_repeated_once() {
    for fault in [AuthFault::DropAfter, AuthFault::Garbage] {
        let protected = with_grace(LONG).await;
        protected.log_in().await;
        let (runtime, web) = protected.connected().await;
        let auth = &protected.auth;
        auth.fault(fault.clone()).on(Endpoint::Token).once();
        auth.expire_access_tokens();
        for outcome in run_many(&web, "answered", 16).await {
            outcome.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        }
        assert_eq!(protected.refreshes(), 2, "{fault:?}");
        assert_eq!(auth.counters().reused_in_grace, 1, "{fault:?}");
        protected.assert_untouched(&web);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_lost_answer_without_rotation_costs_nothing() {
    let options = AuthOptions {
        rotate: false,
        ..AuthOptions::default()
    };
    let protected = Protected::with(options, ProtectedOptions::default()).await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    protected
        .auth
        .fault(AuthFault::DropAfter)
        .on(Endpoint::Token)
        .once();
    protected.auth.expire_access_tokens();
    run(&web, "answered").await.unwrap();
    assert_eq!(protected.refreshes(), 2);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_lost_answer_of_an_issuer_that_allows_no_repetition_needs_a_login() {
    let protected = with_grace(Duration::ZERO).await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    let auth = &protected.auth;
    auth.fault(AuthFault::DropAfter).on(Endpoint::Token).once();
    auth.expire_access_tokens();
    run(&web, "refused").await.unwrap_err();
    reaches(&web, StateName::PermanentlyFailed).await;
    assert_eq!(protected.refreshes(), 2);
    assert_eq!(protected.server.all_runs(), 0);
    protected.log_in().await;
    reaches(&web, StateName::Connected).await;
    run(&web, "after").await.unwrap();
    runtime.shutdown(LONG).await;
}
