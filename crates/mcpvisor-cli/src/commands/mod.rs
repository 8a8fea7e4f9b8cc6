//! The commands, one per file. Each returns an exit code or a failure.

mod approve;
mod auth;
mod call;
mod catalog;
mod completions;
mod conformance;
mod dispatch;
mod doctor;
mod get;
mod list;
mod login;
mod logout;
mod prompt;
mod read;
mod status;
mod tasks;
mod trust;
mod watch;

pub(crate) use dispatch::run;
