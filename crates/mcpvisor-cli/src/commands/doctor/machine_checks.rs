//! What the doctor looks at beside the servers: the config, trust, the state folder, and processes
//! that an earlier run may have left.

use std::path::Path;

use mcpvisor::Config;
use mcpvisor::config::ConfigProblem;

use super::report::Check;
use crate::config::source::Source;
use crate::config::state_dir;
use crate::output::probe_writable;

/// The config, and whether its commands may run.
pub(super) fn config(source: &Source, trusted: bool) -> Check {
    let path = source.path().display();
    match trusted {
        true if source.is_named() => Check::good("config", format!("{path}, named")),
        true => Check::good("config", format!("{path}, found and trusted")),
        false => Check::bad(
            "config",
            format!("{path} is not trusted, so nothing of it is started"),
            "Review it, then run `mcpvisor trust`.",
        ),
    }
}

/// What is odd in the config beside its servers, such as an entry that is as good as absent.
pub(super) fn doubts(config: &Config, source: &Source) -> Vec<Check> {
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

/// How many configs are trusted.
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
            format!("the list of trusted configs cannot be read: {error}"),
            "mend the state folder",
        ),
    })
}

/// Whether something can be kept from run to run.
pub(super) fn state_folder(config: Option<&Config>) -> Check {
    let folder = config.map_or_else(state_dir::default_dir, state_dir::dir_for);
    let Some(folder) = folder else {
        return Check::bad(
            "state folder",
            "there is none",
            "set HOME, XDG_STATE_HOME or MCPVISOR_STATE_DIR",
        );
    };
    let shown = folder.display().to_string();
    match can_be_written(&folder) {
        Ok(()) => Check::good("state folder", format!("{shown} can be written")),
        Err(error) => Check::bad(
            "state folder",
            format!("{shown} cannot be written: {error}"),
            "change its owner, or name another with MCPVISOR_STATE_DIR",
        ),
    }
}

/// Tries it, in the nearest folder that exists: the doctor leaves nothing behind.
fn can_be_written(folder: &Path) -> std::io::Result<()> {
    let mut there = folder;
    while !there.exists() {
        match there.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => there = parent,
            _ => there = Path::new("."),
        }
    }
    probe_writable(there)
}

/// Servers of this config that run without a parent.
#[cfg(target_os = "linux")]
pub(super) fn left_behind(config: Option<&Config>) -> Check {
    let commands = config.into_iter().flat_map(|config| &config.servers);
    let commands: Vec<_> = commands
        .filter_map(|server| server.transport.as_stdio())
        .collect();
    let left: Vec<String> = orphans()
        .filter(|(_, line)| commands.iter().any(|command| command.runs_as(line)))
        .map(|(pid, _)| pid.to_string())
        .collect();
    if left.is_empty() {
        return Check::good("processes", "none was left behind by an earlier run");
    }
    Check::bad(
        "processes",
        format!(
            "servers of this config run without a parent: {}",
            left.join(", ")
        ),
        format!("end them with: kill {}", left.join(" ")),
    )
}

#[cfg(not(target_os = "linux"))]
pub(super) fn left_behind(_: Option<&Config>) -> Check {
    Check::good("processes", "not looked at on this system")
}

/// Our processes whose parent is gone, with their command lines.
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
