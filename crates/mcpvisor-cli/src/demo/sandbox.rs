//! The servers of the demo and their temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mcpvisor::rmcp::model::ProtocolVersion;
use mcpvisor::{Config, ServerConfig, ServerSettings, StdioCommand, Transport};

use super::builtin::{Clock, Entry, Journal};
use super::processes;
use crate::failure::Failure;

pub(super) const NOTES: &str = "notes";
pub(super) const WEATHER: &str = "weather";
pub(super) const CLOCK: &str = "clock";
pub(super) const ORDERS: &str = "orders";

/// The reconnect budget of `weather`.
pub(super) const WEATHER_ATTEMPTS: u32 = 4;

/// How often files of other processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

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
            ServerConfig::new(name, transport).map_err(|e| Failure::unexpected(e.to_string()))
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

    /// The orders, one per line.
    pub(super) fn read_orders(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.placed()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// When this file appears, `orders` drops its sessions and removes it.
    pub(super) fn forget(&self) -> PathBuf {
        self.folder.join("forget")
    }

    /// The notes, one per line.
    pub(super) fn read_notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.notes()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
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
        let until = Instant::now() + limit;
        let journal = self.journal(NOTES);
        let begun = || {
            let entries = Journal::read(&journal);
            let began = entries
                .iter()
                .filter(|entry| matches!(entry, Entry::Began(_)));
            began.count() >= calls
        };
        while !begun() {
            if Instant::now() > until {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        true
    }

    /// The number of server processes that still exist.
    pub(super) fn left(&self) -> usize {
        let mark = self.folder.display().to_string();
        let pids = [NOTES, WEATHER, ORDERS]
            .into_iter()
            .flat_map(|name| self.started(name));
        pids.filter(|pid| processes::is_left(*pid, &mark)).count()
    }

    fn placed(&self) -> PathBuf {
        self.folder.join("orders.txt")
    }

    fn notes(&self) -> PathBuf {
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
    std::fs::write(flag, "").map_err(|error| Failure::unexpected(error.to_string()))
}

/// Removes a flag file.
pub(super) fn lower(flag: &Path) -> Result<(), Failure> {
    std::fs::remove_file(flag).map_err(|error| Failure::unexpected(error.to_string()))
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
