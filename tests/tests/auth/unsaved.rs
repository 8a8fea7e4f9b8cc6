//! Renewed tokens that cannot be saved: served from memory, shown in the status, saved later.

use std::time::Duration;

use mcpvisor::{EventKind, Events, Runtime, ServerHandle, UnsavedLogin};
use mcpvisor_testkit::auth_server::{AuthFault, Endpoint};

use crate::fleet::next_event;
use crate::folder::refresh_token;
use crate::protected::{LONG, Protected, run, run_many};

/// A server whose token was renewed while its store was broken.
async fn unsaved(protected: &Protected) -> (Runtime, ServerHandle, Events) {
    let (runtime, web) = protected.connected().await;
    let events = runtime.events();
    assert_eq!(web.status().unsaved_login, None);
    let requests = protected.auth.count(Endpoint::Token);
    let pause = AuthFault::Delay(Duration::from_millis(500));
    protected.auth.fault(pause).on(Endpoint::Token).once();
    protected.auth.expire_access_tokens();
    let call = tokio::spawn({
        let web = web.clone();
        async move { run(&web, "renewed").await }
    });
    protected
        .auth
        .wait_for_requests(Endpoint::Token, requests + 1, LONG)
        .await;
    protected.folder.break_store();
    call.await.unwrap().unwrap();
    (runtime, web, events)
}

/// The status once a login is unsaved, or no longer.
async fn status_is(web: &ServerHandle, is_unsaved: bool) -> Option<UnsavedLogin> {
    let mut status = web.watch();
    let wanted = status.wait_for(|status| status.unsaved_login.is_some() == is_unsaved);
    let status = tokio::time::timeout(LONG, wanted).await.unwrap().unwrap();
    status.unsaved_login.clone()
}

#[tokio::test]
async fn a_token_that_cannot_be_saved_is_used_shown_renewed_and_saved_once_that_works() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web, mut events) = unsaved(&protected).await;
    let shown = status_is(&web, true).await.unwrap();
    let begun = next_event(&mut events, |event| match &event.kind {
        EventKind::LoginUnsaved(unsaved) => Some(unsaved.clone()),
        _ => None,
    });
    assert_eq!(begun.await, shown);
    let action = shown.action.to_string();
    let folder = protected.folder.0.join("credentials");
    assert!(action.contains(folder.to_str().unwrap()), "{action}");
    assert!(action.ends_with("otherwise log in again"), "{action}");
    let json = serde_json::to_value(web.status()).unwrap();
    assert_eq!(json["unsaved_login"]["problem"], shown.problem);
    // The stored refresh token was replaced; using it again would end the login.
    for round in ["second", "third"] {
        protected.auth.expire_access_tokens();
        for outcome in run_many(&web, round, 16).await {
            outcome.unwrap();
        }
    }
    assert_eq!(protected.refreshes(), 3);
    assert_eq!(protected.auth.counters().families_revoked, 0);
    protected.assert_untouched(&web);

    protected.folder.repair_store();
    status_is(&web, false).await;
    let saved = next_event(&mut events, |event| {
        matches!(event.kind, EventKind::LoginSaved).then_some(())
    });
    saved.await;
    let sent = protected.auth.requests();
    let refreshed_with = |token: &str| {
        let mut sent = sent.iter();
        sent.any(|request| request.form.get("refresh_token") == Some(token))
    };
    let saved = refresh_token(&protected.record().await);
    assert!(!refreshed_with(&saved), "the saved token is the newest");
    runtime.shutdown(LONG).await;
    let (runtime, web) = protected.connected().await;
    run(&web, "next run").await.unwrap();
    assert_eq!(protected.refreshes(), 3);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn the_end_of_a_runtime_makes_a_last_attempt_to_save_a_token() {
    let protected = Protected::new().await;
    let before = protected.log_in().await;
    let (runtime, web, _) = unsaved(&protected).await;
    status_is(&web, true).await;
    runtime.shutdown(LONG).await;
    let lost = web.status().unsaved_login;
    assert!(lost.is_some(), "the status tells it after the end, too");

    protected.folder.repair_store();
    assert_eq!(protected.record().await.tokens, before.tokens);
    protected.log_in().await;
    let (runtime, web, _) = unsaved(&protected).await;
    status_is(&web, true).await;
    protected.folder.repair_store();
    runtime.shutdown(LONG).await;
    assert_eq!(web.status().unsaved_login, None);
    let (runtime, web) = protected.connected().await;
    run(&web, "next run").await.unwrap();
    assert_eq!(protected.refreshes(), 2);
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_login_of_another_process_takes_the_place_of_an_unsaved_token() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web, _) = unsaved(&protected).await;
    status_is(&web, true).await;
    protected.folder.repair_store();
    let login = protected.log_in().await;
    status_is(&web, false).await;
    assert_eq!(protected.record().await, login, "it is not overwritten");
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_found_before_a_login_needs_it() {
    let protected = Protected::new().await;
    protected.log_in().await;
    let (runtime, web) = protected.connected().await;
    web.check_token_store().await.unwrap();
    let records = || std::fs::read_dir(protected.folder.0.join("credentials"));
    let files = records().unwrap().count();
    web.check_token_store().await.unwrap();
    assert_eq!(records().unwrap().count(), files, "nothing is left");
    protected.folder.break_store();
    let error = web.check_token_store().await.unwrap_err().to_string();
    assert!(error.contains("logins cannot be saved"), "{error}");
    protected.folder.repair_store();
    runtime.shutdown(LONG).await;
}
