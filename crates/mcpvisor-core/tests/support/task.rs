//! The connection tasks of the simulated world: what one does from its opening to its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::{
    Action, CallEnd, ConnectionEnd, Fault, FaultClass, PermanentFailure, ReturnedCall,
};
use mcpvisor_core::retry::{Known, RequestFailure};
use mcpvisor_core::settings::CloseSettings;
use mcpvisor_core::{CallId, FetchOutcome, Generation, Input, ListKind};

use super::effects::known_of;
use super::replies::Holder;
use super::world::{Event, World};

/// A connection task.
#[derive(Debug)]
pub struct Task {
    stage: Stage,
    /// The calls that it holds, and whether each was written.
    pending: BTreeMap<CallId, bool>,
    /// Its reports arrive in order: none before this.
    reported: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Up,
    /// It takes nothing more, and closes.
    Leaving,
}

/// What happens inside a connection task.
#[derive(Debug, Clone, Copy)]
pub enum Happening {
    FirstByte,
    Up,
    Fail,
    Die,
    Panic,
    ConnectionEnd,
    Write(CallId),
    Progress(CallId),
    Answer(CallId),
    /// A call meets trouble of its own, and the connection goes on.
    RequestFailure(CallId),
    Speak,
}

/// How the server is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// It works.
    Fair,
    /// It comes up and dies soon.
    Flapping,
    /// It cannot be reached.
    Dead,
    /// It accepts everything and answers nothing.
    Silent,
}

impl World {
    /// Starts the task of a generation.
    pub fn open(&mut self, generation: Generation) {
        let task = Task {
            stage: Stage::Opening,
            pending: BTreeMap::new(),
            reported: self.now,
        };
        self.tasks.insert(generation, task);
        let opens = match self.weather {
            Weather::Fair | Weather::Flapping => 90,
            Weather::Dead => 3,
            Weather::Silent => 40,
        };
        let delay = self.dice.millis(800);
        if self.dice.percent(opens) {
            self.happens(delay / 2, generation, Happening::FirstByte);
            self.happens(delay, generation, Happening::Up);
        } else if self.weather != Weather::Silent {
            self.happens(delay, generation, Happening::Fail);
        }
    }

    fn happens(&mut self, after: Duration, generation: Generation, what: Happening) {
        self.later(after, Event::Task(generation, what));
    }

    /// Something happens inside a task, unless it is past that.
    pub fn happen(&mut self, generation: Generation, what: Happening) {
        let Some(task) = self.tasks.get_mut(&generation) else {
            return;
        };
        match (what, task.stage) {
            (Happening::FirstByte, Stage::Opening) => {
                self.report(generation, Input::FirstByte { generation });
            }
            (Happening::Up, Stage::Opening) => self.comes_up(generation),
            (Happening::Fail, Stage::Opening) => self.ends(generation, None),
            (Happening::Die, Stage::Up) => {
                self.hand_back(generation, "died");
                self.closes(generation, self.settings.close);
            }
            (Happening::Panic, _) => {
                let problem = Some("the connection task panicked".to_owned());
                self.ends(generation, Some(ConnectionEnd::Closed { problem }));
            }
            (Happening::ConnectionEnd, Stage::Leaving) => self.ends(generation, None),
            (Happening::Write(call), Stage::Up) => {
                if let Some(written) = task.pending.get_mut(&call) {
                    *written = true;
                    self.replies.write(call);
                    self.serve(generation, call);
                }
            }
            (Happening::Progress(call), Stage::Up) if task.pending.contains_key(&call) => {
                self.report(generation, Input::CallProgressed { generation, call });
            }
            (Happening::Answer(call), Stage::Up) if task.pending.remove(&call).is_some() => {
                self.answers(generation, call);
            }
            (Happening::RequestFailure(call), Stage::Up)
                if task.pending.remove(&call).is_some() =>
            {
                self.troubles(generation, call);
            }
            (Happening::Speak, Stage::Up) => self.speaks(generation),
            _ => {}
        }
    }

    fn comes_up(&mut self, generation: Generation) {
        self.task(generation).stage = Stage::Up;
        let lists = match self.dice.number(0..4) {
            0 => vec![],
            1 => vec![ListKind::Prompts],
            _ => vec![ListKind::Tools, ListKind::Resources],
        };
        self.report(generation, Input::ConnectionUp { generation, lists });
        let lives = match self.weather {
            Weather::Fair => self.dice.percent(50).then(|| self.dice.millis(120_000)),
            Weather::Flapping => Some(self.dice.millis(2_000)),
            Weather::Dead => Some(self.dice.millis(100)),
            Weather::Silent => self.dice.percent(20).then(|| self.dice.millis(30_000)),
        };
        if let Some(lives) = lives {
            let end = if self.dice.percent(10) {
                Happening::Panic
            } else {
                Happening::Die
            };
            self.happens(lives, generation, end);
        }
        let pause = self.dice.millis(10_000);
        self.happens(pause, generation, Happening::Speak);
    }

    /// The server says something of its own accord.
    fn speaks(&mut self, generation: Generation) {
        let list = self.dice.choose(&ListKind::ALL);
        let said = if self.dice.percent(5) {
            let fault = Fault::new(FaultClass::SessionExpired, "gone");
            Input::SessionLost { generation, fault }
        } else if self.dice.percent(60) {
            Input::ListChanged { generation, list }
        } else {
            Input::MessageReceived { generation }
        };
        self.report(generation, said);
        let pause = self.dice.millis(20_000);
        self.happens(pause, generation, Happening::Speak);
    }

    /// A call is handed over; false when the task takes nothing any more.
    pub fn take_call(&mut self, generation: Generation, call: CallId) -> bool {
        let Some(task) = self.tasks.get_mut(&generation) else {
            return false;
        };
        if task.stage != Stage::Up {
            return false;
        }
        task.pending.insert(call, false);
        let delay = self.dice.millis(20);
        self.happens(delay, generation, Happening::Write(call));
        true
    }

