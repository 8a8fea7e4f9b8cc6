#![doc = include_str!("../README.md")]
#![expect(
    deprecated,
    reason = "subscriptions and log levels of the protocol's older eras, which servers still speak"
)]

#[cfg(all(feature = "stdio", not(unix)))]
compile_error!(
    "the `stdio` feature of mcpvisor needs a Unix system: its children are led by process groups and signals; build with `default-features = false` and without `stdio`"
);

pub mod config;
pub mod for_model;

#[cfg(feature = "schema-check")]
mod arguments;
mod callbacks;
mod catalog;
mod client;
mod connection;
#[cfg(any(feature = "http", feature = "schema-check"))]
mod detached;
mod discovery;
mod era_store;
mod error;
mod events;
mod file_ops;
#[cfg(test)]
mod fuzz;
mod handle;
mod host;
#[cfg_attr(
    not(feature = "stdio"),
    allow(dead_code, reason = "parts of it are for child processes alone")
)]
mod link;
mod log_limit;
mod pins;
mod reload;
mod reply;
mod request;
mod runtime;
#[cfg_attr(
    not(feature = "stdio"),
    allow(dead_code, reason = "servers in this process have no secrets")
)]
mod secret;
mod server;
#[allow(
    dead_code,
    reason = "what is remembered across runs is read and written through it"
)]
mod state_dir;
mod status;
mod supervisor;
mod transport;
#[cfg(feature = "config-files")]
mod watch;

pub use mcpvisor_core::machine::{Fault, FaultClass};
pub use mcpvisor_core::settings;
pub use mcpvisor_core::{
    ClientId, Generation, GovernorSettings, InvalidServerName, InvalidSetting, Known, ListKind,
    Priority, RetryWish, ServerName, ServerSettings, StateName, Suspicion, exposed_name,
    may_expose,
};
/// The crate of the protocol's types: `mcpvisor::rmcp::model` has those that calls, catalogs and callbacks
/// take and return.
///
/// It marks what the protocol deprecates, so a program that *names* one of these types gets a warning
/// (`use of deprecated …`), although servers of the older versions still need them:
///
/// | for | types | what to do |
/// |---|---|---|
/// | [`ServerHandle::set_log_level`], [`Callbacks::logs`], [`EventKind::Log`] | `LoggingLevel`, `LoggingMessageNotificationParam` | `#[allow(deprecated)]` where they are named |
/// | [`Callbacks::sampling`] | `CreateMessageRequestParams`, `CreateMessageResult`, `SamplingMessage` | likewise |
/// | [`Callbacks::roots`] | `Root` | likewise |
/// | [`ServerHandle::info`] | `ServerInfo`, which is the older handshake's answer | name `ServerPeerInfo` instead |
/// | [`ServerHandle::subscribe`] | none: the method does what the server's version needs | nothing |
///
/// Using a value without naming its type, as a closure of [`Callbacks::logs`] does, warns of nothing.
pub use rmcp;

pub use callbacks::{Ask, CALLBACK_DEADLINE, CALLBACKS_AT_ONCE, Callbacks, Form, OpenUrl};
pub use catalog::{
    CatalogChanges, Finding, FindingKind, FleetCatalog, FleetTool, ListDiff, ServerCatalog,
    ServerView,
};
pub use client::{Client, ClientBuilder};
pub use config::{Config, ServerConfig, StartMode, ToolFilter};
pub use error::{
    ArgumentProblem, CallError, ControlError, MissingDriver, NotReady, NotSentReason,
    ServerNotReady, StartError, UnknownServer, UnknownTool,
};
pub use events::{EVENT_BUFFER, Event, EventKind, Events, EventsError};
#[doc(hidden)]
pub use file_ops::FileHook;
pub use handle::{ServerHandle, ToolHandle};
pub use link::in_process::ServerEnd;
pub use pins::{DefinitionChange, HeldReason, HeldTool};
pub use reload::{ReloadError, ReloadReport, ServerChange, ServerReload};
pub use request::{FromResult, Request};
pub use runtime::{Runtime, RuntimeBuilder, WeakRuntime};
pub use status::{ListState, ServerStatus, Verdict};
pub use supervisor::{CloseOutcome, ServerClosed, ShutdownReport};
#[cfg(feature = "http")]
pub use transport::HttpEndpoint;
#[cfg(feature = "stdio")]
pub use transport::StdioCommand;
pub use transport::Transport;
#[cfg(feature = "config-files")]
pub use watch::{ConfigWatch, RejectedConfig};
