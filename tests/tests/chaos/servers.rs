//! The fleet: children, HTTP servers and in-process servers, each with different settings and
//! faults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mcpvisor::rmcp::model::ToolListChangedNotification;
use mcpvisor::{Config, ServerConfig, ServerSettings, StartMode, StateName, Transport};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, LostSession, ReplyKind};
use mcpvisor_testkit::processes::Marker;
use mcpvisor_testkit::scripted::{Behaviour, Script, ScriptedServer};
use mcpvisor_testkit::stdio_server::JOURNAL;

use crate::fleet::{bad_server, eager, fixture, millis, secs, server};

/// The tool whose runs are counted.
pub(crate) const EFFECT: &str = "append";

/// What a server name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// A child process that behaves well.
    Child,
    /// A child process that misbehaves on request.
    BadChild,
    Http(HttpServer),
    InProcess(ScriptedServer),
}

/// One server of the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) peer: Peer,
    pub(crate) config: ServerConfig,
    /// Where its child processes record that they started.
    pub(crate) journal: PathBuf,
    /// Where its effects are written.
    pub(crate) effects: PathBuf,
}

/// All servers, and the folder they write to.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Server>,
    pub(crate) marker: Marker,
    pub(crate) folder: PathBuf,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Settings with which servers recover within a second or two.
fn brisk() -> ServerSettings {
    let mut settings = eager();
    settings.backoff.initial = millis(5);
    settings.backoff.max = millis(200);
    settings.backoff.max_retry_after = millis(200);
    settings.budget.first_probe = millis(500);
    settings.budget.max_probe = secs(1);
    settings.budget.wake_every = millis(50);
    settings.timeouts.connect = secs(5);
    settings.timeouts.idle = secs(2);
    settings.timeouts.reconnect_wait = secs(3);
    settings.timeouts.listing = secs(2);
    settings.health.threshold = 2;
    settings.health.keepalive = secs(1);
    settings.health.keepalive_timeout = secs(1);
    settings.listing.refresh_retry = millis(100);
    settings.close.drain = millis(200);
    settings.close.stdin = millis(200);
    settings.close.terminate = millis(200);
    settings
}

/// Gives up after a few connection attempts.
fn poor() -> ServerSettings {
    let mut settings = brisk();
    settings.budget.attempts = 3;
    settings.budget.within = secs(3);
    settings
}

/// Low concurrency and a short queue.
fn narrow() -> ServerSettings {
    let mut settings = brisk();
    settings.admission.in_flight = 2;
    settings.admission.waiting = 8;
    settings
}

/// An in-process server. Its effects are the calls it recorded.
fn scripted() -> ScriptedServer {
    let effect = Behaviour::choose(|call| {
        let ms = call.params["arguments"]["ms"].as_u64().unwrap_or(0);
        match ms {
            0 => Behaviour::answer(),
            ms => Behaviour::answer().after(millis(ms)),
        }
    });
    let news = Behaviour::answer().notifying(ToolListChangedNotification::default());
    let script = Script::bare()
        .tool(EFFECT, effect)
        .tool("echo", Behaviour::answer())
        .tool("hang_up", Behaviour::end())
        .tool("news", news)
        .tool("mute", Behaviour::silence());
    ScriptedServer::new(script)
}

