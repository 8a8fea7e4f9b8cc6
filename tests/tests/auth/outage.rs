//! Token endpoints that are down, fail or are slow.

use std::time::{Duration, Instant};

use mcpvisor::{Action, CallError, FaultClass, Known, StateName};
use mcpvisor_testkit::auth_server::{AuthFault, Endpoint};

use crate::folder::new_login;
use crate::protected::{LONG, Protected, run, run_within};

/// Calls until one is answered.
async fn recovers(handle: &mcpvisor::ServerHandle) {
    let started = Instant::now();
    for number in 0.. {
        match run(handle, &format!("recovered {number}")).await {
            Ok(_) => return,
            Err(error) => assert!(started.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_authorization_server_that_is_down_refuses_calls_for_a_while_and_costs_no_login() {
    let protected = Protected::new().await;
    let before = protected.log_in().await;
    let (runtime, handle) = protected.connected().await;
    protected.auth.stop().await;
    protected.auth.expire_access_tokens();
    let error = run(&handle, "refused").await.unwrap_err();
    assert_eq!(error.known(), Known::Refused);
    let text = error.to_string();
    assert!(text.contains("); try again in "), "{text}");
    let issuer = protected.auth.issuer();
    let cannot = format!("web: refused tools/call: {issuer} cannot renew the login right now (");
    assert!(text.starts_with(&cannot), "{text}");
    assert_eq!(error.action(), Some(Action::RetryLater));
    let CallError::Refused {
        class, retry_in, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(class, FaultClass::Authorization);
    assert!(retry_in.is_some());
    assert_eq!(handle.status().state, StateName::Connected);
    assert_eq!(protected.record().await, before, "the login is kept");
    protected.auth.resume().await;
    recovers(&handle).await;
    assert_eq!(protected.refreshes(), 1);
    protected.assert_untouched(&handle);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_endpoint_that_fails_is_asked_seldom_and_its_error_is_the_outcome() {
    for fault in [
        AuthFault::Status(500),
        AuthFault::Unavailable(1),
        AuthFault::TooManyRequests(1),
        AuthFault::DropBefore,
    ] {
        let protected = Protected::new().await;
        let before = protected.log_in().await;
        let (runtime, handle) = protected.connected().await;
        let auth = &protected.auth;
        auth.fault(fault.clone()).on(Endpoint::Token).for_ever();
        auth.expire_access_tokens();
        let started = Instant::now();
        for number in 0..100 {
            let error = run(&handle, &number.to_string()).await.unwrap_err();
            assert_eq!(error.known(), Known::Refused, "{fault:?}: {error}");
        }
        // After 1 s, 2 s, 4 s and so on; a request whose answer was lost is repeated once.
        let waits = started.elapsed().as_secs();
        let most = 2 * (2 + usize::try_from(waits).unwrap());
        assert!(
            protected.refreshes() <= most,
            "{fault:?}: {}",
            protected.refreshes()
        );
        assert_eq!(handle.status().state, StateName::Connected, "{fault:?}");
        assert_eq!(protected.record().await, before, "{fault:?}");
        auth.disarm();
        recovers(&handle).await;
        protected.assert_untouched(&handle);
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_slow_token_endpoint_delays_only_calls_of_its_server_and_never_beyond_their_deadline() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let other = Protected::new().await;
    let other_login = new_login(&other.auth, &other.server, &["mcp"]);
    protected.folder.save(&other_login).await;
    let (runtime, [handle, neighbour]) = protected.connected_beside(&other).await;
    let slow = AuthFault::Delay(Duration::from_secs(4));
    protected.auth.fault(slow).on(Endpoint::Token).once();
    protected.auth.expire_access_tokens();
    let patient = tokio::spawn({
        let handle = handle.clone();
        async move { run(&handle, "patient").await }
    });
    protected
        .auth
        .wait_for_requests(Endpoint::Token, 1, LONG)
        .await;
    let started = Instant::now();
    let hasty = run_within(&handle, "hasty", Duration::from_millis(300)).await;
    let error = hasty.unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
    for number in 0..20 {
        run(&neighbour, &number.to_string()).await.unwrap();
    }
    assert!(
        !patient.is_finished(),
        "the token endpoint is slow: {:?}",
        started.elapsed()
    );
    patient.await.unwrap().unwrap();
    assert_eq!(protected.refreshes(), 1);
    assert_eq!(protected.server.runs("hasty"), 0);
    protected.assert_untouched(&handle);
    runtime.shutdown(LONG).await;
}
