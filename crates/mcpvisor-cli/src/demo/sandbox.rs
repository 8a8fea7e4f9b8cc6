//! The servers of the demo and their temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{Config, ServerConfig, ServerSettings, StdioCommand, Transport};

use super::builtin::{Clock, Entry, Journal};
use super::processes::{self, wait_until};
use crate::failure::Failure;

pub(super) const NOTES: &str = "notes";
pub(super) const WEATHER: &str = "weather";
pub(super) const CLOCK: &str = "clock";
pub(super) const ORDERS: &str = "orders";

/// The reconnect budget of `weather`.
pub(super) const WEATHER_ATTEMPTS: u32 = 4;

/// A temporary folder, removed on drop.
#[derive(Debug)]
pub(super) struct Sandbox {
    folder: PathBuf,
    program: PathBuf,
}

impl Sandbox {
    pub(super) fn create() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::unexpected(format!("cannot create the demo folder: {error}"))
        };
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("mcpvisor-demo-{}-{}", std::process::id(), since.as_nanos());
        let program = std::env::current_exe().map_err(failed)?;
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).map_err(failed)?;
        Ok(Self { folder, program })
    }

    /// Two servers as child processes, one in this process, one over HTTP.
    pub(super) fn config(&self, orders: String) -> Result<Config, Failure> {
        let named = |name: &str, transport: Transport| {
            ServerConfig::new(name, transport).map_err(Failure::unexpected)
        };
        let notes = self
            .builtin(NOTES)
            .arg("--notes")
            .arg(self.notes())
            .arg("--hold-while")
            .arg(self.hold());
        let weather = self.builtin(WEATHER).arg("--flap-while").arg(self.flap());
        // The latest revision with a handshake and sessions, which the acts need.
        let legacy = Some(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let mut weather = named(WEATHER, weather.into())?.settings(small_budget());
        weather.protocol = legacy.clone();
        let mut orders = named(ORDERS, Transport::http(orders).into())?.settings(trusted());
        orders.protocol = legacy;
        Ok(Config::new()
            .server(named(NOTES, notes.into())?.settings(trusted()))
            .server(weather)
            .server(named(CLOCK, Transport::in_process(Clock::new()))?.settings(trusted()))
            .server(orders))
    }

    fn builtin(&self, name: &str) -> StdioCommand {
        Transport::stdio(&self.program)
            .args(["builtin-server", name, "--journal"])
            .arg(self.journal(name))
    }

    /// The command of the HTTP server.
    pub(super) fn orders(&self, listen: SocketAddr) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["builtin-server", ORDERS, "--journal"]);
        command.arg(self.journal(ORDERS));
        command.arg("--orders").arg(self.placed());
        command.arg("--forget-when").arg(self.forget());
        command.arg("--listen").arg(listen.to_string());
        command
    }

    /// When this file appears, `orders` drops its sessions and removes it.
    pub(super) fn forget(&self) -> PathBuf {
        self.folder.join("forget")
    }

    /// While this file exists, held calls of `notes` are not answered.
    pub(super) fn hold(&self) -> PathBuf {
        self.folder.join("hold")
    }

    /// While this file exists, `weather` exits after every handshake.
    pub(super) fn flap(&self) -> PathBuf {
        self.folder.join("flap")
    }

    /// The process ids of a server so far.
    pub(super) fn started(&self, server: &str) -> Vec<u32> {
        let entries = Journal::read(&self.journal(server));
        let pid = |entry| match entry {
            Entry::Started(pid) => Some(pid),
            Entry::Began(_) => None,
        };
        entries.into_iter().filter_map(pid).collect()
    }

    /// Waits until `notes` received this many held calls.
    pub(super) async fn begun(&self, calls: usize, limit: Duration) -> bool {
        let journal = self.journal(NOTES);
        let began = |entry: &Entry| matches!(entry, Entry::Began(_));
        let begun = || Journal::read(&journal).into_iter().filter(began).count() >= calls;
        wait_until(limit, begun).await
    }

    /// The number of server processes that still exist.
    pub(super) fn left(&self) -> usize {
        let mark = self.folder.display().to_string();
        let pids = [NOTES, WEATHER, ORDERS]
            .into_iter()
            .flat_map(|name| self.started(name));
        pids.filter(|pid| processes::is_left(*pid, &mark)).count()
    }

    /// The orders, one per line.
    pub(super) fn placed(&self) -> PathBuf {
        self.folder.join("orders.txt")
    }

    /// The notes, one per line.
    pub(super) fn notes(&self) -> PathBuf {
        self.folder.join("notes.txt")
    }

    fn journal(&self, server: &str) -> PathBuf {
        self.folder.join(format!("{server}.journal"))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates a flag file.
pub(super) fn raise(flag: &Path) -> Result<(), Failure> {
    std::fs::write(flag, "").map_err(Failure::unexpected)
}

/// Removes a flag file.
pub(super) fn lower(flag: &Path) -> Result<(), Failure> {
    std::fs::remove_file(flag).map_err(Failure::unexpected)
}

/// The servers are our own, so their annotations are trusted.
fn trusted() -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.retry.trusted = true;
    settings
}

/// A small budget and short delays, so that a flapping server is parked within the demo.
fn small_budget() -> ServerSettings {
    let mut settings = trusted();
    settings.budget.attempts = WEATHER_ATTEMPTS;
    settings.budget.within = Duration::from_secs(60);
    settings.budget.wake_every = Duration::from_millis(100);
    settings.backoff.initial = Duration::from_millis(200);
    settings.backoff.max = Duration::from_secs(1);
    settings
}