impl Fleet {
    pub(crate) async fn new(name: &str) -> Self {
        let marker = Marker::new(name);
        let folder = std::env::temp_dir().join(format!("mcpvisor-{}", marker.value()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut fleet = Self {
            servers: Vec::new(),
            marker,
            folder,
        };
        fleet.children();
        fleet.http().await;
        fleet.in_process();
        fleet
    }

    fn children(&mut self) {
        self.child("s-plain", &[], |config| config);
        self.child("s-lazy", &[], |config| {
            config.start(StartMode::Lazy).sleep_after(millis(300))
        });
        self.child("s-poor", &[], |config| config.settings(poor()));
        self.child("s-off", &[], |config| config.enabled(false));
        let stubborn = ["--ignore-eof", "--ignore-sigterm"];
        self.child("s-stubborn", &stubborn, |config| config);
        self.child("s-modern", &["--era", "modern"], |config| {
            config.settings(narrow())
        });
        self.bad_child("s-bad", |config| config);
        self.bad_child("s-pinned", |config| config.pin(true));
    }

    async fn http(&mut self) {
        let plain = HttpOptions::default();
        self.http_server("h-json", plain, |config| config).await;
        let sse = HttpOptions::sse().lost(LostSession::BadRequest);
        self.http_server("h-sse", sse, |config| config.settings(narrow()))
            .await;
        let modern = HttpOptions::modern();
        self.http_server("h-modern", modern, |config| config).await;
        let older = HttpOptions::http_sse();
        self.http_server("h-older", older, |config| config).await;
        let lazy = |config: ServerConfig| config.settings(poor()).sleep_after(millis(300));
        self.http_server("h-lazy", plain, lazy).await;
    }

    fn in_process(&mut self) {
        self.scripted_server("p-plain", |config| config);
        self.scripted_server("p-poor", |config| config.settings(poor()));
        self.scripted_server("p-lazy", |config| {
            config.start(StartMode::Lazy).sleep_after(millis(200))
        });
    }

    fn child(
        &mut self,
        name: &str,
        flags: &[&str],
        shape: impl FnOnce(ServerConfig) -> ServerConfig,
    ) {
        let command = fixture(&self.marker, flags).env(JOURNAL, self.journal(name));
        self.push(name, Peer::Child, command, shape);
    }

    fn bad_child(&mut self, name: &str, shape: impl FnOnce(ServerConfig) -> ServerConfig) {
        let command = bad_server(&self.marker, &[]).env(JOURNAL, self.journal(name));
        self.push(name, Peer::BadChild, command, shape);
    }

    async fn http_server(
        &mut self,
        name: &str,
        options: HttpOptions,
        shape: impl FnOnce(ServerConfig) -> ServerConfig,
    ) {
        let http = listening(options).await;
        let transport = match options.reply {
            ReplyKind::Session => Transport::sse(http.url()),
            ReplyKind::Json | ReplyKind::Sse => Transport::http(http.url()),
        };
        self.push(name, Peer::Http(http), transport, shape);
    }

    fn scripted_server(&mut self, name: &str, shape: impl FnOnce(ServerConfig) -> ServerConfig) {
        let server = scripted();
        let transport = server.transport();
        self.push(name, Peer::InProcess(server), transport, shape);
    }

    fn journal(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.processes"))
    }

    fn push(
        &mut self,
        name: &str,
        peer: Peer,
        transport: impl Into<Transport>,
        shape: impl FnOnce(ServerConfig) -> ServerConfig,
    ) {
        self.servers.push(Server {
            name: name.to_owned(),
            peer,
            config: shape(server(name, transport).settings(brisk())),
            journal: self.journal(name),
            effects: self.folder.join(format!("{name}.effects")),
        });
    }

    /// The initial config of all servers.
    pub(crate) fn config(&self) -> Config {
        let servers = self.servers.iter().map(|server| server.config.clone());
        servers.fold(Config::new(), Config::server)
    }

    /// The initial states of the servers.
    pub(crate) fn first_states(&self) -> Vec<(String, StateName)> {
        let first = |server: &Server| {
            let state = match (server.config.enabled, server.config.settings.rest.lazy) {
                (false, _) => StateName::Disabled,
                (true, true) => StateName::Sleeping,
                (true, false) => StateName::Connecting,
            };
            (server.name.clone(), state)
        };
        self.servers.iter().map(first).collect()
    }

    /// The state folder of the runtime.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }
}

/// Starts a server outside of the ephemeral port range, so that its port stays free while the
/// server is stopped.
async fn listening(options: HttpOptions) -> HttpServer {
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], fastrand::u16(15_000..30_000)));
        if let Ok(http) = HttpServer::start_at(address, options).await {
            return http;
        }
    }
}

/// The process that wrote the last line of a journal.
pub(crate) fn newest_process(journal: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(journal).ok()?;
    text.lines().last()?.split(' ').nth(1)?.parse().ok()
}
