//! `tasks`: the tasks that `call --task` started.
//!
//! Their ids are in the state folder, so they are found without starting a server. Only servers that
//! have tasks are started, to ask for their status.

use std::time::{SystemTime, UNIX_EPOCH};

use mcpvisor::rmcp::model::TaskStatus;
use mcpvisor::{CallError, Config, Runtime};
use serde::Serialize;

use super::auth::without_starting;
use super::call;
use crate::args::{RequestOptions, TaskAction, TaskId, TasksArgs};
use crate::elicit::Prompter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::progress::SharedBar;
use crate::output::{Attachments, Table, TextFormat, printable};
use crate::request::deadlines::RequestDeadlines;
use crate::request::server_ready;

pub(super) async fn run(args: &TasksArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    match &args.action {
        None => list(args.server.as_deref(), invocation).await,
        Some(TaskAction::Await { task, options }) => wait(task, options, invocation).await,
        Some(TaskAction::Cancel { task }) => cancel(task, invocation).await,
    }
}

/// One kept task.
#[derive(Debug, Clone, Serialize)]
struct Listed {
    server: String,
    task: String,
    tool: Option<String>,
    /// Seconds since 1970.
    started: Option<u64>,
    /// As the server reports it; `unknown` if it does not know the task; null if it was not asked.
    status: Option<TaskState>,
    message: Option<String>,
}

/// The status of a task, or that the server does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum TaskState {
    Unknown,
    #[serde(untagged)]
    Known(TaskStatus),
}

/// The kept tasks of one server, or of all. Starts nothing.
async fn kept(
    config: Config,
    server: Option<&str>,
    invocation: &Invocation<'_>,
) -> Result<Vec<Listed>, Failure> {
    let config = match server {
        Some(server) => fleet::only(config, server)?,
        None => config,
    };
    fleet::with(without_starting(config), invocation, async |runtime| {
        let mut listed = Vec::new();
        for name in runtime.servers() {
            let server = server_ready::server(runtime, name.as_str())?;
            let tasks = server.kept_tasks().await;
            listed.extend(tasks.iter().map(|task| Listed {
                server: name.to_string(),
                task: task.id().to_owned(),
                tool: task.tool().map(str::to_owned),
                started: task.started().map(seconds),
                status: None,
                message: None,
            }));
        }
        Ok(listed)
    })
    .await
}

async fn list(server: Option<&str>, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let mut config = invocation.source()?.read_to_start()?;
    fleet::warn(&config, &invocation.output);
    let mut listed = kept(config.clone(), server, invocation).await?;
    let has_tasks = |name: &str| listed.iter().any(|it| it.server == name);
    config.servers.retain(|it| has_tasks(it.name.as_str()));
    if config.servers.is_empty() {
        return invocation.output.result(&listed, || render(&listed));
    }
    fleet::with(config, invocation, async |runtime| {
        let failed = ask_all(runtime, &mut listed, invocation).await;
        if let Some(failure) = failed.filter(|_| listed.iter().all(|it| it.status.is_none())) {
            return Err(failure);
        }
        invocation.output.result(&listed, || render(&listed))
    })
    .await
}

/// Asks the servers for the status of their tasks. Returns the last failure, which was shown.
async fn ask_all(
    runtime: &Runtime,
    listed: &mut [Listed],
    invocation: &Invocation<'_>,
) -> Option<Failure> {
    let mut last: Option<Failure> = None;
    for it in listed {
        // One failure of a server is enough.
        if last
            .as_ref()
            .is_some_and(|last| last.server.as_deref() == Some(it.server.as_str()))
        {
            continue;
        }
        match status(runtime, it, invocation).await {
            Ok((status, message)) => {
                it.status = Some(status);
                it.message = message;
            }
            Err(failure) => {
                invocation.output.partial_failure(&failure);
                last = Some(Failure {
                    shown: true,
                    ..failure
                });
            }
        }
    }
    last
}

async fn status(
    runtime: &Runtime,
    listed: &Listed,
    invocation: &Invocation<'_>,
) -> Result<(TaskState, Option<String>), Failure> {
    let server = server_ready::server(runtime, &listed.server)?;
    let task = server.task(&listed.task);
    let answer = tokio::select! {
        answer = task.status() => answer,
        () = invocation.deadline.passed() => {
            let within = invocation.deadline.describe();
            let message = format!("{} did not answer {within}", listed.server);
            return Err(Failure::deadline(message).with_server(&listed.server));
        }
    };
    match answer {
        Ok(info) => Ok((TaskState::Known(info.status), info.message)),
        Err(CallError::TaskUnknown { .. }) => Ok((TaskState::Unknown, None)),
        Err(error) => {
            let mut failure = server_ready::refine(error.into(), &server);
            // A status that was not read has changed nothing.
            if failure.exit == Exit::Unknown {
                (failure.exit, failure.code) = (Exit::Unreachable, "unreachable");
            }
            Err(failure)
        }
    }
}

