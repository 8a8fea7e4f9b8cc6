//! The connection tasks of the simulation, from their opening to their end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{
    Action, CallEnd, ConnectionEnd, Fault, FaultClass, PermanentFailure, ReturnedCall,
};
use mcpvisor_core::retry::{Known, RequestFailure};
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, CredentialRevision, FetchOutcome, Generation, Input, ListKind};

use super::effects::known_of;
use super::replies::Holder;
use super::simulation::{Event, Simulation};

/// A connection task.
#[derive(Debug)]
pub struct Task {
    stage: Stage,
    /// The calls that it holds, and whether each was written.
    pending: BTreeMap<CallId, bool>,
    /// Its reports arrive in order: the next one not before this.
    reported: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Up,
    /// It accepts no calls and closes.
    Closing,
}

/// An event inside a connection task.
#[derive(Debug, Clone, Copy)]
pub enum TaskEvent {
    FirstByte,
    Up,
    Fail,
    Die,
    Panic,
    End,
    Write(CallId),
    Progress(CallId),
    Answer(CallId),
    /// A call fails while the connection stays up.
    FailCall(CallId),
    Notify,
}

/// The current behaviour of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// It works.
    Healthy,
    /// It connects and dies soon.
    Flapping,
    /// It cannot be reached.
    Unreachable,
    /// It accepts everything and answers nothing.
    Silent,
    /// It refuses most tokens with 401.
    Unauthorized,
}

impl Simulation {
    /// Starts the task of a generation.
    pub fn open(&mut self, generation: Generation) {
        let task = Task {
            stage: Stage::Opening,
            pending: BTreeMap::new(),
            reported: self.now,
        };
        self.tasks.insert(generation, task);
        let opens = match self.behaviour {
            Behaviour::Healthy | Behaviour::Flapping | Behaviour::Unauthorized => 90,
            Behaviour::Unreachable => 3,
            Behaviour::Silent => 40,
        };
        let delay = self.rng.millis(800);
        if self.rng.percent(opens) {
            self.schedule(delay / 2, generation, TaskEvent::FirstByte);
            self.schedule(delay, generation, TaskEvent::Up);
        } else if self.behaviour != Behaviour::Silent {
            self.schedule(delay, generation, TaskEvent::Fail);
        }
    }

    fn schedule(&mut self, after: Duration, generation: Generation, what: TaskEvent) {
        self.later(after, Event::Task(generation, what));
    }

    /// Handles an event of a task, unless its stage is over.
    pub fn task_event(&mut self, generation: Generation, what: TaskEvent) {
        let Some(task) = self.tasks.get_mut(&generation) else {
            return;
        };
        match (what, task.stage) {
            (TaskEvent::FirstByte, Stage::Opening) => {
                self.report(generation, Input::FirstByte { generation });
            }
            (TaskEvent::Up, Stage::Opening) => self.comes_up(generation),
            (TaskEvent::Fail, Stage::Opening) => self.ends(generation, None),
            (TaskEvent::Die, Stage::Up) => {
                self.return_calls(generation, "died");
                self.closes(generation, self.settings.close);
            }
            (TaskEvent::Panic, _) => {
                let problem = Some("the connection task panicked".to_owned());
                self.ends(generation, Some(ConnectionEnd::Closed { problem }));
            }
            (TaskEvent::End, Stage::Closing) => self.ends(generation, None),
            (TaskEvent::Write(call), Stage::Up) => {
                if let Some(written) = task.pending.get_mut(&call) {
                    *written = true;
                    self.replies.write(call);
                    self.serve(generation, call);
                }
            }
            (TaskEvent::Progress(call), Stage::Up) if task.pending.contains_key(&call) => {
                self.report(generation, Input::CallProgressed { generation, call });
            }
            (TaskEvent::Answer(call), Stage::Up) if task.pending.remove(&call).is_some() => {
                self.answers(generation, call);
            }
            (TaskEvent::FailCall(call), Stage::Up) if task.pending.remove(&call).is_some() => {
                self.fails_call(generation, call);
            }
            (TaskEvent::Notify, Stage::Up) => self.notifies(generation),
            _ => {}
        }
    }

    fn comes_up(&mut self, generation: Generation) {
        self.task(generation).stage = Stage::Up;
        let lists = match self.rng.number(0..4) {
            0 => vec![],
            1 => vec![ListKind::Prompts],
            _ => vec![ListKind::Tools, ListKind::Resources],
        };
        self.report(generation, Input::ConnectionUp { generation, lists });
        let lives = match self.behaviour {
            Behaviour::Healthy | Behaviour::Unauthorized => {
                self.rng.percent(50).then(|| self.rng.millis(120_000))
            }
            Behaviour::Flapping => Some(self.rng.millis(2_000)),
            Behaviour::Unreachable => Some(self.rng.millis(100)),
            Behaviour::Silent => self.rng.percent(20).then(|| self.rng.millis(30_000)),
        };
        if let Some(lives) = lives {
            let end = if self.rng.percent(10) {
                TaskEvent::Panic
            } else {
                TaskEvent::Die
            };
            self.schedule(lives, generation, end);
        }
        let pause = self.rng.millis(10_000);
        self.schedule(pause, generation, TaskEvent::Notify);
    }

