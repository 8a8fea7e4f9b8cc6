//! Grants that need no person.

use std::time::Duration;

use mcpvisor::auth::mcpvisor_auth::Secret;
use mcpvisor::auth::{AuthConfig, AuthGrant};
use mcpvisor::{Action, FaultClass, Runtime, ServerHandle, StateName, Transport};
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthMethod, AuthOptions, Client, Endpoint, ProtectedOptions,
};

use crate::fleet::reaches;
use crate::protected::{LONG, Protected, run, run_many, web};

const GRANT: &str = "client_credentials";

async fn start(protected: &Protected, secret: &str) -> (Runtime, ServerHandle) {
    let mut auth = AuthConfig::default();
    auth.grant = AuthGrant::ClientCredentials;
    auth.client_id = Some("robot".to_owned());
    auth.client_secret = Some(Secret::new(secret));
    let endpoint = Transport::http(protected.server.url()).auth(auth);
    let mut config = web("web", endpoint);
    config.settings.backoff.initial = Duration::from_millis(50);
    let runtime = protected.builder().server(config).start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    (runtime, handle)
}

/// A server whose client has a secret.
async fn with_robot(options: AuthOptions) -> Protected {
    let protected = Protected::with(options, ProtectedOptions::default()).await;
    let robot = Client::confidential("robot", "s3cret-of-robot", AuthMethod::Basic, "");
    protected.auth.add_client(robot);
    protected
}

#[tokio::test]
async fn a_client_gets_and_renews_its_token_without_a_person() {
    let protected = with_robot(AuthOptions::default()).await;
    let (runtime, web) = start(&protected, "s3cret-of-robot").await;
    runtime.ready(LONG).await.unwrap();
    assert_eq!(protected.auth.token_requests(GRANT), 1);
    protected.auth.expire_access_tokens();
    for outcome in run_many(&web, "renewed", 64).await {
        outcome.unwrap();
    }
    assert_eq!(protected.auth.token_requests(GRANT), 2);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
    // The token is stored for the next run.
    let (runtime, web) = start(&protected, "s3cret-of-robot").await;
    runtime.ready(LONG).await.unwrap();
    run(&web, "next run").await.unwrap();
    assert_eq!(protected.auth.token_requests(GRANT), 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_client_renews_its_token_before_it_expires() {
    let protected = with_robot(AuthOptions {
        access_lifetime: Duration::from_secs(4),
        ..AuthOptions::default()
    })
    .await;
    let (runtime, web) = start(&protected, "s3cret-of-robot").await;
    runtime.ready(LONG).await.unwrap();
    let refused = protected.server.unauthorized();
    let mut calls = 0;
    while protected.auth.token_requests(GRANT) < 3 {
        run(&web, &calls.to_string()).await.unwrap();
        calls += 1;
        assert!(calls < 10_000, "no renewal");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    run(&web, "last").await.unwrap();
    assert_eq!(protected.server.unauthorized(), refused);
    protected.assert_untouched(&web);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_wrong_secret_fails_the_server_with_what_to_do() {
    let protected = with_robot(AuthOptions::default()).await;
    let (runtime, web) = start(&protected, "wrong").await;
    reaches(&web, StateName::PermanentlyFailed).await;
    let status = web.status();
    assert_eq!(status.last_error.unwrap().class, FaultClass::Authorization);
    let action = status.action;
    assert!(matches!(action, Some(Action::FixKeys(_))), "{action:?}");
    assert!(protected.auth.count(Endpoint::Token) <= 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_endpoint_that_fails_at_the_start_is_tried_again() {
    let protected = with_robot(AuthOptions::default()).await;
    let fault = AuthFault::Status(500);
    protected.auth.fault(fault).on(Endpoint::Token).times(2);
    let (runtime, web) = start(&protected, "s3cret-of-robot").await;
    reaches(&web, StateName::Connected).await;
    run(&web, "after").await.unwrap();
    assert_eq!(protected.auth.token_requests(GRANT), 3);
    runtime.shutdown(LONG).await;
}
