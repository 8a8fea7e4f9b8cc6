//! Spawns a process that is killed when the thread that spawned it ends.
//!
//! The child sets its parent-death signal before `execve`. The standard library offers `pre_exec`
//! for that, but then forks, which copies the page tables of the host: 10 ms and more for a host of
//! some hundred MiB. Therefore the child is created as `posix_spawn` does it: it shares the memory
//! of its parent, which is suspended until the child calls `execve`.
//!
//! This is the only file with `unsafe` code.

#![expect(
    unsafe_code,
    reason = "spawning a child that shares our memory until execve needs raw system calls"
)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::process_group::ProcessGroup;
use super::spawn::{ProcessSpec, SpawnedProcess};

/// The stack of a child before `execve`, in words of 16 bytes, the alignment of a stack. The child
/// calls only thin wrappers of system calls.
const STACK: usize = 64 * 1024 / 16;

/// The first descriptor after stdin, stdout and stderr.
const FIRST_OTHER: RawFd = 3;

/// Lists the open descriptors of the process.
const FD_DIRECTORY: &CStr = c"/proc/self/fd";

/// The highest descriptor to close where the system does not list them.
const MAX_UNLISTED: RawFd = 65_536;

/// The highest signal number.
const LAST_SIGNAL: c_int = 64;

pub(super) fn spawn(spec: &ProcessSpec) -> io::Result<SpawnedProcess> {
    spawn_closing(spec, CloseFds::Range)
}

fn spawn_closing(spec: &ProcessSpec, close_fds: CloseFds) -> io::Result<SpawnedProcess> {
    let (stdin, ours_in) = io::pipe()?;
    let (ours_out, stdout) = io::pipe()?;
    let (ours_err, stderr) = io::pipe()?;
    let theirs = [
        above_stderr(stdin.into())?,
        above_stderr(stdout.into())?,
        above_stderr(stderr.into())?,
    ];
    let pipes = theirs.each_ref().map(AsRawFd::as_raw_fd);
    let group = ChildSetup::new(spec, pipes, close_fds)?.spawn()?;
    Ok(SpawnedProcess {
        group,
        stdin: OwnedFd::from(ours_in).into(),
        stdout: OwnedFd::from(ours_out).into(),
        stderr: OwnedFd::from(ours_err).into(),
    })
}

/// Moves a pipe above descriptor 2, so that it is not overwritten when the child duplicates its
/// pipes to 0, 1 and 2. Pipes get such low numbers only in a host that closed its own.
fn above_stderr(pipe: OwnedFd) -> io::Result<OwnedFd> {
    if pipe.as_raw_fd() > 2 {
        return Ok(pipe);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&pipe, 3)?)
}

/// How to close the inherited descriptors. Libraries of the host may have opened some without
/// `O_CLOEXEC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseFds {
    /// With `close_range`; falls back to the other ways where the kernel or a sandbox lacks it.
    Range,
    /// Each descriptor that `/proc` lists.
    #[cfg_attr(not(test), allow(dead_code, reason = "a fallback"))]
    Listed,
    /// Every number up to the limit.
    #[cfg_attr(not(test), allow(dead_code, reason = "a fallback"))]
    Counted,
}

/// All that the child needs, prepared by the parent: the child shares our memory, so it must not
/// allocate or lock.
struct ChildSetup {
    parent: c_int,
    pipes: [RawFd; 3],
    close_fds: CloseFds,
    cwd: Option<CString>,
    file: CString,
    /// Owns the memory of the pointers below.
    _strings: Vec<CString>,
    /// Null-terminated.
    args: Vec<*const c_char>,
    /// Null-terminated.
    environment: Vec<*const c_char>,
    /// Why `execve` was not reached or failed, written by the child.
    error: AtomicI32,
}

impl ChildSetup {
    fn new(spec: &ProcessSpec, pipes: [RawFd; 3], close_fds: CloseFds) -> io::Result<Self> {
        let named = [&spec.name].into_iter().chain(&spec.args);
        let args = named
            .map(|arg| c_string(&[arg]))
            .collect::<io::Result<Vec<_>>>()?;
        let environment = last_values(&spec.environment)
            .map(|(name, value)| c_string(&[name, OsStr::new("="), value]))
            .collect::<io::Result<Vec<_>>>()?;
        let cwd = spec.cwd.as_ref();
        Ok(Self {
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            pipes,
            close_fds,
            cwd: cwd.map(|cwd| c_string(&[cwd.as_os_str()])).transpose()?,
            file: c_string(&[spec.file.as_os_str()])?,
            args: pointers(&args),
            environment: pointers(&environment),
            _strings: args.into_iter().chain(environment).collect(),
            error: AtomicI32::new(0),
        })
    }

