//! The handshake: `initialize` at our version, a check of the answered one, `initialized`.

use std::sync::Arc;

use mcpvisor_core::ListKind;
use mcpvisor_core::machine::{End, Fault, FaultClass, PermanentFailure};
use mcpvisor_core::retry::{MAX_RETRY_AFTER, Trouble};
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, InitializeRequest, InitializeResult,
    InitializedNotification, ProtocolVersion, ServerCapabilities, ServerResult,
};

use super::session::answer_server;
use super::{Command, Task, with_stderr};
use crate::link::{Expect, Expectations, Inbound, Link, LinkDown};
use crate::server::message::{Observed, Report};

/// The versions that this handshake can agree on, newest first.
const SPOKEN: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];

/// What the server said of itself.
pub(super) struct Welcome {
    pub(super) info: Arc<InitializeResult>,
    pub(super) lists: Vec<ListKind>,
}

/// Why there is no session.
pub(super) enum Stop {
    /// The actor wants it closed, or is gone.
    Asked,
    /// The link broke.
    Down(LinkDown),
    /// The server refused.
    Refused(ErrorData),
    /// The server answered with a version that we do not speak.
    Version(ProtocolVersion),
    /// The handshake met trouble on the way.
    Failed {
        trouble: Trouble,
        status: Option<u16>,
        message: String,
    },
    /// The answer makes no sense.
    Nonsense(String),
}

impl Stop {
    /// The end of the connection, once the link is closed and its stderr was read.
    pub(super) fn into_end(self, task: &Task, problem: Option<String>) -> End {
        let failed = |class, message: &str| End::Failed {
            fault: Fault::new(class, with_stderr(message, &task.slot)),
            retry_after: None,
        };
        match self {
            Self::Asked => End::Closed { problem },
            Self::Down(down) => End::Failed {
                fault: task.fault_of(&down),
                retry_after: None,
            },
            Self::Refused(error) if speaks_of_version(&error) => {
                incompatible(&task.slot.hide(offered(&error)))
            }
            Self::Refused(error) => failed(
                FaultClass::Refused,
                &format!(
                    "refused the handshake: {} (code {})",
                    error.message, error.code.0
                ),
            ),
            Self::Version(version) => {
                incompatible(&task.slot.hide(format!("{:?}", version.as_str())))
            }
            Self::Failed {
                trouble,
                status,
                message,
            } => trouble_at_the_door(trouble, status, with_stderr(&message, &task.slot)),
            Self::Nonsense(problem) => failed(
                FaultClass::Protocol,
                &format!("answered the handshake with something else: {problem}"),
            ),
        }
    }
}

/// What a transport that lives makes of a handshake that it could not finish.
fn trouble_at_the_door(trouble: Trouble, status: Option<u16>, message: String) -> End {
    let unauthorized = trouble == Trouble::Unauthorized || status == Some(403);
    if unauthorized {
        return End::Hopeless(PermanentFailure {
            fault: Fault::new(FaultClass::Unauthorized, message),
            action: "give the server's entry a valid token (headers or bearerTokenEnvVar), then reconnect it".to_owned(),
        });
    }
    let retry_after = match trouble {
        Trouble::Busy { retry_after } => retry_after.map(|wish| wish.min(MAX_RETRY_AFTER)),
        _ => None,
    };
    End::Failed {
        fault: Fault::new(FaultClass::ConnectFailed, message),
        retry_after,
    }
}

fn speaks_of_version(error: &ErrorData) -> bool {
    error
        .message
        .to_ascii_lowercase()
        .contains("protocol version")
}

/// What a refusal says of the server's own versions.
fn offered(error: &ErrorData) -> String {
    let supported = error.data.as_ref().and_then(|data| data.get("supported"));
    match supported {
        Some(versions) => format!("{:?} and speaks {versions}", error.message),
        None => format!("{:?}", error.message),
    }
}

fn incompatible(theirs: &str) -> End {
    let ours: Vec<&str> = SPOKEN.iter().map(ProtocolVersion::as_str).collect();
    End::Hopeless(PermanentFailure {
        fault: Fault::new(
            FaultClass::IncompatibleVersion,
            format!(
                "no protocol version in common: it answered {theirs}, we speak {}",
                ours.join(", ")
            ),
        ),
        action: "update the server to one of these versions, then reconnect it".to_owned(),
    })
}