    /// The server sends a notification.
    fn notifies(&mut self, generation: Generation) {
        let list = self.rng.choose(&ListKind::ALL);
        let input = if self.rng.percent(5) {
            let fault = Fault::new(FaultClass::SessionExpired, "gone");
            Input::SessionLost { generation, fault }
        } else if self.rng.percent(10) {
            self.refusal(generation)
        } else if self.rng.percent(60) {
            Input::ListChanged { generation, list }
        } else {
            Input::MessageReceived { generation }
        };
        self.report(generation, input);
        let pause = self.rng.millis(20_000);
        self.schedule(pause, generation, TaskEvent::Notify);
    }

    /// A request of the runtime is refused with 401.
    fn refusal(&mut self, generation: Generation) -> Input {
        Input::Unauthorized {
            generation,
            credential: self.used_token(),
            fault: Fault::new(FaultClass::Authorization, "unauthorized"),
        }
    }

    /// The token of a request: the current one, or an earlier one.
    fn used_token(&mut self) -> CredentialRevision {
        let age = self.rng.choose(&[0, 0, 0, 1, 2]);
        CredentialRevision(self.token.saturating_sub(age))
    }

    /// Passes a call to the task; false if it accepts no calls.
    pub fn accept_call(&mut self, generation: Generation, call: CallId) -> bool {
        let Some(task) = self.tasks.get_mut(&generation) else {
            return false;
        };
        if task.stage != Stage::Up {
            return false;
        }
        task.pending.insert(call, false);
        let delay = self.rng.millis(20);
        self.schedule(delay, generation, TaskEvent::Write(call));
        true
    }

    /// The server handles a call according to its behaviour.
    fn serve(&mut self, generation: Generation, call: CallId) {
        if self.behaviour == Behaviour::Silent && self.rng.percent(90) {
            return;
        }
        let takes = self.rng.millis(5_000);
        if self.rng.percent(20) {
            self.schedule(takes / 3, generation, TaskEvent::Progress(call));
            self.schedule(takes / 2, generation, TaskEvent::Progress(call));
        }
        let fails = match self.behaviour {
            Behaviour::Unauthorized => 60,
            Behaviour::Healthy
            | Behaviour::Flapping
            | Behaviour::Unreachable
            | Behaviour::Silent => 10,
        };
        if self.rng.percent(fails) {
            self.schedule(takes / 4, generation, TaskEvent::FailCall(call));
        } else if self.rng.percent(95) {
            self.schedule(takes, generation, TaskEvent::Answer(call));
        }
    }

    fn answers(&mut self, generation: Generation, call: CallId) {
        self.replies.answer(call, Holder::Task(generation));
        let end = if self.rng.percent(90) {
            CallEnd::Answered
        } else {
            CallEnd::Unreadable
        };
        let ended = Input::CallEnded {
            generation,
            call,
            end,
        };
        self.report(generation, ended);
    }

    /// A call fails while the connection stays up.
    fn fails_call(&mut self, generation: Generation, call: CallId) {
        let retry_after = Some(self.rng.millis(8_000));
        let credential = self.used_token();
        let any = self.rng.choose(&[
            RequestFailure::SessionLost,
            RequestFailure::SessionLost,
            RequestFailure::ServerFault,
            RequestFailure::Busy { retry_after },
            RequestFailure::Busy { retry_after: None },
            RequestFailure::Unauthorized { credential },
            RequestFailure::ScopeNeeded,
            RequestFailure::Denied,
            RequestFailure::ConnectionLost,
        ]);
        let failure = match self.behaviour {
            Behaviour::Unauthorized => RequestFailure::Unauthorized { credential },
            Behaviour::Healthy
            | Behaviour::Flapping
            | Behaviour::Unreachable
            | Behaviour::Silent => any,
        };
        if known_of(failure) == Known::Refused {
            self.replies.refuse(call);
        }
        self.replies
            .pass(call, Holder::Task(generation), Holder::Report);
        let failed = Input::CallFailed {
            generation,
            call,
            failure,
            fault: Fault::new(FaultClass::ServerFault, "failed"),
        };
        self.report(generation, failed);
    }

    /// Cancels a call at the server, if it is still pending.
    pub fn cancel(&mut self, generation: Generation, call: CallId) {
        let task = self.tasks.get_mut(&generation);
        if task.is_some_and(|task| task.pending.remove(&call).is_some()) {
            self.replies.answer(call, Holder::Task(generation));
        }
    }

