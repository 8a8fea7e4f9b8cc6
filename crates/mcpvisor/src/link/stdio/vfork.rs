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

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::birth::{Image, Newborn};
use super::leader::Leader;

/// The stack of a child until it becomes its image, in words of 16 bytes, which is how a stack is
/// aligned. It calls nothing but thin wrappers of system calls.
const STACK: usize = 64 * 1024 / 16;

/// The largest number of a signal.
const LAST_SIGNAL: c_int = 64;

pub(super) fn start(image: &Image) -> io::Result<Newborn> {
    let (stdin, ours_in) = io::pipe()?;
    let (ours_out, stdout) = io::pipe()?;
    let (ours_err, stderr) = io::pipe()?;
    let theirs = [
        above_the_standard(stdin.into())?,
        above_the_standard(stdout.into())?,
        above_the_standard(stderr.into())?,
    ];
    let plan = Plan::new(image, theirs.each_ref().map(AsRawFd::as_raw_fd))?;
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

/// All that the child needs, prepared: it shares our memory, so it must not allocate or lock.
struct Plan {
    parent: c_int,
    pipes: [RawFd; 3],
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
    fn new(image: &Image, pipes: [RawFd; 3]) -> io::Result<Self> {
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