fn render(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "No tasks. Start one with `mcpvisor call SERVER TOOL --task`.\n".to_owned();
    }
    let mut table = Table::new(["SERVER", "TASK", "TOOL", "STARTED", "STATUS", "MESSAGE"]);
    for it in listed {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.row([
            it.server.clone(),
            it.task.clone(),
            or_dash(&it.tool),
            it.started.map_or_else(|| "-".to_owned(), age),
            it.status.map_or_else(|| "-".to_owned(), |it| it.name()),
            or_dash(&it.message),
        ]);
    }
    table.render(TextFormat::of_stdout())
}

impl TaskState {
    fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => "unknown".to_owned(),
        }
    }
}

/// How long ago a task was started.
fn age(started: u64) -> String {
    let seconds = seconds(SystemTime::now()).saturating_sub(started);
    match seconds {
        172_800.. => format!("{} days ago", seconds / 86_400),
        7_200.. => format!("{} h ago", seconds / 3_600),
        120.. => format!("{} min ago", seconds / 60),
        _ => format!("{seconds} s ago"),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// The config of the server that has the task.
async fn server_of(
    task: &TaskId,
    invocation: &Invocation<'_>,
) -> Result<(Config, String), Failure> {
    let config = invocation.source()?.read_to_start()?;
    let server = match &task.server {
        Some(server) => server.clone(),
        None => {
            let mut found = kept(config.clone(), None, invocation).await?;
            found.retain(|it| it.task == task.id);
            match found.as_slice() {
                [only] => only.server.clone(),
                [] => {
                    let message =
                        format!("no kept task {:?}; name its server with --server", task.id);
                    return Err(Failure::unknown_task(message));
                }
                _ => {
                    let servers: Vec<&str> = found.iter().map(|it| it.server.as_str()).collect();
                    let servers = servers.join(", ");
                    let message = format!(
                        "several servers have a task {:?}: {servers}. Name one with --server.",
                        task.id
                    );
                    return Err(Failure::usage(message));
                }
            }
        }
    };
    let config = fleet::only(config, &server)?;
    fleet::warn(&config, &invocation.output);
    Ok((config, server))
}

async fn wait(
    task: &TaskId,
    options: &RequestOptions,
    invocation: &Invocation<'_>,
) -> Result<Exit, Failure> {
    let (config, name) = server_of(task, invocation).await?;
    let attachments = Attachments::new(options.out.as_deref(), "task")?;
    let bar = SharedBar::default();
    let callbacks = Prompter::new(&bar, !options.no_input).callbacks();
    let deadlines = RequestDeadlines::new(&config, invocation.deadline);
    let output = invocation.output;
    let interrupted = || Failure::wait_interrupted(&name, &task.id);
    fleet::reconnecting(
        config,
        invocation,
        callbacks,
        interrupted,
        async |runtime| {
            let server = server_ready::server(runtime, &name)?;
            server_ready::ready(&server, &[], &deadlines).await?;
            let mut result = server.task(&task.id).result();
            if let Some(remaining) = invocation.deadline.remaining() {
                result = result.deadline(remaining);
            }
            let result = match result.await {
                Ok(result) => result,
                Err(CallError::Deadline { .. }) => {
                    let within = invocation.deadline.describe();
                    let message =
                        format!("{name}: task {} did not end {within}; it goes on", task.id);
                    return Err(Failure::deadline(message).with_server(&name));
                }
                Err(error) => return Err(server_ready::refine(error.into(), &server)),
            };
            let show = move |attachments: &Attachments| {
                let (text, exit) = call::render(&result, attachments);
                output.server_result(&result, || text).map(|_| exit)
            };
            attachments.show(show).await
        },
    )
    .await
}

async fn cancel(task: &TaskId, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let (config, name) = server_of(task, invocation).await?;
    let deadlines = RequestDeadlines::new(&config, invocation.deadline);
    fleet::with(config, invocation, async |runtime| {
        let server = server_ready::server(runtime, &name)?;
        server_ready::ready(&server, &[], &deadlines).await?;
        let info = server.task(&task.id).cancel().await;
        let info = info.map_err(|error| server_ready::refine(error.into(), &server))?;
        let status = TaskState::Known(info.status);
        let listed = Listed {
            server: name.clone(),
            task: task.id.clone(),
            tool: None,
            started: None,
            status: Some(status),
            message: info.message,
        };
        if matches!(info.status, TaskStatus::Completed | TaskStatus::Failed) {
            let message = format!("{name}: task {} is {} already", task.id, status.name());
            return Err(Failure::task_ended(message).with_server(&name));
        }
        invocation.output.result(&listed, || match info.status {
            TaskStatus::Cancelled => format!("Cancelled {}.", printable(&task.id)),
            _ => format!(
                "Requested to cancel {}; it is {} still.",
                printable(&task.id),
                status.name()
            ),
        })
    })
    .await
}
