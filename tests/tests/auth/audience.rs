//! Where a token goes: to the server that it was issued for, and nowhere else.

use mcpvisor::{StateName, Transport};
use mcpvisor_testkit::auth_server::ProtectedServer;

use crate::fleet::reaches;
use crate::protected::{LONG, Protected, run, web};

#[tokio::test]
async fn a_token_goes_only_to_the_server_that_it_was_issued_for() {
    let protected = Protected::new().await;
    let login = protected.log_in().await;
    // Another server of the same issuer and fleet.
    let other = ProtectedServer::start(&protected.auth).await;
    let builder = protected.builder();
    let builder = builder.server(web("web", Transport::http(protected.server.url())));
    let builder = builder.server(web("other", Transport::http(other.url())));
    let runtime = builder.start().await.unwrap();
    let handle = runtime.server("web").unwrap();
    reaches(&handle, StateName::Connected).await;
    run(&handle, "own").await.unwrap();
    let neighbour = runtime.server("other").unwrap();
    reaches(&neighbour, StateName::PermanentlyFailed).await;
    assert_ne!(other.received().len(), 0);
    for request in other.received() {
        assert_eq!(request.header("authorization"), None);
    }
    // The control: the own server does get it.
    let bearer = format!("Bearer {}", login.tokens.access.expose());
    let own = protected.server.received();
    assert!(
        own.iter()
            .any(|it| it.header("authorization") == Some(&bearer))
    );
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_token_does_not_follow_a_redirect_to_another_origin() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, handle) = protected.connected().await;
    for method in ["tools/call", "tools/list"] {
        protected.server.fault("http-redirect").on(method).times(2);
    }
    run(&handle, "redirected").await.unwrap_err();
    handle.list_tools(None).await.unwrap_err();
    assert!(protected.server.injected("tools/call") > 0);
    assert_eq!(
        protected.server.other_origin_received(),
        Vec::<String>::new()
    );
    protected.server.disarm();
    run(&handle, "after").await.unwrap();
    runtime.shutdown(LONG).await;
}
