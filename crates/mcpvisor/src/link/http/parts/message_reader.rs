//! Decodes received messages, and bounds what they may cost.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::link::codec::decode::{Decoded, decode, decode_error_body, decode_oversized};
use crate::link::codec::partial_message::OversizedLine;
use crate::link::codec::weigh::{check_limits, check_limits_inline};
use crate::link::cpu_quota::{CpuQuota, cpu_time};
use crate::link::flood_gate::FloodGate;
use crate::link::http::exchange::body::BodyMessage;
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::limits::MessageLimits;
use crate::link::{Inbound, PendingRequests};

/// Tokens of the flood gate that a request of the server costs in addition to a notification,
/// because its reply is an HTTP request: 125 requests per second are admitted.
const REQUEST_TOKENS: u32 = 7;

/// The decoder of a link.
#[derive(Debug)]
pub(crate) struct MessageReader {
    limits: MessageLimits,
    pub(crate) gate: FloodGate,
    /// CPU time of input that answers no request.
    quota: CpuQuota,
    /// A large message that is decoded on another thread. The link reads nothing else meanwhile, so
    /// that messages stay in order and memory is bounded.
    pub(crate) background: Option<(Purpose, JoinHandle<(Decoded, Duration)>)>,
}

impl MessageReader {
    pub(crate) fn new(limits: MessageLimits, quota: CpuQuota) -> Self {
        Self {
            limits,
            gate: FloodGate::with_request_tokens(REQUEST_TOKENS),
            quota,
            background: None,
        }
    }

    /// Decodes a message, or starts to decode it in the background and returns `None`.
    pub(crate) fn read(
        &mut self,
        purpose: Purpose,
        message: BodyMessage,
        pending: &impl PendingRequests,
    ) -> Option<Decoded> {
        let BodyMessage {
            text,
            is_whole_body,
            permit,
            cpu_time: spent,
        } = message;
        // Zero: the first polls of a request's exchange are not measured.
        let started = (!spent.is_zero()).then(cpu_time);
        let capacity = self.gate.capacity();
        let request = purpose
            .request()
            .filter(|id| pending.reply_kind(*id).is_some());
        let limits = self.limits.get();
        let Some(limit_check) = check_limits_inline(&text, &limits) else {
            let pending = pending.snapshot();
            let task = tokio::task::spawn_blocking(move || {
                let started = cpu_time();
                let limit_check = check_limits(&text, &limits);
                let decoded = decode(&text, limit_check, &pending, |bytes| capacity.fits(bytes));
                drop((text, permit));
                (decoded, spent + cpu_time().saturating_sub(started))
            });
            self.background = Some((purpose, task));
            return None;
        };
        let decoded = decode(&text, limit_check, pending, |bytes| capacity.fits(bytes));
        if let Some(id) = request
            && matches!(
                &decoded,
                Decoded::Unsolicited(Inbound::Stray { .. }, _) | Decoded::DroppedNoise
            )
            // An error in the response to a request is its reply, even if the id is missing or
            // wrong. On an event stream, one with the id of another request may belong to a
            // cancelled one.
            && let Some(error) = decode_error_body(&text, is_whole_body)
        {
            let result = Err(error);
            return Some(Decoded::Reply(Inbound::Response { id, result }));
        }
        let spent = started.map_or(spent, |started| spent + cpu_time().saturating_sub(started));
        match &decoded {
            reply if reply.is_reply() => {}
            Decoded::Unsolicited(..) => self.quota.charge_admitted(spent),
            _ => self.quota.charge(spent),
        }
        Some(decoded)
    }

    /// Decodes what is known of a message beyond the size limit; `None` if that does not identify it.
    pub(crate) fn read_oversized(
        &mut self,
        message: &OversizedLine,
        problem: &str,
        pending: &impl PendingRequests,
    ) -> Option<Decoded> {
        let capacity = self.gate.capacity();
        decode_oversized(message, problem, pending, |bytes| capacity.fits(bytes))
    }

    /// Polls the message that is decoded in the background. `None`: there is none.
    pub(crate) fn poll_background(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Option<Poll<(Purpose, Option<Decoded>)>> {
        let (purpose, task) = self.background.as_mut()?;
        let purpose = *purpose;
        let Poll::Ready(result) = Pin::new(task).poll(cx) else {
            return Some(Poll::Pending);
        };
        self.background = None;
        // If the decoder panicked, the end of the exchange decides about the request.
        let decoded = result.ok().map(|(decoded, spent)| {
            if !decoded.is_reply() {
                self.quota.charge(spent);
            }
            decoded
        });
        Some(Poll::Ready((purpose, decoded)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mcpvisor_core::CallId;

    use super::*;
    use crate::link::{PendingSnapshot, ReplyKind};

    fn read(purpose: Purpose, text: &'static str, is_whole_body: bool) -> Decoded {
        let mut reader = MessageReader::new(MessageLimits::default(), CpuQuota::default());
        let message = BodyMessage {
            text: Bytes::from_static(text.as_bytes()),
            is_whole_body,
            permit: None,
            cpu_time: Duration::ZERO,
        };
        let pending = PendingSnapshot(vec![(CallId(1), ReplyKind::Empty)]);
        reader.read(purpose, message, &pending).unwrap()
    }

    #[test]
    fn an_error_without_an_id_answers_the_request_of_its_exchange() {
        let request = Purpose::Request(CallId(1));
        let null_id = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#;
        let other_id = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"no"}}"#;
        for (purpose, text, is_whole_body, answers) in [
            (request, null_id, true, true),
            (request, null_id, false, true),
            (request, other_id, true, true),
            (request, other_id, false, false),
            (Purpose::Request(CallId(2)), null_id, true, false),
            (Purpose::ServerStream, null_id, false, false),
        ] {
            let decoded = read(purpose, text, is_whole_body);
            let case = format!("{purpose:?} {text} {is_whole_body}: {decoded:?}");
            assert_eq!(decoded.is_reply(), answers, "{case}");
        }
    }

    #[test]
    fn a_reply_is_decoded_and_unsolicited_input_is_not_taken_for_one() {
        let request = Purpose::Request(CallId(1));
        let reply = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(read(request, reply, true).is_reply());
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        let decoded = read(request, notification, false);
        assert!(matches!(decoded, Decoded::Unsolicited(..)), "{decoded:?}");
    }
}
