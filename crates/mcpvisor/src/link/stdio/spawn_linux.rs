//! Starts a process whose life is tied to that of the thread that starts it.
//!
//! The parent-death signal is set by the child itself before it becomes its image. The standard
//! library has a place for that, but then forks, which copies the page tables of the whole host:
//! 10 ms and more for a host with some hundred MiB. So the child is made here as `posix_spawn` makes
//! it, sharing the memory of its parent, which stands still until the child has become its image.
//!
//! This is the only file with `unsafe` in it.

#![expect(
    unsafe_code,
    reason = "a child that shares our memory until it becomes its image is made by system calls alone"
)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::process_group::Leader;
use super::spawn::{Image, Newborn};

/// The stack of a child until it becomes its image, in words of 16 bytes, which is how a stack is
/// aligned. It calls nothing but thin wrappers of system calls.
const STACK: usize = 64 * 1024 / 16;

/// The first descriptor that is none of the child's.
const FIRST_OTHER: RawFd = 3;

/// Where the system lists the descriptors of a process.
const DESCRIPTORS: &CStr = c"/proc/self/fd";

/// Descriptors that are looked at one by one where the system does not list them.
const MAX_UNLISTED: RawFd = 65_536;

/// The largest number of a signal.
const LAST_SIGNAL: c_int = 64;

pub(super) fn start(image: &Image) -> io::Result<Newborn> {
    start_closing(image, Close::AtOnce)
}

fn start_closing(image: &Image, close: Close) -> io::Result<Newborn> {
    let (stdin, ours_in) = io::pipe()?;
    let (ours_out, stdout) = io::pipe()?;
    let (ours_err, stderr) = io::pipe()?;
    let theirs = [
        above_the_standard(stdin.into())?,
        above_the_standard(stdout.into())?,
        above_the_standard(stderr.into())?,
    ];
    let plan = Plan::new(image, theirs.each_ref().map(AsRawFd::as_raw_fd), close)?;
    let leader = plan.carry_out()?;
    Ok(Newborn {
        leader,
        stdin: OwnedFd::from(ours_in).into(),
        stdout: OwnedFd::from(ours_out).into(),
        stderr: OwnedFd::from(ours_err).into(),
    })
}

/// A pipe that is not in the way when the child lays its pipes on 0, 1 and 2. Only a host that closed
/// its own has such low numbers.
fn above_the_standard(pipe: OwnedFd) -> io::Result<OwnedFd> {
    if pipe.as_raw_fd() > 2 {
        return Ok(pipe);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&pipe, 3)?)
}

/// How the descriptors of the parent are kept from the child. Libraries of the host may have opened
/// some without `O_CLOEXEC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Close {
    /// By one system call; one by one where the system or a sandbox does not have it.
    AtOnce,
    /// One by one, as the system lists them.
    #[cfg_attr(not(test), allow(dead_code, reason = "others fall back to it"))]
    Listed,
    /// One by one.
    #[cfg_attr(not(test), allow(dead_code, reason = "others fall back to it"))]
    Counted,
}

/// All that the child needs, prepared: it shares our memory, so it must not allocate or lock.
struct Plan {
    parent: c_int,
    pipes: [RawFd; 3],
    close: Close,
    cwd: Option<CString>,
    file: CString,
    /// What the pointers lead to.
    _strings: Vec<CString>,
    /// Ends with a null pointer.
    args: Vec<*const c_char>,
    /// Ends with a null pointer.
    environment: Vec<*const c_char>,
    /// Why the child could not become its image, written by the child.
    error: AtomicI32,
}

impl Plan {
    fn new(image: &Image, pipes: [RawFd; 3], close: Close) -> io::Result<Self> {
        let named = [&image.name].into_iter().chain(&image.args);
        let args = named
            .map(|arg| c_string(&[arg]))
            .collect::<io::Result<Vec<_>>>()?;
        let environment = last_values(&image.environment)
            .map(|(name, value)| c_string(&[name, OsStr::new("="), value]))
            .collect::<io::Result<Vec<_>>>()?;
        let cwd = image.cwd.as_ref();
        Ok(Self {
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            pipes,
            close,
            cwd: cwd.map(|cwd| c_string(&[cwd.as_os_str()])).transpose()?,
            file: c_string(&[image.file.as_os_str()])?,
            args: pointers(&args),
            environment: pointers(&environment),
            _strings: args.into_iter().chain(environment).collect(),
            error: AtomicI32::new(0),
        })
    }