    /// Starts the child and waits until it called `execve` or failed.
    fn spawn(&self) -> io::Result<ProcessGroup> {
        let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let signals = BlockedSignals::all()?;
        // SAFETY: the stack is aligned and grows down from its end, which is one past the vector.
        // `CLONE_VFORK` suspends this thread until the child is done with the stack, the setup and
        // everything else that it shares. No signal handler of ours can run in the child: signals
        // are blocked, and it unblocks them only after it has reset all handlers.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(STACK);
            let setup: *const Self = self;
            libc::clone(child, top.cast(), flags, setup.cast_mut().cast())
        };
        let failure = io::Error::last_os_error();
        drop(signals);
        let Some(group) = u32::try_from(pid).ok().and_then(ProcessGroup::new) else {
            return Err(failure);
        };
        match self.error.load(Ordering::Acquire) {
            0 => Ok(group),
            // The child has exited; dropping the group reaps it.
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Sets up the child and calls `execve`; returns only on an error. Runs in the child.
    ///
    /// # Safety
    ///
    /// Must run in a process that shares only memory with its parent, while the parent is
    /// suspended. It must not allocate, lock or panic.
    unsafe fn exec(&self) -> c_int {
        // SAFETY: system calls with pointers into `self`, which outlives them. The strings and the
        // lists are null-terminated.
        unsafe {
            reset_handlers();
            if libc::setpgid(0, 0) != 0 {
                return last_error();
            }
            for (number, pipe) in (0..).zip(&self.pipes) {
                if libc::dup2(*pipe, number) < 0 {
                    return last_error();
                }
            }
            close_inherited(self.close_fds);
            if let Some(cwd) = &self.cwd
                && libc::chdir(cwd.as_ptr()) != 0
            {
                return last_error();
            }
            // If a sandbox forbids it, the child runs without.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A parent that died before the call above sends no signal.
            if libc::getppid() != self.parent {
                return libc::ESRCH;
            }
            unblock_signals();
            libc::execve(
                self.file.as_ptr(),
                self.args.as_ptr(),
                self.environment.as_ptr(),
            );
            last_error()
        }
    }
}

/// Closes all descriptors but the pipes, at the latest on `execve`.
///
/// # Safety
///
/// Must run in the child, whose descriptor table is a copy.
unsafe fn close_inherited(how: CloseFds) {
    // SAFETY: system calls without pointers, and functions with the same condition.
    unsafe {
        let closed = how == CloseFds::Range
            && libc::syscall(libc::SYS_close_range, FIRST_OTHER, c_int::MAX, 0) == 0;
        if closed || (how != CloseFds::Counted && close_listed()) {
            return;
        }
        let limit = libc::sysconf(libc::_SC_OPEN_MAX);
        let limit = RawFd::try_from(limit).unwrap_or(MAX_UNLISTED);
        for number in FIRST_OTHER..limit.min(MAX_UNLISTED) {
            libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Marks all descriptors that `/proc` lists as close-on-exec. Returns whether the list could be
/// read.
///
/// # Safety
///
/// Must run in the child, whose descriptor table is a copy.
unsafe fn close_listed() -> bool {
    /// Aligned like the directory entries.
    #[repr(C, align(8))]
    struct Entries([u8; 4096]);
    let mut entries = Entries([0; 4096]);
    // SAFETY: the path is null-terminated. The size passed is that of the buffer, and only the part
    // that the system has written is read.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let directory = libc::open(FD_DIRECTORY.as_ptr(), flags);
        if directory < 0 {
            return false;
        }
        loop {
            let (buffer, size) = (entries.0.as_mut_ptr(), entries.0.len());
            let read = libc::syscall(libc::SYS_getdents64, directory, buffer, size);
            let Some(read) = usize::try_from(read).ok() else {
                return false;
            };
            if read == 0 {
                return true;
            }
            let mut rest = entries.0.get(..read).unwrap_or_default();
            while let Some((number, after)) = next_listed(rest) {
                if let Some(number) = number
                    && number >= FIRST_OTHER
                {
                    libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
                }
                rest = after;
            }
        }
    }
}

/// Parses the first directory entry. Returns its name if that is a number, and the remaining
/// entries.
fn next_listed(entries: &[u8]) -> Option<(Option<RawFd>, &[u8])> {
    /// Offsets of the length and the name in an entry.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = entries.get(LENGTH..LENGTH + 2)?.try_into().ok()?;
    let length = usize::from(u16::from_ne_bytes(length));
    let name = entries.get(NAME..length)?;
    let mut digits = name.iter().take_while(|byte| **byte != 0);
    let number = digits.try_fold(0, |number: RawFd, byte| {
        let digit = byte.is_ascii_digit().then(|| RawFd::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    Some((number, entries.get(length..)?))
}

/// The entry point of the child. It shares our memory, so it only makes system calls.
extern "C" fn child(setup: *mut c_void) -> c_int {
    // SAFETY: `ChildSetup::spawn` passes itself, and is suspended while the child uses it.
    let setup = unsafe { &*setup.cast_const().cast::<ChildSetup>() };
    // SAFETY: this is the child, and its parent is suspended.
    let error = unsafe { setup.exec() };
    setup.error.store(error, Ordering::Release);
    127
}

fn last_error() -> c_int {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Resets every signal that has a handler to its default action. Ignored signals stay ignored,
/// except SIGPIPE, which Rust programs ignore and other programs do not expect to be ignored.
///
/// # Safety
///
/// Must run in the child, whose table of signal handlers is a copy.
unsafe fn reset_handlers() {
    for signal in 1..=LAST_SIGNAL {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both calls get valid or null pointers. For a signal that does not exist or cannot
        // be changed they fail without effect. All zeroes is the default action.
        unsafe {
            let known = libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0;
            let handler = action.assume_init_ref().sa_sigaction;
            let handled = handler != libc::SIG_IGN && handler != libc::SIG_DFL;
            if known && (handled || signal == libc::SIGPIPE) {
                let default = MaybeUninit::<libc::sigaction>::zeroed();
                libc::sigaction(signal, default.as_ptr(), ptr::null_mut());
            }
        }
    }
}

/// # Safety
///
/// Must run in the child, after all handlers of its parent were reset.
unsafe fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call initialises the set.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Blocks all signals in this thread until it is dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> io::Result<Self> {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the first call initialises `all`, the second one `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self {
                    before: before.assume_init(),
                }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `pthread_sigmask` initialised the set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut());
        }
    }
}

fn c_string(parts: &[&OsStr]) -> io::Result<CString> {
    let bytes: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    Ok(CString::new(bytes.concat())?)
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let end = [ptr::null()];
    strings
        .iter()
        .map(|text| text.as_ptr())
        .chain(end)
        .collect()
}

/// Each variable once, with its last value.
fn last_values<T: AsRef<OsStr>>(environment: &[(T, T)]) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    let pairs = environment.iter().enumerate();
    pairs.filter_map(|(index, (name, value))| {
        let (name, value) = (name.as_ref(), value.as_ref());
        let mut later = environment[index + 1..].iter();
        let shadowed = later.any(|(other, _)| other.as_ref() == name);
        (!shadowed).then_some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use rustix::io::{FdFlags, dup, fcntl_dupfd_cloexec, fcntl_setfd};

    use super::*;

    /// Low and high descriptors without `O_CLOEXEC`, as a careless library leaves them.
    fn leak() -> Vec<OwnedFd> {
        let (read, write) = io::pipe().unwrap();
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut leaked = vec![
            OwnedFd::from(read),
            OwnedFd::from(write),
            OwnedFd::from(one),
            dup(&file).unwrap(),
        ];
        leaked.push(fcntl_dupfd_cloexec(&file, 1_000).unwrap());
        for descriptor in &leaked {
            fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
        }
        leaked
    }

    #[test]
    fn a_child_has_its_three_pipes_and_no_other_descriptor() {
        let leaked = leak();
        let spec = ProcessSpec {
            file: "/bin/sh".into(),
            name: "sh".into(),
            args: ["-c", "ls -1 /proc/$$/fd; exit 0"].map(Into::into).into(),
            environment: vec![("PATH".into(), "/bin:/usr/bin".into())],
            cwd: None,
        };
        for how in [CloseFds::Range, CloseFds::Listed, CloseFds::Counted] {
            let mut child = spawn_closing(&spec, how).unwrap();
            let mut output = String::new();
            child.stdout.read_to_string(&mut output).unwrap();
            assert_eq!(output, "0\n1\n2\n", "{how:?}");
        }
        // Our own descriptors stay open, and their flags unchanged.
        for descriptor in &leaked {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert_eq!(flags, FdFlags::empty());
        }
    }
}
