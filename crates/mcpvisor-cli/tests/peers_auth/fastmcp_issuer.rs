//! A `fastmcp` server that is its own issuer (`InMemoryOAuthProvider`).

use mcpvisor::StateName;
use serde_json::json;
use tokio::task::{JoinSet, block_in_place};

use crate::peers::Peers;
use crate::process::LONG;
use crate::shop::{CALL, Shop, echo, reaches};
use crate::visit::Tool;

/// Callers at once.
const CALLERS: usize = 64;

/// How often the access token is lost.
const LOSSES: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_of_a_lost_token_cause_one_refresh_and_a_revoked_login_is_healed() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let mut shop = Shop::alone(&peers, &json!({}));
    block_in_place(|| shop.log_in_with_forms("first", &[], &[]));
    let (runtime, handle) = shop.runtime().await;
    for round in 0..LOSSES {
        shop.server.execute("forget", "done 1");
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let handle = handle.clone();
            callers.spawn(async move { echo(&handle, &format!("{round} {caller}")).await });
        }
        for outcome in callers.join_all().await {
            outcome.unwrap();
        }
    }
    let refreshes = || {
        let lines = shop.server.lines();
        lines.iter().filter(|line| *line == "refresh").count()
    };
    assert_eq!(refreshes(), LOSSES);
    assert_eq!(handle.status().generation.get(), 1, "no reconnect");

    shop.server.execute("revoke", "done 0");
    echo(&handle, "revoked").await.unwrap_err();
    reaches(&handle, StateName::PermanentlyFailed).await;
    let refused = block_in_place(|| shop.run(&CALL));
    refused.exits(3).says("mcpvisor login shop");
    block_in_place(|| shop.log_in_with_forms("second", &[], &[]));
    reaches(&handle, StateName::Connected).await;
    echo(&handle, "after").await.unwrap();
    runtime.shutdown(LONG).await;
}

#[test]
fn a_missing_scope_is_named_and_added_by_the_next_login_and_a_logout_revokes() {
    let Some(peers) = Peers::installed() else {
        return;
    };
    let mut shop = Shop::alone(&peers, &json!({ "auth": { "scopes": ["mcp"] } }));
    let visit = shop.visit("few", &Tool::FormClient, &[]);
    let (ran, _) = shop.log_in(&visit, &[]);
    let login = "mcpvisor login shop --scope mcp --scope mcp:write";
    ran.exits(3).says("refuses the new login").says(login);
    shop.run(&CALL).exits(3).says(login);

    let ran = shop.log_in_with_forms("more", &[], &["--scope", "mcp:write"]);
    assert!(ran.stdout.contains("(scopes: mcp mcp:write)"), "{ran:?}");
    shop.run(&CALL).exits(0);

    let ran = shop.run(&["logout", "shop"]);
    assert_eq!(
        ran.exits(0).stdout,
        "Logged out of shop. The tokens were revoked.\n"
    );
    shop.run(&CALL).exits(3);
    // The login with too few scopes was replaced, not revoked.
    shop.server.execute("forget", "done 1");
}