    /// Tells a task to close. A second request may shorten the close.
    pub fn close(&mut self, generation: Generation, grace: CloseSettings) {
        let Some(task) = self.tasks.get(&generation) else {
            return;
        };
        match task.stage {
            // It panics before it returns its calls.
            Stage::Up if self.rng.percent(5) => {
                return self.schedule(Duration::ZERO, generation, TaskEvent::Panic);
            }
            Stage::Opening => self.task(generation).stage = Stage::Closing,
            Stage::Up => self.return_calls(generation, "closed by request"),
            Stage::Closing => {}
        }
        self.closes(generation, grace);
    }

    fn closes(&mut self, generation: Generation, grace: CloseSettings) {
        let longest = grace.stdin + grace.terminate;
        let takes = longest.mul_f64(self.rng.fraction());
        let end = if self.rng.percent(5) {
            TaskEvent::Panic
        } else {
            TaskEvent::End
        };
        self.schedule(takes, generation, end);
    }

    /// Reports the loss with the unanswered calls; a few of them are dropped instead.
    fn return_calls(&mut self, generation: Generation, message: &str) {
        let task = self.task(generation);
        task.stage = Stage::Closing;
        let pending = std::mem::take(&mut task.pending);
        let mut returned = Vec::new();
        for (call, written) in pending {
            if self.rng.percent(5) {
                self.replies.answer(call, Holder::Task(generation));
            } else {
                self.replies
                    .pass(call, Holder::Task(generation), Holder::Report);
                returned.push(ReturnedCall { call, written });
            }
        }
        let lost = Input::ConnectionLost {
            generation,
            fault: Fault::new(FaultClass::ConnectionLost, message),
            returned,
        };
        self.report(generation, lost);
    }

    fn ends(&mut self, generation: Generation, end: Option<ConnectionEnd>) {
        let opening = self.task(generation).stage == Stage::Opening;
        let end = end.unwrap_or_else(|| self.random_end(opening));
        self.report(generation, Input::ConnectionEnded { generation, end });
        self.tasks.remove(&generation);
        self.replies
            .drop_all(|holder| holder == Holder::Task(generation));
        if self.rng.percent(50) {
            for _ in 0..self.rng.number(1..4) {
                self.late_fact(generation);
            }
        }
    }

    fn random_end(&mut self, opening: bool) -> ConnectionEnd {
        let class = self
            .rng
            .choose(&[FaultClass::ConnectFailed, FaultClass::Authorization]);
        let fault = Fault::new(class, "connection refused");
        match self.rng.number(0..40) {
            0 | 16 if opening => ConnectionEnd::Permanent(PermanentFailure {
                fault,
                action: Action::UpdateServer,
            }),
            1..=4 => ConnectionEnd::Closed {
                problem: Some("not cleanly".to_owned()),
            },
            5..=9 if opening => ConnectionEnd::Failed {
                fault,
                retry_after: Some(self.rng.millis(5_000)),
            },
            10..=15 if opening => ConnectionEnd::TryOtherEra(fault),
            _ if opening => ConnectionEnd::Failed {
                fault,
                retry_after: None,
            },
            _ => ConnectionEnd::Closed { problem: None },
        }
    }

    /// A fact that arrives after the end of its connection.
    fn late_fact(&mut self, generation: Generation) {
        let call = CallId(self.rng.number(0..self.next_call));
        let list = self.rng.choose(&ListKind::ALL);
        let end = ConnectionEnd::Closed { problem: None };
        let fault = Fault::new(FaultClass::ConnectionLost, "late");
        let outcome = FetchOutcome::Failed;
        let input = match self.rng.number(0..13) {
            12 => self.refusal(generation),
            0 => Input::CallEnded {
                generation,
                call,
                end: CallEnd::Answered,
            },
            1 => Input::CallProgressed { generation, call },
            11 => Input::SessionLost { generation, fault },
            2 => Input::MessageReceived { generation },
            3 => Input::FirstByte { generation },
            4 => Input::ConnectionUp {
                generation,
                lists: ListKind::ALL.to_vec(),
            },
            5 => Input::ConnectionLost {
                generation,
                fault,
                returned: vec![],
            },
            6 => Input::ConnectionEnded { generation, end },
            7 => Input::CheckEnded {
                generation,
                failure: Some(fault),
            },
            8 => Input::ListChanged { generation, list },
            9 => Input::ListFetched {
                generation,
                list,
                outcome,
            },
            _ => Input::ReportBroken { generation },
        };
        let after = self.rng.millis(20_000);
        self.later(after, Event::DeliverLate(input));
    }

    /// Sends a report to the actor; those of one task arrive in order.
    fn report(&mut self, generation: Generation, input: Input) {
        let transit = self.rng.millis(30);
        let at = self.task(generation).reported.max(self.now + transit);
        self.task(generation).reported = at;
        self.at(at, Event::Deliver(input));
    }

    fn task(&mut self, generation: Generation) -> &mut Task {
        self.tasks.get_mut(&generation).expect("the task runs")
    }
}
