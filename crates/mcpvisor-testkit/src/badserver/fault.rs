//! The faults: their names, the meaning of their number, and when they are injected.

use std::str::FromStr;

/// Each fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Banner,
    ExitOnInitialize,
    SigstopOnInitialize,
    MuteInitialize,
    WrongVersion,
    EndlessCursor,
    RepeatingCursor,
    HugeToolList,
    ChangeTools,
    ExitOnCall,
    KillOnCall,
    SigstopOnCall,
    CloseStdoutOnCall,
    CloseStdinOnCall,
    GrandchildHoldsStdout,
    SpawnGrandchildren,
    StopReadingStdin,
    MuteCalls,
    Garbage,
    TruncatedJson,
    HalfAnswerExit,
    WrongId,
    ForeignId,
    WrongShape,
    BadUtf8,
    Nesting,
    Line,
    Values,
    SlowDrip,
    LateAnswer,
    DuplicateAnswers,
    Flood,
    FloodRequests,
    StderrFlood,
    IgnoreEof,
    IgnoreSigterm,
}

/// When a fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before anything is read.
    Start,
    /// At `initialize`.
    Handshake,
    /// At every `tools/list`.
    Listing,
    /// At every `tools/call`.
    Call,
    /// When the server should end.
    End,
}

/// What a fault's number means, and its default.
type Number = (&'static str, u64);

/// A line of the list of faults.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) line: &'static str,
    kind: Kind,
    moment: Moment,
    number: Option<Number>,
}

impl Entry {
    /// The syntax on the command line.
    pub(super) fn usage(&self) -> String {
        match self.number {
            Some((what, default)) => format!("{}[={what}] ({default})", self.name),
            None => self.name.to_owned(),
        }
    }
}

const fn plain(kind: Kind, moment: Moment, name: &'static str, line: &'static str) -> Entry {
    Entry {
        name,
        line,
        kind,
        moment,
        number: None,
    }
}

const fn counted(
    kind: Kind,
    moment: Moment,
    name: &'static str,
    number: Number,
    line: &'static str,
) -> Entry {
    Entry {
        name,
        line,
        kind,
        moment,
        number: Some(number),
    }
}

/// All faults, in the order of a server's life cycle.
#[rustfmt::skip]
pub(super) const FAULTS: &[Entry] = {
    use Kind::*;
    use Moment::*;
    &[
        plain(Banner, Start, "banner", "greets on stdout before any message"),
        counted(ExitOnInitialize, Handshake, "exit-on-initialize", ("CODE", 1), "exits instead of answering initialize"),
        plain(SigstopOnInitialize, Handshake, "sigstop-on-initialize", "stops (SIGSTOP) instead of answering initialize"),
        plain(MuteInitialize, Handshake, "mute-initialize", "never answers initialize"),
        plain(WrongVersion, Handshake, "wrong-version", "answers initialize with protocol version 1999-01-01"),
        plain(EndlessCursor, Listing, "endless-cursor", "every page of tools/list names another next page"),
        plain(RepeatingCursor, Listing, "repeating-cursor", "every page of tools/list names the same next page"),
        counted(HugeToolList, Listing, "huge-tool-list", ("TOOLS", 100_000), "lists so many tools on one page"),
        plain(ChangeTools, Listing, "change-tools", "defines its tools differently each time it lists them"),
        counted(ExitOnCall, Call, "exit-on-call", ("CODE", 1), "exits instead of answering"),
        plain(KillOnCall, Call, "kill-on-call", "dies of SIGKILL instead of answering"),
        plain(SigstopOnCall, Call, "sigstop-on-call", "stops (SIGSTOP) instead of answering; answers when continued"),
        plain(CloseStdoutOnCall, Call, "close-stdout-on-call", "closes its stdout instead of answering, and stays"),
        plain(CloseStdinOnCall, Call, "close-stdin-on-call", "closes its stdin, answers, and stays"),
        plain(GrandchildHoldsStdout, Call, "grandchild-holds-stdout", "dies of SIGKILL, leaving a child that holds its stdout open"),
        counted(SpawnGrandchildren, Call, "spawn-grandchildren", ("N", 3), "starts so many children that stay, then answers"),
        plain(StopReadingStdin, Call, "stop-reading-stdin", "reads nothing from then on, and answers nothing"),
        plain(MuteCalls, Call, "mute-calls", "never answers"),
        plain(Garbage, Call, "garbage", "writes a line that is no JSON instead of the answer"),
        plain(TruncatedJson, Call, "truncated-json", "ends the line of the answer in the middle"),
        plain(HalfAnswerExit, Call, "half-answer-exit", "exits in the middle of the answer"),
        plain(WrongId, Call, "wrong-id", "answers under an id that nobody gave"),
        plain(ForeignId, Call, "foreign-id", "answers with an error whose id is \"server-error\""),
        plain(WrongShape, Call, "wrong-shape", "answers with a result that is no tool's result"),
        plain(BadUtf8, Call, "bad-utf8", "answers with a text that is not UTF-8"),
        counted(Nesting, Call, "nesting", ("DEPTH", 200), "answers with arrays nested so deep"),
        counted(Line, Call, "line", ("BYTES", 17 * 1024 * 1024), "answers with a text of so many bytes in one line"),
        counted(Values, Call, "values", ("N", 8_000_000), "answers with an array of so many ones: 1,1,1,…"),
        counted(SlowDrip, Call, "slow-drip", ("MS", 100), "answers one byte at a time, so far apart"),
        counted(LateAnswer, Call, "late-answer", ("MS", 2_000), "answers so late, even if it was cancelled"),
        counted(DuplicateAnswers, Call, "duplicate-answers", ("N", 3), "answers so many times"),
        counted(Flood, Call, "flood", ("N", 100_000), "sends so many log messages, then answers"),
        counted(FloodRequests, Call, "flood-requests", ("N", 100_000), "sends so many requests without reading the answers, then answers"),
        counted(StderrFlood, Call, "stderr-flood", ("BYTES", 64 * 1024 * 1024), "writes so much on stderr, then answers"),
        plain(IgnoreEof, End, "ignore-eof", "stays when its stdin is closed"),
        plain(IgnoreSigterm, End, "ignore-sigterm", "stays when it gets SIGTERM"),
    ]
};

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) moment: Moment,
    /// The number, 0 if it takes none.
    pub(super) amount: u64,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let known = FAULTS.iter().find(|entry| entry.name == name);
        let entry = known.ok_or_else(|| unknown(name))?;
        let amount = match (entry.number, number) {
            (None, None) => 0,
            (None, Some(_)) => return Err(format!("the fault {name} takes no number")),
            (Some((_, default)), None) => default,
            (Some((what, _)), Some(number)) => number
                .parse()
                .map_err(|_| format!("{what} of the fault {name} cannot be {number:?}"))?,
        };
        Ok(Self {
            kind: entry.kind,
            moment: entry.moment,
            amount,
        })
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = FAULTS.iter().map(|entry| entry.name).collect();
    format!(
        "no fault is named {name:?}; there are: {}",
        names.join(", ")
    )
}
