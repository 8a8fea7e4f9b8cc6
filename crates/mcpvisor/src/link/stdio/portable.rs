//! Starts a process as any Unix can.
//!
//! There is no parent-death signal: a child that ignores the end of its stdin outlives a parent that
//! was killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::process_group::Leader;
use super::spawn::{Image, Newborn};

pub(super) fn start(image: &Image) -> io::Result<Newborn> {
    let mut command = Command::new(&image.file);
    command
        .arg0(&image.name)
        .args(&image.args)
        .env_clear()
        .envs(image.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &image.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn()?;
    let missing = || io::Error::other("it has no id or lacks a pipe");
    let leader = Leader::new(child.id()).ok_or_else(missing)?;
    Ok(Newborn {
        leader,
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
    fn a_process_is_started_as_the_image_says() {
        let image = Image {
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
        for start in [start, |image: &Image| image.start()] {
            let mut newborn = start(&image).unwrap();
            let mut said = String::new();
            newborn.stdout.read_to_string(&mut said).unwrap();
            assert_eq!(said, "zero one 2 /\n");
        }
    }
}
