#![doc = include_str!("../README.md")]
#![expect(
    deprecated,
    reason = "subscriptions and log levels of the protocol's older eras, which servers still speak"
)]

#[cfg(all(feature = "stdio", not(unix)))]
compile_error!(
    "the `stdio` feature of mcpvisor needs a Unix system: its children are led by process groups and signals; build with `default-features = false` and without `stdio`"
);

#[cfg(feature = "http")]
pub mod auth;
#[cfg_attr(
    not(all(feature = "stdio", feature = "http")),
    allow(
        dead_code,
        unreachable_code,
        unused_mut,
        unused_variables,
        reason = "parts are for one kind of transport only"
    )
)]
pub mod config;
pub mod for_model;

mod api;
mod catalog;
mod connection;
#[cfg(any(feature = "http", feature = "schema-check"))]
mod detached;
mod fleet;
#[cfg(test)]
mod fuzz;
#[cfg_attr(
    not(feature = "stdio"),
    allow(dead_code, reason = "parts of it are for child processes alone")
)]
mod link;
mod log_limit;
mod message_timer;
mod mutex;
mod saved_content;
#[cfg_attr(
    not(feature = "stdio"),
    allow(dead_code, reason = "servers in this process have no secrets")
)]
mod secret;
mod server;
mod state;
#[cfg_attr(
    not(any(feature = "stream", feature = "http")),
    allow(dead_code, reason = "typed messages keep no unknown fields")
)]
mod unknown_fields;

pub use mcpvisor_core::machine::{Action, Fault, FaultClass};
pub use mcpvisor_core::settings;
pub use mcpvisor_core::settings::ConnectionScope;
pub use mcpvisor_core::{
    ClientId, Generation, GovernorSettings, InvalidServerName, InvalidSetting, Known, ListKind,
    Priority, RESERVED_SERVER_NAME, RetryPolicy, ServerName, ServerSettings, StateName, Suspicion,
    exposed_name, may_expose,
};
/// The crate of the protocol types: `mcpvisor::rmcp::model` has the types that calls, catalogs and
/// callbacks take and return.
///
/// rmcp marks types that the protocol deprecates. A program that *names* one of them gets a warning
/// (`use of deprecated …`), although servers of older versions still need them:
///
/// | for | types | what to do |
/// |---|---|---|
/// | [`ServerHandle::set_log_level`], [`Callbacks::logs`], [`EventKind::Log`] | `LoggingLevel`, `LoggingMessageNotificationParam` | `#[allow(deprecated)]` where they are named |
/// | [`Callbacks::sampling`] | `CreateMessageRequestParams`, `CreateMessageResult`, `SamplingMessage` | likewise |
/// | [`Callbacks::roots`] | `Root` | likewise |
/// | [`ServerHandle::info`] | `ServerInfo`, the result of the older handshake | name `ServerPeerInfo` instead |
/// | [`ServerHandle::subscribe`] | none: the method does what the server's version needs | nothing |
///
/// Using a value without naming its type, as in a closure of [`Callbacks::logs`], causes no
/// warning.
pub use rmcp;

pub use api::callbacks::{
    CALLBACK_DEADLINE, CALLBACKS_AT_ONCE, Callbacks, Form, Incoming, OpenUrl,
};
pub use api::client::{Client, ClientBuilder};
pub use api::error::{
    BusyLimit, CallError, ControlError, MissingDriver, NotReady, NotSentReason, NotifyError,
    SchemaProblem, ServerNotReady, StartError, UnknownServer, UnknownTool,
};
pub use api::events::{EVENT_BUFFER, Event, EventKind, Events, EventsError};
pub use api::handle::{ServerHandle, ToolHandle};
pub use api::notifications::{
    NOTIFICATION_BUFFER, Notification, NotificationKind, Notifications, Received,
};
pub use api::request::{FromResult, InputRequired, Request, RequestKey, Round};
pub use api::runtime::{Runtime, RuntimeBuilder, WeakRuntime};
pub use api::status::{ListState, Readiness, ServerStatus, UnsavedLogin};
pub use api::task::{TaskHandle, TaskInfo, TaskRequest, TaskResult, TaskStart};
#[cfg(feature = "http")]
pub use api::transport::HttpEndpoint;
#[cfg(feature = "stdio")]
pub use api::transport::StdioCommand;
pub use api::transport::Transport;
pub use catalog::{
    CatalogChanges, Finding, FindingKind, FleetCatalog, FleetTool, ListDiff, ServerCatalog,
    ServerView, TaskSupport, ToolMatch,
};
pub use config::{Config, ResultCheck, ServerConfig, StartMode, ToolFilter};
pub use fleet::ServerChange;
pub use fleet::reload::{ReloadError, ReloadReport, ServerReload};
#[cfg(feature = "config-files")]
pub use fleet::watch::{ConfigWatch, RejectedConfig};
pub use fleet::{CloseOutcome, ServerClosed, ShutdownReport};
#[cfg(feature = "http")]
#[doc(hidden)]
pub use link::http::NameLookup;
pub use link::in_process::ServerEnd;
pub use saved_content::{ContentFolder, FileContent, SaveError, SavedContent};
#[doc(hidden)]
pub use state::file_ops::FileHook;
pub use state::pins::{DefinitionChange, HeldReason, HeldTool};
pub use unknown_fields::{UNKNOWN_FIELDS, raw_definition};
