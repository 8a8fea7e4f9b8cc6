//! The flags: which faults this process has.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::eras::Speaks;

/// Everything off is a well-behaved server.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// `--exit-at-once CODE`: exits before it reads anything.
    pub(crate) exit_at_once: Option<u8>,
    /// `--stderr TEXT`: says this on stderr at the start.
    pub(crate) stderr: Option<String>,
    /// `--banner TEXT`: says this on stdout before any JSON.
    pub(crate) banner: Option<String>,
    /// `--start-delay MS`: takes this long to start.
    pub(crate) start_delay: Duration,
    /// `--mute-initialize`: never answers `initialize`.
    pub(crate) mute_initialize: bool,
    /// `--mute-calls`: never answers `tools/call`.
    pub(crate) mute_calls: bool,
    /// `--mute-pings`: never answers `ping`.
    pub(crate) mute_pings: bool,
    /// `--protocol VERSION`: answers this version, whatever was asked for.
    pub(crate) protocol: Option<String>,
    /// `--flap`: exits right after the handshake.
    pub(crate) flap: bool,
    /// `--die-after N`: exits after N answered calls.
    pub(crate) die_after: Option<u64>,
    /// `--ignore-eof`: stays when its stdin is closed.
    pub(crate) ignore_eof: bool,
    /// `--ignore-sigterm`: stays when asked to terminate.
    pub(crate) ignore_sigterm: bool,
    /// `--list-changed-burst N`: after the handshake, says so many times that its tools changed;
    /// from then on it lists the tool `after_burst` too.
    pub(crate) list_changed_burst: u32,
    /// `--cancel-log FILE`: appends the id of each cancelled request.
    pub(crate) cancel_log: Option<PathBuf>,
    /// `--era WORD`: which eras of the protocol it speaks; see [`Speaks`].
    pub(crate) era: Speaks,
    /// `--end-listen N`: ends the first N requests that listen for changes.
    pub(crate) end_listen: u32,
    /// `--ttl MS`: its lists are good for so long. From the second list of tools on, it lists the
    /// tool `after_burst` too.
    pub(crate) ttl: Option<u64>,
    /// `--received FILE`: appends each method received, with this process's id before it.
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
