//! What comes of an exchange, as messages.

use http::HeaderValue;
use mcpvisor_core::CallId;
use rmcp::ErrorData;
use tokio::time::Instant;

use super::body::Message;
use super::exchange::{Out, Purpose};
use super::{HttpLink, Session, headers};
use crate::link::codec::{Decoded, decode, decode_nameless, decode_refusal, judge, judge_here};
use crate::link::flood_gate::put;
use crate::link::pace::cpu_time;
use crate::link::{Expectations, Inbound};

/// Answered requests whose streams are still open, so that their connections can be reused. The bound
/// follows the requests in flight, up to twice as many as there ever were.
const MIN_LINGERING: usize = 16;

impl HttpLink {
    pub(super) fn take(
        &mut self,
        purpose: Purpose,
        out: Out,
        expect: &impl Expectations,
    ) -> Option<Inbound> {
        match out {
            Out::Head(head) => self.begun(purpose, head),
            Out::Message(message) => self.read(purpose, message, expect),
            Out::Undialled(failure) => self.stall(purpose, &failure, expect),
            Out::Over(over) => self.over(purpose, *over, expect),
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
                return missed.then_some(Inbound::Unheard);
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
        expect: &impl Expectations,
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
        let room = self.gate.room();
        let pending = purpose.request().filter(|id| expect.expect(*id).is_some());
        let bounds = self.bounds.get();
        let Some(verdict) = judge_here(&text, &bounds) else {
            let expect = expect.snapshot();
            let reader = tokio::task::spawn_blocking(move || {
                let begun = cpu_time();
                let verdict = judge(&text, &bounds);
                let decoded = decode(&text, verdict, &expect, |bytes| room.has(bytes));
                drop((text, permit));
                (decoded, work + cpu_time().saturating_sub(begun))
            });
            self.heavy = Some((purpose, reader));
            return None;
        };
        let decoded = decode(&text, verdict, expect, |bytes| room.has(bytes));
        if let Some(id) = pending
            && matches!(
                &decoded,
                Decoded::Unasked(Inbound::Stray { .. }, _) | Decoded::RefusedNoise
            )
            && let Some(error) = nameless_error(&text, alone)
        {
            let result = Err(error);
            return self.admit(purpose, Decoded::Answer(Inbound::Response { id, result }));
        }
        let work = begun.map_or(work, |begun| work + cpu_time().saturating_sub(begun));
        match &decoded {
            answer if answer.is_answer() => {}
            Decoded::Unasked(..) => self.pace.charge_let_in(work),
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
                put(admitted, &mut first, &mut self.ready);
            }
            return first;
        }
        let answers = matches!(decoded, Decoded::Answer(_));
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
        decode_refusal(text)
    } else {
        decode_nameless(text)
    }
}
