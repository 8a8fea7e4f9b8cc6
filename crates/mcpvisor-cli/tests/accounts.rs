//! The stored logins: `auth`, `logout` and `doctor` with a real authorization server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use common::LIMIT;
use common::world::{Running, World};
use mcpvisor_testkit::auth_server::{AuthFault, Endpoint};
use serde_json::json;

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

/// Logs in, and damages the file of that login.
fn damage_login(world: &World, args: &[&str]) -> PathBuf {
    let before = world.stored("json");
    world.log_in(args);
    let mut files = world.stored("json");
    files.retain(|file| !before.contains(file));
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    fs::write(file, "{").unwrap();
    file.clone()
}

/// The texts of the doctor's checks of this kind, with their severity.
fn checks(world: &World, kind: &str) -> Vec<String> {
    let report = world.folder.run(&["doctor", "--json"]).document();
    let of_shop = report["servers"][0]["checks"].as_array().unwrap().iter();
    let all = of_shop.chain(report["machine"].as_array().unwrap());
    let found = all.filter(|check| check["check"] == kind);
    let texts = found.map(|check| {
        let severity = match (check["ok"].as_bool(), check["warning"].as_bool()) {
            (Some(true), Some(true)) => "warning",
            (Some(true), _) => "good",
            _ => "bad",
        };
        let text = |key: &str| check[key].as_str().unwrap_or_default();
        format!("{severity}: {} {}", text("detail"), text("action"))
    });
    texts.collect()
}

#[test]
fn an_unreadable_login_is_reported_everywhere_and_removed_by_a_logout_alone() {
    let world = World::new();
    let file = damage_login(&world, &[]);
    let path = file.to_str().unwrap();
    let [listed] = &world.listed()[..] else {
        panic!("one entry")
    };
    assert_eq!(listed["server"], "shop");
    assert_eq!(listed["account"], "");
    assert_eq!(listed["in_use"], false);
    assert_eq!(listed["file"], path);
    assert_eq!(listed["problem"], "is damaged at line 1, column 1");
    let action = "Run `mcpvisor logout shop --config mcp.json`, then log in again.";
    assert_eq!(listed["action"], action);
    let table = world.folder.run(&["auth"]);
    let row = format!("{path} is damaged at line 1, column 1. {action}");
    assert!(table.exits(0).stdout.contains(&row), "{table:?}");
    let found = checks(&world, "login");
    assert!(
        found[0].starts_with(&format!("bad: {path} is damaged")),
        "{found:?}"
    );
    assert!(found[0].ends_with(action), "{found:?}");

    for command in ["login", "tools"] {
        let ran = world.folder.run(&[command, "shop"]);
        ran.exits(4).says(path).says("log out and log in again");
    }
    assert_eq!(fs::read(&file).unwrap(), b"{");

    let ran = world.folder.run(&["logout", "shop"]);
    let removed = format!(
        "Logged out of shop. Removed {path}, which could not be read: its tokens could not be \
         revoked.\n"
    );
    assert_eq!(ran.exits(0).stdout, removed);
    assert!(!file.exists());
    assert_eq!(world.auth.count(Endpoint::Revoke), 0);
    world.log_in(&[]);
    world.folder.run(&["tools", "shop"]).exits(0);
}

#[test]
fn an_unreadable_login_beside_a_newer_one_is_a_warning_and_removed_with_it() {
    let world = World::new();
    world.log_in(&[]);
    // An older one of another issuer: the first part of the name is that of the account.
    let file = world.stored("json").remove(0);
    let name = file.file_name().unwrap().to_str().unwrap();
    let (account, _) = name.split_once('-').unwrap();
    let other = file.with_file_name(format!("{account}-{}.json", "0".repeat(32)));
    fs::write(&other, "{").unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    let opened = fs::File::options().write(true).open(&other);
    opened.unwrap().set_modified(long_ago).unwrap();
    let found = checks(&world, "login");
    let expected = format!("warning: {} is damaged", other.display());
    assert!(found[0].starts_with(&expected), "{found:?}");
    assert!(
        found[1].starts_with("good: renewed automatically"),
        "{found:?}"
    );
    let ran = world.folder.run(&["logout", "shop", "--json"]);
    let document = ran.exits(0).document();
    assert_eq!(document["removed"], 1);
    assert_eq!(document["tokens"], json!(["revoked"]));
    assert_eq!(document["unreadable"], json!([other]));
    assert!(world.stored("json").is_empty());
}

#[test]
fn an_unreadable_login_of_an_unknown_account_is_listed_without_a_server() {
    let world = World::new();
    let file = damage_login(&world, &["--account", "work"]);
    let [listed] = &world.listed()[..] else {
        panic!("one entry")
    };
    assert_eq!(listed["server"], json!(null));
    assert_eq!(listed["file"], file.to_str().unwrap());
    let action = listed["action"].as_str().unwrap();
    assert!(action.contains("logout NAME --account ACCOUNT"), "{action}");
    let found = checks(&world, "token store");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("warning: "), "{found:?}");

    // The person is not sent to the browser for a login that cannot be saved.
    let ran = world
        .folder
        .run(&["login", "shop", "--no-browser", "--account", "work"]);
    ran.exits(3).says("log out and log in again");
    assert!(!ran.stderr.contains("/authorize?"), "{ran:?}");

    let ran = world.folder.run(&["logout", "shop"]);
    assert_eq!(ran.exits(0).stdout, "Not logged in to shop.\n");
    assert!(file.exists(), "of another account");
    // An account that the config names is known.
    world.configure(&json!({ "account": "work" }));
    assert_eq!(world.listed()[0]["server"], "shop");
    world.configure(&json!({}));
    let ran = world.folder.run(&["logout", "shop", "--account", "work"]);
    assert!(ran.exits(0).stdout.contains("could not be read"), "{ran:?}");
    assert!(!file.exists());
}

