//! Checks besides the servers: config, trust, state folder, and orphaned processes.

use std::path::Path;

use mcpvisor::Config;
use mcpvisor::config::ConfigProblem;

use super::report::Check;
use crate::config::source::Source;
use crate::config::state_dir;
use crate::output::probe_writable;

/// Checks the config, and whether its commands may run.
pub(super) fn config(source: &Source, trusted: bool) -> Check {
    let path = source.path().display();
    match trusted {
        true if source.is_named() => Check::good("config", format!("{path}, from --config")),
        true => Check::good("config", format!("{path}, trusted")),
        false => Check::bad(
            "config",
            format!("{path} is not trusted; no server was started"),
            "Review it, then run `mcpvisor trust`.",
        ),
    }
}

/// Problems of the config that belong to no configured server.
pub(super) fn config_problems(config: &Config, source: &Source) -> Vec<Check> {
    let path = source.path().display().to_string();
    let doubts = config.problems.iter();
    let of_a_server = |problem: &&ConfigProblem| match &problem.server {
        Some(name) => {
            let mut servers = config.servers.iter();
            problem.excluded_server().is_some() || servers.any(|s| s.name.as_str() == name)
        }
        None => false,
    };
    let doubts = doubts.filter(|problem| !of_a_server(problem));
    doubts
        .map(|problem| Check::problem("config", problem, &path))
        .collect()
}

/// Counts the trusted configs.
pub(super) fn trusted() -> Option<Check> {
    let trusted = state_dir::trust_store()?.list();
    Some(match trusted {
        Ok(trusted) => Check::good(
            "trust",
            match trusted.len() {
                1 => "1 config is trusted".to_owned(),
                count => format!("{count} configs are trusted"),
            },
        ),
        Err(error) => Check::bad(
            "trust",
            format!("cannot read the list of trusted configs: {error}"),
            "Fix the state folder.",
        ),
    })
}

/// Checks the state folder.
pub(super) fn state_folder(config: Option<&Config>) -> Check {
    let folder = config.map_or_else(state_dir::default_dir, state_dir::dir_for);
    let Some(folder) = folder else {
        return Check::bad(
            "state folder",
            "none",
            "Set HOME, XDG_STATE_HOME or MCPVISOR_STATE_DIR.",
        );
    };
    let shown = folder.display().to_string();
    match check_writable(&folder) {
        Ok(()) => Check::good("state folder", format!("{shown} is writable")),
        Err(error) => Check::bad(
            "state folder",
            format!("{shown} is not writable: {error}"),
            "Change its owner, or set MCPVISOR_STATE_DIR.",
        ),
    }
}

/// Checks the nearest existing folder, because the doctor creates none.
fn check_writable(folder: &Path) -> std::io::Result<()> {
    let mut existing = folder;
    while !existing.exists() {
        match existing.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => existing = parent,
            _ => existing = Path::new("."),
        }
    }
    probe_writable(existing)
}

/// Finds servers of this config that run without a parent.
#[cfg(target_os = "linux")]
pub(super) fn orphaned_servers(config: Option<&Config>) -> Check {
    let commands = config.into_iter().flat_map(|config| &config.servers);
    let commands: Vec<_> = commands
        .filter_map(|server| server.transport.as_stdio())
        .collect();
    let left: Vec<String> = orphans()
        .filter(|(_, line)| commands.iter().any(|command| command.runs_as(line)))
        .map(|(pid, _)| pid.to_string())
        .collect();
    if left.is_empty() {
        return Check::good("processes", "no orphaned servers");
    }
    Check::bad(
        "processes",
        format!("orphaned servers of this config: {}", left.join(", ")),
        format!("Run `kill {}`.", left.join(" ")),
    )
}

#[cfg(not(target_os = "linux"))]
pub(super) fn orphaned_servers(_: Option<&Config>) -> Check {
    Check::good("processes", "not checked on this system")
}

/// The user's processes whose parent is gone, with their command lines.
#[cfg(target_os = "linux")]
fn orphans() -> impl Iterator<Item = (u32, Vec<std::ffi::OsString>)> {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::getuid().as_raw();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        if process.metadata().ok()?.uid() != own {
            return None;
        }
        let status = std::fs::read_to_string(process.path().join("status")).ok()?;
        let orphan = status.lines().any(|line| line == "PPid:\t1");
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let line = line.strip_suffix(&[0]).unwrap_or(&line);
        let words = line.split(|byte| *byte == 0);
        let words = words.map(|word| std::ffi::OsString::from_vec(word.to_vec()));
        orphan.then(|| (pid, words.collect()))
    })
}
