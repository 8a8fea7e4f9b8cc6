//! `login` with a real authorization server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use common::LIMIT;
use common::world::{Running, World, redirect_of};
use mcpvisor_testkit::auth_server::{AuthOptions, DpopRule, Endpoint, NonceRule, ProtectedOptions};
use mcpvisor_testkit::http_server::HttpServer;
use serde_json::json;

#[test]
fn a_server_that_requires_a_login_says_which_command_to_run() {
    let world = World::new();
    let ran = world.folder.run(&["call", "shop", "echo"]);
    ran.exits(3).says(
        "Run `mcpvisor login shop --scope mcp --config mcp.json`, or set \"headers\" or \
         \"bearerTokenEnvVar\".",
    );
    let ran = world.folder.run(&["tools", "shop", "--json"]);
    assert_eq!(ran.exits(3).error()["code"], "authorization_needed");
    let ran = world.folder.run(&["status"]);
    assert!(
        ran.exits(0).stdout.contains("mcpvisor login shop"),
        "{ran:?}"
    );
}

#[test]
fn a_pasted_callback_logs_in_and_the_server_can_be_used() {
    let world = World::new();
    let ran = world.log_in(&[]);
    assert_eq!(
        ran.stdout,
        "Logged in to shop (scopes: mcp). Expires in 59 min.\n"
    );
    let tools = world.folder.run(&["tools", "shop", "--json"]);
    assert!(!tools.exits(0).document().as_array().unwrap().is_empty());
    assert_eq!(world.auth.token_requests("authorization_code"), 1);
    assert!(world.shop.accepted() > 0);
}

