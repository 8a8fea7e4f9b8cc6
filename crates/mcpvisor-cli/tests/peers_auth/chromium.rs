//! Logins in Chromium, with the authorization server of the test kit.

use std::fs::File;

use mcpvisor_testkit::auth_server::{
    AuthOptions, AuthServer, AuthorizeMode, ProtectedOptions, ProtectedServer,
};
use serde_json::{Value, json};

use crate::common::{Folder, Ran, finish, run};
use crate::peers::{self, Peers};
use crate::visit::{Page, Tool, Visit, press};

/// An authorization server that asks the user, and a protected server `shop`.
struct World {
    peers: Peers,
    folder: Folder,
    auth: AuthServer,
    _shop: ProtectedServer,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(peers: Peers, mode: AuthorizeMode) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = AuthOptions {
            mode,
            ..AuthOptions::default()
        };
        let auth = runtime.block_on(AuthServer::start_with(options));
        let shop = ProtectedServer::start_with(&auth, ProtectedOptions::default());
        let shop = runtime.block_on(shop);
        Self {
            peers,
            folder: Folder::with(&json!({ "shop": { "url": shop.url() } })),
            auth,
            _shop: shop,
            _runtime: runtime,
        }
    }

    /// `mcpvisor login shop`, whose browser takes these steps.
    fn log_in(&self, name: &str, tool: &Tool, steps: &[Value]) -> (Ran, Page) {
        let visit = Visit::new(&self.peers, &self.folder, name, tool, steps);
        let mut command = self.folder.command(&["login", "shop"]);
        visit.prepare(&mut command);
        let ran = run(command);
        (ran, visit.page())
    }

    #[track_caller]
    fn assert_usable(&self) {
        let call = ["call", "shop", "echo", "--args", "{\"text\":\"hello\"}"];
        let ran = self.folder.run(&call);
        assert!(ran.exits(0).stdout.contains("hello"), "{ran:?}");
    }
}

#[test]
fn chromium_ends_on_the_page_of_the_login_without_any_automation() {
    let (Some(peers), Some(chromium)) = (Peers::installed(), peers::chromium()) else {
        return;
    };
    let world = World::new(peers, AuthorizeMode::Redirect);
    let (ran, page) = world.log_in("login", &Tool::PlainChromium(chromium), &[]);
    ran.exits(0).says("The browser was opened.");
    page.shows("Login received", "You can close this page and return");
    assert_eq!(world.auth.token_requests("authorization_code"), 1);
    world.assert_usable();
}

#[test]
fn a_login_that_is_denied_in_chromium_exits_3_and_keeps_the_old_one() {
    let (Some(peers), Some(chromium)) = (Peers::installed(), Tool::chromium()) else {
        return;
    };
    let world = World::new(peers, AuthorizeMode::Page);
    let (ran, page) = world.log_in("approved", &chromium, &[press("Approve")]);
    ran.exits(0);
    page.shows("Login received", "You can close this page and return");
    world.assert_usable();
    let tokens = world.auth.current_tokens();
    let logins = world.folder.run(&["auth", "--json"]).document();

    let (ran, page) = world.log_in("denied", &chromium, &[press("Deny")]);
    ran.exits(3).says("access_denied").says("the user refused");
    page.shows("Login failed", "access_denied");
    let kept = world.folder.run(&["auth", "--json"]);
    assert_eq!(kept.exits(0).document(), logins);
    assert_eq!(world.auth.current_tokens(), tokens);
    world.assert_usable();
}

#[test]
fn the_code_of_a_device_is_entered_in_chromium() {
    let (Some(peers), Some(chromium)) = (Peers::installed(), Tool::chromium()) else {
        return;
    };
    let world = World::new(peers, AuthorizeMode::Page);
    let mut command = world.folder.command(&["login", "shop", "--device"]);
    command.stderr(File::create(world.folder.path("stderr")).unwrap());
    let login = command.spawn().unwrap();
    let (url, code) = device_prompt(&world.folder);
    let enter = json!({ "fill": { "user_code": code }, "press": "Continue" });
    let steps = [enter, press("Approve")];
    let visit = Visit::new(&world.peers, &world.folder, "device", &chromium, &steps);
    visit.open(&url);
    visit
        .page()
        .shows("Test authorization server", "Return to the device.");
    finish(login).exits(0);
    world.assert_usable();
}

/// The address and the code that a device login shows in the file `stderr`.
pub(crate) fn device_prompt(folder: &Folder) -> (String, String) {
    folder.awaits("stderr", "It expires in");
    let shown = std::fs::read_to_string(folder.path("stderr")).unwrap();
    let between = |start: &str, end: &str| {
        let rest = shown.split_once(start).map(|it| it.1);
        let text = rest.and_then(|rest| rest.split_once(end)).map(|it| it.0);
        text.unwrap_or_else(|| panic!("{shown}")).to_owned()
    };
    (
        between("open ", " and enter"),
        between("the code ", ". It expires"),
    )
}