    /// Starts the child and waits until it has become its image or could not.
    fn carry_out(&self) -> io::Result<Leader> {
        let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK];
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let signals = Blocked::all()?;
        // SAFETY: the stack is aligned and grows down from its end, which is one past the vector.
        // `CLONE_VFORK` suspends this thread until the child is done with the stack, the plan and
        // everything else that it shares. No signal handler of ours can run in the child: signals
        // are blocked, and it unblocks them only after it has reset all handlers.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(STACK);
            let plan: *const Self = self;
            libc::clone(child, top.cast(), flags, plan.cast_mut().cast())
        };
        let failure = io::Error::last_os_error();
        drop(signals);
        let Some(leader) = u32::try_from(pid).ok().and_then(Leader::new) else {
            return Err(failure);
        };
        match self.error.load(Ordering::Acquire) {
            0 => Ok(leader),
            // The child has ended; its leader is reaped as it is dropped.
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Becomes the image; comes back only with the reason why not. Runs in the child.
    ///
    /// # Safety
    ///
    /// Only for a process that shares nothing but memory with its parent, which stands still. Nothing
    /// in here allocates, locks or panics.
    unsafe fn become_image(&self) -> c_int {
        // SAFETY: system calls with pointers into `self`, which outlives them; the strings end with a
        // null byte, and the lists with a null pointer.
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
            close_others(self.close);
            if let Some(cwd) = &self.cwd
                && libc::chdir(cwd.as_ptr()) != 0
            {
                return last_error();
            }
            // Where a sandbox forbids it, the child runs without.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A parent that died before that line sends no signal any more.
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

/// Keeps all descriptors but the pipes from the image.
///
/// # Safety
///
/// For the child alone, whose table of descriptors is a copy.
unsafe fn close_others(how: Close) {
    // SAFETY: system calls without pointers, and calls that have the same condition.
    unsafe {
        let at_once = how == Close::AtOnce
            && libc::syscall(libc::SYS_close_range, FIRST_OTHER, c_int::MAX, 0) == 0;
        if at_once || (how != Close::Counted && close_listed()) {
            return;
        }
        let most = libc::sysconf(libc::_SC_OPEN_MAX);
        let most = RawFd::try_from(most).unwrap_or(MAX_UNLISTED);
        for number in FIRST_OTHER..most.min(MAX_UNLISTED) {
            libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Marks all descriptors that the system lists, so that they are closed when the child becomes its
/// image. Says whether it lists them.
///
/// # Safety
///
/// For the child alone, whose table of descriptors is a copy.
unsafe fn close_listed() -> bool {
    /// Aligned as the entries are.
    #[repr(C, align(8))]
    struct Entries([u8; 4096]);
    let mut entries = Entries([0; 4096]);
    // SAFETY: the path ends with a null byte; the buffer is as long as it is said to be, and is read
    // only where the system has written to it.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let folder = libc::open(DESCRIPTORS.as_ptr(), flags);
        if folder < 0 {
            return false;
        }
        loop {
            let (buffer, size) = (entries.0.as_mut_ptr(), entries.0.len());
            let read = libc::syscall(libc::SYS_getdents64, folder, buffer, size);
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

/// The first entry of a folder, if it is a number, and the entries behind it.
fn next_listed(entries: &[u8]) -> Option<(Option<RawFd>, &[u8])> {
    /// Where the length of an entry stands in it, and where its name begins.
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

/// What the child does. Its memory is ours, so it does nothing but system calls.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: it is the plan whose owner stands still until this process is done with it.
    let plan = unsafe { &*plan.cast_const().cast::<Plan>() };
    // SAFETY: this is the process that it was written for.
    let error = unsafe { plan.become_image() };
    plan.error.store(error, Ordering::Release);
    127
}

fn last_error() -> c_int {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Gives every signal that has a handler its default action. What is ignored stays ignored, except
/// for the signal that Rust programs ignore and others do not expect to.
///
/// # Safety
///
/// For the child alone: it has a table of its own.
unsafe fn reset_handlers() {
    for signal in 1..=LAST_SIGNAL {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both calls get valid pointers or none; a signal that does not exist or cannot be
        // changed is an error without effect. All zeroes is the default action.
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
/// For the child alone, once no handler of its parent's is left.
unsafe fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is made by the first call.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// All signals are blocked in this thread, until this is dropped.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn all() -> io::Result<Self> {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the first call makes the first set, the second one makes the other.
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

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the system gave.
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

    /// Descriptors as a careless library leaves them, low and high ones.
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
        let image = Image {
            file: "/bin/sh".into(),
            name: "sh".into(),
            args: ["-c", "ls -1 /proc/$$/fd; exit 0"].map(Into::into).into(),
            environment: vec![("PATH".into(), "/bin:/usr/bin".into())],
            cwd: None,
        };
        for how in [Close::AtOnce, Close::Listed, Close::Counted] {
            let mut newborn = start_closing(&image, how).unwrap();
            let mut said = String::new();
            newborn.stdout.read_to_string(&mut said).unwrap();
            assert_eq!(said, "0\n1\n2\n", "{how:?}");
        }
        // They are still open here, and as they were.
        for descriptor in &leaked {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert_eq!(flags, FdFlags::empty());
        }
    }
}
