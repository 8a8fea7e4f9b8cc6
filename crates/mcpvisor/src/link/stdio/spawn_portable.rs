//! Spawns a process with the standard library, for Unix systems other than Linux.
//!
//! There is no parent-death signal: if the host is killed, a child that ignores the end of its
//! stdin survives it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::process_group::ProcessGroup;
use super::spawn::{ProcessSpec, SpawnedProcess};

pub(super) fn spawn(spec: &ProcessSpec) -> io::Result<SpawnedProcess> {
    let mut command = Command::new(&spec.file);
    command
        .arg0(&spec.name)
        .args(&spec.args)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn()?;
    let missing = || io::Error::other("the process has no id or lacks a pipe");
    Ok(SpawnedProcess {
        group: ProcessGroup::new(child.id()).ok_or_else(missing)?,
        stdin: child.stdin.take().ok_or_else(missing)?,
        stdout: child.stdout.take().ok_or_else(missing)?,
        stderr: child.stderr.take().ok_or_else(missing)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn both_ways_to_spawn_honour_the_whole_spec() {
        let spec = ProcessSpec {
            file: "/bin/sh".into(),
            name: "a-name".into(),
            args: ["-c", "echo $0 $1 $A $(pwd)", "zero", "one"]
                .map(Into::into)
                .into(),
            environment: [("A", "1"), ("A", "2")]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            cwd: Some("/".into()),
        };
        for spawn in [spawn, |spec: &ProcessSpec| spec.spawn()] {
            let mut child = spawn(&spec).unwrap();
            let mut output = String::new();
            child.stdout.read_to_string(&mut output).unwrap();
            assert_eq!(output, "zero one 2 /\n");
        }
    }
}
