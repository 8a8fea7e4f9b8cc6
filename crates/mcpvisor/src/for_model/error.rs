//! Call errors as text: what is known, and whether to retry.

use mcpvisor_core::machine::{Fault, FaultClass, truncate_text};
use mcpvisor_core::retry::Known;
use rmcp::model::ErrorCode;

use super::{Bounded, ModelText};
use crate::api::error::{CallError, NotSentReason, join};

/// The longest quoted cause, in bytes.
const LONGEST_CAUSE: usize = 200;

/// The longest quoted server answer, in bytes. Longer than a cause, because a model has to
/// understand what is wrong with its arguments.
const LONGEST_ANSWER: usize = 1_000;

/// One or two sentences: what happened, what is known about the request, and whether a retry makes
/// sense.
///
/// ```no_run
/// # async fn example(files: mcpvisor::ServerHandle) {
/// use mcpvisor::for_model::ModelText;
///
/// if let Err(error) = files.call_tool("write", serde_json::json!({ "path": "a.txt" })).await {
///     // "The connection to files was lost: the process exited with code 1. The request may or may
///     // not have run; check whether it took effect before you retry it."
///     let for_the_model = error.model_text();
///     // For people: the whole error, and what the server wrote on stderr.
///     eprintln!("{error}\n{}", error.stderr().unwrap_or_default());
/// }
/// # }
/// ```
impl ModelText for CallError {
    fn model_text_within(&self, limit: usize) -> String {
        let mut text = Bounded::new(limit);
        text.push(&said(self));
        text.finish()
    }
}

const RETRY_LATER: &str = "The request did not run; you may retry it later.";
const DO_NOT_RETRY: &str = "The request did not run; do not retry it.";
const CHECK_FIRST: &str =
    "The request may or may not have run; check whether it took effect before you retry it.";
const CORRECT_IT: &str = "The request did not run; correct the arguments, then retry it.";

fn said(error: &CallError) -> String {
    let server = error.server();
    match error {
        CallError::NotSent { reason, .. } => not_sent(server.as_str(), reason),
        CallError::Busy { .. } => format!("{server} is busy. {RETRY_LATER}"),
        CallError::OutcomeUnknown { cause, .. } => {
            let cause = short(cause, LONGEST_CAUSE);
            format!("The connection to {server} was lost: {cause}. {CHECK_FIRST}")
        }
        CallError::Refused {
            class: FaultClass::Authorization,
            retry_in: None,
            ..
        } => format!("{server} needs the authorization of a person. {DO_NOT_RETRY}"),
        CallError::Refused { cause, .. } => {
            let cause = short(cause, LONGEST_CAUSE);
            format!("{server} refused the request: {cause}. {RETRY_LATER}")
        }
        CallError::Deadline {
            after, sent: true, ..
        } => format!("{server} did not answer within {after:?}. {CHECK_FIRST}"),
        CallError::Deadline { after, .. } => {
            format!("{server} was not available within {after:?}. {RETRY_LATER}")
        }
        CallError::Cancelled { .. } => {
            format!("The request to {server} was cancelled. {CHECK_FIRST}")
        }
        CallError::Answered { error, .. } => {
            let answer = short(&error.message, LONGEST_ANSWER);
            let retry = match error.code {
                // Wrong arguments, or an unknown tool.
                ErrorCode::INVALID_PARAMS => " Correct the request, then retry it.",
                _ => "",
            };
            format!("{server} answered with an error: {answer}.{retry}")
        }
        CallError::Unreadable { problem, .. } => {
            let problem = short(problem, LONGEST_CAUSE);
            format!(
                "{server} ran the request, but its answer cannot be read: {problem}. Do not retry it."
            )
        }
        CallError::InputRequired { problem, .. } => {
            let problem = short(problem, LONGEST_CAUSE);
            format!("{server} asked for input that is not available: {problem}. Do not retry it.")
        }
        CallError::ToolChanged { tool, known, .. } => {
            let known = of_first(*known);
            format!(
                "The tool {tool} of {server} changed meanwhile. {known} Read its new definition first."
            )
        }
        CallError::ToolGone { tool, known, .. } => {
            let known = of_first(*known);
            format!("The tool {tool} of {server} no longer exists. {known} Use another tool.")
        }
        CallError::TaskUnknown { .. } => {
            format!("{server} started the request, but no longer knows it. {CHECK_FIRST}")
        }
        CallError::TaskCancelled { .. } => {
            format!("The request was cancelled at {server}. {CHECK_FIRST}")
        }
        CallError::TaskUnreachable { cause, .. } => {
            let cause = short(&cause.to_string(), LONGEST_CAUSE);
            format!(
                "{server} started the request, but cannot be asked about it: {cause}. {CHECK_FIRST}"
            )
        }
        CallError::InvalidRequest { problem, .. } => {
            let problem = short(problem, LONGEST_ANSWER);
            format!("The request to {server} is not valid: {problem}. {CORRECT_IT}")
        }
        CallError::InvalidArguments { tool, problems, .. } => {
            let problems = short(&join(problems, "; "), LONGEST_ANSWER);
            format!("The arguments of {tool} do not fit its schema: {problems}. {CORRECT_IT}")
        }
        CallError::InvalidResult { tool, problems, .. } => {
            let problems = short(&join(problems, "; "), LONGEST_ANSWER);
            format!(
                "{tool} of {server} ran, but its result does not fit its schema: {problems}. Do not retry it."
            )
        }
        CallError::ToolHidden { tool, .. } => {
            format!("The tool {tool} of {server} is not available here. {DO_NOT_RETRY}")
        }
        CallError::HeldBack { tool, .. } => {
            format!(
                "The tool {tool} of {server} waits for the approval of a person. {DO_NOT_RETRY}"
            )
        }
        CallError::RuntimeGone { .. } => format!("All tools were shut down. {DO_NOT_RETRY}"),
    }
}