/// The only request that is pending in a handshake.
struct OnlyInitialize(mcpvisor_core::CallId);

impl Expectations for OnlyInitialize {
    fn expect(&self, id: mcpvisor_core::CallId) -> Option<Expect> {
        (id == self.0).then_some(Expect::Initialize)
    }

    #[cfg(any(feature = "stdio", feature = "http"))]
    fn snapshot(&self) -> crate::link::Snapshot {
        crate::link::Snapshot(vec![(self.0, Expect::Initialize)])
    }
}

/// Shakes hands. How long that may take is the machine's business: it asks for the close.
pub(super) async fn run<L: Link>(link: &mut L, task: &mut Task) -> Result<Welcome, Stop> {
    let id = task.slot.next_call();
    let request = InitializeRequest::new(task.slot.host.client.clone());
    link.push_request(
        id,
        &mut Some(ClientRequest::InitializeRequest(request)),
        false,
    )
    .map_err(Stop::Nonsense)?;
    let expect = OnlyInitialize(id);
    let mut heard = false;
    loop {
        let inbound = tokio::select! {
            biased;
            command = task.commands.recv() => match command {
                Some(Command::Close) | None => return Err(Stop::Asked),
                Some(Command::Start(_) | Command::Abandon { .. } | Command::Own(_)) => continue,
            },
            inbound = link.next(&expect) => inbound.map_err(Stop::Down)?,
        };
        let answer = matches!(&inbound, Inbound::Response { id: answered, .. } if *answered == id);
        // The end of the handshake says as much by itself.
        if !answer && !std::mem::replace(&mut heard, true) {
            task.report.say(Report::FirstByte);
        }
        match inbound {
            Inbound::Response {
                id: answered,
                result,
            } if answered == id => {
                return welcome(link, result);
            }
            Inbound::Unreadable {
                id: answered,
                problem,
            } if answered == id => {
                return Err(Stop::Nonsense(problem));
            }
            Inbound::Failed {
                id: failed,
                trouble,
                status,
                message,
                ..
            } if failed == id => {
                return Err(Stop::Failed {
                    trouble,
                    status,
                    message,
                });
            }
            Inbound::Request { id, request } => answer_server(link, id, &request),
            Inbound::Stray { problem } => {
                let slot = &task.slot;
                tracing::debug!(server = %slot.name(), problem = %slot.hide(problem), "passed over a line before the handshake");
            }
            // The lists are fetched once it is up, so what changed before does not matter.
            Inbound::Refused {
                dropped, strays, ..
            } => task.report.say(Report::Observed(Observed {
                dropped_flood: dropped,
                strays,
                ..Observed::default()
            })),
            Inbound::Response { .. }
            | Inbound::Unreadable { .. }
            | Inbound::Failed { .. }
            | Inbound::SessionGone { .. }
            | Inbound::Notification(_) => {}
        }
    }
}

fn welcome<L: Link>(
    link: &mut L,
    result: Result<ServerResult, ErrorData>,
) -> Result<Welcome, Stop> {
    let info = match result {
        Ok(ServerResult::InitializeResult(info)) => info,
        Ok(other) => return Err(Stop::Nonsense(format!("{other:?}"))),
        Err(error) => return Err(Stop::Refused(error)),
    };
    if !SPOKEN.contains(&info.protocol_version) {
        return Err(Stop::Version(info.protocol_version));
    }
    link.negotiated(&info.protocol_version);
    let initialized = ClientNotification::InitializedNotification(InitializedNotification {
        method: Default::default(),
        extensions: Default::default(),
    });
    link.push(ClientJsonRpcMessage::notification(initialized))
        .map_err(Stop::Nonsense)?;
    let lists = lists(&info.capabilities);
    Ok(Welcome {
        info: Arc::new(info),
        lists,
    })
}

/// Only what was negotiated is asked for.
fn lists(capabilities: &ServerCapabilities) -> Vec<ListKind> {
    let mut lists = Vec::new();
    if capabilities.tools.is_some() {
        lists.push(ListKind::Tools);
    }
    if capabilities.prompts.is_some() {
        lists.push(ListKind::Prompts);
    }
    if capabilities.resources.is_some() {
        lists.push(ListKind::Resources);
        lists.push(ListKind::Templates);
    }
    lists
}
