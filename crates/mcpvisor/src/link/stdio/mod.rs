//! The transport to a server that runs as a child process.
//!
//! [`StdioLink`] exchanges JSON lines over the child's stdin and stdout. [`StdioCommand`] describes
//! how to start the child.

mod child;
mod close_sequence;
mod command;
mod display;
mod exit_watch;
mod link;
mod process_group;
mod resolve;
mod spawn;
#[cfg(target_os = "linux")]
mod spawn_linux;
#[cfg(any(test, not(target_os = "linux")))]
mod spawn_portable;
mod spawner_thread;
mod stderr_drain;

pub use self::command::StdioCommand;
#[cfg(feature = "config-files")]
pub(crate) use self::command::is_inherited;
#[cfg(feature = "config-files")]
pub(crate) use self::command::parts::CommandParts;
pub(crate) use self::link::StdioLink;

#[cfg(test)]
mod tests;