fn not_sent(server: &str, reason: &NotSentReason) -> String {
    match reason {
        NotSentReason::Disabled => format!("{server} is switched off. {DO_NOT_RETRY}"),
        NotSentReason::Stopping => format!("{server} is shutting down. {DO_NOT_RETRY}"),
        NotSentReason::Removed => format!("{server} was removed. {DO_NOT_RETRY}"),
        NotSentReason::ClientClosed => {
            format!("The request to {server} was cancelled. {DO_NOT_RETRY}")
        }
        NotSentReason::Failed { fault, .. } => {
            let fault = short(fault, LONGEST_CAUSE);
            format!("{server} does not work until a person fixes it: {fault}. {DO_NOT_RETRY}")
        }
        NotSentReason::Parked(fault) | NotSentReason::NoConnection(fault) => {
            let cause = fault.as_ref().map(cause).unwrap_or_default();
            format!("{server} is not connected{cause}. {RETRY_LATER}")
        }
        NotSentReason::NotRead => format!("{server} does not read its input. {RETRY_LATER}"),
        NotSentReason::ActorRestarted => format!("{server} was restarted. {RETRY_LATER}"),
    }
}

/// What is known about the first attempt, if the request is not retried.
fn of_first(known: Known) -> &'static str {
    match known {
        Known::NotSent | Known::Refused => "The request did not run.",
        Known::Unknown => "The request may or may not have run.",
        Known::Answered => "The request did run.",
    }
}

fn cause(fault: &Fault) -> String {
    format!(": {}", short(&fault.message, LONGEST_CAUSE))
}

