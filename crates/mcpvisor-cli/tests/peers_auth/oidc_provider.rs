//! `oidc-provider` as the issuer of a `fastmcp` server: DCR, resource indicators, consent, rotation.

use std::fs::File;
use std::time::{Duration, Instant};

use mcpvisor::{FaultClass, StateName};
use mcpvisor_testkit::eventually::eventually_async;
use serde_json::json;
use tokio::task::block_in_place;

use crate::chromium::device_prompt;
use crate::common::finish;
use crate::peers::Peers;
use crate::process::LONG;
use crate::shop::{CALL, Issuer, Shop, approve, echo, reaches};
use crate::visit::{Tool, press};

/// The lifetime of access tokens where none has to expire, in seconds.
const UNLIMITED: u32 = 3_600;

/// From a login in another process to a connected server. It takes less than a second, except on a
/// busy machine.
const HEALED: Duration = Duration::from_secs(10);

#[test]
fn a_person_signs_in_and_consents_in_chromium() {
    let (Some(peers), Some(chromium)) = (Peers::installed(), Tool::chromium()) else {
        return;
    };
    let issuer = Issuer::start(&peers, UNLIMITED);
    let shop = Shop::with_issuer(&peers, &issuer);
    shop.run(&CALL).exits(3).says("mcpvisor login shop");
    let (ran, page) = shop.log_in(&shop.visit("approved", &chromium, &approve()), &[]);
    assert!(
        ran.exits(0).stdout.starts_with("Logged in to shop"),
        "{ran:?}"
    );
    page.shows("Login received", "You can close this page and return");
    let called = shop.run(&CALL);
    assert!(called.exits(0).stdout.contains("Echo: hello"), "{called:?}");
    assert_eq!(issuer.granted("authorization_code").len(), 1);

    let denied = shop.visit("denied", &chromium, &[press("Cancel")]);
    let (ran, page) = shop.log_in(&denied, &[]);
    ran.exits(3).says("access_denied").says("aborted");
    page.shows("Login failed", "access_denied");
    shop.run(&CALL).exits(0);
    assert_eq!(issuer.granted("authorization_code").len(), 1);
    issuer.assert_used_correctly();
}

#[test]
fn the_code_of_a_device_is_approved_in_chromium() {
    let (Some(peers), Some(chromium)) = (Peers::installed(), Tool::chromium()) else {
        return;
    };
    let issuer = Issuer::start(&peers, UNLIMITED);
    let shop = Shop::with_issuer(&peers, &issuer);
    let args = ["login", "shop", "--device", "--timeout", "50s"];
    let mut command = shop.folder.command(&args);
    command.stderr(File::create(shop.folder.path("stderr")).unwrap());
    let login = command.spawn().unwrap();
    let (url, code) = device_prompt(&shop.folder);
    let [sign_in, consent] = approve();
    let enter = json!({ "fill": { "user_code": code }, "press": "Continue" });
    let steps = [enter, press("Continue"), sign_in, consent];
    let visit = shop.visit("device", &chromium, &steps);
    visit.open(&url);
    visit.page().shows("Sign-in Success", "was successful");
    finish(login).exits(0);
    shop.run(&CALL).exits(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_after_a_revoked_grant_heals_a_running_process() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    // Revocation takes effect when the access token expires.
    let mut issuer = Issuer::start(&peers, 5);
    let shop = Shop::with_issuer(&peers, &issuer);
    block_in_place(|| shop.log_in_with_forms("first", &approve(), &[]));
    let (runtime, handle) = shop.runtime().await;
    echo(&handle, "before").await.unwrap();

    issuer.revoke();
    eventually_async(LONG, "calls fail", async || {
        echo(&handle, "revoked").await.is_err()
    })
    .await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    let fault = handle.status().last_error.unwrap();
    assert_eq!(fault.class, FaultClass::Authorization, "{fault}");
    let refused = block_in_place(|| shop.run(&CALL));
    refused.exits(3).says("mcpvisor login shop");

    block_in_place(|| shop.log_in_with_forms("second", &approve(), &[]));
    let saved = Instant::now();
    reaches(&handle, StateName::Connected).await;
    println!("connected {:?} after the login", saved.elapsed());
    assert!(saved.elapsed() < HEALED, "{:?}", saved.elapsed());
    echo(&handle, "after").await.unwrap();
    runtime.shutdown(LONG).await;
}

#[test]
fn a_logout_revokes_the_grant() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let issuer = Issuer::start(&peers, UNLIMITED);
    let shop = Shop::with_issuer(&peers, &issuer);
    shop.log_in_with_forms("login", &approve(), &[]);
    assert_eq!(issuer.events("revoked").len(), 0);
    let ran = shop.run(&["logout", "shop"]);
    assert_eq!(
        ran.exits(0).stdout,
        "Logged out of shop. The tokens were revoked.\n"
    );
    assert_eq!(issuer.events("revoked").len(), 1);
    shop.run(&CALL).exits(3);
    assert_eq!(shop.run(&["auth", "--json"]).document(), json!([]));
}