#[test]
fn the_listener_receives_the_callback_of_a_browser() {
    let world = World::new();
    let login = Running::start(world.command(&["--json"]));
    let callback = redirect_of(&login.url());
    // What the browser does with the redirect.
    let rest = callback.strip_prefix("http://").unwrap().to_owned();
    let (authority, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let ran = login.finish();
    let document = ran.exits(0).document();
    assert_eq!(document["server"], "shop");
    assert_eq!(document["needed"], true);
    assert_eq!(document["account"], "");
    assert_eq!(document["issuer"], world.auth.issuer());
    assert_eq!(document["scopes"], json!(["mcp"]));
    assert_eq!(document["store"], "file");
    assert_eq!(document["refreshable"], true);
    assert!(document["expires_at"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn a_forged_callback_is_ignored_and_the_right_one_counts() {
    let world = World::new();
    let login = Running::start(world.command(&[]));
    let callback = redirect_of(&login.url());
    login.paste("http://127.0.0.1/callback?code=forged&state=forged");
    login.line("Ignored: ");
    assert_eq!(world.auth.count(Endpoint::Token), 0);
    login.paste(&callback);
    login.finish().exits(0);
    assert_eq!(world.auth.token_requests("authorization_code"), 1);
}

#[test]
fn an_error_in_the_callback_is_shown() {
    let world = World::new();
    let login = Running::start(world.command(&["--json"]));
    let callback = redirect_of(&login.url());
    let (start, query) = callback.split_once('?').unwrap();
    let rest: Vec<&str> = query
        .split('&')
        .filter(|it| !it.starts_with("code="))
        .collect();
    login.paste(&format!(
        "{start}?error=access_denied&error_description=not+today&{}",
        rest.join("&")
    ));
    let ran = login.finish();
    ran.exits(3).says("access_denied").says("not today");
    assert!(
        ran.stderr.contains("\"code\":\"authorization_needed\""),
        "{ran:?}"
    );
}

#[test]
fn a_device_login_waits_for_the_approval() {
    let world = World::new();
    let login = Running::start(world.folder.command(&["login", "shop", "--device"]));
    let line = login.line("enter the code");
    let code = world.runtime.block_on(world.auth.wait_for_user_code(LIMIT));
    assert!(line.contains(&code), "{line}");
    assert!(world.auth.approve_device(&code));
    let ran = login.finish();
    assert!(
        ran.exits(0).stdout.starts_with("Logged in to shop"),
        "{ran:?}"
    );
    world.folder.run(&["tools", "shop"]).exits(0);
}

#[test]
fn a_login_that_is_bound_to_a_key_serves_the_next_commands() {
    let auth = AuthOptions {
        dpop: true,
        nonces: NonceRule::OneTime,
        ..AuthOptions::default()
    };
    let shop = ProtectedOptions {
        dpop: DpopRule::Required,
        nonces: NonceRule::OneTime,
        ..ProtectedOptions::default()
    };
    let world = World::with(auth, shop);
    world.log_in(&[]);
    world.folder.run(&["tools", "shop"]).exits(0);
    world.auth.expire_access_tokens();
    world.folder.run(&["tools", "shop"]).exits(0);
    assert_eq!(world.shop.invalid_proofs(), Vec::<String>::new());
    assert_eq!(world.auth.invalid_proofs(), Vec::<String>::new());
    // The server accepts the login and asks for nothing; the next one is bound too.
    world.log_in(&["--scope", "mcp:write"]);
    world.folder.run(&["tools", "shop"]).exits(0);
    let listed = world.folder.run(&["auth", "--json"]);
    assert!(
        !listed.exits(0).stdout.contains("PRIVATE KEY"),
        "{listed:?}"
    );
}

#[test]
fn a_denied_device_exits_3() {
    let world = World::new();
    let login = Running::start(world.folder.command(&["login", "shop", "--device"]));
    login.line("enter the code");
    let code = world.runtime.block_on(world.auth.wait_for_user_code(LIMIT));
    assert!(world.auth.deny_device(&code));
    login.finish().exits(3).says("access_denied");
}

#[test]
fn an_interrupt_ends_a_login_and_stores_nothing() {
    let world = World::new();
    let login = Running::start(world.command(&[]));
    login.url();
    let interrupted = Command::new("kill")
        .args(["-INT", &login.child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    login.finish().exits(130).says("interrupted");
    let listed = world.folder.run(&["auth", "--json"]);
    assert_eq!(listed.exits(0).document(), json!([]));
}

#[test]
fn a_login_that_takes_too_long_exits_7() {
    let world = World::new();
    let login = Running::start(world.command(&["--timeout", "5s"]));
    login.url();
    login.finish().exits(7).says("no login within 5s");
}

#[test]
fn a_missing_scope_exits_3_and_names_the_login_that_helps() {
    let world = World::new();
    world.log_in(&[]);
    world.shop.require_for_tool("echo", &["mcp:write"]);
    let call = ["call", "shop", "echo", "--args", "{\"text\":\"x\"}"];
    let ran = world.folder.run(&call);
    ran.exits(3)
        .says("mcp:write")
        .says("mcpvisor login shop --scope mcp --scope mcp:write");
    let ran = world.log_in(&["--scope", "mcp:write"]);
    assert!(ran.stdout.contains("(scopes: mcp mcp:write)"), "{ran:?}");
    world.folder.run(&call).exits(0);
}

#[test]
fn a_server_whose_lists_alone_need_authorization_asks_for_a_login() {
    let open = ["initialize", "notifications/initialized", "server/discover"];
    let shop = ProtectedOptions {
        open_methods: open.map(str::to_owned).into(),
        ..ProtectedOptions::default()
    };
    let world = World::with(AuthOptions::default(), shop);
    world.folder.run(&["tools", "shop"]).exits(3);
    world.log_in(&[]);
    world.folder.run(&["tools", "shop"]).exits(0);
}

#[test]
fn a_server_that_needs_no_login_says_so() {
    let world = World::new();
    let open = world
        .runtime
        .block_on(HttpServer::start(Default::default()));
    let config = json!({ "mcpServers": { "shop": { "url": open.url() } } });
    std::fs::write(world.folder.path("mcp.json"), config.to_string()).unwrap();
    let ran = world.folder.run(&["login", "shop", "--no-browser"]);
    assert_eq!(ran.exits(0).stdout, "shop needs no login.\n");
    let ran = world.folder.run(&["login", "shop", "--json"]);
    assert_eq!(
        ran.exits(0).document(),
        json!({ "server": "shop", "needed": false })
    );
    assert_eq!(
        world.folder.run(&["logout", "shop"]).exits(0).stdout,
        "Not logged in to shop.\n"
    );
}

#[test]
fn no_output_contains_a_token_or_code() {
    let world = World::new();
    let mut command = world.command(&["-vvv"]);
    command.env("RUST_LOG", "trace");
    let login = Running::start(command);
    let callback = redirect_of(&login.url());
    login.paste(&callback);
    let login = login.finish();
    login.exits(0);
    let traced = |args: &[&str]| {
        let mut command = world.folder.command(args);
        command.env("RUST_LOG", "trace");
        common::run(command)
    };
    let tokens = world.auth.current_tokens();
    let mut secrets: Vec<String> = Vec::new();
    secrets.extend(tokens.access.iter().map(|it| it.0.clone()));
    secrets.extend(tokens.refresh.iter().map(|it| it.0.clone()));
    let code = callback
        .split(['?', '&'])
        .find_map(|it| it.strip_prefix("code="));
    secrets.push(code.unwrap().to_owned());
    for request in world.auth.requests_to(Endpoint::Token) {
        secrets.extend(request.form.get("code_verifier").map(str::to_owned));
    }
    assert_eq!(secrets.len(), 4);
    let used = [
        login,
        traced(&["tools", "shop"]),
        traced(&["auth", "--json"]),
        traced(&["doctor", "shop"]),
        traced(&["logout", "shop"]),
    ];
    for ran in used {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for secret in &secrets {
            let found = ran.stdout.contains(secret) || ran.stderr.contains(secret);
            assert!(!found, "{secret} in the output: {ran:?}");
        }
    }
}
