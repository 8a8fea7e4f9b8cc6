//! What comes of an exchange, as messages.

use http::HeaderValue;
use mcpvisor_core::CallId;
use rmcp::ErrorData;
use tokio::time::Instant;

use super::body::Message;
use super::exchange::{Out, Purpose};
use super::{HttpLink, Session, headers};
use crate::link::codec::{
    Decoded, check_limits, check_limits_inline, decode, decode_error_body, decode_error_without_id,
};
use crate::link::cpu_quota::cpu_time;
use crate::link::flood_gate::push_in_order;
use crate::link::{Inbound, PendingRequests};

/// Answered requests whose streams are still open, so that their connections can be reused. The bound
/// follows the requests in flight, up to twice as many as there ever were.
const MIN_LINGERING: usize = 16;

impl HttpLink {
    pub(super) fn take(
        &mut self,
        purpose: Purpose,
        out: Out,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        match out {
            Out::Head(head) => self.begun(purpose, head),
            Out::Message(message) => self.read(purpose, message, pending),
            Out::Undialled(failure) => self.stall(purpose, &failure, pending),
            Out::Over(over) => self.over(purpose, *over, pending),
        }
    }

    /// The head of a good answer is there, with the id of a session if it has one.
    pub(super) fn begun(
        &mut self,
        purpose: Purpose,
        session: Option<HeaderValue>,
    ) -> Option<Inbound> {
        match purpose {
            Purpose::Listen => {
                // The server knows the session after all.
                self.gone_later = None;
                let missed = self.listen.opened(Instant::now());
                self.release();
                return missed.then_some(Inbound::NotificationsMissed);
            }
            Purpose::Initialized => self.greeted(true),
            // Whoever speaks the newer protocol has none.
            _ if self.modern => {}
            _ => {
                if let Some(id) = session.filter(headers::is_session) {
                    self.set_header(headers::SESSION, id);
                    self.session = Session::Held;
                }
            }
        }
        None
    }

    /// Reads a message here, or has it read elsewhere, which takes a while.
    pub(super) fn read(
        &mut self,
        purpose: Purpose,
        message: Message,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        let Message {
            text,
            alone,
            permit,
            work,
        } = message;
        // The first of a request's own stream is not measured.
        let begun = (!work.is_zero()).then(cpu_time);
        if purpose == Purpose::Listen {
            self.listen.heard();
        }
        let capacity = self.gate.capacity();
        let request = purpose
            .request()
            .filter(|id| pending.reply_kind(*id).is_some());
        let bounds = self.bounds.get();
        let Some(limit_check) = check_limits_inline(&text, &bounds) else {
            let pending = pending.snapshot();
            let reader = tokio::task::spawn_blocking(move || {
                let begun = cpu_time();
                let limit_check = check_limits(&text, &bounds);
                let decoded = decode(&text, limit_check, &pending, |bytes| capacity.fits(bytes));
                drop((text, permit));
                (decoded, work + cpu_time().saturating_sub(begun))
            });
            self.heavy = Some((purpose, reader));
            return None;
        };
        let decoded = decode(&text, limit_check, pending, |bytes| capacity.fits(bytes));
        if let Some(id) = request
            && matches!(
                &decoded,
                Decoded::Unsolicited(Inbound::Stray { .. }, _) | Decoded::DroppedNoise
            )
            && let Some(error) = nameless_error(&text, alone)
        {
            let result = Err(error);
            return self.admit(purpose, Decoded::Reply(Inbound::Response { id, result }));
        }
        let work = begun.map_or(work, |begun| work + cpu_time().saturating_sub(begun));
        match &decoded {
            answer if answer.is_reply() => {}
            Decoded::Unsolicited(..) => self.pace.charge_admitted(work),
            _ => self.pace.charge(work),
        }
        self.admit(purpose, decoded)
    }

    /// Lets it in, if it fits. After an answer its stream may still say something.
    pub(super) fn admit(&mut self, purpose: Purpose, decoded: Decoded) -> Option<Inbound> {
        if let Decoded::Batch(messages) = decoded {
            let mut first = None;
            for message in messages {
                let admitted = self.admit(purpose, message);
                push_in_order(admitted, &mut first, &mut self.ready);
            }
            return first;
        }
        let answers = matches!(decoded, Decoded::Reply(_));
        let inbound = self.gate.admit(decoded, &mut self.ready)?;
        if !answers {
            return Some(inbound);
        }
        if let Some(id) = purpose.request()
            && inbound.answers() == Some(id)
        {
            self.linger(id);
        }
        Some(self.with_doubt(inbound))
    }

    /// The stream of an answered request may end by itself, but not many of them stay open.
    pub(super) fn linger(&mut self, id: CallId) {
        self.lingering.push_back(id);
        if self.lingering.len() > MIN_LINGERING.max(2 * self.peak)
            && let Some(oldest) = self.lingering.pop_front()
        {
            self.cut_off(oldest);
        }
    }
}

/// An error without our id, in the answer to our request, is the answer. On a stream it may name
/// another one, which was given up.
fn nameless_error(text: &[u8], alone: bool) -> Option<ErrorData> {
    if alone {
        decode_error_body(text)
    } else {
        decode_error_without_id(text)
    }
}