#[test]
fn the_login_in_use_is_the_one_of_the_configured_account() {
    let world = World::new();
    let ran = world.log_in(&["--account", "work"]);
    assert!(ran.stdout.contains("set \"auth.account\""), "{ran:?}");
    let ran = world.log_in(&[]);
    assert!(!ran.stdout.contains("auth.account"), "{ran:?}");
    let in_use = || {
        let listed = world.listed().into_iter();
        let used = listed.filter(|it| it["in_use"].as_bool().unwrap());
        let used = used.map(|it| it["account"].as_str().unwrap().to_owned());
        used.collect::<Vec<_>>()
    };
    assert_eq!(in_use(), [""]);
    world.configure(&json!({ "account": "work" }));
    assert_eq!(in_use(), ["work"]);
    let table = world.folder.run(&["auth"]);
    let rows: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|row| row.split("  ").collect())
        .collect();
    let is_used = |account: &str| {
        let mut rows = rows.iter().map(|row| row.iter().map(|it| it.trim()));
        let row = rows.find(|row| row.clone().filter(|it| !it.is_empty()).nth(1) == Some(account));
        row.unwrap()
            .filter(|it| !it.is_empty())
            .nth(2)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        (is_used("-"), is_used("work")),
        ("no".to_owned(), "yes".to_owned())
    );
    world.configure(&json!({ "account": "home" }));
    assert_eq!(in_use(), [""; 0]);
}

#[test]
fn a_login_of_another_issuer_or_client_than_configured_is_neither_listed_nor_removed() {
    let world = World::new();
    world.log_in(&[]);
    assert_eq!(world.listed().len(), 1);
    for auth in [
        json!({ "issuer": "https://other.example.com" }),
        json!({ "clientId": "other" }),
        json!({ "resource": "https://other.example.com/mcp" }),
    ] {
        world.configure(&auth);
        assert_eq!(world.listed().len(), 0, "{auth}");
        let ran = world.folder.run(&["logout", "shop"]);
        assert_eq!(ran.exits(0).stdout, "Not logged in to shop.\n");
    }
    world.configure(&json!({ "issuer": world.auth.issuer() }));
    assert_eq!(world.listed()[0]["in_use"], true);
}

#[test]
fn a_logout_does_not_wait_long_for_another_process() {
    let world = World::new();
    world.log_in(&[]);
    let [lock] = &world.stored("lock")[..] else {
        panic!("one lock")
    };
    let lock = fs::File::open(lock).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let ran = world.folder.run(&["logout", "shop", "--timeout", "1s"]);
    ran.exits(7).says("another process has used this login");
    let begun = Instant::now();
    let ran = world.folder.run(&["logout", "shop"]);
    ran.exits(1)
        .says("another process has used this login for 10 s");
    assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
    assert_eq!(world.listed().len(), 1);
    drop(lock);
    world.folder.run(&["logout", "shop"]).exits(0);
    assert_eq!(world.listed().len(), 0);
}

#[test]
fn a_logout_does_not_wait_long_for_the_issuer() {
    let world = World::new();
    world.log_in(&[]);
    let silent = AuthFault::Delay(Duration::from_secs(600));
    world.auth.fault(silent).on(Endpoint::Revoke).for_ever();
    let begun = Instant::now();
    let ran = world
        .folder
        .run(&["logout", "shop", "--timeout", "2s", "--json"]);
    let document = ran.exits(0).document();
    let problem = document["tokens"][0]["failed"].as_str().unwrap();
    assert!(problem.contains("no answer of the issuer"), "{problem}");
    assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
    assert_eq!(world.listed().len(), 0);
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn exposed_logins_are_repaired_with_one_warning() {
    let world = World::new();
    world.log_in(&[]);
    world.log_in(&["--account", "work"]);
    let files = || [world.stored("json"), world.stored("lock")].concat();
    assert_eq!(files().len(), 4);
    let warnings = |stderr: &str| stderr.matches("log in again if").count();
    for (folder_mode, file_mode) in [(0o777, 0o600), (0o700, 0o644), (0o750, 0o660)] {
        set_mode(&world.credentials(), folder_mode);
        files().iter().for_each(|file| set_mode(file, file_mode));
        let login = Running::start(world.command(&[]));
        login.paste(&common::world::redirect_of(&login.url()));
        let ran = login.finish();
        assert_eq!(warnings(&ran.exits(0).stderr), 1, "{ran:?}");
        assert_eq!(mode(&world.credentials()), 0o700);
        for file in files() {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        let ran = world.folder.run(&["tools", "shop"]);
        assert_eq!(warnings(&ran.exits(0).stderr), 0, "{ran:?}");
    }
}
