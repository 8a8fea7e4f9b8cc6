//! The flags: the faults of this process.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::eras::Speaks;

/// The default is a well-behaved server.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// `--exit-at-once CODE`: exits before it reads anything.
    pub(crate) exit_at_once: Option<u8>,
    /// `--stderr TEXT`: prints this on stderr at the start.
    pub(crate) stderr: Option<String>,
    /// `--banner TEXT`: prints this on stdout before any JSON.
    pub(crate) banner: Option<String>,
    /// `--start-delay MS`: takes this long to start.
    pub(crate) start_delay: Duration,
    /// `--mute-initialize`: never answers `initialize`.
    pub(crate) mute_initialize: bool,
    /// `--mute-calls`: never answers `tools/call`.
    pub(crate) mute_calls: bool,
    /// `--mute-pings`: never answers `ping`.
    pub(crate) mute_pings: bool,
    /// `--protocol VERSION`: answers with this version, whatever was requested.
    pub(crate) protocol: Option<String>,
    /// `--flap`: exits right after the handshake.
    pub(crate) flap: bool,
    /// `--die-after N`: exits after N answered calls.
    pub(crate) die_after: Option<u64>,
    /// `--ignore-eof`: keeps running when its stdin is closed.
    pub(crate) ignore_eof: bool,
    /// `--ignore-sigterm`: keeps running after SIGTERM.
    pub(crate) ignore_sigterm: bool,
    /// `--list-changed-burst N`: after the handshake, sends N notifications that its tools changed;
    /// from then on it also lists the tool `after_burst`.
    pub(crate) list_changed_burst: u32,
    /// `--cancel-log FILE`: appends the id of each cancelled request.
    pub(crate) cancel_log: Option<PathBuf>,
    /// `--era WORD`: which eras of the protocol it speaks; see [`Speaks`].
    pub(crate) era: Speaks,
    /// `--end-listen N`: ends the first N requests that listen for changes.
    pub(crate) end_listen: u32,
    /// `--ttl MS`: the time to live of its lists. From the second tool list on, it also lists the
    /// tool `after_burst`.
    pub(crate) ttl: Option<u64>,
    /// `--received FILE`: appends each received method, preceded by this process's id.
    pub(crate) received: Option<PathBuf>,
}

impl Flags {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut flags = Self::default();
        while let Some(flag) = words.next() {
            let words = &mut words;
            match flag.as_str() {
                "--exit-at-once" => flags.exit_at_once = Some(value(&flag, words)?),
                "--stderr" => flags.stderr = Some(value(&flag, words)?),
                "--banner" => flags.banner = Some(value(&flag, words)?),
                "--start-delay" => flags.start_delay = Duration::from_millis(value(&flag, words)?),
                "--mute-initialize" => flags.mute_initialize = true,
                "--mute-calls" => flags.mute_calls = true,
                "--mute-pings" => flags.mute_pings = true,
                "--protocol" => flags.protocol = Some(value(&flag, words)?),
                "--flap" => flags.flap = true,
                "--die-after" => flags.die_after = Some(value(&flag, words)?),
                "--ignore-eof" => flags.ignore_eof = true,
                "--ignore-sigterm" => flags.ignore_sigterm = true,
                "--list-changed-burst" => flags.list_changed_burst = value(&flag, words)?,
                "--cancel-log" => flags.cancel_log = Some(value(&flag, words)?),
                "--era" => flags.era = value(&flag, words)?,
                "--end-listen" => flags.end_listen = value(&flag, words)?,
                "--ttl" => flags.ttl = Some(value(&flag, words)?),
                "--received" => flags.received = Some(value(&flag, words)?),
                unknown => return Err(format!("unknown flag {unknown}")),
            }
        }
        Ok(flags)
    }
}

fn value<T: FromStr>(flag: &str, words: &mut impl Iterator<Item = String>) -> Result<T, String> {
    let word = words.next();
    let word = word.ok_or_else(|| format!("{flag} needs a value"))?;
    word.parse()
        .map_err(|_| format!("{flag} cannot be {word:?}"))
}
