//! Holds the armed faults and injects them into the server.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::fault::{Fault, Kind, Moment};
use super::{answers, deaths, floods, handshake, listings};
use crate::stdio_server::output::{notify, write_line};
use crate::stdio_server::tools::{definition, structured};
use crate::stdio_server::{Request, Server, ServerHooks, ignore_sigterm};

/// The tool that injects a fault once.
const MISBEHAVE: &str = "misbehave";

/// How a request continues after a fault.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterFault {
    /// It is served, or the next fault is injected.
    Serve,
    /// Nothing more is sent for it.
    Stop,
}

/// A server's armed faults. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct FaultInjector(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    faults: Mutex<Vec<Fault>>,
    /// The number of tool listings so far.
    listings: AtomicU64,
}

impl FaultInjector {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Self(Arc::new(Inner {
            faults: Mutex::new(faults),
            listings: AtomicU64::new(0),
        }))
    }

    /// Injects the faults that precede the first message.
    pub(super) fn begin(&self) -> io::Result<()> {
        for fault in self.of(Moment::Start).iter().chain(&self.of(Moment::End)) {
            self.begin_with(*fault)?;
        }
        Ok(())
    }

    fn begin_with(&self, fault: Fault) -> io::Result<()> {
        match fault.kind {
            Kind::Banner => write_line("Welcome to mcpvisor-badserver! Listening on stdio…"),
            Kind::IgnoreSigterm => ignore_sigterm()?,
            // The other faults are injected later.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.faults().iter().any(|fault| fault.kind == kind)
    }

    fn of(&self, moment: Moment) -> Vec<Fault> {
        let mut faults = self.faults().clone();
        faults.retain(|fault| fault.moment == moment);
        faults
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        let faults = self.0.faults.lock();
        faults.unwrap_or_else(PoisonError::into_inner)
    }

    fn inject(&self, fault: Fault, server: &Server, request: &Request) -> AfterFault {
        match fault.moment {
            Moment::Handshake => handshake::inject(fault, server, request),
            Moment::Listing => {
                let number = self.0.listings.fetch_add(1, Ordering::SeqCst);
                listings::inject(fault, server, request, number)
            }
            Moment::Call => inject_into_call(fault, server, request),
            Moment::Start | Moment::End => AfterFault::Serve,
        }
    }

    /// Runs the tool `misbehave`: a call fault affects this call, any other is armed.
    fn misbehave(&self, server: &Server, request: &Request) {
        let wanted = request.arguments()["fault"].as_str().unwrap_or_default();
        let fault = match wanted.parse::<Fault>() {
            Ok(fault) => fault,
            Err(problem) => return server.refuse(request, &problem),
        };
        if self.arm_or_inject(fault, server, request) == AfterFault::Serve {
            server.answer(request, structured(json!({ "fault": wanted })));
        }
    }

    fn arm_or_inject(&self, fault: Fault, server: &Server, request: &Request) -> AfterFault {
        match fault.moment {
            Moment::Call => return self.inject(fault, server, request),
            Moment::Handshake => {
                server.refuse(request, "this fault strikes at the start only");
                return AfterFault::Stop;
            }
            Moment::Start | Moment::Listing | Moment::End => {}
        }
        self.faults().push(fault);
        if let Err(problem) = self.begin_with(fault) {
            server.refuse(request, &problem.to_string());
            return AfterFault::Stop;
        }
        if fault.moment == Moment::Listing {
            notify("notifications/tools/list_changed", Value::Null);
        }
        AfterFault::Serve
    }
}

impl ServerHooks for FaultInjector {
    fn name(&self) -> &'static str {
        "mcpvisor-badserver"
    }

    fn serves(&self, server: &Server, request: &Request) -> bool {
        if request.tool() == MISBEHAVE {
            self.misbehave(server, request);
            return false;
        }
        let moment = match request.method.as_str() {
            "initialize" => Moment::Handshake,
            "tools/list" => Moment::Listing,
            "tools/call" => Moment::Call,
            _ => return true,
        };
        let faults = self.of(moment);
        faults
            .into_iter()
            .all(|fault| self.inject(fault, server, request) == AfterFault::Serve)
    }

    fn tools(&self) -> Vec<Value> {
        let line = "{fault: NAME[=NUMBER]}: lets a fault strike this call, or arms it";
        vec![definition(MISBEHAVE, line, false)]
    }
}

fn inject_into_call(fault: Fault, server: &Server, request: &Request) -> AfterFault {
    [deaths::inject, answers::inject, floods::inject]
        .into_iter()
        .find_map(|inject| inject(fault, server, request))
        .unwrap_or(AfterFault::Serve)
}
