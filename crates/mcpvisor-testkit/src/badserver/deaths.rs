//! Faults that end or stop the process, or close its pipes.

use std::fs::File;
use std::process::Stdio;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

use super::fault::{Fault, Kind};
use super::fault_injector::AfterFault;
use crate::stdio_server::tools::structured;
use crate::stdio_server::{LINGER, Request, Server, spawn_lingering};

pub(super) fn inject(fault: Fault, server: &Server, request: &Request) -> Option<AfterFault> {
    match fault.kind {
        Kind::ExitOnCall => exit(fault.amount),
        Kind::KillOnCall => die(),
        Kind::SigstopOnCall => return Some(stop()),
        Kind::CloseStdoutOnCall => replace_by_null(rustix::stdio::dup2_stdout),
        Kind::CloseStdinOnCall => {
            replace_by_null(rustix::stdio::dup2_stdin);
            server.answer(request, structured(json!({})));
            // End-of-file on the replaced stdin must not end the server.
            std::thread::sleep(LINGER);
        }
        Kind::GrandchildHoldsStdout => {
            if let Err(problem) = spawn_lingering(Stdio::inherit()) {
                server.refuse(request, &problem.to_string());
            } else {
                die();
            }
        }
        Kind::SpawnGrandchildren => {
            for _ in 0..fault.amount {
                if let Err(problem) = spawn_lingering(Stdio::null()) {
                    server.refuse(request, &problem.to_string());
                    return Some(AfterFault::Stop);
                }
            }
            return Some(AfterFault::Serve);
        }
        Kind::StopReadingStdin => std::thread::sleep(LINGER),
        Kind::MuteCalls => {}
        _ => return None,
    }
    Some(AfterFault::Stop)
}

pub(super) fn exit(code: u64) -> ! {
    std::process::exit(i32::try_from(code).unwrap_or(1))
}

/// Stops this process with all its threads until SIGCONT.
pub(super) fn stop() -> AfterFault {
    let _ = kill_process(getpid(), Signal::STOP);
    AfterFault::Serve
}

fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}

/// Replaces a standard stream by `/dev/null`, so that the other end sees it closed.
fn replace_by_null(replace: fn(File) -> rustix::io::Result<()>) {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = replace(null);
    }
}
