//! `login`, `logout` and `auth` with a real authorization server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use common::{Folder, LIMIT, Ran, finish};
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthOptions, AuthServer, Endpoint, ProtectedOptions, ProtectedServer,
};
use mcpvisor_testkit::http_server::HttpServer;
use serde_json::json;

/// An authorization server, a protected server `shop`, and a config with it.
struct World {
    folder: Folder,
    auth: AuthServer,
    shop: ProtectedServer,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn new() -> Self {
        Self::with(AuthOptions::default(), ProtectedOptions::default())
    }

    fn with(auth: AuthOptions, shop: ProtectedOptions) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let auth = runtime.block_on(AuthServer::start_with(auth));
        let shop = runtime.block_on(ProtectedServer::start_with(&auth, shop));
        let folder = Folder::with(&json!({ "shop": { "url": shop.url() } }));
        Self {
            folder,
            auth,
            shop,
            runtime,
        }
    }

    /// Logs in by a pasted callback. Fails unless that works.
    #[track_caller]
    fn log_in(&self, args: &[&str]) -> Ran {
        let login = Running::start(self.command(args));
        let callback = redirect_of(&login.url());
        login.paste(&callback);
        let ran = login.finish();
        ran.exits(0);
        ran
    }

    /// `login shop`, with these further arguments.
    fn command(&self, args: &[&str]) -> Command {
        let args = [&["login", "shop", "--no-browser"], args].concat();
        self.folder.command(&args)
    }
}

/// A login that waits for its user.
struct Running {
    child: Child,
    stderr: Arc<Mutex<String>>,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let pipe = BufReader::new(child.stderr.take().unwrap());
        let stderr = Arc::<Mutex<String>>::default();
        let (sender, lines) = mpsc::channel();
        let all = Arc::clone(&stderr);
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                all.lock().unwrap().push_str(&format!("{line}\n"));
                let _ = sender.send(line);
            }
        });
        Self {
            child,
            stderr,
            lines,
        }
    }

    /// The next line on stderr with this text.
    #[track_caller]
    fn line(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LIMIT);
            let line = line.unwrap_or_else(|_| panic!("no {text:?}: {:?}", self.stderr));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The URL that it shows.
    #[track_caller]
    fn url(&self) -> String {
        self.line("/authorize?").trim().to_owned()
    }

    fn paste(&self, text: &str) {
        let mut stdin = self.child.stdin.as_ref().unwrap();
        writeln!(stdin, "{text}").unwrap();
    }

    #[track_caller]
    fn finish(self) -> Ran {
        let mut ran = finish(self.child);
        // The last lines arrive after the exit at the latest.
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            drop(line);
        }
        ran.stderr.clone_from(&self.stderr.lock().unwrap());
        ran
    }
}

/// Where a GET of this URL is redirected to.
#[track_caller]
fn redirect_of(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let location = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let found = name.eq_ignore_ascii_case("location");
        found.then(|| value.trim().to_owned())
    });
    location.unwrap_or_else(|| panic!("no redirect: {headers:?}"))
}

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
fn accounts_are_listed_without_tokens_and_logged_out_one_by_one() {
    let world = World::new();
    world.log_in(&["--account", "work"]);
    world.log_in(&["--account", "home"]);
    let listed = world.folder.run(&["auth", "--json"]);
    let listed = listed.exits(0).document();
    let mut accounts: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["account"].as_str().unwrap())
        .collect();
    accounts.sort_unstable();
    assert_eq!(accounts, ["home", "work"]);
    let table = world.folder.run(&["auth"]);
    assert!(table.exits(0).stdout.contains("in 59 min"), "{table:?}");

    let ran = world.folder.run(&["logout", "shop", "--account", "work"]);
    assert_eq!(
        ran.exits(0).stdout,
        "Logged out of shop as work. The tokens were revoked.\n"
    );
    assert_eq!(world.auth.current_tokens().refresh.len(), 1);
    let again = world.folder.run(&["logout", "shop", "--account", "work"]);
    assert_eq!(again.exits(0).stdout, "Not logged in to shop as work.\n");
    let listed = world.folder.run(&["auth", "--json"]).document();
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn a_logout_removes_tokens_that_cannot_be_revoked() {
    let world = World::new();
    world.log_in(&[]);
    let fault = world.auth.fault(AuthFault::Status(500));
    fault.on(Endpoint::Revoke).times(10);
    let connects = world.shop.accepted() + world.shop.unauthorized();
    let ran = world.folder.run(&["logout", "shop", "--json"]);
    let document = ran.exits(0).document();
    assert_eq!(document["removed"], 1);
    assert!(document["tokens"][0]["failed"].is_string(), "{document}");
    assert_eq!(world.folder.run(&["auth", "--json"]).document(), json!([]));
    let now = world.shop.accepted() + world.shop.unauthorized();
    assert_eq!(now, connects, "the server was connected");
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
fn the_doctor_checks_issuer_login_and_scopes() {
    let world = World::new();
    let checks = || {
        let ran = world.folder.run(&["doctor", "shop", "--json"]);
        let checks = ran.document()["servers"][0]["checks"].clone();
        let checks = checks.as_array().unwrap().clone();
        let texts = checks.iter().map(|it| {
            let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {} {}", text("check"), text("detail"), text("action"))
        });
        (ran.code, texts.collect::<Vec<_>>().join("\n"))
    };
    let (code, shown) = checks();
    assert_eq!(code, Some(3), "{shown}");
    assert!(
        shown.contains(&format!("issuer: {}", world.auth.issuer())),
        "{shown}"
    );
    assert!(shown.contains("Run `mcpvisor login shop"), "{shown}");
    world.log_in(&[]);
    let (code, shown) = checks();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("login: renewed automatically"), "{shown}");
    world.runtime.block_on(world.auth.stop());
    world.folder.run(&["logout", "shop"]).exits(0);
    let (code, shown) = checks();
    assert_eq!(code, Some(3), "{shown}");
    assert!(
        shown.contains("Check that the authorization server is reachable."),
        "{shown}"
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
