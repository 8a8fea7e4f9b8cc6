//! Logins in the system's keyring: a real Secret Service on a bus of its own. Skipped where
//! `dbus-daemon`, `dbus-send` and `gnome-keyring-daemon` are not installed.

#![cfg(all(feature = "keyring", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::world::{Running, World, redirect_of};
use common::{LIMIT, Ran};
use serde_json::{Value, json};

const PASSWORD: &[u8] = b"the password of the keyring";

/// A bus that starts no programs.
const BUS_CONFIG: &str = r#"<busconfig>
  <type>session</type>
  <listen>unix:dir=FOLDER</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>"#;

/// A Secret Service with an unlocked keyring, on its own bus. Killed on drop.
struct SecretService {
    bus: Child,
    keyring: Child,
    address: String,
}

impl SecretService {
    /// Starts it. Its keyrings are in this folder.
    fn start(folder: &Path) -> Self {
        let (config, run) = (folder.join("bus.conf"), folder.join("run"));
        fs::create_dir_all(&run).unwrap();
        let sockets = BUS_CONFIG.replace("FOLDER", run.to_str().unwrap());
        fs::write(&config, sockets).unwrap();
        let bus = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--print-address=1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut bus = bus.unwrap();
        let mut address = String::new();
        let mut stdout = BufReader::new(bus.stdout.take().unwrap());
        stdout.read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let keyring = Command::new("gnome-keyring-daemon")
            .args(["--foreground", "--unlock", "--components=secrets"])
            .env("DBUS_SESSION_BUS_ADDRESS", &address)
            .env("HOME", folder)
            .env("XDG_DATA_HOME", folder.join("data"))
            .env("XDG_RUNTIME_DIR", &run)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut keyring = keyring.unwrap();
        let mut stdin = keyring.stdin.take().unwrap();
        stdin.write_all(PASSWORD).unwrap();
        drop(stdin);
        let service = Self {
            bus,
            keyring,
            address,
        };
        let begun = Instant::now();
        while !service.is_running() {
            assert!(begun.elapsed() < LIMIT, "the keyring does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        service
    }

    /// The answer of a method of the bus or of the keyring.
    fn send(&self, destination: &str, path: &str, words: &[&str]) -> String {
        let sent = Command::new("dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--print-reply", &format!("--dest={destination}"), path])
            .args(words)
            .output();
        String::from_utf8_lossy(&sent.unwrap().stdout).into_owned()
    }

    fn is_running(&self) -> bool {
        let words = [
            "org.freedesktop.DBus.NameHasOwner",
            "string:org.freedesktop.secrets",
        ];
        let answer = self.send("org.freedesktop.DBus", "/", &words);
        answer.contains("boolean true")
    }

    /// Locks all keyrings, as a desktop does after a while.
    fn lock(&self) {
        let keyrings = "array:objpath:/org/freedesktop/secrets/collection/login";
        let words = ["org.freedesktop.Secret.Service.Lock", keyrings];
        let locked = self.send(
            "org.freedesktop.secrets",
            "/org/freedesktop/secrets",
            &words,
        );
        assert!(locked.contains("collection/login"), "{locked}");
    }
}

impl Drop for SecretService {
    fn drop(&mut self) {
        for child in [&mut self.keyring, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether the programs of a Secret Service are installed.
fn is_supported() -> bool {
    let programs = ["dbus-daemon", "dbus-send", "gnome-keyring-daemon"];
    let is_missing = |it: &&str| Command::new(it).arg("--version").output().is_err();
    let missing = programs.into_iter().find(is_missing);
    if let Some(program) = missing {
        println!("skipped: {program} is not installed");
    }
    missing.is_none()
}

/// Runs a command that finds this keyring.
fn run(world: &World, address: &str, args: &[&str]) -> Ran {
    let mut command = world.folder.command(args);
    command.env("DBUS_SESSION_BUS_ADDRESS", address);
    common::run(command)
}

/// Logs in with this keyring. Returns what is shown.
fn log_in(world: &World, address: &str) -> Value {
    let mut command = world.command(&["--json"]);
    command.env("DBUS_SESSION_BUS_ADDRESS", address);
    let login = Running::start(command);
    login.paste(&redirect_of(&login.url()));
    login.finish().exits(0).document()
}

/// Fails unless the command cannot use its login, says why, and sent nothing.
fn assert_unusable(world: &World, address: &str, reason: &str) {
    for store in ["auto", "keyring"] {
        world.configure_store(store, &json!({}));
        let before = world.shop.accepted();
        let ran = run(world, address, &["tools", "shop"]);
        assert_ne!(ran.code, Some(0), "{ran:?}");
        ran.says(reason).says("start or unlock the keyring");
        assert_eq!(world.shop.accepted(), before, "an older login was used");
        let listed = run(world, address, &["auth", "--json"]);
        listed.exits(1).says("start or unlock the keyring");
    }
}

#[test]
fn a_login_is_encrypted_with_a_key_in_the_keyring_and_never_replaced_by_an_older_one() {
    if !is_supported() {
        return;
    }
    let world = World::new();
    let folder = world.folder.path("keyring");
    let service = SecretService::start(&folder);
    let address = service.address.clone();

    // An older login in plain files.
    let older = log_in(&world, &address);
    assert_eq!(older["store"], "file");
    world.configure_store("keyring", &json!({}));
    let login = log_in(&world, &address);
    assert_eq!(
        (&login["store"], &login["in_use"]),
        (&json!("keyring"), &json!(true))
    );
    let sealed = world.stored("enc");
    assert_eq!(sealed.len(), 1);
    let text = fs::read_to_string(&sealed[0]).unwrap();
    let tokens = world.auth.current_tokens();
    let mut tokens = tokens.access.iter().chain(&tokens.refresh);
    assert!(
        tokens.all(|(token, _)| !text.contains(token.as_str())),
        "{text}"
    );
    assert!(!text.contains(&world.shop.url()), "{text}");

    // Other processes use it.
    for store in ["auto", "keyring"] {
        world.configure_store(store, &json!({}));
        run(&world, &address, &["tools", "shop"]).exits(0);
        let listed = run(&world, &address, &["auth", "--json"])
            .exits(0)
            .document();
        assert_eq!(listed[0]["store"], "keyring");
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    }

    service.lock();
    assert_unusable(&world, &address, "the keyring");
    drop(service);
    assert_unusable(&world, &address, "the keyring cannot be used");

    let service = SecretService::start(&folder);
    run(&world, &service.address, &["tools", "shop"]).exits(0);
}

#[test]
fn the_first_login_is_in_the_keyring_if_it_works_and_else_in_files() {
    if !is_supported() {
        return;
    }
    let world = World::new();
    world.configure_store("auto", &json!({}));
    let service = SecretService::start(&world.folder.path("keyring"));
    assert_eq!(log_in(&world, &service.address)["store"], "keyring");

    let world = World::new();
    world.configure_store("keyring", &json!({}));
    let nowhere = "unix:path=/does/not/exist";
    let ran = run(&world, nowhere, &["login", "shop", "--no-browser"]);
    ran.exits(3).says("start or unlock the keyring");
    assert!(!ran.stderr.contains("/authorize?"), "too late: {ran:?}");
    world.configure_store("auto", &json!({}));
    assert_eq!(log_in(&world, nowhere)["store"], "file");
    // The login stays in use when a keyring appears.
    let listed = run(&world, &service.address, &["auth", "--json"]);
    assert_eq!(listed.exits(0).document()[0]["store"], "file");
}
