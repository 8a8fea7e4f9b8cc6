//! The interface that a measurement needs from either side: calling the tools of the bench server.

use std::fmt;
use std::time::{Duration, Instant};

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Outcome;

/// Calls tools of the bench server: bare rmcp, or the runtime.
pub(crate) trait Caller: Clone + Send + Sync + 'static {
    /// Calls one tool and waits for its result.
    fn call(
        &self,
        tool: &'static str,
        arguments: JsonObject,
    ) -> impl Future<Output = Outcome<CallToolResult>> + Send;

    /// The call used by most measurements.
    fn echo(&self) -> impl Future<Output = Outcome<CallToolResult>> + Send {
        self.call("echo", object(json!({ "text": "hello" })))
    }

    /// A call that the server answers after this time.
    fn sleep(&self, time: Duration) -> impl Future<Output = Outcome<CallToolResult>> + Send {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.call("sleep", object(json!({ "ms": millis })))
    }

    /// The process id of the server.
    fn pid(&self) -> impl Future<Output = Outcome<i32>> + Send {
        async move {
            let result = self.call("pid", JsonObject::new()).await?;
            let text = result.content.first().and_then(|block| block.as_text());
            Ok(text.ok_or("the server did not say its pid")?.text.parse()?)
        }
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

/// The kind of caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Callers {
    /// This many concurrent tasks.
    Tasks(usize),
    /// The main function itself. Its thread does not belong to the scheduler: each reply has to
    /// wake another thread, which hides much of the cost of a call.
    Main,
}

impl Callers {
    /// The number of concurrent callers.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Tasks(count) => count,
            Self::Main => 1,
        }
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tasks(1) => f.write_str("1 caller"),
            Self::Tasks(count) => write!(f, "{count} callers"),
            Self::Main => f.write_str("1 caller in main"),
        }
    }
}

/// One burst of calls: how many concurrent callers, how many calls each makes, and of which tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// The callers.
    pub(crate) callers: Callers,
    /// Sequential calls per caller.
    pub(crate) calls: usize,
    /// How long the tool takes; `None` means `echo`.
    pub(crate) tool_time: Option<Duration>,
}

impl Load {
    /// A burst of the fastest tool.
    pub(crate) fn echo(callers: Callers, calls: usize) -> Self {
        Self {
            callers,
            calls,
            tool_time: None,
        }
    }

    /// The total number of calls.
    pub(crate) fn total(self) -> usize {
        self.callers.count() * self.calls
    }

    /// Runs the burst and returns how long it took.
    pub(crate) async fn run(self, caller: &impl Caller) -> Outcome<Duration> {
        let start = Instant::now();
        match self.callers {
            Callers::Main => self.run_one(caller).await?,
            Callers::Tasks(count) => self.run_tasks(count, caller).await?,
        }
        Ok(start.elapsed())
    }

    async fn run_tasks(self, count: usize, caller: &impl Caller) -> Outcome<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let caller = caller.clone();
            tasks.spawn(async move { self.run_one(&caller).await });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn run_one(self, caller: &impl Caller) -> Outcome<()> {
        for _ in 0..self.calls {
            let result = match self.tool_time {
                None => caller.echo().await?,
                Some(time) => caller.sleep(time).await?,
            };
            if result.is_error == Some(true) {
                return Err("the tool failed".into());
            }
        }
        Ok(())
    }
}