    /// The server has a call and does with it what the weather lets it.
    fn serve(&mut self, generation: Generation, call: CallId) {
        if self.weather == Weather::Silent && self.dice.percent(90) {
            return;
        }
        let takes = self.dice.millis(5_000);
        if self.dice.percent(20) {
            self.happens(takes / 3, generation, Happening::Progress(call));
            self.happens(takes / 2, generation, Happening::Progress(call));
        }
        if self.dice.percent(10) {
            self.happens(takes / 4, generation, Happening::RequestFailure(call));
        } else if self.dice.percent(95) {
            self.happens(takes, generation, Happening::Answer(call));
        }
    }

    fn answers(&mut self, generation: Generation, call: CallId) {
        self.replies.answer(call, Holder::Task(generation));
        let end = if self.dice.percent(90) {
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

    /// A call comes back alone, with what happened to it.
    fn troubles(&mut self, generation: Generation, call: CallId) {
        let retry_after = Some(self.dice.millis(8_000));
        let failure = self.dice.choose(&[
            RequestFailure::SessionLost,
            RequestFailure::SessionLost,
            RequestFailure::ServerFault,
            RequestFailure::Busy { retry_after },
            RequestFailure::Busy { retry_after: None },
            RequestFailure::Unauthorized,
            RequestFailure::Denied,
            RequestFailure::ConnectionLost,
        ]);
        if known_of(failure) == Known::Refused {
            self.replies.refuse(call);
        }
        self.replies
            .pass(call, Holder::Task(generation), Holder::Report);
        let failed = Input::CallFailed {
            generation,
            call,
            failure,
            fault: Fault::new(FaultClass::ServerFault, "trouble"),
        };
        self.report(generation, failed);
    }

    /// Gives a call up at the server, if it is still there.
    pub fn cancel(&mut self, generation: Generation, call: CallId) {
        let task = self.tasks.get_mut(&generation);
        if task.is_some_and(|task| task.pending.remove(&call).is_some()) {
            self.replies.answer(call, Holder::Task(generation));
        }
    }

    /// Tells a task to close. A second word makes it hurry.
    pub fn close(&mut self, generation: Generation, grace: CloseSettings) {
        let Some(task) = self.tasks.get(&generation) else {
            return;
        };
        match task.stage {
            // It dies before it can give anything back.
            Stage::Up if self.dice.percent(5) => {
                return self.happens(Duration::ZERO, generation, Happening::Panic);
            }
            Stage::Opening => self.task(generation).stage = Stage::Leaving,
            Stage::Up => self.hand_back(generation, "was told to close"),
            Stage::Leaving => {}
        }
        self.closes(generation, grace);
    }

    fn closes(&mut self, generation: Generation, grace: CloseSettings) {
        let longest = grace.stdin + grace.terminate;
        let takes = longest.mul_f64(self.dice.chance());
        let end = if self.dice.percent(5) {
            Happening::Panic
        } else {
            Happening::ConnectionEnd
        };
        self.happens(takes, generation, end);
    }

    /// Reports the loss, with what was not answered; now and then a call is dropped on the way.
    fn hand_back(&mut self, generation: Generation, message: &str) {
        let task = self.task(generation);
        task.stage = Stage::Leaving;
        let pending = std::mem::take(&mut task.pending);
        let mut returned = Vec::new();
        for (call, written) in pending {
            if self.dice.percent(5) {
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
        let end = end.unwrap_or_else(|| self.some_end(opening));
        self.report(generation, Input::ConnectionEnded { generation, end });
        self.tasks.remove(&generation);
        self.replies
            .drop_all(|holder| holder == Holder::Task(generation));
        if self.dice.percent(50) {
            for _ in 0..self.dice.number(1..4) {
                self.stray(generation);
            }
        }
    }

    fn some_end(&mut self, opening: bool) -> ConnectionEnd {
        let fault = Fault::new(FaultClass::ConnectFailed, "nobody listens");
        match self.dice.number(0..40) {
            0 if opening => ConnectionEnd::Permanent(PermanentFailure {
                fault,
                action: Action::UpdateServer,
            }),
            1..=4 => ConnectionEnd::Closed {
                problem: Some("not cleanly".to_owned()),
            },
            5..=9 if opening => ConnectionEnd::Failed {
                fault,
                retry_after: Some(self.dice.millis(5_000)),
            },
            10..=15 if opening => ConnectionEnd::TryOtherEra(fault),
            _ if opening => ConnectionEnd::Failed {
                fault,
                retry_after: None,
            },
            _ => ConnectionEnd::Closed { problem: None },
        }
    }

    /// A fact that arrives after the end of its connection, whatever it is.
    fn stray(&mut self, generation: Generation) {
        let call = CallId(self.dice.number(0..self.next_call));
        let list = self.dice.choose(&ListKind::ALL);
        let end = ConnectionEnd::Closed { problem: None };
        let fault = Fault::new(FaultClass::ConnectionLost, "late");
        let outcome = FetchOutcome::Failed;
        let input = match self.dice.number(0..12) {
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
        let after = self.dice.millis(20_000);
        self.later(after, Event::Stray(input));
    }

    /// Sends a report to the actor; those of one task arrive in order.
    fn report(&mut self, generation: Generation, input: Input) {
        let transit = self.dice.millis(30);
        let at = self.task(generation).reported.max(self.now + transit);
        self.task(generation).reported = at;
        self.at(at, Event::Tell(input));
    }

    fn task(&mut self, generation: Generation) -> &mut Task {
        self.tasks.get_mut(&generation).expect("it runs")
    }
}
