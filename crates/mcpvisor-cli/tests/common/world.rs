//! A protected server, its authorization server, and commands that log in to it.

#![allow(dead_code, reason = "shared by two tests, each of which uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use mcpvisor_testkit::auth_server::{AuthOptions, AuthServer, ProtectedOptions, ProtectedServer};
use serde_json::{Value, json};

use crate::common::{Folder, LIMIT, Ran, finish};

/// An authorization server, a protected server `shop`, and a config with it.
pub(crate) struct World {
    pub(crate) folder: Folder,
    pub(crate) auth: AuthServer,
    pub(crate) shop: ProtectedServer,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(AuthOptions::default(), ProtectedOptions::default())
    }

    pub(crate) fn with(auth: AuthOptions, shop: ProtectedOptions) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let auth = runtime.block_on(AuthServer::start_with(auth));
        let shop = runtime.block_on(ProtectedServer::start_with(&auth, shop));
        let folder = Folder::with(&json!({}));
        let world = Self {
            folder,
            auth,
            shop,
            runtime,
        };
        world.configure(&json!({}));
        world
    }

    /// Writes the config, with these keys under `auth`. The keyring of the user is not touched.
    pub(crate) fn configure(&self, auth: &Value) {
        self.configure_store("file", auth);
    }

    /// Writes the config with this store.
    pub(crate) fn configure_store(&self, store: &str, auth: &Value) {
        let shop = json!({ "url": self.shop.url(), "auth": auth });
        let config = json!({ "authStore": store, "mcpServers": { "shop": shop } });
        std::fs::write(self.folder.path("mcp.json"), config.to_string()).unwrap();
    }

    /// The folder of the token store.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.folder.path("state/credentials")
    }

    /// The files of the token store with this extension.
    pub(crate) fn stored(&self, extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.credentials()).into_iter().flatten();
        let files = entries.map(|entry| entry.unwrap().path());
        let has_extension = |file: &PathBuf| file.extension().is_some_and(|it| it == extension);
        files.filter(has_extension).collect()
    }

    /// What `auth` lists.
    #[track_caller]
    pub(crate) fn listed(&self) -> Vec<Value> {
        let listed = self.folder.run(&["auth", "--json"]).exits(0).document();
        listed.as_array().unwrap().clone()
    }

    /// Logs in by a pasted callback. Fails unless that works.
    #[track_caller]
    pub(crate) fn log_in(&self, args: &[&str]) -> Ran {
        let login = Running::start(self.command(args));
        let callback = redirect_of(&login.url());
        login.paste(&callback);
        let ran = login.finish();
        ran.exits(0);
        ran
    }

    /// `login shop`, with these further arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let args = [&["login", "shop", "--no-browser"], args].concat();
        self.folder.command(&args)
    }
}

/// A login that waits for its user.
pub(crate) struct Running {
    pub(crate) child: Child,
    stderr: Arc<Mutex<String>>,
    lines: mpsc::Receiver<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
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
    pub(crate) fn line(&self, text: &str) -> String {
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
    pub(crate) fn url(&self) -> String {
        self.line("/authorize?").trim().to_owned()
    }

    pub(crate) fn paste(&self, text: &str) {
        let mut stdin = self.child.stdin.as_ref().unwrap();
        writeln!(stdin, "{text}").unwrap();
    }

    #[track_caller]
    pub(crate) fn finish(self) -> Ran {
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
pub(crate) fn redirect_of(url: &str) -> String {
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
