//! The thread that is the parent of every child, and reaps those that nobody waits for.
//!
//! A parent-death signal is sent when the *thread* that started the child ends. Threads of a tokio
//! runtime end when it is dropped or has nothing to do, so children are started here, by one thread
//! that lasts as long as the process. Looking for a program and starting it may hang with the file
//! system that it is on; then the thread is left to it, and the others get a new one.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::sync::oneshot;

/// The parent of all children of this process.
pub(super) static PARENT: Parent = Parent::new();

/// How often killed children are looked after until they are gone.
const REAP_EVERY: Duration = Duration::from_millis(10);

/// Work that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(1);

/// So many threads may be stuck at once. Beyond that the others wait with them.
const MAX_STUCK: u32 = 16;

/// Deep enough to start a process; nothing else runs there.
const STACK: usize = 256 * 1024;

/// The way to the thread, once there is one.
pub(super) struct Parent {
    thread: Mutex<Option<Thread>>,
}

struct Thread {
    /// The process that the thread belongs to: a fork leaves it behind.
    process: u32,
    /// How many threads there were before it.
    number: u32,
    /// One job per start and per child that was killed, so bounded by the number of servers.
    jobs: Sender<Job>,
}

enum Job {
    Work(Arc<Work>),
    Bury(Pid),
}

/// Something to be done once, by the thread that takes it first.
struct Work(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Work {
    fn take(&self) -> Option<Box<dyn FnOnce() + Send>> {
        lock(&self.0).take()
    }

    fn is_taken(&self) -> bool {
        lock(&self.0).is_none()
    }
}

impl Parent {
    const fn new() -> Self {
        Self {
            thread: Mutex::new(None),
        }
    }

    /// Has the thread do something. Given up, it is done or not, and what comes of it is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (reply, mut done) = oneshot::channel();
        let work = Box::new(move || {
            let _ = reply.send(work());
        });
        let work = Arc::new(Work(Mutex::new(Some(work))));
        loop {
            let number = self.give(Job::Work(Arc::clone(&work)))?;
            let waited = tokio::time::timeout(STUCK, &mut done).await;
            let result = match waited {
                Ok(result) => result,
                Err(_) => {
                    let replaced = self.replace(number);
                    if replaced && !work.is_taken() {
                        continue;
                    }
                    done.await
                }
            };
            return result.map_err(|_| io::Error::other("the thread for processes ended"));
        }
    }

    /// Reaps a child that was killed, in the background.
    pub(super) fn bury(&self, child: Pid) {
        // Without the thread it stays a zombie until this process ends.
        let _ = self.give(Job::Bury(child));
    }

    /// Hands a job to the thread, which is started at the first one, and says which thread it is.
    fn give(&self, job: Job) -> io::Result<u32> {
        let mut thread = lock(&self.thread);
        let process = std::process::id();
        let (job, number) = match &*thread {
            Some(known) if known.process == process => match known.jobs.send(job) {
                Ok(()) => return Ok(known.number),
                Err(unsent) => (unsent.0, known.number + 1),
            },
            Some(_) | None => (job, 0),
        };
        let started = Thread::start(process, number)?;
        let _ = started.jobs.send(job);
        *thread = Some(started);
        Ok(number)
    }

    /// Replaces a thread that is stuck, for those who come after; says whether there is another one.
    fn replace(&self, stuck: u32) -> bool {
        let mut thread = lock(&self.thread);
        match &*thread {
            Some(known) if known.number != stuck => true,
            Some(known) if stuck < MAX_STUCK => match Thread::start(known.process, stuck + 1) {
                Ok(started) => {
                    tracing::warn!("starting a process is stuck; the others do not wait for it");
                    *thread = Some(started);
                    true
                }
                Err(_) => false,
            },
            Some(_) | None => false,
        }
    }
}

impl Thread {
    fn start(process: u32, number: u32) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        thread::Builder::new()
            .name("mcpvisor-parent".to_owned())
            .stack_size(STACK)
            .spawn(move || be_parent(&inbox))?;
        Ok(Self {
            process,
            number,
            jobs,
        })
    }
}

/// Never returns: its children would be killed.
fn be_parent(inbox: &Receiver<Job>) {
    let mut dying: Vec<Pid> = Vec::new();
    let mut replaced = false;
    loop {
        let job = match (dying.is_empty(), replaced) {
            (true, true) => {
                thread::park();
                continue;
            }
            (true, false) => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (false, _) => inbox.recv_timeout(REAP_EVERY),
        };
        match job {
            Ok(Job::Work(work)) => {
                if let Some(work) = work.take() {
                    work();
                }
            }
            Ok(Job::Bury(child)) => dying.push(child),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                replaced = true;
                thread::sleep(REAP_EVERY);
            }
        }
        dying.retain(|child| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock can leave a value in a bad state.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn thread_id() -> thread::ThreadId {
        thread::current().id()
    }

    #[tokio::test]
    async fn everything_is_done_by_one_thread_and_in_order() {
        let parent = Parent::new();
        let first = parent.run(thread_id).await.unwrap();
        assert_ne!(first, thread_id());
        for _ in 0..10 {
            assert_eq!(parent.run(thread_id).await.unwrap(), first);
        }
    }

    #[tokio::test]
    async fn a_start_that_is_stuck_holds_up_nobody_else_and_goes_on_when_it_can() {
        let parent = Arc::new(Parent::new());
        let (release, held) = mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let stuck = tokio::spawn({
            let parent = Arc::clone(&parent);
            let work = move || {
                begun.send(()).unwrap();
                held.recv().unwrap();
                thread_id()
            };
            async move { parent.run(work).await }
        });
        has_begun.await.unwrap();
        // This one waits in line until the first one is seen to be stuck, the next one does not.
        let patience = STUCK + DEADLINE;
        let second = tokio::time::timeout(patience, parent.run(thread_id)).await;
        let second = second.unwrap().unwrap();
        let third = tokio::time::timeout(STUCK, parent.run(thread_id)).await;
        assert_eq!(third.unwrap().unwrap(), second);
        release.send(()).unwrap();
        assert_ne!(stuck.await.unwrap().unwrap(), second);
    }

    #[tokio::test]
    async fn only_so_many_threads_are_left_to_what_is_stuck() {
        let parent = Parent::new();
        let first = parent.run(thread_id).await.unwrap();
        assert!((0..MAX_STUCK).all(|number| parent.replace(number)));
        assert!(!parent.replace(MAX_STUCK));
        assert!(parent.replace(0), "there is another one already");
        assert_ne!(parent.run(thread_id).await.unwrap(), first);
    }
}
