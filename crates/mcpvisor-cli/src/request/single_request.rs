//! The frame of `call`, `prompt` and `read`: start the server, send one request, show its result.

use std::cell::Cell;

use mcpvisor::rmcp::model::{ErrorCode, ProgressNotificationParam};
use mcpvisor::{CallError, Config, FaultClass, FromResult, Request, Runtime, ServerHandle};
use serde::Serialize;
use tokio::sync::mpsc;

use super::deadlines::RequestDeadlines;
use super::server_ready;
use crate::args::RequestOptions;
use crate::elicit::Prompter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::Attachments;
use crate::output::progress::{Progress, SharedBar};

/// The one request of a command: which server, which method, and whether it may have been sent.
#[derive(Debug)]
pub(crate) struct PendingRequest<'w> {
    server: &'w str,
    method: &'static str,
    sent: Cell<bool>,
}

impl<'w> PendingRequest<'w> {
    pub(crate) fn new(server: &'w str, method: &'static str) -> Self {
        Self {
            server,
            method,
            sent: Cell::new(false),
        }
    }

    /// The deadline passed.
    pub(crate) fn timed_out(&self, message: String) -> Failure {
        Failure {
            sent: Some(self.sent.get()),
            ..Failure::deadline(message).with_server(self.server)
        }
    }

    pub(crate) fn interrupted(&self) -> Failure {
        Failure::interrupted_at(self.server, self.method, self.sent.get())
    }
}

/// Everything that a single request needs besides its contents.
pub(crate) struct SingleRequest<'a> {
    /// The config of the one server.
    config: Config,
    pending: &'a PendingRequest<'a>,
    attachments: Attachments,
    /// Decline all questions of the server.
    no_input: bool,
}

/// What a command prepares its request with.
pub(crate) struct Context<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) server: &'a ServerHandle,
    pub(crate) deadlines: &'a RequestDeadlines,
    pub(crate) progress: mpsc::Sender<ProgressNotificationParam>,
}

/// What a command sends its request with.
pub(crate) struct Sending<'a> {
    pub(crate) server: &'a ServerHandle,
    pub(crate) deadlines: &'a RequestDeadlines,
}

/// A request that can be sent.
pub(crate) struct Prepared<R> {
    pub(crate) request: Request<R>,
    /// Shown if the server rejects the arguments.
    pub(crate) usage: Option<String>,
}

impl<'a> SingleRequest<'a> {
    /// Files of the result are named after `name`.
    pub(crate) fn new(
        config: Config,
        pending: &'a PendingRequest<'a>,
        options: &RequestOptions,
        name: &str,
    ) -> Result<Self, Failure> {
        Ok(Self {
            config,
            pending,
            attachments: Attachments::new(options.out.as_deref(), name)?,
            no_input: options.no_input,
        })
    }

    /// Starts the server, prepares and sends the request, and shows its result.
    pub(crate) async fn run<R: FromResult + Serialize + Send + 'static>(
        self,
        invocation: &Invocation<'_>,
        prepare: impl AsyncFnOnce(Context<'_>) -> Result<Prepared<R>, Failure>,
        render: impl FnOnce(&R, &Attachments) -> (String, Exit) + Send + 'static,
    ) -> Result<Exit, Failure> {
        let send = async |request: Request<R>, _: &Sending<'_>| request.await;
        self.run_with(invocation, prepare, send, render).await
    }

    /// The same with another way to send the request.
    pub(crate) async fn run_with<R, T>(
        self,
        invocation: &Invocation<'_>,
        prepare: impl AsyncFnOnce(Context<'_>) -> Result<Prepared<R>, Failure>,
        send: impl AsyncFnOnce(Request<R>, &Sending<'_>) -> Result<T, CallError>,
        render: impl FnOnce(&T, &Attachments) -> (String, Exit) + Send + 'static,
    ) -> Result<Exit, Failure>
    where
        T: Serialize + Send + 'static,
    {
        let (pending, output) = (self.pending, invocation.output);
        let deadlines = RequestDeadlines::new(&self.config, invocation.deadline);
        let bar = SharedBar::default();
        let prompter = Prompter::new(&bar, !self.no_input);
        let callbacks = prompter.callbacks();
        let interrupted = || pending.interrupted();
        fleet::with_callbacks(
            self.config,
            invocation,
            callbacks,
            interrupted,
            async |runtime| {
                let (progress, sink) = Progress::new(&output, &bar, runtime.events());
                let server = server_ready::server(runtime, pending.server)?;
                let Prepared { request, usage } = prepare(Context {
                    runtime,
                    server: &server,
                    deadlines: &deadlines,
                    progress: sink,
                })
                .await?;
                let request = deadlines.apply(request, prompter.can_ask());
                pending.sent.set(true);
                let sending = Sending {
                    server: &server,
                    deadlines: &deadlines,
                };
                let result = progress.during(send(request, &sending)).await;
                let result = result.map_err(|error| {
                    let error = deadlines.restore_timeout(error);
                    with_usage(error, usage.as_deref(), &server)
                })?;
                let show = move |attachments: &Attachments| {
                    let (text, exit) = render(&result, attachments);
                    output.server_result(&result, || text).map(|_| exit)
                };
                self.attachments.show(show).await
            },
        )
        .await
    }
}

/// Adds the usage if the server rejected the arguments.
fn with_usage(error: CallError, usage: Option<&str>, server: &ServerHandle) -> Failure {
    let invalid_params = matches!(
        &error,
        CallError::Answered { error, .. } if error.code == ErrorCode::INVALID_PARAMS
    );
    let failure = match &error {
        // A login would not help.
        CallError::Refused {
            retry_in: Some(_), ..
        } => error.into(),
        CallError::Refused {
            class: FaultClass::Authorization,
            ..
        } => Failure::unauthorized(&error, &server.authorization_action()),
        _ => error.into(),
    };
    let mut failure = server_ready::refine(failure, server);
    if let Some(usage) = usage.filter(|_| invalid_params) {
        failure.message.push_str(&format!("\nUsage: {usage}"));
    }
    failure
}
