//! Reads the JSON object of `--args`: from the command line, stdin or a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::request::deadlines::Deadline;
use crate::request::single_request::PendingRequest;

/// Bytes read at most.
const MAX_ARGS: u64 = 16 * 1024 * 1024;

/// The text of the object. A signal or the deadline ends the read, because stdin may never close.
pub(crate) async fn read_object(
    text: &str,
    deadline: Deadline,
    pending: &PendingRequest<'_>,
) -> Result<String, Failure> {
    let (file, shown) = match text.strip_prefix('@') {
        _ if text == "-" => (None, "stdin"),
        Some(file) => (Some(PathBuf::from(file)), file),
        None => return Ok(text.to_owned()),
    };
    let mut interrupts = Interrupts::listen();
    // A blocking read cannot be cancelled, so a thread does it and is abandoned.
    let reading = tokio::task::spawn_blocking(move || match file {
        Some(file) => read(File::open(file)?),
        None => read(io::stdin()),
    });
    tokio::select! {
        read = reading => read
            .map_err(Failure::unexpected)?
            .map_err(|error| Failure::usage(format!("cannot read --args from {shown}: {error}"))),
        () = interrupts.next() => Err(pending.interrupted()),
        () = deadline.passed() => Err(pending.timed_out(format!(
            "timed out reading --args from {shown}; nothing was sent"
        ))),
    }
}

fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_ARGS).read_to_string(&mut text)?;
    Ok(text)
}