/// A text on one line, truncated to the limit and without a trailing full stop.
fn short(text: &str, limit: usize) -> String {
    let words: Vec<&str> = super::start(text, 4 * limit).split_whitespace().collect();
    let mut text = words.join(" ");
    truncate_text(&mut text, limit);
    text.truncate(text.trim_end_matches(['.', ' ']).len());
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcpvisor_core::ServerName;
    use mcpvisor_core::machine::{NotSent, Outcome};
    use rmcp::ErrorData;

    use super::*;
    use crate::api::error::{Obstacle, RequestContext, SchemaProblem};
    use crate::api::reply::Failure;

    const STDERR: &str = "Traceback (most recent call last):\nKeyError: 'canary'";

    fn fault() -> Fault {
        Fault::new(FaultClass::Exited, "the process exited with code 1").with_stderr(STDERR)
    }

    fn context() -> RequestContext {
        RequestContext {
            server: ServerName::new("files").unwrap(),
            method: "tools/call".into(),
            tool: Some("write".to_owned()),
            deadline: Duration::from_secs(20),
            idle: Duration::from_secs(5),
            limit: 64,
            expected_wait: None,
            obstacle: Some(Obstacle {
                cause: "the server is reconnecting: the process exited with code 1".to_owned(),
                stderr: fault().stderr,
            }),
        }
    }

    fn every_failure() -> Vec<Failure> {
        let deadline = |sent| Failure::Outcome(Outcome::Deadline { sent, idle: false });
        vec![
            Failure::Outcome(Outcome::NotSent(NotSent::Disabled)),
            Failure::Outcome(Outcome::NotSent(NotSent::Stopping)),
            Failure::Outcome(Outcome::NotSent(NotSent::Parked(Some(fault())))),
            Failure::Outcome(Outcome::NotSent(NotSent::NoConnection(Some(fault())))),
            Failure::Outcome(Outcome::Busy),
            Failure::Outcome(Outcome::Unknown(fault())),
            Failure::Outcome(Outcome::Refused(fault())),
            Failure::Outcome(Outcome::Answered(fault())),
            deadline(true),
            deadline(false),
            Failure::Outcome(Outcome::Cancelled),
            Failure::Error(ErrorData::invalid_params("path is\nmissing.", None)),
            Failure::Error(ErrorData::internal_error("x".repeat(100_000), None)),
            Failure::Unreadable("x".repeat(100_000)),
            Failure::InputUnavailable("it wants elicitation/create: not offered".to_owned()),
            Failure::InvalidRequest("x".repeat(100_000)),
            Failure::HeldBack("it changed".to_owned()),
            Failure::ToolChanged(Known::Unknown),
            Failure::ToolGone(Known::NotSent),
            Failure::SendBufferFull,
            Failure::ActorGone,
            Failure::Removed,
            Failure::RuntimeGone,
        ]
    }

    #[test]
    fn every_error_is_short_on_one_line_and_without_stderr() {
        for failure in every_failure() {
            let error = context().error(failure);
            let text = error.model_text();
            assert!(text.len() < 1_200, "{text}");
            assert!(!text.contains('\n') && !text.contains("canary"), "{text}");
            assert!(
                text.contains("files") || text.contains("All tools"),
                "{text}"
            );
            assert!(text.ends_with('.') && !text.contains(".."), "{text}");
        }
    }

    #[test]
    fn a_text_says_whether_it_ran_as_the_error_knows_it() {
        for failure in every_failure() {
            let error = context().error(failure);
            let text = error.model_text();
            let (did_not, may) = (
                text.contains("did not run"),
                text.contains("may or may not"),
            );
            match error.known() {
                Known::NotSent | Known::Refused => assert!(did_not && !may, "{text}"),
                Known::Unknown => assert!(may && !did_not, "{text}"),
                Known::Answered => assert!(!may && !did_not, "{text}"),
            }
        }
    }

    #[test]
    fn a_lost_call_reads_so_to_a_model_and_has_its_stderr_beside_it() {
        let lost = context().error(Failure::Outcome(Outcome::Unknown(fault())));
        assert_eq!(
            lost.model_text(),
            "The connection to files was lost: the process exited with code 1. The request may or may not have run; check whether it took effect before you retry it."
        );
        assert_eq!(lost.stderr(), Some(STDERR));
        assert_eq!(
            lost.to_string(),
            "files: tools/call was sent, but its outcome is unknown: the process exited with code 1; its stderr ends with: Traceback (most recent call last): | KeyError: 'canary'; check whether it took effect before retrying"
        );
        let late = context().error(Failure::Outcome(Outcome::Deadline {
            sent: false,
            idle: false,
        }));
        assert_eq!(late.stderr(), Some(STDERR));
    }

    #[test]
    fn wrong_arguments_are_to_be_corrected() {
        let missing = Failure::Error(ErrorData::invalid_params("path is\nmissing.", None));
        assert_eq!(
            context().error(missing).model_text(),
            "files answered with an error: path is missing. Correct the request, then retry it."
        );
        let error = CallError::InvalidArguments {
            server: ServerName::new("files").unwrap(),
            tool: "write".to_owned(),
            problems: vec![SchemaProblem {
                field: "/path".to_owned(),
                problem: "is missing".to_owned(),
            }],
        };
        assert_eq!(
            error.model_text(),
            "The arguments of write do not fit its schema: /path: is missing. The request did not run; correct the arguments, then retry it."
        );
    }
}
